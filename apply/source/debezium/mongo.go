package debezium

import (
	"bytes"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// mongoKeys is the key of every collection.
var mongoKeys = []string{"_id"}

// mongoImages reads documents, which come as JSON text. A document is whole: a field
// that it lacks is null. An update that carries only what changed, or whose document
// was gone when it was looked up, speaks of the fields that it names and of no others.
func (d *Decoder) mongoImages(e *envelope) error {
	parse := func(t wire.Token, into []wire.Field) ([]wire.Field, error) {
		if t.Kind != wire.String {
			return into, nil
		}
		text := t.Text(nil)
		fields, end, err := wire.ParseObject(text, 0, into)
		if err == nil {
			err = wire.End(text, end)
		}
		if err != nil {
			return into[:0], badBytes(err)
		}
		return fields, wire.Unique(fields)
	}
	var err error
	if d.row, err = parse(e.after, d.row); err != nil {
		return err
	}
	if d.old, err = parse(e.before, d.old); err != nil {
		return err
	}
	d.whole = e.after.Kind == wire.String
	if !d.whole && e.update.Kind == wire.Object && e.op.Is("u") {
		e.partial = true
		return d.mongoPartial(e.update, parse)
	}
	return nil
}

// mongoPartial makes the row of updatedFields and removedFields. What changes the
// inside of a field cannot be applied without the document: the field is a column.
func (d *Decoder) mongoPartial(update wire.Token, parse func(wire.Token, []wire.Field) ([]wire.Field, error)) error {
	parts, _, err := wire.ParseObject(update.Raw, 0, nil)
	if err != nil {
		return badBytes(err)
	}
	inner := func(path []byte) error {
		return wire.Poison(event.PoisonEnvelope, "PARTIAL_DOCUMENT", "the update changes the inside of field %q and carries no document; set capture.mode=change_streams_update_full", path)
	}
	if d.row, err = parse(find(parts, "updatedFields"), d.row); err != nil {
		return err
	}
	for _, f := range d.row {
		if path := f.Key.Text(nil); bytes.IndexByte(path, '.') >= 0 {
			return inner(path)
		}
	}
	wire.Elements(find(parts, "removedFields"), func(e wire.Token) bool {
		if path := e.Text(nil); bytes.IndexByte(path, '.') >= 0 {
			err = inner(path)
			return false
		}
		d.row = append(d.row, wire.Field{Key: e, Val: wire.Token{Kind: wire.Null, Raw: []byte("null")}})
		return true
	})
	wire.Elements(find(parts, "truncatedArrays"), func(e wire.Token) bool {
		wire.Members(e, func(k, v wire.Token) bool {
			if k.Is("field") {
				err = inner(v.Text(nil))
			}
			return err == nil
		})
		return err == nil
	})
	return err
}

// dateColumn makes a column of dates, or one of a column of which no value is known.
func (d *Decoder) dateColumn(t *table, name string) error {
	node := wire.NewNode(schema.Timestamp, wire.Modes{Zone: d.opt.Zone})
	i := t.Lookup([]byte(name), 0)
	if i < 0 {
		_, err := t.AddColumn(name, node)
		return err
	}
	if t.Node(i) != nil {
		return nil
	}
	return t.SetNode(i, node)
}

// wholeColumns gives the table the columns that earlier runs knew: a document that
// lacks one says that it is null.
func (d *Decoder) wholeColumns(t *table) error {
	if t.whole {
		return nil
	}
	t.whole = true
	for _, c := range d.state.Columns[wire.TableKey(t.ID)] {
		var err error
		if c.Type == schema.Timestamp.String() && !t.HasPreset(c.Name) {
			err = d.dateColumn(t, c.Name)
		} else {
			_, err = d.column(t, c.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mongoID makes one text of a document id, however it is written: in extended
// JSON a long is {"$numberLong":"7001"} here and 7001 there. Numbers become
// their digits, strings keep their quotes, other types their JSON.
func mongoID(t wire.Token) wire.Token {
	text := t.JSON(nil)
	if t.Kind == wire.Object {
		n := 0
		wire.Members(t, func(k, v wire.Token) bool {
			n++
			if (k.Is("$numberLong") || k.Is("$numberInt")) && v.Kind == wire.String {
				text = v.Raw
			}
			return true
		})
		if n != 1 {
			text = t.Raw
		}
	}
	if t.Kind <= wire.Null {
		return t
	}
	quoted := wire.AppendString(nil, string(text))
	return wire.Token{Kind: wire.String, Esc: t.Kind == wire.String || t.Kind == wire.Object, Raw: quoted[1 : len(quoted)-1]}
}

// mongoNames puts the ids of images and key under _id in their one form, and makes
// plain values of the extended JSON of the other fields.
func (d *Decoder) mongoNames(t *table) error {
	if hint, ok := d.opt.hint(mongoKeys[0]); ok && t.Lookup([]byte(mongoKeys[0]), 0) < 0 {
		node := d.opt.bare(mongoKeys[0], hint)
		node.Lenient = true // the one form of ids is text
		if _, err := t.AddColumn(mongoKeys[0], node); err != nil {
			return err
		}
	}
	for _, fields := range [][]wire.Field{d.row, d.old} {
		for i := range fields {
			if fields[i].Key.Is("_id") {
				fields[i].Val = mongoID(fields[i].Val)
				continue
			}
			var typ schema.Type
			fields[i].Val, typ = wire.Extended(fields[i].Val)
			name := fields[i].Key.Text(nil)
			if _, hinted := d.opt.hint(string(name)); typ == nil || hinted {
				continue
			}
			if t.HoldsValues(string(name)) {
				fields[i].Val = wire.DateText(fields[i].Val)
				continue
			}
			if err := d.dateColumn(t, string(name)); err != nil {
				return err
			}
		}
	}
	id := find(d.key, "id")
	if id.Kind != wire.String {
		d.key = d.key[:0]
		return nil
	}
	text := id.Text(nil)
	tok, end, err := wire.Value(text, 0)
	if err == nil {
		err = wire.End(text, end)
	}
	if err != nil {
		return badBytes(err)
	}
	d.key = append(d.key[:0], wire.Field{Key: wire.Token{Kind: wire.String, Raw: []byte("_id")}, Val: mongoID(tok)})
	return nil
}
