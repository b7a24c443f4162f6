package changes

import (
	"bytes"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// canal reads Canal's flat messages and TiCDC's canal-json (cdc-formats F5).
type canal struct {
	// typeOf are the types of the newest mysqlType, which repeats in every message.
	typeOf  map[string]string
	typeRaw []byte
}

func (*canal) options(map[string]string) ([]string, error) { return nil, nil }

func (f *canal) read(d *Decoder, r *event.Record, top []wire.Field) error {
	id := event.Table{Database: text(top, "database"), Name: text(top, "table")}
	typ := strings.ToUpper(text(top, "type"))
	d.lastID, d.isDelete = id, typ == "DELETE"
	ddl := find(top, "isDdl").Kind == wire.True
	tidb, err := tidbFields(d, top)
	if err != nil {
		return err
	}
	switch {
	case ddl && typ == "TRUNCATE":
		return f.truncate(d, r, id, tidb)
	case ddl:
		return d.control(event.ControlSchema)
	case typ == "TIDB_WATERMARK":
		return d.control(event.ControlHeartbeat)
	}
	var op event.Op
	switch typ {
	case "INSERT":
		op = event.Insert
	case "UPDATE":
		op = event.Update
	case "DELETE":
		op = event.Delete
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no type")
	case "QUERY", "CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "TRUNCATE":
		return d.control(event.ControlSchema)
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "type %.40q", typ)
	}
	if id.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the message names no table")
	}
	if find(tidb, "claimCheckLocation").Kind == wire.String {
		return wire.Poison(event.PoisonEnvelope, "CLAIM_CHECK", "the message lies in other storage, which is not read")
	}
	types, err := f.types(d, find(top, "mysqlType"))
	if err != nil {
		return err
	}
	rows, err := d.objects(find(top, "data"), "data")
	if err != nil {
		return err
	}
	var olds [][]wire.Field
	if old := find(top, "old"); old.Kind > wire.Null && op == event.Update {
		if olds, err = d.objects(old, "old"); err != nil {
			return err
		}
		if len(olds) != len(rows) {
			return wire.Poison(event.PoisonEnvelope, "LENGTHS_DIFFER", "data has %d rows, old %d", len(rows), len(olds))
		}
	}
	forms := mysqlForms{binary: wire.Latin1, labels: true, zone: d.opt.Zone}
	if tidb != nil {
		forms.labels = false
	}
	keys := d.texts(find(top, "pkNames"))
	keyOnly := find(tidb, "onlyHandleKey").Kind == wire.True
	if keyOnly && op != event.Delete {
		return wire.Poison(event.PoisonEnvelope, "KEY_ONLY", "the message carries only the key of the row (onlyHandleKey), not its values")
	}
	commit, hasCommit := number(find(tidb, "commitTs"))
	byPosition, err := d.usePosition(hasCommit)
	if err != nil {
		return err
	}
	for i, row := range rows {
		c := change{table: id, op: op, image: row, typed: find(top, "mysqlType").Raw, node: func(name string) *wire.Node { return forms.node(types[name]) }}
		if len(keys) > 0 {
			c.keys = keys
		}
		if olds != nil {
			c.old = olds[i]
		}
		c.seq = d.transport(r, i)
		if byPosition {
			c.seq = wire.Seq{Kind: wire.SeqTiDB, Epoch: d.epoch, N: [4]int64{commit, r.Transport, int64(i)}}
		}
		d.add(c)
	}
	if len(rows) == 0 {
		return wire.Poison(event.PoisonEnvelope, "NO_ROWS", "%s message without data", typ)
	}
	return nil
}

func (*canal) truncate(d *Decoder, r *event.Record, id event.Table, tidb []wire.Field) error {
	commit, has := number(find(tidb, "commitTs"))
	byPosition, err := d.usePosition(has)
	if err != nil {
		return err
	}
	c := change{table: id, op: event.Truncate, seq: d.transport(r, 0)}
	if byPosition {
		c.seq = wire.Seq{Kind: wire.SeqTiDB, Epoch: d.epoch, N: [4]int64{commit, r.Transport}}
	}
	d.add(c)
	return nil
}

// tidbFields are the members of _tidb; nil if the message has none.
func tidbFields(d *Decoder, top []wire.Field) ([]wire.Field, error) {
	t := find(top, "_tidb")
	if t.Kind != wire.Object {
		return nil, nil
	}
	return d.members(t)
}

// objects parses an array of objects.
func objects(t wire.Token, what string) ([][]wire.Field, error) { return objectsBy(t, what, members) }

func objectsBy(t wire.Token, what string, members func(wire.Token) ([]wire.Field, error)) ([][]wire.Field, error) {
	if t.Kind <= wire.Null {
		return nil, nil
	}
	if t.Kind != wire.Array {
		return nil, wire.Poison(event.PoisonEnvelope, "NOT_AN_ARRAY", "%s is no array", what)
	}
	out := [][]wire.Field{}
	var err error
	wire.Elements(t, func(e wire.Token) bool {
		var row []wire.Field
		if row, err = members(e); err != nil {
			return false
		}
		out = append(out, row)
		return true
	})
	return out, err
}

// types is the object of type names by column.
func (f *canal) types(d *Decoder, t wire.Token) (map[string]string, error) {
	if t.Kind <= wire.Null {
		return nil, nil
	}
	if f.typeOf != nil && bytes.Equal(f.typeRaw, t.Raw) {
		return f.typeOf, nil
	}
	fields, err := d.members(t)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(fields))
	for _, m := range fields {
		if m.Val.Kind == wire.String {
			out[string(m.Key.Text(nil))] = string(m.Val.Text(nil))
		}
	}
	f.typeOf, f.typeRaw = out, bytes.Clone(t.Raw)
	return out, nil
}
