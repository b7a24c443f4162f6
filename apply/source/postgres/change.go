package postgres

import (
	"bytes"
	"slices"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// change takes an insert, update or delete.
func (d *Decoder) change(r *event.Record, m *reader) error {
	t, err := d.tableOf(m.u32())
	if err != nil {
		return err
	}
	kind := m.u8()
	haveOld := byte(0)
	d.old = d.old[:0]
	if kind == 'K' || kind == 'O' {
		haveOld = kind
		d.old = m.tuple(d.old)
		if r.Value[0] != 'D' {
			kind = m.u8()
		}
	}
	d.row = d.row[:0]
	if r.Value[0] != 'D' {
		if kind != 'N' {
			return errShort
		}
		d.row = m.tuple(d.row)
	}
	if err := m.end(); err != nil {
		return err
	}
	if !d.inTx {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "a change outside of a transaction")
	}
	if !t.keep || len(t.keyIdx) == 0 {
		d.Control(event.ControlFiltered, 1)
		return nil
	}
	if haveOld != 0 && len(d.old) != len(t.plans) || r.Value[0] != 'D' && len(d.row) != len(t.plans) {
		return wire.Poison(event.PoisonEnvelope, "LENGTHS_DIFFER", "the tuple has %d and %d values, the table %d columns", len(d.old), len(d.row), len(t.plans))
	}
	seq := d.seq(r)
	switch r.Value[0] {
	case 'D':
		if haveOld == 0 {
			return wire.Poison(event.PoisonKey, "KEY_ABSENT", "a delete without the old row: replica identity NOTHING")
		}
		row := d.newRow(r, event.Delete, seq)
		d.fillKey(t, d.old)
		return d.put(t, row)
	case 'I':
		row := d.newRow(r, event.Insert, seq)
		d.fill(t, d.row, nil)
		return d.put(t, row)
	}
	if haveOld == 'O' {
		// The whole old row is at hand: what did not change is known after all.
		for i := range d.row {
			if d.row[i].kind == 'u' && d.old[i].kind != 'u' {
				d.row[i] = d.old[i]
			}
		}
	}
	row := d.newRow(r, event.Update, seq)
	if haveOld != 0 && d.moved(t) {
		return d.split(t, row)
	}
	d.fill(t, d.row, nil)
	return d.put(t, row)
}

// tableOf is the table that an R message described.
func (d *Decoder) tableOf(oid uint32) (*table, error) {
	t := d.byOID[oid]
	if t == nil || t.rel.oid != oid {
		return nil, wire.Poison(event.PoisonEnvelope, "UNKNOWN_RELATION", "relation %d was not described", oid)
	}
	return t, nil
}

func (d *Decoder) seq(r *event.Record) wire.Seq {
	return wire.Seq{Kind: wire.SeqPostgres, Epoch: d.opt.Epoch, N: [4]int64{d.commit, 1, r.Transport}}
}

func (d *Decoder) newRow(r *event.Record, op event.Op, seq wire.Seq) *wire.Row {
	d.out = wire.Row{Op: op, Seq: seq, Source: r.Source, End: r.End, Line: r.Line, Size: int64(len(r.Value))}
	return &d.out
}

// put adds the row of d.cells.
func (d *Decoder) put(t *table, row *wire.Row) error {
	row.Cells = d.cells
	if err := t.Add(row); err != nil {
		return err
	}
	d.Count(1, row.Size)
	return nil
}

// fill puts a tuple into cells; with of, only the columns that are in it.
func (d *Decoder) fill(t *table, tuple []cell, of []int) {
	d.clearCells(len(t.plans))
	if of != nil {
		for _, i := range of {
			d.cells[i] = d.cellOf(t.plans[i], tuple[i])
		}
		return
	}
	for i, c := range tuple {
		d.cells[i] = d.cellOf(t.plans[i], c)
	}
}

// fillKey puts the key columns of an old row into cells.
func (d *Decoder) fillKey(t *table, tuple []cell) { d.fill(t, tuple, t.keyIdx) }

func (d *Decoder) clearCells(n int) {
	if cap(d.cells) < n {
		d.cells = make([]wire.Cell, n)
	}
	d.cells = d.cells[:n]
	clear(d.cells)
}

func (d *Decoder) cellOf(p *plan, c cell) wire.Cell {
	switch c.kind {
	case 'n':
		return wire.Cell{Tok: wire.Token{Kind: wire.Null}}
	case 'u':
		return wire.Cell{Unavailable: true}
	}
	return wire.Cell{Tok: d.token(p, c.text)}
}

// moved tells whether the old key is another than the new one.
func (d *Decoder) moved(t *table) bool {
	for _, i := range t.keyIdx {
		was, is := d.old[i], d.row[i]
		if was.kind == 'u' || is.kind == 'u' {
			continue
		}
		if was.kind != is.kind || !bytes.Equal(was.text, is.text) {
			return true
		}
	}
	return false
}

// split makes a key change a delete of the old key and an upsert of the new one.
func (d *Decoder) split(t *table, row *wire.Row) error {
	if at := d.late[t.rel.schema+"."+t.rel.name]; d.commit < at && slices.ContainsFunc(d.row, func(c cell) bool { return c.kind == 'u' }) {
		return fail("COPY_OVERTAKEN", "table %s.%s: while its broken copy waited, a row with a value that is stored out of line got another key, and the value may not have been copied: copy the table anew, once, with option recopy=%s.%s",
			t.rel.schema, t.rel.name, t.rel.schema, t.rel.name)
	}
	d.oldKey, d.newKey = d.oldKey[:0], d.newKey[:0]
	for k, i := range t.keyIdx {
		if d.row[i].kind == 'n' {
			return wire.Poison(event.PoisonKey, "KEY_NULL", "key column %q is null", t.Keys()[k])
		}
		if d.row[i].kind == 'u' {
			d.row[i] = d.old[i] // a long key column that did not change
		}
		d.oldKey = append(d.oldKey, d.cellOf(t.plans[i], d.old[i]).Tok)
		d.newKey = append(d.newKey, d.cellOf(t.plans[i], d.row[i]).Tok)
	}
	del := *row
	del.Op, del.Size, del.NewKey = event.Delete, 0, d.newKey
	d.fillKey(t, d.old)
	if err := d.put(t, &del); err != nil {
		return err
	}
	row.Op, row.OldKey = event.Upsert, d.oldKey
	d.fill(t, d.row, nil)
	return d.put(t, row)
}

// truncate takes a T message: one event for each of its tables.
func (d *Decoder) truncate(r *event.Record, m *reader) error {
	n := int(m.u32())
	m.u8()
	var tables []*table
	for range n {
		t, err := d.tableOf(m.u32())
		if m.bad {
			return errShort
		}
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	if err := m.end(); err != nil {
		return err
	}
	if !d.inTx {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "a truncate outside of a transaction")
	}
	for _, t := range tables {
		if !t.keep || len(t.keyIdx) == 0 {
			d.Control(event.ControlFiltered, 1)
			continue
		}
		row := d.newRow(r, event.Truncate, d.seq(r))
		d.cells = d.cells[:0]
		if err := d.put(t, row); err != nil {
			return err
		}
	}
	return nil
}
