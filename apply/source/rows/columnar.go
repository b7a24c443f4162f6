package rows

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// rescuedField marks a column of what did not fit a CSV header.
const rescuedField = "sluice.rescued"

// columnar gathers rows that come as Arrow columns, without touching values.
type columnar struct {
	id             event.Table
	source, topic  string
	cols           *schema.Struct
	keys           []string
	parts          [][]arrow.Array
	ops            []event.Op
	offsets, lines []int64
	size           int64
}

// addColumns handles a record of a CSV or Parquet file.
func (d *Decoder) addColumns(r *event.Record) error {
	t := d.tableOf(r.Topic)
	if !t.keep {
		d.Control(event.ControlFiltered, r.Columns.NumRows())
		return nil
	}
	text := true
	for _, f := range r.Columns.Schema().Fields() {
		text = text && f.Type.ID() == arrow.STRING
	}
	if text && (d.opt.Schema != nil || d.hinted(r.Columns)) || rescued(r.Columns) >= 0 {
		return d.addText(t, r)
	}
	return d.addArrow(t, r)
}

// hinted tells whether a text column stands for another type.
func (d *Decoder) hinted(rows arrow.RecordBatch) bool {
	return slices.ContainsFunc(rows.Schema().Fields(), func(f arrow.Field) bool {
		t := d.hint(f.Name)
		return t != nil && t != schema.Type(schema.String)
	})
}

func rescued(rows arrow.RecordBatch) int {
	return slices.IndexFunc(rows.Schema().Fields(), func(f arrow.Field) bool { return f.HasMetadata() && f.Metadata.FindKey(rescuedField) >= 0 })
}

