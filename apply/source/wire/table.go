package wire

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// Cell is what a record says about one column. The zero Cell is an absent field.
type Cell struct {
	Tok         Token
	Unavailable bool
}

// Row is one change to add to a [Table]; its parts are copied.
type Row struct {
	Op event.Op
	// Cells by column index; shorter means absent.
	Cells []Cell
	Seq   Seq
	// OldKey and NewKey by key index; nil if there is none.
	OldKey, NewKey []Token
	Source, Topic  string
	End, Line      int64
	Size           int64
	// Rescued are further members of the row's Rescued object, e.g. `"a":"x"`.
	Rescued []byte
}

// Table gathers the change rows of one source table into batches. It is used
// from one goroutine.
type Table struct {
	ID event.Table
	// Modes are the wire forms of inferred columns.
	Modes Modes
	// Exact infers fractions as DECIMAL, else as DOUBLE.
	Exact bool
	// MissingIsNull makes an absent field a null that is authored.
	MissingIsNull bool
	// Strict makes a value that its column's plan cannot read poison (P3) instead
	// of a rescued field.
	Strict bool
	// NullKeys takes rows whose key is absent or null: a condition of the flow may
	// make them truncates, which have no key. The engine refuses the others.
	NullKeys bool
	// Fold takes names that differ in case for one column, spelled as it came first.
	Fold bool
	// WholeDeletes keeps all columns of deletes, for formats whose sequence is a
	// column; else only the key columns are kept.
	WholeDeletes bool

	cols   []*column
	byName map[string]int
	keys   []string
	keyIdx []int
	seq    *SeqBuilder

	rows           int
	rawSize        int64
	ops            []event.Op
	offsets, lines []int64
	rescued        []string
	anyRescued     bool
	source, topic  string
	oldKeys        *keyRows
	newKeys        *keyRows

	preset map[string]schema.Type
	done   []*event.Batch
	s      scratch
}

// NewTable is an empty table.
func NewTable(id event.Table) *Table { return &Table{ID: id, byName: map[string]int{}} }

// Columns is the number of columns known.
func (t *Table) Columns() int { return len(t.cols) }

// Lookup is the index of the column of that name, or -1; case counts unless Fold
// is set. guess is tried first: records mostly list their fields in one order.
func (t *Table) Lookup(name []byte, guess int) int {
	if guess < len(t.cols) && t.cols[guess].name == string(name) {
		return guess
	}
	if i, ok := t.byName[string(name)]; ok {
		return i
	}
	if !t.Fold {
		return -1
	}
	i := t.folded(string(name))
	if i >= 0 {
		t.byName[string(name)] = i
	}
	return i
}

// folded is the index of the column of that name in any case, or -1.
func (t *Table) folded(name string) int {
	return slices.IndexFunc(t.cols, func(c *column) bool { return strings.EqualFold(c.name, name) })
}

// Name is the name of column i.
func (t *Table) Name(i int) string { return t.cols[i].name }

// Node is the plan of column i; nil while nothing is known of an inferred one.
func (t *Table) Node(i int) *Node {
	if t.cols[i].shape != nil {
		return nil
	}
	return t.cols[i].node
}

// SetNode gives column i another plan; it closes the open batch.
func (t *Table) SetNode(i int, node *Node) error {
	if err := t.Cut(); err != nil {
		return err
	}
	return t.cols[i].plan(node)
}

// AddColumn appends a column with a plan, or an inferred one if node is nil; it
// closes the open batch.
func (t *Table) AddColumn(name string, node *Node) (int, error) {
	if err := t.cutRows(); err != nil {
		return 0, err
	}
	c := &column{name: name}
	if node == nil {
		c.shape = &Shape{Exact: t.Exact}
		if typ, ok := t.preset[name]; ok {
			c.shape.assume(typ)
			var err error
			if c.b, err = newBuilder(typ); err != nil {
				return 0, err
			}
			c.node = NewNode(typ, t.Modes)
		}
	} else if err := c.plan(node); err != nil {
		return 0, err
	}
	for range t.rows { // truncates
		if c.node == nil {
			c.wait(Token{Kind: Null})
		} else {
			c.b.AppendNull()
		}
	}
	t.cols = append(t.cols, c)
	t.byName[name] = len(t.cols) - 1
	t.findKeys()
	return len(t.cols) - 1, nil
}

func (c *column) plan(node *Node) error {
	b, err := newBuilder(node.Type)
	if err != nil {
		return err
	}
	c.node, c.b, c.shape = node, b, nil
	return nil
}

