package variant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// ErrCorrupt: the bytes are no variant.
var ErrCorrupt = errors.New("malformed variant")

// MaxDepth bounds how deep values may nest.
const MaxDepth = 200

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Kind is the type of a value.
type Kind uint8

// The kinds. Integers of all widths are Int.
const (
	Null Kind = iota
	Bool
	Int
	Double
	Float
	Decimal
	Date
	Timestamp    // microseconds, UTC
	TimestampNTZ // microseconds
	TimestampNanos
	TimestampNTZNanos
	Time // microseconds of the day
	Binary
	String
	UUID
	Object
	Array
)

// Value is one decoded value; nested ones are read on demand.
type Value struct {
	Kind Kind
	Bool bool
	// Int is an integer, days, micro- or nanoseconds.
	Int   int64
	Float float64
	// Unscaled and Scale are a decimal.
	Unscaled *big.Int
	Scale    int
	Bytes    []byte // string, binary, uuid

	count, idSize, offSize int
	ids, offs, data        []byte
}

// Len is the number of fields or elements.
func (v Value) Len() int { return v.count }

// names are the parts of a metadata buffer.
type names struct {
	n, size    int
	offs, text []byte
}

func parseNames(m []byte) (names, error) {
	if len(m) < 1 {
		return names{}, corrupt("empty metadata")
	}
	if m[0]&0x0f != 1 {
		return names{}, corrupt("metadata version %d", m[0]&0x0f)
	}
	d := names{size: int(m[0]>>6) + 1}
	if len(m) < 1+d.size {
		return names{}, corrupt("metadata ends early")
	}
	n := number(m[1:], d.size)
	rest := m[1+d.size:]
	if n > uint64(len(rest)) || (n+1)*uint64(d.size) > uint64(len(rest)) {
		return names{}, corrupt("metadata ends early")
	}
	d.n = int(n)
	d.offs, d.text = rest[:(d.n+1)*d.size], rest[(d.n+1)*d.size:]
	return d, nil
}

func (d names) name(id int) ([]byte, error) {
	if id < 0 || id >= d.n {
		return nil, corrupt("field id %d of %d", id, d.n)
	}
	from, to := number(d.offs[id*d.size:], d.size), number(d.offs[(id+1)*d.size:], d.size)
	if from > to || to > uint64(len(d.text)) {
		return nil, corrupt("field name %d", id)
	}
	return d.text[from:to], nil
}

