package changes

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// ticdc reads TiCDC's simple protocol, its open protocol and its CSV files
// (cdc-formats F5). Column types of the simple protocol come from the table schemas
// of BOOTSTRAP and DDL messages; rows wait for them.
type ticdc struct {
	infer  bool // rows do not wait
	base64 bool // keys and values are base64 text, as binary topics are dumped
}

func (f *ticdc) options(settings map[string]string) ([]string, error) {
	f.infer, f.base64 = settings["schema"] == "infer", settings["encoding"] == "base64"
	for name, want := range map[string][2]string{"schema": {"infer", "wait"}, "encoding": {"base64", "raw"}} {
		if v := settings[name]; v != "" && v != want[0] && v != want[1] {
			return nil, fmt.Errorf("%s=%s: want %s or %s", name, v, want[0], want[1])
		}
	}
	return []string{"schema", "encoding"}, nil
}

func (f *ticdc) read(d *Decoder, r *event.Record, top []wire.Field) error {
	id := event.Table{Database: text(top, "database"), Name: text(top, "table")}
	typ := text(top, "type")
	d.lastID, d.isDelete = id, typ == "DELETE"
	c := change{table: id}
	switch typ {
	case "INSERT":
		c.op = event.Insert
	case "UPDATE":
		c.op = event.Update
	case "DELETE":
		c.op = event.Delete
	case "WATERMARK":
		return d.control(event.ControlHeartbeat)
	case "BOOTSTRAP", "CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "QUERY", "CINDEX", "DINDEX":
		if err := f.learn(d, find(top, "tableSchema")); err != nil {
			return err
		}
		if err := f.releaseOf(d, find(top, "tableSchema")); err != nil {
			return err
		}
		if typ == "TRUNCATE" {
			return f.truncate(d, r, top)
		}
		return d.control(event.ControlSchema)
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no type")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "type %.40q", typ)
	}
	if id.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the message names no table")
	}
	if find(top, "claimCheckLocation").Kind == wire.String {
		return wire.Poison(event.PoisonEnvelope, "CLAIM_CHECK", "the message lies in other storage, which is not read")
	}
	if find(top, "handleKeyOnly").Kind == wire.True && c.op != event.Delete {
		return wire.Poison(event.PoisonEnvelope, "KEY_ONLY", "the message carries only the key of the row (handleKeyOnly), not its values")
	}
	if err := f.images(d, &c, top); err != nil {
		return err
	}
	commit, ok := number(find(top, "commitTs"))
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "commitTs is missing or unreadable")
	}
	c.seq = wire.Seq{Kind: wire.SeqTiDB, Epoch: d.epoch, N: [4]int64{commit, r.Transport}}
	declared := d.state.Declared[wire.TableKey(id)]
	if declared == nil && !f.infer && d.opt.Schema == nil {
		if !wire.Asked(id, d.opt.Tables) {
			return d.control(event.ControlFiltered)
		}
		return f.hold(d, r, id)
	}
	if declared == nil {
		d.Warn("rows of table %s came before its schema (BOOTSTRAP): their types are inferred or those of --schema", id.Name)
	}
	forms := mysqlForms{labels: true, zone: d.opt.Zone}
	c.typed = strconv.AppendInt(nil, int64(d.round), 10)
	c.node = func(name string) *wire.Node { return forms.node(declared[name]) }
	c.keys = d.state.Keys[wire.TableKey(id)]
	d.add(c)
	return nil
}

// releaseOf reads the rows that waited for this schema.
func (f *ticdc) releaseOf(d *Decoder, t wire.Token) error {
	if t.Kind <= wire.Null || len(d.state.Waiting) == 0 {
		return nil
	}
	s, err := d.members(t)
	if err != nil {
		return err
	}
	return f.release(d, wire.TableKey(event.Table{Database: text(s, "schema"), Name: text(s, "table")}))
}