// addText reads text columns row by row through the given schema.
func (d *Decoder) addText(t *table, r *event.Record) error {
	if err := t.flushColumns(); err != nil {
		return err
	}
	rows := r.Columns
	extra := rescued(rows)
	if d.opt.Schema == nil {
		if err := d.textColumns(t, rows, extra); err != nil {
			return err
		}
	}
	fields := make([]wire.Field, 0, rows.NumCols())
	share := size(r) / max(rows.NumRows(), 1)
	for i := range int(rows.NumRows()) {
		fields = fields[:0]
		row := &wire.Row{Source: r.Source, Topic: r.Topic, End: r.End, Line: r.Line + int64(i), Size: share}
		for c, f := range rows.Schema().Fields() {
			tok := wire.Token{Kind: wire.Null}
			if col, ok := rows.Column(c).(*array.String); ok && col.IsValid(i) {
				tok = wire.Token{Kind: wire.String, Raw: []byte(col.Value(i))}
			}
			if c == extra {
				if len(tok.Raw) > 2 {
					row.Rescued = tok.Raw[1 : len(tok.Raw)-1]
				}
				continue
			}
			fields = append(fields, wire.Field{Key: wire.Token{Kind: wire.String, Raw: []byte(f.Name)}, Val: tok})
		}
		d.key = d.key[:0]
		var err error
		if row.Op, err = d.operation(fields); err == nil {
			err = d.addRow(t, row, fields, true)
		}
		if p, ok := err.(*wire.PoisonError); ok {
			d.poisonRow(r, i, p, row.Op == event.Delete)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// textColumns makes the columns those of the file, as STRING.
func (d *Decoder) textColumns(t *table, rows arrow.RecordBatch, extra int) error {
	var names []string
	var nodes []*wire.Node
	for c, f := range rows.Schema().Fields() {
		if c == extra || f.Name == RescuedName || d.isOp(rows, c) {
			continue
		}
		names = append(names, f.Name)
		if n := d.plan(f.Name, true); n != nil {
			nodes = append(nodes, n)
			continue
		}
		nodes = append(nodes, &wire.Node{Type: schema.String})
	}
	if t.text && slices.Equal(names, t.Schema().Names()) {
		return nil
	}
	t.text, t.began = true, false
	return t.SetColumns(names, nodes)
}

func size(r *event.Record) int64 {
	if r.Size > 0 {
		return r.Size
	}
	return int64(len(r.Raw))
}

// poisonRow quarantines row i of a record as its JSON.
func (d *Decoder) poisonRow(r *event.Record, i int, p *wire.PoisonError, isDelete bool) {
	one := r.Columns.NewSlice(int64(i), int64(i)+1)
	defer one.Release()
	c := *r
	c.Columns, c.Line, c.Transport = nil, r.Line+int64(i), r.Transport+int64(i)
	c.Raw = nil
	if js, err := one.MarshalJSON(); err == nil && len(js) > 2 {
		c.Raw = bytes.TrimSpace(js[1 : len(js)-1])
	}
	c.Value = c.Raw
	d.fields = d.fields[:0]
	d.quarantine(&c, p, isDelete)
}

// isOp decides, on first sight, whether column c holds operations.
func (d *Decoder) isOp(rows arrow.RecordBatch, c int) bool {
	name := rows.ColumnName(c)
	if !d.opDecided && IsOpName(name) {
		col := rows.Column(c)
		for i := range col.Len() {
			if s, ok := stringAt(col, i); ok && s != "" {
				d.decide(name, IsOpWord(s))
				break
			}
		}
	}
	return d.opName != "" && strings.EqualFold(name, d.opName)
}

func stringAt(col arrow.Array, i int) (string, bool) {
	if s, ok := col.(*array.String); ok && s.IsValid(i) {
		return s.Value(i), true
	}
	return "", false
}

// addArrow takes typed columns as they are.
func (d *Decoder) addArrow(t *table, r *event.Record) error {
	if batches, err := t.Take(); err != nil {
		return err
	} else {
		t.done = append(t.done, batches...)
	}
	rows := r.Columns
	n := int(rows.NumRows())
	bad := map[int]*wire.PoisonError{}
	cols := &schema.Struct{}
	var arrays []arrow.Array
	var opCol arrow.Array
	for c := range int(rows.NumCols()) {
		f := rows.Schema().Field(c)
		if d.isOp(rows, c) {
			opCol = rows.Column(c)
			continue
		}
		if f.Name == RescuedName {
			if rows.Column(c).NullN() < n {
				d.Warn("column %s of an upstream loader holds values; it is left out", RescuedName)
			}
			continue
		}
		one, err := schema.FromArrow(arrow.NewSchema([]arrow.Field{f}, nil))
		if err != nil {
			return fmt.Errorf("read columns of %s: %w", r.Source, err)
		}
		typ := one.Fields[0].Type
		arr := rows.Column(c)
		arr.Retain()
		if k := -1; d.opt.Schema != nil {
			if k = d.opt.Schema.Index(f.Name); k < 0 && d.opt.Evolves {
				cols.Fields = append(cols.Fields, schema.Field{Name: f.Name, Type: typ, Nullable: true})
				arrays = append(arrays, arr)
				continue
			}
			if k < 0 {
				d.Warn("field %s is not in the given schema and is left out", f.Name)
				continue
			}
			if want := d.opt.Schema.Fields[k].Type; !d.opt.Evolves && !schema.EqualIgnoringNullability(typ, want) {
				if arr, err = d.cast(arr, f.Name, want, bad); err != nil {
					return err
				}
				typ = want
			}
		}
		cols.Fields = append(cols.Fields, schema.Field{Name: f.Name, Type: typ, Nullable: true})
		arrays = append(arrays, arr)
	}
	ops := make([]event.Op, n)
	keys := wire.KeysFor(d.opt.Keys, d.opt.KeysOf, t.ID)
	for i := range n {
		ops[i] = event.Upsert
		if d.opName != "" {
			tok := wire.Token{Kind: wire.Null}
			if opCol != nil {
				if s, ok := stringAt(opCol, i); ok {
					tok = wire.Token{Kind: wire.String, Raw: []byte(s)}
				}
			}
			op, err := d.wordOp(tok)
			if p, ok := err.(*wire.PoisonError); ok {
				bad[i] = p
			}
			ops[i] = op
		}
		if bad[i] == nil && ops[i] != event.Truncate && !d.opt.NullKeys {
			bad[i] = nullKey(keys, cols, arrays, i)
		}
		if bad[i] == nil {
			delete(bad, i)
		}
	}
	if err := t.open(cols, keys, r); err != nil {
		return err
	}
	t.col.id = t.ID
	for from := 0; from < n; {
		if p := bad[from]; p != nil {
			d.poisonRow(r, from, p, ops[from] == event.Delete)
			from++
			continue
		}
		to := from + 1
		for to < n && bad[to] == nil {
			to++
		}
		part := make([]arrow.Array, len(arrays))
		for i, a := range arrays {
			part[i] = array.NewSlice(a, int64(from), int64(to))
		}
		t.col.parts = append(t.col.parts, part)
		for i := from; i < to; i++ {
			t.col.ops = append(t.col.ops, ops[i])
			t.col.offsets = append(t.col.offsets, r.End)
			t.col.lines = append(t.col.lines, r.Line+int64(i))
		}
		d.Count(to-from, 0)
		from = to
	}
	for _, a := range arrays {
		a.Release()
	}
	t.col.size += size(r)
	d.Count(0, size(r))
	return nil
}

// nullKey is why row i has no key.
func nullKey(keys []string, cols *schema.Struct, arrays []arrow.Array, i int) *wire.PoisonError {
	for _, k := range keys {
		c := cols.Index(k)
		if c < 0 {
			return &wire.PoisonError{Class: event.PoisonKey, Code: "KEY_ABSENT", Reason: "key column " + k + " is not in the file"}
		}
		if arrays[c].IsNull(i) {
			return &wire.PoisonError{Class: event.PoisonKey, Code: "KEY_NULL", Reason: "key column " + k + " is null"}
		}
	}
	return nil
}

// cast reads a column's values, by their text, as the type of the given schema;
// values that do not fit make their row poison. It takes arr over.
func (d *Decoder) cast(arr arrow.Array, name string, want schema.Type, bad map[int]*wire.PoisonError) (arrow.Array, error) {
	defer arr.Release()
	at, err := schema.ArrowType(want)
	if err != nil {
		return nil, err
	}
	b := array.NewBuilder(memory.DefaultAllocator, at)
	node := wire.NewNode(want, d.modes)
	for i := range arr.Len() {
		tok := wire.Token{Kind: wire.Null}
		if arr.IsValid(i) {
			tok = wire.Token{Kind: wire.String, Raw: []byte(arr.ValueStr(i))}
		}
		if !node.Append(b, tok) {
			b.AppendNull()
			bad[i] = &wire.PoisonError{Class: event.PoisonField, Code: "FIELD_TYPE", Reason: "column " + name + ": cannot read " + arr.ValueStr(i) + " as " + want.String()}
		}
	}
	return b.NewArray(), nil
}

// open starts a new columnar batch where rows do not belong to the open one.
func (t *table) open(cols *schema.Struct, keys []string, r *event.Record) error {
	c := t.col
	if len(c.ops) > 0 && (c.source != r.Source || c.topic != r.Topic || !schema.Equal(c.cols, cols)) {
		if err := t.flushColumns(); err != nil {
			return err
		}
	}
	c.source, c.topic, c.cols, c.keys = r.Source, r.Topic, cols, keys
	return nil
}

func (t *table) flushColumns() error {
	b, err := t.col.take()
	if b != nil {
		t.done = append(t.done, b)
	}
	return err
}

// take closes the open batch; nil if it has no rows.
func (c *columnar) take() (*event.Batch, error) {
	if len(c.ops) == 0 {
		return nil, nil
	}
	arrays := make([]arrow.Array, len(c.cols.Fields))
	for i := range arrays {
		part := make([]arrow.Array, len(c.parts))
		for k, p := range c.parts {
			part[k] = p[i]
		}
		if len(part) == 1 {
			arrays[i] = part[0]
			continue
		}
		joined, err := array.Concatenate(part, memory.DefaultAllocator)
		if err != nil {
			return nil, err
		}
		arrays[i] = joined
		for _, p := range part {
			p.Release()
		}
	}
	as, err := schema.ArrowSchema(c.cols)
	if err != nil {
		return nil, err
	}
	rows := array.NewRecordBatch(as, arrays, int64(len(c.ops)))
	for _, a := range arrays {
		a.Release()
	}
	b := &event.Batch{
		Table: c.id, Source: c.source, Topic: c.topic, Columns: c.cols, Keys: slices.Clone(c.keys), Rows: rows, Ops: c.ops,
		Offsets: c.offsets, Lines: c.lines, RawSize: c.size,
		Unauthored: make([]event.Bits, len(arrays)), Unavailable: make([]event.Bits, len(arrays)),
	}
	*c = columnar{}
	return b, nil
}
