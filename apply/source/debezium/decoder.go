package debezium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// Decoder decodes Debezium JSON; it implements event.Decoder.
type Decoder struct {
	wire.Outbox
	opt         *Options
	unavailable *placeholders

	tables  map[event.Table]*table
	order   []*table
	byName  map[string]*table // by the raw names of a source block
	byTopic map[string]*table // of flattened rows
	schema  schemaCache

	state state

	// buffers of one record
	env                            envelope
	out                            wire.Row
	top, src, row, old, key, other []wire.Field
	keyNames                       []string
	cells                          []wire.Cell
	whole                          bool // the image is a document: what it lacks is null
	name                           []byte
}

// state is what Position.Decoder carries.
type state struct {
	// Snapshot is the largest snapshot position seen, by connector name.
	Snapshot map[string]int64 `json:"snapshot,omitempty"`
	// Deletes: the flattened stream has delete events, so tombstones are control.
	Deletes bool `json:"deletes,omitempty"`
	// Types are the inferred column types, by table and column.
	Types map[string][]wire.TypedColumn `json:"types,omitempty"`
	// Keys are the key columns by table: a truncate names none, and may be the
	// first record of a later run.
	Keys map[string][]wire.TypedColumn `json:"keys,omitempty"`
	// Columns are all columns of tables whose images are whole documents.
	Columns map[string][]wire.TypedColumn `json:"columns,omitempty"`
}

// table is one source table with what its records taught.
type table struct {
	*wire.Table
	plan *rowPlan // of the newest embedded schema; nil: none yet
	// partialBefore: an update came without before image, so before images are
	// not whole (PostgreSQL's replica identity is not FULL); wholeBefore: one came with.
	partialBefore, wholeBefore bool
	keep                       bool
	// whole: images are documents, so that columns of earlier runs belong to the table.
	whole bool
}

// New makes a decoder; an error names every bad option.
func New(o Options) (*Decoder, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Decoder{
		opt: opt, unavailable: newPlaceholders(opt.placeholder),
		tables: map[event.Table]*table{}, byName: map[string]*table{}, byTopic: map[string]*table{}, schema: schemaCache{plans: map[string]*cachedSchema{}},
		state: state{Snapshot: map[string]int64{}, Types: map[string][]wire.TypedColumn{}, Keys: map[string][]wire.TypedColumn{}, Columns: map[string][]wire.TypedColumn{}},
	}, nil
}

// Flush implements event.Decoder. Batches come by table in order of first
// appearance, within a table in order of the records.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out := d.Handover()
	for _, t := range d.order {
		batches, err := t.Take()
		if err != nil {
			return nil, fmt.Errorf("build batch of table %s: %w", t.ID.Name, err)
		}
		out.Batches = append(out.Batches, batches...)
	}
	return out, nil
}

// State implements event.Decoder.
func (d *Decoder) State() string {
	for _, t := range d.order {
		if cols := t.Remember(); len(cols) > 0 {
			d.state.Types[wire.TableKey(t.ID)] = cols
		}
		if t.whole {
			var all []wire.TypedColumn
			for _, f := range t.Schema().Fields {
				all = append(all, wire.TypedColumn{Name: f.Name, Type: f.Type.String()})
			}
			d.state.Columns[wire.TableKey(t.ID)] = all
		}
		var keys []wire.TypedColumn
		for i, c := range t.KeyIndex() {
			if c >= 0 {
				keys = append(keys, wire.TypedColumn{Name: t.Keys()[i], Type: t.Schema().Fields[c].Type.String()})
			}
		}
		if len(keys) > 0 && len(keys) == len(t.Keys()) {
			d.state.Keys[wire.TableKey(t.ID)] = keys
		}
	}
	if len(d.state.Snapshot) == 0 && !d.state.Deletes && len(d.state.Types) == 0 && len(d.state.Keys) == 0 {
		return ""
	}
	b, err := json.Marshal(d.state)
	if err != nil {
		return "" // cannot be: strings and numbers only
	}
	return string(b)
}

// Restore implements event.Decoder. It may be called once for each position;
// the states are merged.
func (d *Decoder) Restore(s string) error {
	if s == "" {
		return nil
	}
	var st state
	if err := json.Unmarshal([]byte(s), &st); err != nil {
		return fmt.Errorf("restore decoder state: %w", err)
	}
	for name, pos := range st.Snapshot {
		d.state.Snapshot[name] = max(d.state.Snapshot[name], pos)
	}
	d.state.Deletes = d.state.Deletes || st.Deletes
	maps.Copy(d.state.Types, st.Types)
	maps.Copy(d.state.Keys, st.Keys)
	maps.Copy(d.state.Columns, st.Columns)
	return nil
}

// Add implements event.Decoder.
func (d *Decoder) Add(_ context.Context, r *event.Record) error {
	err := d.add(r)
	if err == nil {
		return nil
	}
	var p *wire.PoisonError
	if errors.As(err, &p) {
		d.quarantine(r, p)
		return nil
	}
	return err
}

