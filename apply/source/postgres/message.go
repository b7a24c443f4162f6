package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// relation is an R message: the shape of a table from here on. A record of a
// snapshot carries one, too.
type relation struct {
	oid           uint32
	schema, name  string
	identity      byte // d, n, f, i
	columns       []column
	hasCatalogKey bool // the key flags are those of the primary key
}

// column is one column of a relation.
type column struct {
	key  bool
	name string
	oid  uint32
	mod  int32
}

// cell is one value of a tuple: kind n (null), u (unchanged, not sent), t (text) or
// b (binary). The text aliases the message.
type cell struct {
	kind byte
	text []byte
}

// errShort is a message that ends too early or goes on too long.
var errShort = errors.New("the message is cut short or too long")

// reader takes a message apart; after the first fault it yields zeros and bad is set.
// Values alias the message. (Those of pglogrepl copy each value byte by byte and index
// past the end of a damaged message.)
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() string {
	i := bytes.IndexByte(r.b, 0)
	if i < 0 {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:i])
	r.b = r.b[i+1:]
	return s
}

// end is the fault of the reading, if any: bytes left over are one.
func (r *reader) end() error {
	if r.bad || len(r.b) > 0 {
		return errShort
	}
	return nil
}

// tuple reads a row; the cells are valid until the next one is read into into.
func (r *reader) tuple(into []cell) []cell {
	n := r.u16()
	into = into[:0]
	for range n {
		c := cell{kind: r.u8()}
		switch c.kind {
		case 'n', 'u':
		case 't', 'b':
			c.text = r.take(int(r.u32()))
		default:
			r.bad = true
		}
		if r.bad {
			return nil
		}
		into = append(into, c)
	}
	return into
}

// relationBody reads the body of an R message.
func (r *reader) relationBody() (*relation, error) {
	rel := &relation{oid: r.u32(), schema: r.text(), name: r.text(), identity: r.u8()}
	for range r.u16() {
		c := column{key: r.u8()&1 != 0, name: r.text(), oid: r.u32(), mod: int32(r.u32())}
		if r.bad {
			return nil, errShort
		}
		rel.columns = append(rel.columns, c)
	}
	if rel.schema == "" {
		rel.schema = "pg_catalog" // which the protocol sends as nothing
	}
	return rel, r.end()
}

// appendRelation writes a relation as an R message without its first byte.
func appendRelation(b []byte, rel *relation) []byte {
	b = binary.BigEndian.AppendUint32(b, rel.oid)
	b = append(append(b, rel.schema...), 0)
	b = append(append(b, rel.name...), 0, rel.identity)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rel.columns)))
	for _, c := range rel.columns {
		flags := byte(0)
		if c.key {
			flags = 1
		}
		b = append(append(append(b, flags), c.name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.oid)
		b = binary.BigEndian.AppendUint32(b, uint32(c.mod))
	}
	return b
}
