package files

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// lineScratch is room that the parsing of topic records reuses.
type lineScratch struct {
	key, value []byte
}

// readLines yields a record for each line.
func (r *reader) readLines(ctx context.Context, yield func(*event.Record) bool) (bool, error) {
	scanned := 0 // unread bytes known to hold no newline
	for {
		if n := bytes.IndexByte(r.buf[r.head+scanned:r.tail], '\n'); n >= 0 {
			line := r.take(scanned + n + 1)
			scanned = 0
			if !r.line(line[:len(line)-1], yield) {
				return false, nil
			}
			continue
		}
		scanned = r.tail - r.head
		if scanned > r.opt.MaxRecordBytes {
			more, err := r.tooLong(yield)
			if err != nil || !more {
				return more, err
			}
			scanned = 0
			continue
		}
		if r.eof {
			break
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := r.fill(); err != nil {
			return false, err
		}
	}
	rest := r.buf[r.head:r.tail]
	if len(bytes.TrimSpace(rest)) == 0 || !r.complete(ctx, rest) {
		return true, nil
	}
	return r.line(r.take(len(rest)), yield), nil
}

// complete tells whether a last line without newline is a record: a whole JSON
// object is (nothing more can belong to it), anything else only if no more comes.
func (r *reader) complete(ctx context.Context, rest []byte) bool {
	if r.in.stdin || r.whole {
		return true
	}
	if t, end, err := wire.Value(rest, 0); err == nil && t.Kind == wire.Object && wire.End(rest, end) == nil {
		return true
	}
	age := r.opt.StableAge
	if age == 0 {
		age = time.Minute
	}
	return r.stable(ctx, age, 0)
}

// tooLong passes over a line that is longer than allowed and yields its start
// with the fault.
func (r *reader) tooLong(yield func(*event.Record) bool) (bool, error) {
	start := bytes.Clone(r.buf[r.head:min(r.head+4096, r.tail)])
	r.take(r.tail - r.head)
	for {
		if n := bytes.IndexByte(r.buf[r.head:r.tail], '\n'); n >= 0 {
			r.take(n + 1)
			break
		}
		r.take(r.tail - r.head)
		if r.eof {
			break
		}
		if err := r.fill(); err != nil {
			return false, err
		}
	}
	r.begun(start)
	r.rec.Fault = fmt.Sprintf("LINE_TOO_LONG: the line is longer than %d bytes; option max_record_bytes raises the limit", r.opt.MaxRecordBytes)
	r.rec.Value = start
	return yield(&r.rec), nil
}

// begun resets the record to a bare one of the current line.
func (r *reader) begun(raw []byte) {
	r.rec = event.Record{
		Source: r.in.uri, Transport: r.lines, End: r.off, Line: r.lines + 1, Raw: raw, Value: raw, Headers: r.rec.Headers[:0],
	}
	r.lines++
	r.mark()
}

// line yields the record of one line; blank lines have none.
func (r *reader) line(line []byte, yield func(*event.Record) bool) bool {
	if r.lines == 0 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 || len(bytes.TrimSpace(line)) == 0 {
		r.lines++
		r.mark()
		return true
	}
	r.begun(line)
	if r.opt.Lines != "event" {
		if !r.topicRecord(line) && r.opt.Lines == "record" {
			r.rec.Fault = "NOT_A_RECORD: the line is no record of a topic (topic, partition, offset, key, value)"
		}
	}
	return yield(&r.rec)
}

// ParseLine fills rec from a line that is a record of a topic and tells whether it
// was one. Bytes of rec may be those of line.
func ParseLine(line []byte, rec *event.Record) bool {
	r := &reader{rec: *rec}
	if !r.topicRecord(line) {
		return false
	}
	*rec = r.rec
	return true
}

// topicRecord fills the record from a line that is a record of a topic, and
// tells whether it was one.
func (r *reader) topicRecord(line []byte) bool {
	if !mayBeTopicRecord(line) {
		return false
	}
	var topic, partition, offset, key, value, headers wire.Token
	i, more, err := wire.Open(line, 0)
	for more && err == nil {
		var name, val wire.Token
		if name, i, err = wire.Key(line, i); err != nil {
			return false
		}
		switch start := i; {
		case i < len(line) && line[i] == '{': // decoders check what they parse
			i, err = wire.Balanced(line, i)
			val = wire.Token{Kind: wire.Object, Raw: line[start:i]}
		default:
			val, i, err = wire.Value(line, i)
		}
		if err != nil {
			return false
		}
		if i, more, err = wire.Next(line, i); err != nil {
			return false
		}
		var into *wire.Token
		switch string(name.Raw) {
		case "topic":
			into = &topic
		case "partition":
			into = &partition
		case "offset":
			into = &offset
		case "key":
			into = &key
		case "value", "payload":
			into = &value
		case "headers":
			into = &headers
		case "tstype", "ts", "broker", "timestamp", "timestamp_type", "timestampType", "value_size", "key_size":
			continue
		default:
			return false
		}
		if into.Kind != wire.None {
			return false
		}
		*into = val
	}
	if err != nil || wire.End(line, i) != nil {
		return false
	}
	if headers.Kind == wire.Object {
		if _, _, err := wire.Value(headers.Raw, 0); err != nil {
			return false
		}
	}
	p, ok1 := wire.Int(partition.Raw)
	o, ok2 := wire.Int(offset.Raw)
	if topic.Kind != wire.String || partition.Kind != wire.Number || offset.Kind != wire.Number || value.Kind == wire.None ||
		!ok1 || !ok2 || p != int64(int32(p)) {
		return false
	}
	r.rec.Topic, r.rec.Partition, r.rec.Transport = r.topicName(topic), int32(p), o
	r.rec.Key, r.scratch.key = contents(key, r.scratch.key)
	r.rec.Value, r.scratch.value = contents(value, r.scratch.value)
	r.rec.Headers = readHeaders(headers, r.rec.Headers[:0])
	return true
}

// topicName avoids a copy for each record of one topic.
func (r *reader) topicName(t wire.Token) string {
	if raw := t.Text(nil); string(raw) != r.lastTopic {
		r.lastTopic = string(raw)
	}
	return r.lastTopic
}

// mayBeTopicRecord looks at the first member's name only.
func mayBeTopicRecord(line []byte) bool {
	i := wire.Skip(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	i = wire.Skip(line, i+1)
	for _, name := range []string{`"topic"`, `"partition"`, `"offset"`, `"key"`, `"value"`, `"headers"`, `"payload"`, `"ts`, `"broker"`, `"timestamp`} {
		if bytes.HasPrefix(line[i:], []byte(name)) {
			return true
		}
	}
	return false
}

// contents is the bytes of a key or value: of null nil, of a string its text, of
// other JSON that JSON.
func contents(t wire.Token, buf []byte) (val, scratch []byte) {
	switch t.Kind {
	case wire.None, wire.Null:
		return nil, buf
	case wire.String:
		if t.Esc {
			buf = t.Text(buf)
			return buf, buf
		}
	}
	return t.Raw, buf
}

// readHeaders reads {"k":v}, [{"key":k,"value":v}] or kcat's ["k","v", ...].
func readHeaders(t wire.Token, into []event.Header) []event.Header {
	add := func(k, v wire.Token) {
		val, _ := contents(v, nil)
		into = append(into, event.Header{Key: string(k.Text(nil)), Value: val})
	}
	switch t.Kind {
	case wire.Object:
		wire.Members(t, func(k, v wire.Token) bool { add(k, v); return true })
	case wire.Array:
		var name wire.Token
		wire.Elements(t, func(e wire.Token) bool {
			switch {
			case e.Kind == wire.Object:
				var k, v wire.Token
				wire.Members(e, func(n, x wire.Token) bool {
					if n.Is("key") {
						k = x
					} else if n.Is("value") {
						v = x
					}
					return true
				})
				add(k, v)
			case name.Kind == wire.None:
				name = e
			default:
				add(name, e)
				name = wire.Token{}
			}
			return true
		})
	}
	return into
}