// quarantine keeps a copy of the record with the reason.
func (d *Decoder) quarantine(r *event.Record, p *wire.PoisonError) {
	c := r.Copy()
	// What is known of the table and whether a delete is lost, without trusting more of the record.
	var src origin
	isDelete := false
	for _, f := range d.src {
		src.take(f.Key.Raw, f.Val)
	}
	if op, ok := d.field("op"); ok && op.Is("d") {
		isDelete = true
	}
	if del, ok := d.field("__deleted"); ok && (del.Kind == wire.True || del.Is("true")) {
		isDelete = true
	}
	d.Quarantine(event.Poison{
		Class: p.Class, Code: p.Code, Reason: p.Reason, Record: c, Delete: isDelete,
		Table: event.Table{Database: string(src.db), Schema: string(src.schema), Name: string(src.table)},
	})
}

func (d *Decoder) field(name string) (wire.Token, bool) {
	for _, f := range d.top {
		if f.Key.Is(name) {
			return f.Val, true
		}
	}
	return wire.Token{}, false
}

func badBytes(err error) error {
	var s *wire.SyntaxError
	if errors.As(err, &s) {
		return wire.Poison(event.PoisonBytes, "INVALID_JSON", "%s", s.Error())
	}
	return err
}

func (d *Decoder) add(r *event.Record) error {
	d.top, d.src, d.row, d.old, d.whole = d.top[:0], d.src[:0], d.row[:0], d.old[:0], false
	if r.Fault != "" {
		code, reason, _ := bytes.Cut([]byte(r.Fault), []byte(": "))
		return wire.Poison(event.PoisonBytes, string(code), "%s", reason)
	}
	if r.Columns != nil {
		return wire.Poison(event.PoisonEnvelope, "NOT_DEBEZIUM", "rows of a columnar or CSV file are no change events")
	}
	if !utf8.Valid(r.Value) || !utf8.Valid(r.Key) {
		return wire.Poison(event.PoisonBytes, "INVALID_UTF8", "the record is not UTF-8")
	}
	if r.Value == nil {
		return d.tombstone(r)
	}
	value := bytes.TrimPrefix(r.Value, []byte("\ufeff"))
	if len(value) == 0 {
		return wire.Poison(event.PoisonBytes, "EMPTY_VALUE", "the value has no bytes; a tombstone is null")
	}
	env, err := d.parse(value)
	if err == nil && len(d.top) > 3 && d.isCloudEvent() {
		env, err = d.unwrap()
	}
	if err != nil {
		return err
	}
	return d.value(r, env)
}

// value tells envelopes, flattened rows and records without rows apart.
func (d *Decoder) value(r *event.Record, e *envelope) error {
	if e.nullPayload {
		return d.tombstone(r)
	}
	if d.opt.Flat && !(e.source.Kind == wire.Object && e.op.Kind == wire.String) {
		if kind, ok := e.control(r.Topic); ok {
			d.Control(kind, 1)
			return nil
		}
		return d.flat(r, e.connect)
	}
	if e.op.Kind == wire.None || e.op.Kind == wire.Null {
		if kind, ok := e.control(r.Topic); ok {
			d.Control(kind, 1)
			return nil
		}
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the envelope has no op")
	}
	if e.op.Kind != wire.String || len(e.op.Raw) != 1 {
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "op %.40s", e.op.Raw)
	}
	if e.source.Kind != wire.Object && !d.opt.noSource {
		return wire.Poison(event.PoisonEnvelope, "MISSING_SOURCE", "the envelope has no source block; option source=none takes the table from the topic and the order from the place in it")
	}
	return d.change(r, e)
}

// tombstone: a null value. In an envelope stream it follows a delete and says
// nothing new (and carries no position: re-sent ones would lose rows).
func (d *Decoder) tombstone(r *event.Record) error {
	if d.opt.Flat && d.opt.tombstones != "control" && (d.opt.tombstones == "delete" || !d.state.Deletes) {
		return d.flatTombstone(r)
	}
	d.Control(event.ControlTombstone, 1)
	return nil
}

// tableOf finds or makes the table of a source block; false: not asked for.
func (d *Decoder) tableOf(db, sch, name []byte) *table {
	d.name = append(append(append(append(append(d.name[:0], db...), 0), sch...), 0), name...)
	if t, ok := d.byName[string(d.name)]; ok {
		return t
	}
	id := event.Table{Database: string(db), Schema: string(sch), Name: string(name)}
	t := d.tables[id]
	if t == nil {
		t = &table{Table: wire.NewTable(id), keep: wire.Asked(id, d.opt.Tables)}
		t.Modes = wire.Modes{Binary: d.opt.defaults.Binary}
		t.Recall(d.state.Types[wire.TableKey(id)])
		d.tables[id] = t
		d.order = append(d.order, t)
	}
	d.byName[string(d.name)] = t
	return t
}
