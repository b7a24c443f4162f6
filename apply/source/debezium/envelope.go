package debezium

import (
	"bytes"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// envelope is the top level of a value, by member. The members of source, before
// and after are parsed in the same pass, into the decoder's src, old and row.
type envelope struct {
	before, after, source, op wire.Token
	status, id, ddl, changes  wire.Token
	update, ts, dbName        wire.Token
	schema, payload           wire.Token
	others                    int
	connect                   *cachedSchema // of a value with its schema embedded
	nullPayload               bool
	partial                   bool // an update of a document that names what changed
}

// parse reads a value: the envelope (or flattened row) itself, or one wrapped as
// {"schema":..,"payload":..}. d.top gets its members.
func (d *Decoder) parse(data []byte) (*envelope, error) {
	e := &d.env
	*e = envelope{}
	end, err := d.members(data, 0, e, true)
	if err == nil {
		err = wire.End(data, end)
	}
	if err != nil {
		if t, end, bad := wire.Value(data, 0); bad == nil && t.Kind != wire.Object && wire.End(data, end) == nil {
			return nil, wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "the value is JSON but no object")
		}
		return nil, badBytes(err)
	}
	if len(d.top) == 2 && e.schema.Kind != wire.None && e.payload.Kind != wire.None { // payload before schema
		payload := e.payload
		wrapped := append(append([]byte{}, payload.JSON(nil)...), '}')
		if _, err := d.payload(wrapped, 0, e); err != nil {
			return nil, badBytes(err)
		}
	}
	if len(d.top) == 1 && e.payload.Kind == wire.Object && d.wrapper(e.payload) {
		wrapped := append(append([]byte{}, e.payload.Raw...), '}')
		if _, err := d.payload(wrapped, 0, e); err != nil {
			return nil, badBytes(err)
		}
	}
	return e, d.unique()
}

// wrapper tells whether an object that is the only member, payload, is the
// envelope or row itself: some producers leave the schema out but not its wrapping.
func (d *Decoder) wrapper(payload wire.Token) bool {
	op, source, meta := false, false, false
	wire.Members(payload, func(k, v wire.Token) bool {
		op, source = op || k.Is("op") && v.Kind == wire.String, source || k.Is("source")
		meta = meta || d.opt.Flat && d.opt.isMeta(string(k.Text(nil)))
		return true
	})
	return op && source || meta || !d.opt.Flat
}

// unique refuses an object that names a member twice, but for the clocks, which
// order nothing and of which hand-made events hold several.
func (d *Decoder) unique() error {
	clocks := 0
	for _, f := range d.top {
		if f.Key.Is("ts_ms") {
			clocks++
		}
	}
	if clocks < 2 || d.env.op.Kind != wire.String {
		return wire.Unique(d.top)
	}
	rest := make([]wire.Field, 0, len(d.top))
	for _, f := range d.top {
		if !f.Key.Is("ts_ms") {
			rest = append(rest, f)
		}
	}
	return wire.Unique(rest)
}

// members parses the object at i. At the outer level a payload beside a schema
// is the envelope and takes its place.
func (d *Decoder) members(data []byte, i int, e *envelope, outer bool) (int, error) {
	d.top, d.src, d.row, d.old = d.top[:0], d.src[:0], d.row[:0], d.old[:0]
	i, more, err := wire.Open(data, i)
	for more && err == nil {
		var f wire.Field
		if f.Key, i, err = wire.Key(data, i); err != nil {
			return i, err
		}
		object := i < len(data) && data[i] == '{'
		start := i
		switch name := f.Key.Raw; {
		case object && string(name) == "source":
			d.src, i, err = wire.ParseObject(data, i, d.src[:0])
		case object && string(name) == "after":
			d.row, i, err = wire.ParseObject(data, i, d.row[:0])
		case object && string(name) == "before":
			d.old, i, err = wire.ParseObject(data, i, d.old[:0])
		case object && outer && string(name) == "schema" && len(d.schema.last) > 0 && bytes.HasPrefix(data[i:], d.schema.last):
			i += len(d.schema.last) // checked before: schemas repeat in every record
		case outer && string(name) == "payload" && e.schema.Kind != wire.None && len(d.top) == 1:
			return d.payload(data, i, e)
		default:
			object = false
			f.Val, i, err = wire.Value(data, i)
		}
		if err != nil {
			return i, err
		}
		if object {
			f.Val = wire.Token{Kind: wire.Object, Raw: data[start:i]}
		}
		e.take(&f)
		d.top = append(d.top, f)
		i, more, err = wire.Next(data, i)
	}
	return i, err
}

// payload parses the payload at i of a value whose schema came before it.
func (d *Decoder) payload(data []byte, i int, e *envelope) (int, error) {
	schema := e.schema
	*e = envelope{}
	if schema.Kind == wire.Object {
		var err error
		if e.connect, err = d.schema.get(schema.Raw); err != nil {
			return i, wire.Poison(event.PoisonEnvelope, "BAD_SCHEMA", "%s", err.Error())
		}
	}
	var err error
	if i < len(data) && data[i] == '{' {
		i, err = d.members(data, i, e, false)
	} else {
		var t wire.Token
		if t, i, err = wire.Value(data, i); err == nil && t.Kind != wire.Null {
			err = wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "payload is no object")
		}
		e.nullPayload = true
	}
	if err != nil {
		return i, err
	}
	i, more, err := wire.Next(data, i)
	if err == nil && more {
		err = wire.Poison(event.PoisonEnvelope, "NOT_DEBEZIUM", "members beside schema and payload")
	}
	return i, err
}

func (e *envelope) take(f *wire.Field) {
	switch string(f.Key.Raw) {
	case "schema":
		e.schema = f.Val
		e.others++
	case "payload":
		e.payload = f.Val
		e.others++
	case "before":
		e.before = f.Val
	case "after":
		e.after = f.Val
	case "source":
		e.source = f.Val
	case "op":
		e.op = f.Val
	case "status":
		e.status = f.Val
	case "id":
		e.id = f.Val
	case "ddl":
		e.ddl = f.Val
	case "tableChanges":
		e.changes = f.Val
	case "databaseName":
		e.dbName = f.Val
	case "updateDescription":
		e.update = f.Val
	case "ts_ms", "ts_us", "ts_ns":
		e.ts = f.Val
	case "transaction":
	default:
		e.others++
	}
}

// control tells what a record without op is: a transaction marker, a schema
// change, a heartbeat.
func (e *envelope) control(topic string) (event.ControlKind, bool) {
	switch {
	case e.after.Kind > wire.Null || e.before.Kind > wire.Null || e.op.Kind > wire.Null:
	case e.status.Kind == wire.String && e.id.Kind == wire.String && (e.status.Is("BEGIN") || e.status.Is("END")):
		return event.ControlTx, true
	case e.ddl.Kind > wire.None && (e.source.Kind == wire.Object || e.changes.Kind > wire.None || e.dbName.Kind > wire.None):
		return event.ControlSchema, true
	case e.ts.Kind == wire.Number && e.others == 0 && e.source.Kind == wire.None && e.id.Kind == wire.None,
		strings.HasPrefix(topic, "__debezium-heartbeat"):
		return event.ControlHeartbeat, true
	}
	return "", false
}