// number is an unsigned little-endian number of 1 to 4 bytes.
func number(b []byte, size int) uint64 {
	var v uint64
	for i := range size {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// Decode reads the head of a value.
func Decode(b []byte) (Value, error) {
	if len(b) == 0 {
		return Value{}, corrupt("empty value")
	}
	head, rest := int(b[0]>>2), b[1:]
	switch b[0] & 3 {
	case 0:
		return primitive(head, rest)
	case 1:
		if head > len(rest) {
			return Value{}, corrupt("string ends early")
		}
		return Value{Kind: String, Bytes: rest[:head]}, nil
	case 2:
		return group(Object, rest, head&3+1, head>>2&3+1, head>>4&1 == 1)
	}
	return group(Array, rest, head&3+1, 0, head>>2&1 == 1)
}

func group(kind Kind, b []byte, offSize, idSize int, large bool) (Value, error) {
	v := Value{Kind: kind, offSize: offSize, idSize: idSize}
	size := 1
	if large {
		size = 4
	}
	if len(b) < size {
		return v, corrupt("group ends early")
	}
	n := number(b, size)
	b = b[size:]
	if n > uint64(len(b)) || n*uint64(idSize)+(n+1)*uint64(offSize) > uint64(len(b)) {
		return v, corrupt("group of %d ends early", n)
	}
	v.count = int(n)
	v.ids, b = b[:v.count*idSize], b[v.count*idSize:]
	v.offs, v.data = b[:(v.count+1)*offSize], b[(v.count+1)*offSize:]
	return v, nil
}

// element is the bytes of child i, and of what follows it in the group.
func (v Value) element(i int) ([]byte, error) {
	at := number(v.offs[i*v.offSize:], v.offSize)
	if at >= uint64(len(v.data)) {
		return nil, corrupt("child %d lies outside of its group", i)
	}
	return v.data[at:], nil
}

func (v Value) fieldID(i int) int { return int(number(v.ids[i*v.idSize:], v.idSize)) }

var fixedSizes = [...]int{0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 4, 4, 8, 8, 8, 16}

func primitive(id int, b []byte) (Value, error) {
	if id >= len(fixedSizes) {
		return Value{}, corrupt("primitive type %d", id)
	}
	if len(b) < fixedSizes[id] {
		return Value{}, corrupt("value ends early")
	}
	signed := func(n int) int64 {
		shift := 64 - 8*n
		var v uint64
		for i := range n {
			v |= uint64(b[i]) << (8 * i)
		}
		return int64(v<<shift) >> shift
	}
	switch id {
	case 0:
		return Value{Kind: Null}, nil
	case 1, 2:
		return Value{Kind: Bool, Bool: id == 1}, nil
	case 3, 4, 5, 6:
		return Value{Kind: Int, Int: signed(fixedSizes[id])}, nil
	case 7:
		return Value{Kind: Double, Float: math.Float64frombits(binary.LittleEndian.Uint64(b))}, nil
	case 8, 9, 10:
		v := Value{Kind: Decimal, Scale: int(b[0])}
		if v.Scale > 38 {
			return v, corrupt("decimal scale %d", v.Scale)
		}
		b = b[1:]
		if id < 10 {
			v.Unscaled = big.NewInt(signed(fixedSizes[id] - 1))
			return v, nil
		}
		be := make([]byte, 16)
		for i := range be {
			be[i] = b[15-i]
		}
		v.Unscaled = new(big.Int).SetBytes(be)
		if be[0]&0x80 != 0 {
			v.Unscaled.Sub(v.Unscaled, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		return v, nil
	case 11:
		return Value{Kind: Date, Int: signed(4)}, nil
	case 12, 13, 17, 18, 19:
		kind := map[int]Kind{12: Timestamp, 13: TimestampNTZ, 17: Time, 18: TimestampNanos, 19: TimestampNTZNanos}[id]
		return Value{Kind: kind, Int: signed(8)}, nil
	case 14:
		return Value{Kind: Float, Float: float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))}, nil
	case 15, 16:
		n := number(b, 4)
		if n > uint64(len(b)-4) {
			return Value{}, corrupt("value ends early")
		}
		return Value{Kind: map[int]Kind{15: Binary, 16: String}[id], Bytes: b[4 : 4+n]}, nil
	}
	return Value{Kind: UUID, Bytes: b[:16]}, nil
}

// size is the number of bytes of the value at the start of b.
func size(b []byte) (int, error) {
	v, err := Decode(b)
	if err != nil {
		return 0, err
	}
	switch v.Kind {
	case Object, Array:
		end := number(v.offs[v.count*v.offSize:], v.offSize)
		if end > uint64(len(v.data)) {
			return 0, corrupt("group ends early")
		}
		return len(b) - len(v.data) + int(end), nil
	case Binary, String:
		if b[0]&3 == 1 {
			return 1 + len(v.Bytes), nil
		}
		return 5 + len(v.Bytes), nil
	}
	return 1 + fixedSizes[b[0]>>2], nil
}

// IsNull reports whether a value is the variant null, which is not SQL's.
func IsNull(value []byte) bool { return len(value) > 0 && value[0] == 0 }

// Step is one part of a path: a field, or an element when Name is "".
type Step struct {
	Name  string
	Index int
}

// Get follows a path; nil when there is nothing there. What comes back is the bytes of
// a value, to be read with the same metadata.
func Get(metadata, value []byte, path []Step) ([]byte, error) {
	d, err := parseNames(metadata)
	if err != nil {
		return nil, err
	}
	for _, s := range path {
		v, err := Decode(value)
		if err != nil {
			return nil, err
		}
		at := -1
		switch {
		case s.Name == "" && v.Kind == Array && s.Index < v.count:
			at = s.Index
		case s.Name != "" && v.Kind == Object:
			for i := range v.count {
				name, err := d.name(v.fieldID(i))
				if err != nil {
					return nil, err
				}
				if string(name) == s.Name {
					at = i
				}
			}
		}
		if at < 0 {
			return nil, nil
		}
		if value, err = v.element(at); err != nil {
			return nil, err
		}
	}
	n, err := size(value)
	if err != nil {
		return nil, err
	}
	return value[:n], nil
}

// ParsePath reads "$.a.b[0]['c d']".
func ParsePath(text string) ([]Step, error) {
	bad := func() ([]Step, error) {
		return nil, fmt.Errorf("variant path %q: expected $ and then .name, [number] or ['name']", text)
	}
	if text == "" || text[0] != '$' {
		return bad()
	}
	var out []Step
	for s := text[1:]; s != ""; {
		switch {
		case s[0] == '.':
			n := 1
			for n < len(s) && s[n] != '.' && s[n] != '[' {
				n++
			}
			if n == 1 {
				return bad()
			}
			out, s = append(out, Step{Name: s[1:n]}), s[n:]
		case len(s) > 3 && s[0] == '[' && (s[1] == '\'' || s[1] == '"'):
			q := s[1]
			n := 2
			for n < len(s) && s[n] != q {
				n++
			}
			if n == 2 || n+1 >= len(s) || s[n+1] != ']' {
				return bad()
			}
			out, s = append(out, Step{Name: s[2:n]}), s[n+2:]
		case s[0] == '[':
			n, i := 1, 0
			for n < len(s) && s[n] >= '0' && s[n] <= '9' && i < 1<<30/10 {
				i = 10*i + int(s[n]-'0')
				n++
			}
			if n == 1 || n >= len(s) || s[n] != ']' {
				return bad()
			}
			out, s = append(out, Step{Index: i}), s[n+1:]
		default:
			return bad()
		}
	}
	return out, nil
}