// images takes data and old; timestamps are objects of location and value.
func (*ticdc) images(d *Decoder, c *change, top []wire.Field) error {
	var err error
	read := func(name string) ([]wire.Field, error) {
		t := find(top, name)
		if t.Kind <= wire.Null {
			return nil, nil
		}
		fields, err := d.members(t)
		for i, f := range fields {
			if f.Val.Kind == wire.Object {
				inner, err := d.members(f.Val)
				if err != nil {
					return nil, err
				}
				if v := find(inner, "value"); v.Kind == wire.String {
					fields[i].Val = zoned(v, text(inner, "location"))
				}
			}
		}
		return fields, err
	}
	if c.image, err = read("data"); err != nil {
		return err
	}
	if c.old, err = read("old"); err != nil {
		return err
	}
	if c.op == event.Delete {
		c.image, c.old = c.old, nil
	}
	if c.image == nil {
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the message has no row")
	}
	return nil
}

// zoned gives a timestamp text its zone, which stands beside it.
func zoned(v wire.Token, location string) wire.Token {
	zone, err := time.LoadLocation(location)
	if err != nil {
		return v
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05.999999", string(v.Raw), zone)
	if err != nil {
		return v
	}
	return quoted(at.UTC().Format(time.RFC3339Nano))
}

func (*ticdc) truncate(d *Decoder, r *event.Record, top []wire.Field) error {
	s, err := d.members(find(top, "tableSchema"))
	if err != nil {
		return err
	}
	commit, ok := number(find(top, "commitTs"))
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "commitTs is missing or unreadable")
	}
	id := event.Table{Database: text(s, "schema"), Name: text(s, "table")}
	d.add(change{table: id, op: event.Truncate, seq: wire.Seq{Kind: wire.SeqTiDB, Epoch: d.epoch, N: [4]int64{commit, r.Transport}}, keys: d.state.Keys[wire.TableKey(id)]})
	return nil
}

// learn takes types and key of a table schema.
func (*ticdc) learn(d *Decoder, t wire.Token) error {
	if t.Kind <= wire.Null {
		return nil
	}
	s, err := d.members(t)
	if err != nil {
		return err
	}
	key := wire.TableKey(event.Table{Database: text(s, "schema"), Name: text(s, "table")})
	types := map[string]string{}
	cols, err := d.objects(find(s, "columns"), "columns")
	if err != nil {
		return err
	}
	for _, col := range cols {
		typ, err := d.members(find(col, "dataType"))
		if err != nil {
			return err
		}
		types[text(col, "name")] = simpleType(typ)
	}
	d.state.Declared[key] = types
	d.round++
	indexes, err := d.objects(find(s, "indexes"), "indexes")
	if err != nil {
		return err
	}
	for _, ix := range indexes {
		if find(ix, "primary").Kind == wire.True {
			d.state.Keys[key] = texts(find(ix, "columns"))
		}
	}
	return nil
}

// simpleType prints a data type of the simple protocol as MySQL would.
func simpleType(typ []wire.Field) string {
	name := text(typ, "mysqlType")
	length, decimals := find(typ, "length"), find(typ, "decimal")
	switch {
	case name == "decimal" && length.Kind == wire.Number && decimals.Kind == wire.Number:
		name += "(" + string(length.Raw) + "," + string(decimals.Raw) + ")"
	case name == "bit" && length.Kind == wire.Number:
		name += "(" + string(length.Raw) + ")"
	case name == "enum" || name == "set":
		name += "("
		for i, e := range texts(find(typ, "elements")) {
			if i > 0 {
				name += ","
			}
			name += "'" + quoteLabel(e) + "'"
		}
		name += ")"
	}
	if find(typ, "unsigned").Kind == wire.True {
		name += " unsigned"
	}
	return name
}

func quoteLabel(s string) string {
	var out []byte
	for i := range len(s) {
		if s[i] == '\'' {
			out = append(out, '\'')
		}
		out = append(out, s[i])
	}
	return string(out)
}
