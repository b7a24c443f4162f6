package wire

import (
	"slices"

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