// SetColumns replaces the column list and closes the open batch.
func (t *Table) SetColumns(names []string, nodes []*Node) error {
	if err := t.cutRows(); err != nil {
		return err
	}
	t.cols, t.byName = nil, map[string]int{}
	for i, name := range names {
		if _, err := t.AddColumn(name, nodes[i]); err != nil {
			return err
		}
	}
	t.findKeys()
	return nil
}

// Schema is the columns as known now; an inferred column without a value is VOID.
func (t *Table) Schema() *schema.Struct {
	s := &schema.Struct{}
	for _, c := range t.cols {
		s.Fields = append(s.Fields, c.field())
	}
	return s
}

// Inferred tells whether column i has no plan from a schema.
func (t *Table) Inferred(i int) bool { return t.cols[i].shape != nil }

// SetKeys names the key columns; it closes the open batch if they change. nil
// means that the format names none.
func (t *Table) SetKeys(keys []string) error {
	if slices.Equal(t.keys, keys) {
		return nil
	}
	if err := t.cutRows(); err != nil {
		return err
	}
	t.keys = slices.Clone(keys)
	t.findKeys()
	return nil
}

// Keys are the names of the key columns.
func (t *Table) Keys() []string { return t.keys }

// KeyIndex lists the key columns; -1 where a name is no column yet.
func (t *Table) KeyIndex() []int { return t.keyIdx }

func (t *Table) findKeys() {
	t.keyIdx = t.keyIdx[:0]
	for _, k := range t.keys {
		i, ok := t.byName[k]
		if !ok {
			i = t.folded(k) // names that a user gives are case-insensitive (auto-cdc 1.2)
		}
		t.keyIdx = append(t.keyIdx, i)
	}
}

// Pending is the number of rows and source bytes in batches not handed over.
func (t *Table) Pending() (rows int, bytes int64) {
	rows, bytes = t.rows, t.rawSize
	for _, b := range t.done {
		rows, bytes = rows+len(b.Ops), bytes+b.RawSize
	}
	return rows, bytes
}

// Add takes one row in. A *PoisonError says that the record is poison and that
// the table is as before; any other error is fatal.
func (t *Table) Add(r *Row) error {
	if r.Op != event.Truncate {
		if err := t.checkKeys(r); err != nil {
			return err
		}
		if err := t.checkFields(r); err != nil {
			return err
		}
	}
	if err := t.prepare(r); err != nil {
		return err
	}
	truncate := r.Op == event.Truncate
	upsert := r.Op != event.Delete && !truncate
	blank := !upsert && !t.WholeDeletes
	row := t.rows
	rescued := r.Rescued
	for i, c := range t.cols {
		var cell Cell
		if i < len(r.Cells) {
			cell = r.Cells[i]
		}
		tok := cell.Tok
		switch {
		case upsert && cell.Unavailable:
			c.unauthored, c.unavailable = c.unauthored.Set(row), c.unavailable.Set(row)
			tok = Token{Kind: Null}
		case upsert && tok.Kind == None:
			if !t.MissingIsNull {
				c.unauthored = c.unauthored.Set(row)
			}
		case truncate, blank && !slices.Contains(t.keyIdx, i):
			tok = Token{Kind: Null}
		}
		if c.node == nil {
			if tok.Kind > Null {
				c.shape.Add(tok)
			}
			c.wait(tok)
			continue
		}
		if !c.node.add(c.b, tok, &t.s) {
			c.b.AppendNull()
			rescued = appendRescued(rescued, c.name, tok)
		}
	}
	t.rows++
	t.rawSize += r.Size
	t.ops = append(t.ops, r.Op)
	t.offsets = append(t.offsets, r.End)
	t.lines = append(t.lines, r.Line)
	if len(rescued) > 0 {
		t.anyRescued = true
		for len(t.rescued) < row {
			t.rescued = append(t.rescued, "")
		}
		t.rescued = append(t.rescued, "{"+string(rescued)+"}")
	} else if t.anyRescued {
		t.rescued = append(t.rescued, "")
	}
	if t.seq != nil {
		t.seq.add(&r.Seq)
	}
	var err error
	if t.oldKeys, err = t.addKeys(t.oldKeys, r.OldKey, row); err != nil {
		return err
	}
	t.newKeys, err = t.addKeys(t.newKeys, r.NewKey, row)
	return err
}

// appendRescued adds a member to the inside of a JSON object.
func appendRescued(buf []byte, name string, t Token) []byte {
	if len(buf) > 0 {
		buf = append(buf, ',')
	}
	buf = AppendString(buf, name)
	buf = append(buf, ':')
	return t.JSON(buf)
}

