package debezium

import (
	"bytes"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// isMeta tells whether a field of a flattened row is metadata and no column.
func (o *Options) isMeta(name string) bool {
	return strings.HasPrefix(name, "__") || strings.HasPrefix(name, o.prefix)
}

// flatMeta is the metadata of a flattened row, from fields or headers.
type flatMeta struct {
	src     origin
	op      wire.Token
	deleted wire.Token
}

// take reads one metadata field by its name without prefix.
func (m *flatMeta) take(name []byte, v wire.Token) {
	switch string(name) {
	case "op":
		m.op = v
	case "deleted":
		m.deleted = v
	default:
		m.src.take(bytes.TrimPrefix(name, []byte("source_")), v)
	}
}

// flat handles a flattened row.
func (d *Decoder) flat(r *event.Record, connect *cachedSchema) error {
	var m flatMeta
	d.headerMeta(&m, r.Headers)
	d.row = d.row[:0]
	for _, f := range d.top {
		name := f.Key.Raw
		if f.Key.Esc {
			name = f.Key.Text(nil)
		}
		switch {
		case bytes.HasPrefix(name, []byte(d.opt.prefix)):
			m.take(name[len(d.opt.prefix):], f.Val)
		case bytes.HasPrefix(name, []byte("__")):
			m.take(name[2:], f.Val)
		default:
			d.row = append(d.row, f)
		}
	}
	if len(d.row) == 0 {
		return wire.Poison(event.PoisonEnvelope, "NO_COLUMNS", "the flattened row has no columns")
	}
	if m.deleted.Kind != wire.None {
		d.state.Deletes = true
	}
	op, err := m.operation()
	if err != nil {
		return err
	}
	t := d.flatTable(r, &m)
	if !t.keep {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	row := d.newRow(r)
	if row.Seq, err = d.flatSeq(&m, op, r.Transport); err != nil {
		return err
	}
	if err := d.readKey(r); err != nil {
		return err
	}
	if err := d.schemaOf(t, connect, true); err != nil {
		return err
	}
	keys := d.keysOf(t, false)
	switch op {
	case 'd':
		// A rewritten delete is the before image, with its fillers.
		row.Op = event.Delete
		d.old = append(d.old[:0], d.row...)
		return d.delete(t, row, &m.src, keys, r.Headers)
	case 'c':
		row.Op = event.Insert
	case 'u':
		row.Op = event.Update
	default:
		row.Op = event.Upsert
	}
	return d.upsert(t, row, keys, r.Headers)
}

// operation is c, u, r, d, or 0 where the row does not say (an upsert).
func (m *flatMeta) operation() (byte, error) {
	switch {
	case m.deleted.Kind == wire.True || m.deleted.Is("true"):
		return 'd', nil
	case m.deleted.Kind == wire.None || m.deleted.Kind == wire.Null || m.deleted.Kind == wire.False || m.deleted.Is("false"):
	default:
		return 0, wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "__deleted %.40s", m.deleted.Raw)
	}
	if m.op.Kind <= wire.Null {
		return 0, nil
	}
	if m.op.Kind == wire.String && len(m.op.Raw) == 1 {
		switch c := m.op.Raw[0]; c {
		case 'c', 'u', 'r', 'd':
			return c, nil
		}
	}
	return 0, wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %.40s", m.op.Raw)
}

// headerMeta reads add.headers.
func (d *Decoder) headerMeta(m *flatMeta, headers []event.Header) {
	for _, h := range headers {
		name, ok := strings.CutPrefix(h.Key, "__")
		if !ok || strings.HasPrefix(h.Key, "__debezium") || h.Value == nil {
			continue
		}
		tok, end, err := wire.Value(h.Value, 0)
		if err != nil || wire.End(h.Value, end) != nil || tok.Kind > wire.String {
			tok = wire.Token{Kind: wire.String, Raw: h.Value}
		}
		m.take([]byte(name), tok)
	}
}

// flatTable is the table a flattened row names; what it does not say, the topic
// does, as far as it is named after the table. Tombstones say nothing: they
// belong to the table of their topic's rows.
func (d *Decoder) flatTable(r *event.Record, m *flatMeta) *table {
	of := tableOfTopic(r.Topic)
	last, sch := of.Name, of.Schema
	if len(m.src.table) == 0 {
		if t := d.byTopic[r.Topic]; t != nil {
			return t
		}
		return d.sameTable(nil, []byte(sch), []byte(last))
	}
	if len(m.src.schema) == 0 && len(m.src.db) == 0 && string(m.src.table) == last {
		m.src.schema = []byte(sch)
	}
	t := d.sameTable(m.src.db, m.src.schema, m.src.table)
	d.byTopic[r.Topic] = t
	return t
}

// tableOfTopic is what a topic's name says of its table: prefix.schema.table.
func tableOfTopic(topic string) event.Table {
	parts := strings.Split(topic, ".")
	id := event.Table{Name: parts[len(parts)-1]}
	if len(parts) > 2 {
		id.Schema = parts[len(parts)-2]
	}
	return id
}

// sameTable is tableOf for names that may be incomplete: a known table that
// differs only by parts that one of the two lacks is the same.
func (d *Decoder) sameTable(db, sch, name []byte) *table {
	same := func(a string, b []byte) bool { return a == "" || len(b) == 0 || a == string(b) }
	for _, t := range d.order {
		if t.ID.Name == string(name) && same(t.ID.Database, db) && same(t.ID.Schema, sch) {
			return t
		}
	}
	return d.tableOf(db, sch, name)
}

// flatSeq: the position of F1 where add.fields brought one and deletes are
// events; else the transport, for every record of the stream alike.
func (d *Decoder) flatSeq(m *flatMeta, op byte, transport int64) (wire.Seq, error) {
	kind := m.src.kind()
	byTransport := d.opt.sequence == "transport" || d.opt.tombstones == "delete" ||
		d.opt.tombstones == "auto" && !d.state.Deletes
	switch {
	case d.opt.sequence == "position" && byTransport:
		return wire.Seq{}, &ConfigError{"TOMBSTONES_HAVE_NO_POSITION", "tombstones are the deletes of this stream and carry no position; use sequence=transport, or delete.tombstone.handling.mode=rewrite in the connector"}
	case byTransport || kind == wire.SeqTransport:
		kind = wire.SeqTransport
		if !d.state.Deletes && d.opt.tombstones != "control" {
			d.Warn("no delete events (__deleted) in the stream so far: null values are its deletes; a connector that drops those, too, loses deletes and leaves the old row of a changed key")
		}
		d.Warn("flattened rows are ordered by their place in the topic: re-sent events after a connector restart count as new; add position fields (add.fields) and delete.tombstone.handling.mode=rewrite")
	}
	return d.seq(&m.src, kind, m.src.inSnapshot(op), transport)
}

// flatTombstone: a null value that is the delete itself.
func (d *Decoder) flatTombstone(r *event.Record) error {
	var m flatMeta
	d.headerMeta(&m, r.Headers)
	if err := d.readKey(r); err != nil {
		return err
	}
	if len(d.key) == 0 {
		return wire.Poison(event.PoisonKey, "KEY_NULL", "a tombstone without a key deletes nothing that could be named")
	}
	t := d.flatTable(r, &m)
	if !t.keep {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	row := d.newRow(r)
	row.Op = event.Delete
	var err error
	if row.Seq, err = d.flatSeq(&m, 'd', r.Transport); err != nil {
		return err
	}
	return d.delete(t, row, &m.src, d.keysOf(t, false), r.Headers)
}

// ConfigError is a stream that the options do not fit; it stops the flow.
type ConfigError struct{ Code, Reason string }

func (e *ConfigError) Error() string { return e.Code + ": " + e.Reason }
