package changes

import (
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// dynamo reads DynamoDB stream records, their batches, and export lines
// (cdc-formats F13).
type dynamo struct{ skipTTL bool }

func (f *dynamo) options(settings map[string]string) ([]string, error) {
	f.skipTTL = settings["ttl_deletes"] == "skip"
	return []string{"ttl_deletes", "table"}, nil
}

func (f *dynamo) read(d *Decoder, r *event.Record, top []wire.Field) error {
	if list := find(top, "Records"); list.Kind == wire.Array {
		records, err := d.objects(list, "Records")
		if err != nil {
			return err
		}
		for i, rec := range records {
			if err := f.one(d, r, rec, i); err != nil {
				return err
			}
		}
		if len(records) == 0 {
			return d.control(event.ControlHeartbeat)
		}
		return nil
	}
	return f.one(d, r, top, 0)
}

func (f *dynamo) one(d *Decoder, r *event.Record, top []wire.Field, index int) error {
	c := change{table: f.table(d, r, top)}
	d.lastID = c.table
	if item := find(top, "Item"); item.Kind == wire.Object {
		// A full export: the state of its time, below every change.
		c.op, c.complete = event.Upsert, true
		c.seq = wire.Seq{Kind: wire.SeqDynamoDBExport, Epoch: d.epoch}
		return f.images(d, &c, wire.Token{}, item)
	}
	if meta := find(top, "Metadata"); meta.Kind == wire.Object {
		return f.export(d, &c, top, meta)
	}
	name := text(top, "eventName")
	body := find(top, "dynamodb")
	if body.Kind != wire.Object {
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the record has no dynamodb part")
	}
	in, err := d.members(body)
	if err != nil {
		return err
	}
	switch name {
	case "INSERT":
		c.op = event.Insert
	case "MODIFY":
		c.op = event.Update
	case "REMOVE":
		c.op, d.isDelete = event.Delete, true
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "eventName %.40q", name)
	}
	if f.skipTTL && name == "REMOVE" && byTTL(top) {
		return d.control(event.ControlFiltered)
	}
	switch view := text(in, "StreamViewType"); view {
	case "KEYS_ONLY", "OLD_IMAGE":
		return &ConfigError{Code: "STREAM_VIEW_TYPE", Reason: "the stream carries " + view + ": updates have no new image; make it NEW_IMAGE or NEW_AND_OLD_IMAGES"}
	}
	if c.seq, err = f.seq(d, r, in, index); err != nil {
		return err
	}
	image := find(in, "NewImage")
	c.complete = true
	if c.op != event.Delete && image.Kind != wire.Object {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "%s without NewImage", name)
	}
	return f.images(d, &c, find(in, "Keys"), image)
}

// ConfigError is a stream that cannot be applied as it is set up; it stops the flow.
type ConfigError struct{ Code, Reason string }

func (e *ConfigError) Error() string { return e.Code + ": " + e.Reason }

// table is named by the record, the ARN of its stream, the option table or the topic.
func (*dynamo) table(d *Decoder, r *event.Record, top []wire.Field) event.Table {
	if name := text(top, "tableName"); name != "" {
		return event.Table{Name: name}
	}
	if _, rest, ok := strings.Cut(text(top, "eventSourceARN"), ":table/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return event.Table{Name: name}
	}
	if name := d.opt.Settings["table"]; name != "" {
		return event.Table{Name: name}
	}
	return tableOfTopic(r.Topic)
}

func byTTL(top []wire.Field) bool {
	id := find(top, "userIdentity")
	if id.Kind != wire.Object {
		return false
	}
	in, err := members(id)
	return err == nil && text(in, "principalId") == "dynamodb.amazonaws.com"
}

// seq is the sequence number, of 21 to 40 digits: padded, its text sorts as the
// number does.
func (*dynamo) seq(d *Decoder, r *event.Record, in []wire.Field, index int) (wire.Seq, error) {
	n := text(in, "SequenceNumber")
	valid := n != "" && len(n) <= 40 && strings.Trim(n, "0123456789") == ""
	if at, ok := created(in); d.sequence == "auto" && (d.state.Sequence == "" && !valid && ok || d.state.Sequence == "created") {
		// Kinesis, which reorders and doubles records, gets no sequence number.
		d.state.Sequence = "created"
		if !ok {
			return wire.Seq{}, wire.Poison(event.PoisonOrder, "MISSING_POSITION", "the record has no ApproximateCreationDateTime, by which this stream is ordered")
		}
		d.Warn("the records have no sequence number (Kinesis): they are ordered by their time of creation and, within one, by their place; MICROSECOND precision makes ties rare")
		return wire.Seq{Kind: wire.SeqDynamoDBCreated, Epoch: d.epoch, N: [4]int64{at, r.Transport, int64(index)}}, nil
	}
	byPosition, err := d.usePosition(valid)
	if err != nil || !byPosition {
		return d.transport(r, index), err
	}
	s := wire.Seq{Kind: wire.SeqDynamoDB, Epoch: d.epoch}
	s.S[0] = []byte(strings.Repeat("0", 40-len(n)) + n)
	return s, nil
}

