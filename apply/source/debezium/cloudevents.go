package debezium

import (
	"bytes"

	"github.com/sluice-data/sluice/apply/source/wire"
)

// attribute begins the names of CloudEvents attributes that the connector adds; what
// follows is the name in the source block without its underscores.
const attribute = "iodebezium"

// sourceNames are the members of a source block that have one.
var sourceNames = map[string]string{
	"tsms": "ts_ms", "commitlsn": "commit_lsn", "changelsn": "change_lsn", "eventserialno": "event_serial_no", "commitscn": "commit_scn",
}

// isCloudEvent tells whether the value in d.top is wrapped as a CloudEvent.
func (d *Decoder) isCloudEvent() bool {
	if d.env.op.Kind != wire.None {
		return false
	}
	version, op := false, false
	for i := range d.top {
		version = version || d.top[i].Key.Is("specversion")
		op = op || d.top[i].Key.Is(attribute+"op")
	}
	return version && op
}

// unwrap rewrites a CloudEvent as the envelope it was made of and parses that:
// images and schema lie under data, operation and source in attributes, numbers
// as text.
func (d *Decoder) unwrap() (*envelope, error) {
	var op, data wire.Token
	source := []byte{'{'}
	for _, f := range d.top {
		name := f.Key.Text(nil)
		if f.Key.Is("data") {
			data = f.Val
		}
		rest, ok := bytes.CutPrefix(name, []byte(attribute))
		if !ok {
			continue
		}
		if string(rest) == "op" {
			op = f.Val
			continue
		}
		field := string(rest)
		if n, ok := sourceNames[field]; ok {
			field = n
		}
		if len(source) > 1 {
			source = append(source, ',')
		}
		source = append(wire.AppendString(source, field), ':')
		source = f.Val.JSON(source)
	}
	source = append(source, '}')
	members := func(t wire.Token) (schema, payload, before, after wire.Token) {
		wire.Members(t, func(k, v wire.Token) bool {
			switch {
			case k.Is("schema"):
				schema = v
			case k.Is("payload"):
				payload = v
			case k.Is("before"):
				before = v
			case k.Is("after"):
				after = v
			}
			return true
		})
		return
	}
	schema, payload, before, after := members(data)
	if payload.Kind == wire.Object {
		_, _, before, after = members(payload)
	}
	var out []byte
	if schema.Kind == wire.Object {
		out = append(append(append(out, `{"schema":`...), schema.Raw...), `,"payload":`...)
	}
	image := func(name string, t wire.Token) {
		out = append(out, name...)
		if t.Kind == wire.None {
			out = append(out, "null"...)
			return
		}
		out = t.JSON(out)
	}
	image(`{"before":`, before)
	image(`,"after":`, after)
	out = append(append(append(out, `,"source":`...), source...), `,"op":`...)
	out = append(op.JSON(out), '}')
	if schema.Kind == wire.Object {
		out = append(out, '}')
	}
	return d.parse(out)
}
