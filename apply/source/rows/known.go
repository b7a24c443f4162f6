package rows

import (
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// Hint implements event.Hinted.
func (d *Decoder) Hint(types *schema.Struct) {
	if d.hints == nil {
		d.hints = types
	}
}

// hint is the type of a column that is known from elsewhere; nil if none is.
func (d *Decoder) hint(name string) schema.Type {
	if d.hints == nil {
		return nil
	}
	if i := d.hints.Index(name); i >= 0 {
		return d.hints.Fields[i].Type
	}
	return nil
}

// plan reads a column's values as its hint says; nil: inferred.
func (d *Decoder) plan(name string, text bool) *wire.Node {
	t := d.hint(name)
	if t == nil {
		return nil
	}
	modes := d.modes
	modes.Lenient = text
	return wire.NewNode(t, modes)
}

// recall adds to the columns that are known; types that came last win.
func (d *Decoder) recall(types map[string][]wire.TypedColumn) {
	for name, cols := range types {
		all := slices.Clone(d.types[name])
		for _, c := range cols {
			i := slices.IndexFunc(all, func(k wire.TypedColumn) bool { return strings.EqualFold(k.Name, c.Name) })
			switch {
			case i < 0:
				all = append(all, c)
			case c.Type != "":
				all[i].Type = c.Type
			}
		}
		d.types[name] = all
	}
}

// columns lists what is known of a table's columns; a type that was not inferred is "".
func (t *table) columns() []wire.TypedColumn {
	var out []wire.TypedColumn
	for i, f := range t.Schema().Fields {
		c := wire.TypedColumn{Name: f.Name}
		if t.Inferred(i) && f.Type != schema.Type(schema.Void) {
			c.Type = f.Type.String()
		}
		out = append(out, c)
	}
	return out
}

// known gives a table, before its first record, the columns that other records of
// the source have; what a record lacks of them it does not author.
func (d *Decoder) known(t *table) error {
	if t.began || d.opt.Schema != nil {
		return nil
	}
	t.began = true
	for _, c := range d.types[t.ID.Name] {
		if d.opName != "" && strings.EqualFold(c.Name, d.opName) || t.Lookup([]byte(c.Name), 0) >= 0 {
			continue
		}
		if _, err := t.AddColumn(c.Name, d.plan(c.Name, false)); err != nil {
			return err
		}
	}
	return nil
}

// tellMissing warns, once, that an upsert lacks fields that other records have.
func (d *Decoder) tellMissing(t *table, row *wire.Row, text bool) {
	if d.told || text || d.opt.Schema != nil || d.opt.NoOp || row.Op == event.Delete || row.Op == event.Truncate {
		return
	}
	for i := range d.cells {
		if d.cells[i].Tok.Kind == wire.None {
			d.told = true
			d.Warn("line %d lacks field %s, which other records have: a missing field keeps its value; where it should be null, give the columns (--schema, or CREATE SOURCE), else say missing_fields=keep", row.Line, t.Name(i))
			return
		}
	}
}