// checkKeys refuses a row whose key is absent, null, a placeholder or unreadable.
func (t *Table) checkKeys(r *Row) error {
	for k, i := range t.keyIdx {
		if i < 0 || i >= len(r.Cells) || r.Cells[i].Tok.Kind == None && !r.Cells[i].Unavailable {
			if t.NullKeys {
				continue
			}
			return Poison(event.PoisonKey, "KEY_ABSENT", "key column %q is not in the record", t.keys[k])
		}
		cell := r.Cells[i]
		switch {
		case cell.Unavailable:
			return Poison(event.PoisonKey, "KEY_UNAVAILABLE", "key column %q is a placeholder", t.keys[k])
		case cell.Tok.Kind == Null && t.NullKeys:
			continue
		case cell.Tok.Kind == Null:
			return Poison(event.PoisonKey, "KEY_NULL", "key column %q is null", t.keys[k])
		}
		if n := t.cols[i].node; n != nil && t.cols[i].shape == nil && !n.check(cell.Tok, &t.s) {
			return Poison(event.PoisonField, "KEY_UNREADABLE", "key column %q: cannot read %.100s as %s", t.keys[k], cell.Tok.Raw, n.Type)
		}
	}
	return nil
}

// checkFields refuses a row with a value that a strict table cannot read.
func (t *Table) checkFields(r *Row) error {
	if !t.Strict {
		return nil
	}
	for i, c := range t.cols {
		if i >= len(r.Cells) || c.shape != nil || r.Cells[i].Tok.Kind == None {
			continue
		}
		if tok := r.Cells[i].Tok; !c.node.check(tok, &t.s) {
			return Poison(event.PoisonField, "FIELD_TYPE", "column %q: cannot read %.100s as %s", c.name, tok.Raw, c.node.Type)
		}
	}
	return nil
}

// prepare closes the open batch where the row does not belong into it, and
// widens inferred columns that cannot hold the row's values.
func (t *Table) prepare(r *Row) error {
	if t.rows > 0 && (t.source != r.Source || t.topic != r.Topic || t.seq.differs(&r.Seq)) {
		if err := t.Cut(); err != nil {
			return err
		}
	}
	t.source, t.topic = r.Source, r.Topic
	if t.seq == nil || t.seq.kind != r.Seq.Kind {
		t.seq = newSeqBuilder(r.Seq.Kind)
	}
	if r.Op == event.Truncate {
		return nil
	}
	for i := range min(len(r.Cells), len(t.cols)) {
		c := t.cols[i]
		if c.shape == nil || c.node == nil || r.Cells[i].Unavailable {
			continue
		}
		tok := r.Cells[i].Tok
		if tok.Kind <= Null || fits(c.node.Type, tok) {
			continue
		}
		if r.Op == event.Delete && !t.WholeDeletes && !slices.Contains(t.keyIdx, i) {
			continue
		}
		if err := t.Cut(); err != nil {
			return err
		}
		c.shape.Add(tok)
		wider := c.shape.Type()
		if !fits(wider, tok) {
			wider = schema.String
		}
		c.node = NewNode(wider, t.Modes)
		var err error
		if c.b, err = newBuilder(wider); err != nil {
			return err
		}
	}
	return nil
}

// cutRows closes the open batch before its columns or keys change, unless it
// holds only truncates, which have neither: they stay with the rows to come.
func (t *Table) cutRows() error {
	for _, op := range t.ops {
		if op != event.Truncate {
			return t.Cut()
		}
	}
	return nil
}

// Cut closes the open batch.
func (t *Table) Cut() error {
	if t.rows == 0 {
		return nil
	}
	b := &event.Batch{
		Table: t.ID, Source: t.source, Topic: t.topic, Keys: slices.Clone(t.keys), Columns: &schema.Struct{},
		Ops: t.ops, Offsets: t.offsets, Lines: t.lines, RawSize: t.rawSize,
		Unauthored: make([]event.Bits, len(t.cols)), Unavailable: make([]event.Bits, len(t.cols)),
	}
	arrays := make([]arrow.Array, len(t.cols))
	for i, c := range t.cols {
		b.Unauthored[i], b.Unavailable[i] = c.unauthored, c.unavailable
		arr, err := c.finish(t.rows, t.Modes, &t.s)
		if err != nil {
			return err
		}
		arrays[i] = arr
		b.Columns.Fields = append(b.Columns.Fields, c.field())
	}
	rows, err := record(b.Columns, arrays, t.rows)
	if err != nil {
		return err
	}
	b.Rows = rows
	if t.anyRescued {
		for len(t.rescued) < t.rows {
			t.rescued = append(t.rescued, "")
		}
		b.Rescued = t.rescued
	}
	if t.seq != nil {
		if b.Seq, b.SeqType, err = t.seq.finish(); err != nil {
			return err
		}
	}
	if b.OldKeys, err = t.oldKeys.finish(t.rows); err != nil {
		return err
	}
	if b.NewKeys, err = t.newKeys.finish(t.rows); err != nil {
		return err
	}
	t.done = append(t.done, b)
	t.rows, t.rawSize, t.ops, t.offsets, t.lines = 0, 0, nil, nil, nil
	t.rescued, t.anyRescued, t.oldKeys, t.newKeys = nil, false, nil, nil
	return nil
}

