package changes

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// wal2json reads both versions of wal2json's output (cdc-formats F11).
type wal2json struct {
	// told are the names and types of the newest change, which mostly are those of the
	// next one too; types holds them by name, known is their print.
	told  [][2]wire.Token
	types map[string]string
	known []byte
	print []byte
}

func (*wal2json) options(map[string]string) ([]string, error) { return nil, nil }

func (f *wal2json) read(d *Decoder, r *event.Record, top []wire.Field) error {
	if changes := find(top, "change"); changes.Kind != wire.None {
		return f.version1(d, r, top, changes)
	}
	return f.version2(d, r, top)
}

// version1 is one transaction a message.
func (f *wal2json) version1(d *Decoder, r *event.Record, top []wire.Field, changes wire.Token) error {
	list, err := d.objects(changes, "change")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return d.control(event.ControlHeartbeat)
	}
	lsn, ok := lsnText(text(top, "nextlsn"))
	byPosition, err := d.usePosition(ok)
	if err != nil {
		return err
	}
	rows := 0
	for i, ch := range list {
		c := change{table: event.Table{Schema: text(ch, "schema"), Name: text(ch, "table")}}
		d.lastID = c.table
		c.seq = d.transport(r, i)
		if byPosition {
			c.seq = wire.Seq{Kind: wire.SeqWAL, Epoch: d.epoch, N: [4]int64{lsn, int64(i)}}
		}
		switch kind := text(ch, "kind"); kind {
		case "insert":
			c.op = event.Insert
		case "update":
			c.op = event.Update
		case "delete":
			c.op = event.Delete
		case "truncate":
			c.op = event.Truncate
			d.add(c)
			rows++
			continue
		case "message":
			continue
		default:
			return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "kind %.40q", kind)
		}
		if err := f.columns1(d, &c, ch); err != nil {
			return err
		}
		d.add(c)
		rows++
	}
	if rows == 0 {
		return d.control(event.ControlSignal)
	}
	return nil
}

// columns1 takes the parallel arrays of version 1.
func (f *wal2json) columns1(d *Decoder, c *change, ch []wire.Field) error {
	types := map[string]string{}
	var err error
	if c.image, err = zip(find(ch, "columnnames"), find(ch, "columntypes"), find(ch, "columnvalues"), types); err != nil {
		return err
	}
	if old := find(ch, "oldkeys"); old.Kind == wire.Object {
		k, err := d.members(old)
		if err != nil {
			return err
		}
		if c.old, err = zip(find(k, "keynames"), find(k, "keytypes"), find(k, "keyvalues"), types); err != nil {
			return err
		}
		c.keys = texts(find(k, "keynames"))
	}
	if pk := find(ch, "pk"); pk.Kind == wire.Object {
		k, err := d.members(pk)
		if err != nil {
			return err
		}
		if names := texts(find(k, "pknames")); len(names) > 0 {
			c.keys = names
		}
	}
	if c.op == event.Delete {
		if len(c.old) == 0 {
			return wire.Poison(event.PoisonKey, "KEY_ABSENT", "a delete without oldkeys names no row")
		}
		c.image, c.old = c.old, nil
	}
	f.plan(d, c, types)
	return nil
}

// zip pairs names, types and values.
func zip(names, types, values wire.Token, into map[string]string) ([]wire.Field, error) {
	if names.Kind == wire.None {
		return nil, nil
	}
	keys, typ := texts(names), texts(types)
	var out []wire.Field
	if values.Kind == wire.Array {
		wire.Elements(values, func(v wire.Token) bool {
			if len(out) < len(keys) {
				out = append(out, wire.Field{Key: quoted(keys[len(out)]), Val: v})
			} else {
				out = append(out, wire.Field{})
			}
			return true
		})
	}
	if len(out) != len(keys) || types.Kind != wire.None && len(typ) != len(keys) {
		return nil, wire.Poison(event.PoisonEnvelope, "LENGTHS_DIFFER", "%d names, %d types, %d values", len(keys), len(typ), len(out))
	}
	for i := range typ {
		into[keys[i]] = typ[i]
	}
	return out, nil
}

// quoted is a string token of a text.
func quoted(s string) wire.Token {
	q := wire.AppendString(nil, s)
	raw := q[1 : len(q)-1]
	return wire.Token{Kind: wire.String, Raw: raw, Esc: bytes.IndexByte(raw, '\\') >= 0}
}

// version2 is one change a message, between B and C of its transaction.
func (f *wal2json) version2(d *Decoder, r *event.Record, top []wire.Field) error {
	c := change{table: event.Table{Schema: text(top, "schema"), Name: text(top, "table")}}
	d.lastID = c.table
	switch action := text(top, "action"); action {
	case "B":
		d.state.Last = nil
		if lsn, ok := lsnText(text(top, "lsn")); ok {
			d.state.Last = []int64{lsn, 0}
		}
		return d.control(event.ControlTx)
	case "C":
		return d.control(event.ControlTx)
	case "M":
		return d.control(event.ControlSignal)
	case "I":
		c.op = event.Insert
	case "U":
		c.op = event.Update
	case "D":
		c.op = event.Delete
	case "T":
		c.op = event.Truncate
	case "":
		return wire.Poison(event.PoisonEnvelope, "MISSING_OP", "the message has no action")
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "action %.40q", action)
	}
	d.isDelete = c.op == event.Delete
	byPosition, err := d.usePosition(len(d.state.Last) == 2)
	if err != nil {
		return err
	}
	c.seq = d.transport(r, 0)
	if byPosition {
		c.seq = wire.Seq{Kind: wire.SeqWAL, Epoch: d.epoch, N: [4]int64{d.state.Last[0], d.state.Last[1]}}
		d.state.Last[1]++
	}
	if c.op == event.Truncate {
		d.add(c)
		return nil
	}
	f.told = f.told[:0]
	if c.image, err = f.namedValues(d, find(top, "columns")); err != nil {
		return err
	}
	if c.old, err = f.namedValues(d, find(top, "identity")); err != nil {
		return err
	}
	types := f.typesTold()
	c.keys = d.names(c.old)
	if pk, err := f.namedValues(d, find(top, "pk")); err != nil {
		return err
	} else if len(pk) > 0 {
		c.keys = d.names(pk)
	}
	if c.op == event.Delete {
		c.image, c.old = c.old, nil
	}
	if len(c.image) == 0 {
		return wire.Poison(event.PoisonKey, "KEY_ABSENT", "the change carries no columns: replica identity NOTHING")
	}
	f.plan(d, &c, types)
	d.add(c)
	return nil
}

