package changes

import (
	"bytes"
	"slices"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// find is the member of that name, or an absent token.
func find(fields []wire.Field, name string) wire.Token {
	for i := range fields {
		if fields[i].Key.Is(name) {
			return fields[i].Val
		}
	}
	return wire.Token{}
}

// text is the text of a string member; "" for others.
func text(fields []wire.Field, name string) string {
	if t := find(fields, name); t.Kind == wire.String {
		return string(t.Text(nil))
	}
	return ""
}

// number is a whole number, also one that comes as text.
func number(t wire.Token) (int64, bool) {
	if t.Kind != wire.Number && t.Kind != wire.String {
		return 0, false
	}
	return wire.Int(t.Raw)
}

// names lists the names of fields. Keys repeat from record to record: lists that were
// seen are not made anew.
func (d *Decoder) names(fields []wire.Field) []string {
	if len(fields) == 0 {
		return nil
	}
	d.nameBuf = d.nameBuf[:0]
	for _, f := range fields {
		d.nameBuf = append(append(d.nameBuf, f.Key.Raw...), 0)
	}
	return d.list(d.nameBuf, func() (out []string) {
		for _, f := range fields {
			out = append(out, string(f.Key.Text(nil)))
		}
		return out
	})
}

// texts is texts of an array that repeats from record to record.
func (d *Decoder) texts(t wire.Token) []string {
	if t.Kind != wire.Array {
		return nil
	}
	return d.list(t.Raw, func() []string { return texts(t) })
}

// maxLists bounds the lists that are kept.
const maxLists = 10_000

// list is what was made of the same bytes before, as a copy that may be changed
// where names are folded.
func (d *Decoder) list(raw []byte, make func() []string) []string {
	out, ok := d.lists[string(raw)]
	if !ok {
		if out = make(); len(d.lists) < maxLists {
			d.lists[string(raw)] = out
		}
	}
	if d.fold != nil {
		return slices.Clone(out)
	}
	return out
}

// texts lists the texts of an array; nil for what is none.
func texts(t wire.Token) []string {
	if t.Kind != wire.Array {
		return nil
	}
	out := []string{}
	wire.Elements(t, func(e wire.Token) bool {
		if e.Kind == wire.String {
			out = append(out, string(e.Text(nil)))
		}
		return true
	})
	return out
}

func (d *Decoder) tableOf(id event.Table) *table {
	if t := d.tables[id]; t != nil {
		return t
	}
	t := &table{Table: wire.NewTable(id), keep: wire.Asked(id, d.opt.Tables)}
	t.Exact = true
	t.Modes = wire.Modes{Zone: d.opt.Zone, Decimal: wire.DecimalText}
	t.Recall(d.state.Types[wire.TableKey(id)])
	d.tables[id] = t
	d.order = append(d.order, t)
	return t
}

// put adds a change to its table.
func (d *Decoder) put(r *event.Record, c *change) error {
	t := d.tableOf(c.table)
	if !t.keep {
		return d.control(event.ControlFiltered)
	}
	row := &d.row
	*row = wire.Row{Op: c.op, Seq: c.seq, Source: r.Source, Topic: r.Topic, End: r.End, Line: r.Line, Size: recordSize(r), Rescued: c.rescued}
	if len(d.changes) > 1 {
		row.Size /= int64(len(d.changes))
	}
	keys := d.keysOf(t, c)
	if (c.complete || d.missingNull) && !t.complete {
		t.complete = true
		for _, name := range d.state.Columns[wire.TableKey(t.ID)] {
			if _, err := d.column(t, c, name); err != nil {
				return err
			}
		}
	}
	if err := d.retype(t, c); err != nil {
		return err
	}
	if c.op == event.Truncate {
		if len(keys) > 0 {
			for _, k := range keys {
				if _, err := d.column(t, c, k); err != nil {
					return err
				}
			}
			if err := t.SetKeys(keys); err != nil {
				return err
			}
		}
		return d.append(t, row)
	}
	if c.op == event.Update && len(c.old) > 0 && d.moved(c, keys) {
		return d.split(t, row, c, keys)
	}
	return d.one(t, row, c, keys, c.image)
}

// recordSize is the source bytes of a message, or of one row of a file.
func recordSize(r *event.Record) int64 {
	if r.Size > 0 {
		return r.Size
	}
	return int64(len(r.Raw))
}

// keysOf names the key columns: the user's, else the record's, else those known.
func (d *Decoder) keysOf(t *table, c *change) []string {
	given := wire.KeysFor(d.opt.Keys, d.opt.KeysOf, t.ID)
	switch {
	case given != nil:
		return given
	case c.keys != nil:
		return c.keys
	case t.Keys() != nil:
		return t.Keys()
	}
	return d.state.Keys[wire.TableKey(t.ID)]
}

// retype replaces the plans of columns whose type the record states anew.
func (d *Decoder) retype(t *table, c *change) error {
	if c.node == nil || t.typed != nil && bytes.Equal(t.typed, c.typed) {
		return nil
	}
	first := t.typed == nil
	t.typed = append([]byte{}, c.typed...)
	if first {
		return nil
	}
	for i := range t.Columns() {
		node := d.node(c, t.Name(i))
		if was := t.Node(i); node == nil || was != nil && node.Equal(was) {
			continue
		}
		if err := t.SetNode(i, node); err != nil {
			return err
		}
	}
	return nil
}

// node is the plan of a column: the user's type, else the record's.
func (d *Decoder) node(c *change, name string) *wire.Node {
	var n *wire.Node
	if c.node != nil {
		n = c.node(name)
	}
	if d.opt.Schema == nil {
		return n
	}
	i := d.opt.Schema.Index(name)
	if i < 0 {
		return n
	}
	hint := d.opt.Schema.Fields[i].Type
	if n == nil {
		return wire.NewNode(hint, wire.Modes{Zone: d.opt.Zone, Decimal: wire.DecimalText, Lenient: true, Unit: wire.Millis, Binary: d.binary})
	}
	if schema.EqualIgnoringNullability(n.Type, hint) {
		return n
	}
	return wire.NewNode(hint, wire.Modes{Zone: d.opt.Zone, Decimal: wire.DecimalText, Lenient: true, Binary: n.Binary, Unit: n.Unit})
}

// column finds or adds a column.
func (d *Decoder) column(t *table, c *change, name string) (int, error) {
	if i := t.Lookup([]byte(name), 0); i >= 0 {
		return i, nil
	}
	return t.AddColumn(name, d.node(c, name))
}

// moved tells whether the old image names another key than the new one.
func (d *Decoder) moved(c *change, keys []string) bool {
	for _, k := range keys {
		was, is := find(c.old, k), find(c.image, k)
		if was.Kind > wire.Null && is.Kind > wire.Null && !sameToken(was, is) {
			return true
		}
	}
	return false
}

func sameToken(a, b wire.Token) bool {
	if a.Kind == wire.String && b.Kind == wire.String && (a.Esc || b.Esc) {
		return bytes.Equal(a.Text(nil), b.Text(nil))
	}
	return a.Kind == b.Kind && bytes.Equal(a.Raw, b.Raw)
}

// split makes a key change a delete of the old key and an upsert of the new one.
func (d *Decoder) split(t *table, row *wire.Row, c *change, keys []string) error {
	var before []wire.Field
	var oldKey, newKey []wire.Token
	for _, k := range keys {
		was, is := find(c.old, k), find(c.image, k)
		if was.Kind == wire.None {
			was = is
		}
		if err := keyToken(k, is); err != nil {
			return err
		}
		before = append(before, wire.Field{Key: wire.Token{Kind: wire.String, Raw: []byte(k)}, Val: was})
		oldKey, newKey = append(oldKey, was), append(newKey, is)
	}
	row.Op = event.Upsert
	if err := d.fill(t, row, c, keys, c.image); err != nil {
		return err
	}
	if err := t.Check(row); err != nil {
		return err // both halves or neither
	}
	del := *row
	del.Op, del.Size, del.NewKey, del.Rescued = event.Delete, 0, newKey, nil
	if err := d.one(t, &del, c, keys, before); err != nil {
		return err
	}
	row.Op, row.OldKey = event.Upsert, oldKey
	return d.one(t, row, c, keys, c.image)
}

func keyToken(name string, tok wire.Token) error {
	switch tok.Kind {
	case wire.None:
		return wire.Poison(event.PoisonKey, "KEY_ABSENT", "key column %q is not in the record", name)
	case wire.Null:
		return wire.Poison(event.PoisonKey, "KEY_NULL", "key column %q is null", name)
	}
	return nil
}

// one adds one row made of an image.
func (d *Decoder) one(t *table, row *wire.Row, c *change, keys []string, image []wire.Field) error {
	if err := d.fill(t, row, c, keys, image); err != nil {
		return err
	}
	return d.append(t, row)
}

// fill makes the cells of a row of an image.
func (d *Decoder) fill(t *table, row *wire.Row, c *change, keys []string, image []wire.Field) error {
	for _, k := range keys {
		if err := keyToken(k, find(image, k)); err != nil {
			return err
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
	for i := range image {
		name := image[i].Key.Text(nil)
		col := t.Lookup(name, i)
		if col < 0 {
			var err error
			if col, err = d.column(t, c, string(name)); err != nil {
				return err
			}
			size()
		}
		if d.cells[col].Tok.Kind != wire.None {
			return wire.Poison(event.PoisonBytes, "DUPLICATE_KEY", "field %q comes twice", name)
		}
		d.cells[col].Tok = image[i].Val
	}
	for _, name := range c.unavailable {
		if col := t.Lookup([]byte(name), 0); col >= 0 {
			d.cells[col] = wire.Cell{Unavailable: true}
		}
	}
	if err := t.SetKeys(keys); err != nil {
		return err
	}
	if row.Op != event.Delete && (c.complete || d.missingNull) {
		for i := range d.cells {
			if d.cells[i].Tok.Kind == wire.None && !d.cells[i].Unavailable {
				d.cells[i].Tok.Kind = wire.Null
			}
		}
	}
	row.Cells = d.cells
	return nil
}

func (d *Decoder) append(t *table, row *wire.Row) error {
	if err := t.Add(row); err != nil {
		return err
	}
	d.Count(1, row.Size)
	return nil
}