// Take closes the open batch and hands over all closed ones.
func (t *Table) Take() ([]*event.Batch, error) {
	if err := t.Cut(); err != nil {
		return nil, err
	}
	done := t.done
	t.done = nil
	return done, nil
}

func record(s *schema.Struct, arrays []arrow.Array, rows int) (arrow.RecordBatch, error) {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	rb := array.NewRecordBatch(as, arrays, int64(rows))
	for _, a := range arrays {
		a.Release()
	}
	return rb, nil
}

// keyRows gathers the other keys of key changes.
type keyRows struct {
	cols []*column
	s    scratch
	mode Modes
	rows int
}

// addKeys takes the other key of the row in; it makes the columns on first use.
func (t *Table) addKeys(k *keyRows, key []Token, row int) (*keyRows, error) {
	if len(key) == 0 || len(key) != len(t.keyIdx) {
		return k, nil
	}
	if k == nil {
		k = &keyRows{mode: t.Modes}
		for i, c := range t.keyIdx {
			col := &column{name: t.keys[i], node: t.cols[c].node}
			if col.node == nil {
				col.shape = &Shape{Exact: t.Exact}
			} else if b, err := newBuilder(col.node.Type); err == nil {
				col.b = b
			} else {
				return nil, err
			}
			k.cols = append(k.cols, col)
		}
	}
	k.pad(row)
	for i, c := range k.cols {
		if c.node == nil {
			if key[i].Kind > Null {
				c.shape.Add(key[i])
			}
			c.wait(key[i])
		} else if !c.node.add(c.b, key[i], &k.s) {
			c.b.AppendNull()
		}
	}
	k.rows++
	return k, nil
}

func (k *keyRows) pad(rows int) {
	for ; k.rows < rows; k.rows++ {
		for _, c := range k.cols {
			if c.node == nil {
				c.wait(Token{Kind: Null})
			} else {
				c.b.AppendNull()
			}
		}
	}
}

func (k *keyRows) finish(rows int) (arrow.RecordBatch, error) {
	if k == nil {
		return nil, nil
	}
	k.pad(rows)
	s := &schema.Struct{}
	arrays := make([]arrow.Array, len(k.cols))
	for i, c := range k.cols {
		arr, err := c.finish(rows, k.mode, &k.s)
		if err != nil {
			return nil, err
		}
		arrays[i] = arr
		s.Fields = append(s.Fields, c.field())
	}
	return record(s, arrays, rows)
}

const hexDigits = "0123456789abcdef"

// AppendString writes s as a JSON string.
func AppendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c < 0x20:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			buf = append(buf, c)
		}
	}
	return append(buf, '"')
}

// SameTable compares a table name with a filter entry: "table", "schema.table",
// "database.table" or "database.schema.table".
func SameTable(t event.Table, want string) bool {
	if want == t.Name {
		return true
	}
	for _, parts := range [][]string{{t.Schema, t.Name}, {t.Database, t.Name}, {t.Database, t.Schema, t.Name}} {
		if parts[0] != "" && strings.Join(parts, ".") == want {
			return true
		}
	}
	return false
}

// InferredTypes lists the columns whose type was inferred, for the decoder's state.
func (t *Table) InferredTypes() []schema.Field {
	var out []schema.Field
	for _, c := range t.cols {
		if c.shape != nil && c.node != nil {
			out = append(out, schema.Field{Name: c.name, Type: c.node.Type, Nullable: true})
		}
	}
	return out
}

// HasPreset tells whether an earlier run inferred a type for the column.
func (t *Table) HasPreset(name string) bool { return t.preset[name] != nil }

// Preset gives the types that an earlier run inferred: columns of these names
// start with them.
func (t *Table) Preset(fields []schema.Field) {
	t.preset = map[string]schema.Type{}
	for _, f := range fields {
		t.preset[f.Name] = f.Type
	}
}