// namedValues reads [{"name","type","value"}].
func (f *wal2json) namedValues(d *Decoder, t wire.Token) ([]wire.Field, error) {
	if t.Kind <= wire.Null {
		return nil, nil
	}
	if t.Kind != wire.Array {
		return nil, wire.Poison(event.PoisonEnvelope, "NOT_AN_ARRAY", "columns is no array")
	}
	out := make([]wire.Field, 0, 16)
	var err error
	wire.Elements(t, func(e wire.Token) bool {
		var col []wire.Field
		if col, err = d.members(e); err != nil {
			return false
		}
		name := find(col, "name")
		if name.Kind != wire.String {
			err = wire.Poison(event.PoisonEnvelope, "BAD_COLUMN", "a column has no name: %.60s", e.Raw)
			return false
		}
		f.told = append(f.told, [2]wire.Token{name, find(col, "type")})
		out = append(out, wire.Field{Key: name, Val: find(col, "value")})
		return true
	})
	return out, err
}

// typesTold are the types of the columns that the current change tells, by name.
func (f *wal2json) typesTold() map[string]string {
	f.print = f.print[:0]
	for _, c := range f.told {
		f.print = append(append(append(append(f.print, c[0].Raw...), 0), c[1].Raw...), 0)
	}
	if f.types == nil || !bytes.Equal(f.print, f.known) {
		f.types, f.known = make(map[string]string, len(f.told)), bytes.Clone(f.print)
		for _, c := range f.told {
			if c[1].Kind == wire.String {
				f.types[string(c[0].Text(nil))] = string(c[1].Text(nil))
			}
		}
	}
	return f.types
}

// plan plans columns by PostgreSQL's types and puts dates of the DateStyle
// "Postgres" into ISO form; other styles are ambiguous and left as they are.
func (*wal2json) plan(d *Decoder, c *change, types map[string]string) {
	for _, fields := range [][]wire.Field{c.image, c.old} {
		for i, f := range fields {
			if strings.HasPrefix(types[string(f.Key.Text(nil))], "timestamp") && f.Val.Kind == wire.String {
				if at, err := time.Parse("Mon Jan 02 15:04:05.999999 2006", string(f.Val.Raw)); err == nil {
					fields[i].Val = quoted(at.Format("2006-01-02T15:04:05.999999"))
				}
			}
		}
	}
	c.typed = make([]byte, 0, 16*len(c.image))
	for _, f := range c.image {
		c.typed = append(append(c.typed, types[string(f.Key.Text(nil))]...), 0)
	}
	c.node = func(name string) *wire.Node { return pgNode(types[name], d.opt.Zone) }
}

// lsnText reads X/Y.
func lsnText(s string) (int64, bool) {
	hi, lo, ok := strings.Cut(s, "/")
	if !ok {
		return 0, false
	}
	h, err1 := strconv.ParseUint(hi, 16, 31)
	l, err2 := strconv.ParseUint(lo, 16, 32)
	return int64(h<<32 | l), err1 == nil && err2 == nil
}

// pgNode is the plan of a column of a PostgreSQL type (cdc-formats F11); nil for
// a type that is not known.
func pgNode(typ string, zone *time.Location) *wire.Node {
	base, args, _ := strings.Cut(typ, "(")
	args, rest, _ := strings.Cut(args, ")")
	base = strings.TrimSpace(strings.TrimSpace(base) + rest)
	plain := func(t schema.Type) *wire.Node {
		return wire.NewNode(t, wire.Modes{Lenient: true, Decimal: wire.DecimalText, Binary: wire.Hex, Zone: zone})
	}
	switch base {
	case "smallint", "int2", "smallserial":
		return plain(schema.Short)
	case "integer", "int", "int4", "serial":
		return plain(schema.Integer)
	case "bigint", "int8", "bigserial", "oid":
		return plain(schema.Long)
	case "real", "float4":
		return plain(schema.Float)
	case "double precision", "float8":
		return plain(schema.Double)
	case "numeric", "decimal":
		if args == "" {
			return plain(schema.String)
		}
		return plain(mysqlDecimal(args))
	case "boolean", "bool":
		return plain(schema.Boolean)
	case "date":
		return plain(schema.Date)
	case "timestamp without time zone", "timestamp":
		return plain(schema.TimestampNTZ)
	case "timestamp with time zone", "timestamptz":
		return plain(schema.Timestamp)
	case "bytea":
		return plain(schema.Binary)
	case "":
		return nil
	}
	return plain(schema.String)
}
