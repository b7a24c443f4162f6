package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// Options of a decoder.
type Options struct {
	// Keys are the key columns; nil: those of the record key, if records have one.
	Keys []string
	// KeysOf, if set, gives a table key columns of its own, nil where it has none.
	KeysOf func(event.Table) []string
	// Schema is the columns and their types; nil: inferred. Fields that it does
	// not name are left out with a warning.
	Schema *schema.Struct
	// Evolves: the engine decides about fields that Schema does not name, and values that
	// do not fit a type are rescued instead of poison.
	Evolves bool
	// Tables, if not empty, keeps only these.
	Tables []string
	// NoOp: no column names the operation (the caller's conditions do).
	NoOp bool
	// NullKeys takes rows without a key: a condition of the flow may make them
	// truncates. The engine refuses those that are none.
	NullKeys bool
	// Types are those of columns that JSON and CSV do not tell: those that a table
	// declares or has. Columns that are not among them are inferred.
	Types *schema.Struct
	// Known is the State of a decoder that saw other records of this source: the
	// columns that these have are columns of all.
	Known string
	// Zone is assumed for timestamp texts without offset; nil is UTC.
	Zone *time.Location
	// Settings are the format's options by name: op_column=NAME|none,
	// op_null=upsert|poison, missing_fields=null|keep, binary=base64|hex.
	Settings map[string]string
}

// Decoder decodes plain rows; it implements event.Decoder.
type Decoder struct {
	wire.Outbox
	opt     Options
	missing bool // missing fields of a given schema are NULL
	opNull  bool // a null operation is an upsert
	told    bool // what a missing field means was asked for or said
	hints   *schema.Struct
	modes   wire.Modes

	// opName is the operation column; "" while undecided or if there is none.
	opName    string
	opDecided bool

	tables map[event.Table]*table
	order  []*table

	types map[string][]wire.TypedColumn

	fields, key []wire.Field
	cells       []wire.Cell
}

// table is the rows of one topic (files have one without a name).
type table struct {
	*wire.Table
	keep   bool
	ignore map[string]bool // fields that the given schema does not name
	text   bool            // the columns' plans read CSV text
	began  bool            // it has the columns that are known of the source
	col    *columnar       // batches of rows that come as columns
	done   []*event.Batch  // closed batches, in order over both forms
}

// state is what Position.Decoder carries.
type state struct {
	Op      string                        `json:"op,omitempty"`
	Decided bool                          `json:"decided,omitempty"`
	Types   map[string][]wire.TypedColumn `json:"types,omitempty"`
}

