package changes

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// IsOpenProtocol tells whether a key is one of TiCDC's open protocol: version 1 in eight
// bytes, then a frame.
func IsOpenProtocol(key []byte) bool {
	return len(key) >= 8 && binary.BigEndian.Uint64(key) == 1
}

// raw reads messages of TiCDC's open protocol, which are frames of JSON: one event
// in the key and one in the value by turns of length and bytes.
func (f *ticdc) raw(d *Decoder, r *event.Record) (bool, error) {
	key, value := r.Key, r.Value
	if f.base64 {
		for _, b := range []*[]byte{&key, &value} {
			raw, err := base64.StdEncoding.AppendDecode(nil, *b)
			if err != nil {
				return true, wire.Poison(event.PoisonBytes, "BAD_BASE64", "%s", err.Error())
			}
			*b = raw
		}
	}
	if !IsOpenProtocol(key) {
		return false, nil
	}
	key = key[8:]
	for index := 0; len(key) > 0; index++ {
		var k, v []byte
		var ok bool
		if k, key, ok = frame(key); !ok {
			return true, wire.Poison(event.PoisonBytes, "BAD_FRAME", "event %d: the key's frame breaks off", index)
		}
		if len(value) > 0 {
			if v, value, ok = frame(value); !ok {
				return true, wire.Poison(event.PoisonBytes, "BAD_FRAME", "event %d: the value's frame breaks off", index)
			}
		}
		if err := f.open(d, r, index, k, v); err != nil {
			return true, err
		}
	}
	if len(value) > 0 {
		return true, wire.Poison(event.PoisonBytes, "BAD_FRAME", "%d bytes of the value are left over", len(value))
	}
	return true, nil
}

// frame takes a length of eight bytes and as many bytes.
func frame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, nil, false
	}
	return b[8 : 8+n], b[8+n:], true
}

// open reads one event: ts, schema, table and kind from the key, images from the value.
func (f *ticdc) open(d *Decoder, r *event.Record, index int, k, v []byte) error {
	head, err := object(k, nil)
	if err != nil {
		return err
	}
	kind, _ := number(find(head, "t"))
	switch kind {
	case 1:
	case 2:
		return d.control(event.ControlSchema)
	case 3:
		return d.control(event.ControlHeartbeat)
	default:
		return wire.Poison(event.PoisonEnvelope, "UNKNOWN_OP", "kind %.40s of an event", find(head, "t").Raw)
	}
	c := change{table: event.Table{Database: text(head, "scm"), Name: text(head, "tbl")}}
	d.lastID = c.table
	if c.table.Name == "" {
		return wire.Poison(event.PoisonEnvelope, "MISSING_TABLE", "the event names no table")
	}
	ts, ok := number(find(head, "ts"))
	if !ok {
		return wire.Poison(event.PoisonOrder, "MISSING_POSITION", "ts is missing or unreadable")
	}
	c.seq = wire.Seq{Kind: wire.SeqTiDB, Epoch: d.epoch, N: [4]int64{ts, r.Transport, int64(index)}}
	body, err := object(v, nil)
	if err != nil {
		return err
	}
	types := map[string]string{}
	read := func(name string) ([]wire.Field, error) {
		t := find(body, name)
		if t.Kind != wire.Object {
			return nil, nil
		}
		return f.openRow(t, types, &c.keys)
	}
	after, err := read("u")
	if err != nil {
		return err
	}
	before, err := read("p")
	if err != nil {
		return err
	}
	gone, err := read("d")
	if err != nil {
		return err
	}
	switch {
	case after != nil && before != nil:
		c.op, c.image, c.old = event.Update, after, before
	case after != nil:
		c.op, c.image = event.Upsert, after
	case gone != nil:
		c.op, c.image, d.isDelete = event.Delete, gone, true
	default:
		return wire.Poison(event.PoisonEnvelope, "AFTER_MISSING", "the event has no row")
	}
	if find(head, "ohk").Kind == wire.True && c.op != event.Delete {
		return wire.Poison(event.PoisonEnvelope, "KEY_ONLY", "the event carries only the key of the row, not its values")
	}
	forms := mysqlForms{zone: d.opt.Zone}
	for _, name := range sortedNames(types) {
		c.typed = append(append(append(append(c.typed, name...), ':'), types[name]...), ';')
	}
	c.node = func(name string) *wire.Node { return forms.node(types[name]) }
	d.add(c)
	return nil
}

func sortedNames(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// The flags of a column.
const (
	openBinary, openHandle, openUnsigned = 1, 2, 128
)

// openRow reads the columns {"t":type,"h":handle,"f":flags,"v":value} of an image.
func (*ticdc) openRow(t wire.Token, types map[string]string, keys *[]string) ([]wire.Field, error) {
	cols, err := members(t)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Field, 0, len(cols))
	var handles []string
	for _, col := range cols {
		def, err := members(col.Val)
		if err != nil {
			return nil, err
		}
		name := string(col.Key.Text(nil))
		code, _ := number(find(def, "t"))
		flags, _ := number(find(def, "f"))
		if flags&openHandle != 0 || find(def, "h").Kind == wire.True {
			handles = append(handles, name)
		}
		typ, val := openType(code, flags), find(def, "v")
		if val, err = openValue(code, flags, name, val); err != nil {
			return nil, err
		}
		types[name] = typ
		out = append(out, wire.Field{Key: col.Key, Val: val})
	}
	if len(handles) > 0 {
		*keys = handles
	}
	return out, nil
}

// openType is the type of a code as MySQL prints it. Labels of enums and sets are not
// sent, their numbers stay.
func openType(code, flags int64) string {
	name := map[int64]string{1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp", 8: "bigint", 9: "mediumint", 10: "date",
		11: "time", 12: "datetime", 13: "year", 14: "date", 16: "bit(64)", 245: "json", 247: "varchar", 248: "varchar", 255: "blob"}[code]
	switch code {
	case 246: // without precision and scale
		return "varchar"
	case 15, 249, 250, 251, 252, 253, 254:
		if flags&openBinary != 0 {
			return "blob"
		}
		return "varchar"
	}
	if name != "" && flags&openUnsigned != 0 && code != 13 {
		return name + " unsigned"
	}
	return name
}

// openValue undoes what the protocol does to bytes: blobs and texts are base64,
// short binary strings have escapes as Go prints them.
func openValue(code, flags int64, name string, v wire.Token) (wire.Token, error) {
	if v.Kind != wire.String {
		return v, nil
	}
	bad := func(err error) (wire.Token, error) {
		return v, wire.Poison(event.PoisonField, "FIELD_TYPE", "column %q: %s", name, err.Error())
	}
	switch {
	case code >= 249 && code <= 252 && flags&openBinary == 0:
		raw, err := base64.StdEncoding.AppendDecode(nil, v.Text(nil))
		if err != nil {
			return bad(err)
		}
		return textToken(string(raw)), nil
	case (code == 15 || code == 253 || code == 254) && flags&openBinary != 0:
		s, err := strconv.Unquote(`"` + string(v.Text(nil)) + `"`)
		if err != nil {
			return bad(err)
		}
		return textToken(base64.StdEncoding.EncodeToString([]byte(s))), nil
	}
	return v, nil
}