// created is the time of a change in microseconds, which comes in seconds, in
// milliseconds, or in microseconds where the record says so.
func created(in []wire.Field) (int64, bool) {
	n, ok := number(find(in, "ApproximateCreationDateTime"))
	switch precision := text(in, "ApproximateCreationDateTimePrecision"); {
	case !ok || n <= 0:
		return 0, false
	case precision == "MICROSECOND" || precision == "" && n >= 1e14:
		return n, true
	case precision == "MILLISECOND" || n >= 1e11:
		return n * 1000, true
	}
	return n * 1_000_000, true
}

// export reads a line of an incremental export, which without a new image is a delete.
func (f *dynamo) export(d *Decoder, c *change, top []wire.Field, meta wire.Token) error {
	m, err := d.members(meta)
	if err != nil {
		return err
	}
	micros, ok := number(wire.Single(find(m, "WriteTimestampMicros"), "N"))
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "WriteTimestampMicros is missing or unreadable")
	}
	c.seq = wire.Seq{Kind: wire.SeqDynamoDBExport, Epoch: d.epoch, N: [4]int64{micros}}
	c.op, c.complete = event.Upsert, true
	image := find(top, "NewImage")
	if image.Kind != wire.Object {
		c.op, d.isDelete = event.Delete, true
	}
	return f.images(d, c, find(top, "Keys"), image)
}

// images makes columns of attributes.
func (*dynamo) images(d *Decoder, c *change, keys, image wire.Token) error {
	binary := map[string]bool{}
	read := func(t wire.Token) ([]wire.Field, error) {
		fields, err := d.members(t)
		for i, f := range fields {
			v, isBinary, ok := attribute(f.Val, 0)
			if !ok {
				return nil, wire.Poison(event.PoisonField, "UNKNOWN_ATTRIBUTE", "attribute %q: %.60s", f.Key.Raw, f.Val.Raw)
			}
			if isBinary {
				binary[string(f.Key.Text(nil))] = true
			}
			fields[i].Val = v
		}
		return fields, err
	}
	if keys.Kind == wire.Object {
		k, err := read(keys)
		if err != nil {
			return err
		}
		for _, f := range k {
			c.keys = append(c.keys, string(f.Key.Text(nil)))
		}
		c.image = k
	}
	if c.op != event.Delete {
		var err error
		if c.image, err = read(image); err != nil {
			return err
		}
	}
	c.node = func(name string) *wire.Node {
		if binary[name] {
			return wire.NewNode(schema.Binary, wire.Modes{})
		}
		return nil
	}
	d.add(*c)
	return nil
}

// attribute turns a typed attribute value into plain JSON. Numbers are text, as
// they may have 38 digits and any exponent: a hint makes decimals of them.
func attribute(t wire.Token, depth int) (v wire.Token, binary, ok bool) {
	if t.Kind != wire.Object || depth > 64 {
		return t, false, false
	}
	n, typ := 0, ""
	wire.Members(t, func(k, val wire.Token) bool {
		n++
		typ, v = string(k.Text(nil)), val
		return true
	})
	if n != 1 {
		return t, false, false
	}
	switch typ {
	case "S":
		return v, false, v.Kind == wire.String
	case "N":
		return v, false, v.Kind == wire.String && isNumber(v.Raw)
	case "B":
		return v, true, v.Kind == wire.String
	case "BOOL":
		return v, false, v.Kind == wire.True || v.Kind == wire.False
	case "NULL":
		return wire.Token{Kind: wire.Null, Raw: []byte("null")}, false, v.Kind == wire.True
	case "SS", "NS", "BS":
		return v, false, v.Kind == wire.Array
	case "L":
		out, ok := []byte{'['}, v.Kind == wire.Array
		wire.Elements(v, func(e wire.Token) bool {
			in, _, good := attribute(e, depth+1)
			if len(out) > 1 {
				out = append(out, ',')
			}
			out, ok = plainJSON(out, in, e), ok && good
			return ok
		})
		return wire.Token{Kind: wire.String, Raw: escaped(append(out, ']')), Esc: true}, false, ok
	case "M":
		out, ok := []byte{'{'}, v.Kind == wire.Object
		wire.Members(v, func(k, e wire.Token) bool {
			in, _, good := attribute(e, depth+1)
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(k.JSON(out), ':')
			out, ok = plainJSON(out, in, e), ok && good
			return ok
		})
		return wire.Token{Kind: wire.String, Raw: escaped(append(out, '}')), Esc: true}, false, ok
	}
	return t, false, false
}

// plainJSON prints a nested value: numbers as numbers, documents as documents.
func plainJSON(out []byte, v, typed wire.Token) []byte {
	switch {
	case wire.Single(typed, "N").Kind == wire.String:
		return append(out, v.Raw...)
	case wire.Single(typed, "M").Kind != wire.None, wire.Single(typed, "L").Kind != wire.None:
		return append(out, v.Text(nil)...)
	}
	return v.JSON(out)
}

func escaped(text []byte) []byte {
	q := wire.AppendString(nil, string(text))
	return q[1 : len(q)-1]
}

func isNumber(raw []byte) bool {
	tok, end, err := wire.Value(raw, 0)
	return err == nil && tok.Kind == wire.Number && wire.End(raw, end) == nil
}