// New makes a decoder; an error names every bad option.
func New(o Options) (*Decoder, error) {
	d := &Decoder{
		opt: o, missing: true, tables: map[event.Table]*table{},
		types: map[string][]wire.TypedColumn{}, opDecided: o.NoOp, hints: o.Types,
	}
	var problems []string
	for name, value := range o.Settings {
		bad := true
		switch name + "=" + value {
		case "op_null=poison", "binary=base64":
			bad = false
		case "missing_fields=null":
			d.told, bad = true, false
			if o.Schema == nil {
				problems = append(problems, "missing_fields=null: only a declared schema says which fields a record lacks; give one")
			}
		case "missing_fields=keep":
			d.missing, d.told, bad = false, true, false
		case "op_null=upsert":
			d.opNull, bad = true, false
		case "binary=hex":
			d.modes.Binary, bad = wire.Hex, false
		case "op_column=none":
			d.opDecided, bad = true, false
		default:
			if name == "op_column" && value != "" {
				if o.NoOp {
					problems = append(problems, "op_column="+value+": conditions for deletes or truncates are given, too")
				}
				d.opName, d.opDecided, bad = value, true, false
			}
		}
		if bad {
			problems = append(problems, fmt.Sprintf("%s=%s: no such option or value", name, value))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("rows options: %s", strings.Join(problems, "; "))
	}
	d.modes.Zone = o.Zone
	d.modes.Lenient = true // CSV; JSON tokens keep their kind
	d.modes.Decimal = wire.DecimalText
	if o.Known == "" {
		return d, nil
	}
	var known state
	if err := json.Unmarshal([]byte(o.Known), &known); err != nil {
		return nil, fmt.Errorf("rows options: known columns: %w", err)
	}
	d.recall(known.Types)
	return d, nil
}

// Flush implements event.Decoder.
func (d *Decoder) Flush() (*event.Decoded, error) {
	out := d.Handover()
	for _, t := range d.order {
		if err := t.collect(); err != nil {
			return nil, err
		}
		out.Batches = append(out.Batches, t.done...)
		t.done = nil
	}
	return out, nil
}

// collect closes the open batches of both forms.
func (t *table) collect() error {
	batches, err := t.Take()
	if err != nil {
		return fmt.Errorf("build batch of rows: %w", err)
	}
	t.done = append(t.done, batches...)
	b, err := t.col.take()
	if err != nil {
		return fmt.Errorf("build batch of rows: %w", err)
	}
	if b != nil {
		t.done = append(t.done, b)
	}
	return nil
}

// State implements event.Decoder.
func (d *Decoder) State() string {
	for _, t := range d.order {
		if cols := t.columns(); len(cols) > 0 && d.opt.Schema == nil && !t.text {
			d.recall(map[string][]wire.TypedColumn{t.ID.Name: cols})
		}
	}
	st := state{Types: d.types}
	if d.opDecided && !d.opt.NoOp && d.opt.Settings["op_column"] == "" {
		st.Op, st.Decided = d.opName, true
	}
	if !st.Decided && len(st.Types) == 0 {
		return ""
	}
	b, err := json.Marshal(st)
	if err != nil {
		return "" // cannot be: strings only
	}
	return string(b)
}

// Restore implements event.Decoder; states of several positions are merged.
func (d *Decoder) Restore(s string) error {
	if s == "" {
		return nil
	}
	var st state
	if err := json.Unmarshal([]byte(s), &st); err != nil {
		return fmt.Errorf("restore decoder state: %w", err)
	}
	if st.Decided && (!d.opDecided || d.opName == "" && !d.opt.NoOp && d.opt.Settings["op_column"] == "") {
		d.opName, d.opDecided = st.Op, true
	}
	d.recall(st.Types)
	return nil
}

// Add implements event.Decoder.
func (d *Decoder) Add(_ context.Context, r *event.Record) error {
	d.fields = d.fields[:0]
	var err error
	if r.Columns != nil && r.Fault == "" {
		err = d.addColumns(r)
	} else {
		err = d.addJSON(r)
	}
	if err == nil {
		return nil
	}
	var p *wire.PoisonError
	if errors.As(err, &p) {
		d.quarantine(r, p, false)
		return nil
	}
	return err
}

// quarantine keeps a copy of the record with the reason.
func (d *Decoder) quarantine(r *event.Record, p *wire.PoisonError, isDelete bool) {
	c := r.Copy()
	for _, f := range d.fields {
		if d.opName != "" && f.Val.Kind == wire.String && strings.EqualFold(string(f.Key.Text(nil)), d.opName) {
			op, _ := opOf(string(f.Val.Text(nil)))
			isDelete = isDelete || op == event.Delete
		}
	}
	d.Quarantine(event.Poison{
		Class: p.Class, Code: p.Code, Reason: p.Reason, Record: c, Delete: isDelete, Table: tableID(r.Topic),
	})
}

// tableID is the last element of a topic.
func tableID(topic string) event.Table {
	parts := strings.Split(topic, ".")
	id := event.Table{Name: parts[len(parts)-1]}
	if len(parts) > 2 {
		id.Schema = parts[len(parts)-2]
	}
	return id
}

func (d *Decoder) tableOf(topic string) *table {
	id := tableID(topic)
	if t := d.tables[id]; t != nil {
		return t
	}
	t := &table{Table: wire.NewTable(id), keep: wire.Asked(id, d.opt.Tables), ignore: map[string]bool{}, col: &columnar{}}
	t.Exact, t.Strict, t.WholeDeletes, t.Fold, t.NullKeys = true, !d.opt.Evolves, true, true, d.opt.NullKeys
	t.Modes = d.modes
	t.Recall(d.types[id.Name])
	d.tables[id] = t
	d.order = append(d.order, t)
	return t
}

// addJSON handles a record of bytes.
func (d *Decoder) addJSON(r *event.Record) error {
	if r.Fault != "" {
		code, reason, _ := strings.Cut(r.Fault, ": ")
		return wire.Poison(event.PoisonBytes, code, "%s", reason)
	}
	if !utf8.Valid(r.Value) || !utf8.Valid(r.Key) {
		return wire.Poison(event.PoisonBytes, "INVALID_UTF8", "the record is not UTF-8")
	}
	t := d.tableOf(r.Topic)
	if !t.keep {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	if err := d.known(t); err != nil {
		return err
	}
	if err := d.readKey(r.Key); err != nil {
		return err
	}
	row := &wire.Row{Op: event.Upsert, Source: r.Source, Topic: r.Topic, End: r.End, Line: r.Line, Size: int64(len(r.Raw))}
	if r.Value == nil {
		return d.tombstone(t, row)
	}
	value := bytes.TrimPrefix(r.Value, []byte("\ufeff"))
	if len(value) == 0 {
		return wire.Poison(event.PoisonBytes, "EMPTY_VALUE", "the value has no bytes")
	}
	var end int
	var err error
	d.fields, end, err = wire.ParseObject(value, 0, d.fields)
	if err == nil {
		err = wire.End(value, end)
	}
	if err != nil {
		d.fields = d.fields[:0]
		if tok, end, e := wire.Value(value, 0); e == nil && tok.Kind != wire.Object && wire.End(value, end) == nil {
			return wire.Poison(event.PoisonEnvelope, "NOT_AN_OBJECT", "the row is JSON but no object")
		}
		return wire.Poison(event.PoisonBytes, "INVALID_JSON", "%s", err.Error())
	}
	if row.Op, err = d.operation(d.fields); err != nil {
		return err
	}
	return d.addRow(t, row, d.fields, false)
}

// tombstone is a Kafka null value: the row of its key is gone.
func (d *Decoder) tombstone(t *table, row *wire.Row) error {
	if len(d.key) == 0 {
		return wire.Poison(event.PoisonKey, "KEY_NULL", "a null value without a key names no row")
	}
	row.Op = event.Delete
	return d.addRow(t, row, d.key, false)
}

func (d *Decoder) readKey(raw []byte) error {
	d.key = d.key[:0]
	if i := wire.Skip(raw, 0); i >= len(raw) || raw[i] != '{' {
		return nil
	}
	var end int
	var err error
	d.key, end, err = wire.ParseObject(raw, 0, d.key)
	if err == nil {
		err = wire.End(raw, end)
	}
	if err != nil {
		return wire.Poison(event.PoisonBytes, "INVALID_JSON", "key: %s", err.Error())
	}
	return nil
}

// operation finds the row's operation; rows without one are upserts.
func (d *Decoder) operation(fields []wire.Field) (event.Op, error) {
	if !d.opDecided {
		for _, f := range fields {
			if name := string(f.Key.Text(nil)); IsOpName(name) && f.Val.Kind > wire.Null {
				d.decide(name, f.Val.Kind == wire.String && IsOpWord(string(f.Val.Text(nil))))
				break
			}
		}
	}
	if d.opName == "" {
		return event.Upsert, nil
	}
	return d.wordOp(find(fields, nil, d.opName))
}

// decide settles, by the first value seen, whether a column of an operation's
// name is one.
func (d *Decoder) decide(name string, isOp bool) {
	d.opDecided = true
	if isOp {
		d.opName = name
		return
	}
	d.Warn("column %s holds no operations and is read as data; option op_column=%s makes it the operation", name, name)
}

func (d *Decoder) wordOp(t wire.Token) (event.Op, error) {
	switch {
	case t.Kind <= wire.Null, t.Kind == wire.String && len(t.Raw) == 0:
		if d.opNull {
			return event.Upsert, nil
		}
		return 0, wire.Poison(event.PoisonEnvelope, "MISSING_OP", "column %s is empty; option op_null=upsert reads that as an upsert", d.opName)
	case t.Kind == wire.String:
		if op, ok := opOf(string(t.Text(nil))); ok {
			return op, nil
		}
	}
	return 0, wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "column %s: %.60s is no operation", d.opName, t.Raw)
}

// addRow puts fields into the table's columns, which unknown ones become, and
// adds the row. text says that the fields are CSV text.
func (d *Decoder) addRow(t *table, row *wire.Row, fields []wire.Field, text bool) error {
	if err := t.begin(d, text); err != nil {
		return err
	}
	keys := t.Keys()
	given := wire.KeysFor(d.opt.Keys, d.opt.KeysOf, t.ID)
	switch {
	case given != nil:
		keys = given
	case len(d.key) > 0:
		keys = keys[:0:0]
		for _, f := range d.key {
			keys = append(keys, string(f.Key.Text(nil)))
		}
	}
	if row.Op != event.Truncate && !d.opt.NullKeys {
		for _, k := range keys {
			switch find(fields, d.key, k).Kind {
			case wire.None:
				return wire.Poison(event.PoisonKey, "KEY_ABSENT", "key column %q is not in the record", k)
			case wire.Null:
				return wire.Poison(event.PoisonKey, "KEY_NULL", "key column %q is null", k)
			}
		}
	}
	clear(d.cells)
	d.cells = d.cells[:0]
	size := func() {
		for len(d.cells) < t.Columns() {
			d.cells = append(d.cells, wire.Cell{})
		}
	}
	size()
	for i := range fields {
		name := fields[i].Key.Text(nil)
		if d.opName != "" && strings.EqualFold(string(name), d.opName) {
			continue
		}
		c := t.Lookup(name, i)
		if c < 0 {
			if string(name) == RescuedName {
				if fields[i].Val.Kind > wire.Null {
					d.Warn("column %s of an upstream loader holds values; it is left out", RescuedName)
				}
				continue
			}
			if d.opt.Schema != nil && !d.opt.Evolves {
				if !t.ignore[string(name)] {
					t.ignore[string(name)] = true
					d.Warn("field %s is not in the given schema and is left out", name)
				}
				continue
			}
			var err error
			if c, err = t.AddColumn(string(name), d.plan(string(name), text)); err != nil {
				return err
			}
			size()
		}
		if d.cells[c].Tok.Kind != wire.None {
			return wire.Poison(event.PoisonBytes, "DUPLICATE_KEY", "field %q comes twice; names that differ only in case are one", name)
		}
		d.cells[c].Tok = fields[i].Val
	}
	// A CSV file has the columns of its header, a JSON record the fields that it has:
	// only a declared schema says what a record lacks (auto-cdc 2.3, cdc-formats F16).
	t.MissingIsNull = d.missing && d.opt.Schema != nil && !text
	d.tellMissing(t, row, text)
	if err := t.SetKeys(keys); err != nil {
		return err
	}
	for i, c := range t.KeyIndex() {
		if c < 0 && row.Op != event.Truncate {
			var err error
			if d.opt.Schema != nil {
				return wire.Poison(event.PoisonKey, "KEY_ABSENT", "key column %q is not in the given schema", keys[i])
			}
			if c, err = t.AddColumn(keys[i], d.plan(keys[i], text)); err != nil {
				return err
			}
			size()
		}
		if c >= 0 && d.cells[c].Tok.Kind == wire.None {
			d.cells[c].Tok = find(d.key, nil, keys[i])
		}
	}
	row.Cells = d.cells
	if row.Op == event.Truncate {
		row.Cells = nil
	}
	if err := t.Add(row); err != nil {
		return err
	}
	d.Count(1, row.Size)
	return nil
}

// find is the value of the field of that name; case counts only where two differ in it.
func find(fields, more []wire.Field, name string) wire.Token {
	for _, list := range [][]wire.Field{fields, more} {
		for i := range list {
			if list[i].Key.Is(name) {
				return list[i].Val
			}
		}
	}
	for _, list := range [][]wire.Field{fields, more} {
		for i := range list {
			if len(list[i].Key.Raw) == len(name) && strings.EqualFold(string(list[i].Key.Text(nil)), name) {
				return list[i].Val
			}
		}
	}
	return wire.Token{}
}

// begin sets the columns of a given schema on first use. Only CSV text may stand
// for other types than STRING.
func (t *table) begin(d *Decoder, text bool) error {
	if err := t.flushColumns(); err != nil {
		return err
	}
	if d.opt.Schema == nil || t.Columns() > 0 && t.text == text {
		return nil
	}
	t.text = text
	modes := d.modes
	modes.Lenient = text
	var names []string
	var nodes []*wire.Node
	for _, f := range d.opt.Schema.Fields {
		if f.Name == d.opName {
			continue
		}
		names = append(names, f.Name)
		nodes = append(nodes, wire.NewNode(f.Type, modes))
	}
	return t.SetColumns(names, nodes)
}
