package wire

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

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
