package debezium

import (
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// mongoKeys is the key of every collection.
var mongoKeys = []string{"_id"}

// mongoImages reads documents, which come as JSON text. An update that carries
// only what changed, or a document that was gone when it was looked up, has no
// image to apply.
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
	if len(d.row) == 0 && e.update.Kind == wire.Object {
		return wire.Poison(event.PoisonEnvelope, "PARTIAL_DOCUMENT", "an update without the full document; set capture.mode=change_streams_update_full")
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
			if _, hinted := d.opt.hint(string(name)); typ == nil || hinted || t.Lookup(name, i) >= 0 || t.HasPreset(string(name)) {
				continue
			}
			if _, err := t.AddColumn(string(name), wire.NewNode(typ, wire.Modes{Zone: d.opt.Zone})); err != nil {
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
