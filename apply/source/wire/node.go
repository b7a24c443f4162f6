package wire

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

// Unit is what one count of a numeric time means.
type Unit uint8

// The units of times and timestamps.
const (
	Micros Unit = iota
	Millis
	Nanos
)

// BinaryMode is how bytes are written as text.
type BinaryMode uint8

// The forms of bytes: base64 in either alphabet, hex, or text of which each
// character is one byte (ISO-8859-1).
const (
	Base64 BinaryMode = iota
	Hex
	Latin1
)

// DecimalMode is how a decimal is written as a JSON string; JSON numbers are
// read in any mode.
type DecimalMode uint8

// The forms of decimals: base64 of the unscaled value, or digits.
const (
	DecimalBytes DecimalMode = iota
	DecimalText
)

// Form is what a value on the wire stands for beyond its Delta type.
type Form uint8

// The forms. Plain is the natural JSON form of the type (see [Node]).
const (
	Plain Form = iota
	// Unsigned64 is a BIGINT UNSIGNED that wraps to negative (DECIMAL(20,0)).
	Unsigned64
	// Variable is {"scale","value"}, as STRING or DECIMAL.
	Variable
	// Clock is a count since midnight or a time text, as STRING HH:mm:ss.ffffff.
	Clock
	// Bits is base64 of little-endian bits, as STRING of 0 and 1, Scale bits long.
	Bits
	// BigDecimal is base64 of an unscaled value of any size, as STRING.
	BigDecimal
	// Structured is a time in parts (year, month, ... nanos, offsetSeconds), of the
	// node's type; as STRING a time of day.
	Structured
	// BitsNumber is bits as an unsigned number, as STRING of 0 and 1, Scale bits long.
	BitsNumber
	// EnumIndex is the 1-based index of one of Labels, 0 the empty string; SetMask a
	// bit mask of Labels, whose members become a list with commas. Labels are read, too.
	EnumIndex
	SetMask
)

// Node is the plan for one column or nested value: its Delta type and how the
// wire's JSON becomes it. The natural forms, which all nodes accept: integers
// as numbers; BOOLEAN also as 0 and 1; floating point also as "NaN",
// "Infinity", "-Infinity"; STRING takes the JSON text of what is not a string;
// DATE as days or ISO text; timestamps as counts (Unit) or ISO text; DECIMAL
// as number or string (Decimal); BINARY as string (Binary); structs as objects;
// arrays; maps as objects or arrays of pairs.
type Node struct {
	Type    schema.Type
	Form    Form
	Unit    Unit
	Binary  BinaryMode
	Decimal DecimalMode
	// Scale of the bytes of a DecimalBytes value (may exceed or be below the
	// type's), or the length of Bits.
	Scale int
	// Zone is assumed for TIMESTAMP texts without offset; nil is UTC.
	Zone *time.Location
	// Lenient reads CSV-like text for every type: numbers and booleans in strings.
	Lenient bool
	// Labels of EnumIndex and SetMask, in the order of their declaration.
	Labels []string
	// Names and Kids of structs; Kids[0] of arrays; key and value of maps.
	Names []string
	Kids  []*Node
}

// scalar is a converted value of a primitive type or decimal.
type scalar struct {
	i int64 // integers, dates, timestamps, booleans (0, 1)
	f float64
	b []byte
	d decimal128.Num
}

// scratch is room for unescaping and decoding that conversions reuse.
type scratch struct{ text, out []byte }

// text is the token's text: of strings without escapes, else its JSON.
func (s *scratch) textOf(t Token) []byte {
	if t.Kind == String {
		if !t.Esc {
			return t.Raw
		}
		s.text = t.Text(s.text)
		return s.text
	}
	return t.Raw
}

// convert reads a token that is not Null into a scalar; ok is false if the plan
// cannot read it or it does not fit the type.
func (n *Node) convert(t Token, s *scratch) (v scalar, ok bool) {
	switch n.Form {
	case Unsigned64:
		return n.unsigned(t, s)
	case Variable:
		return n.variable(t, s)
	case Clock:
		return n.clock(t, s)
	case Bits:
		return n.bits(t, s)
	case BigDecimal:
		return n.bigDecimal(t, s)
	case Structured:
		return n.structured(t, s)
	case BitsNumber:
		return n.bitsNumber(t, s)
	case EnumIndex, SetMask:
		return n.label(t, s)
	}
	switch typ := n.Type.(type) {
	case schema.Primitive:
		switch typ {
		case schema.String:
			v.b = s.textOf(t)
			return v, true
		case schema.Long:
			v.i, ok = n.integer(t, s, math.MinInt64, math.MaxInt64)
		case schema.Integer:
			v.i, ok = n.integer(t, s, math.MinInt32, math.MaxInt32)
		case schema.Short:
			v.i, ok = n.integer(t, s, math.MinInt16, math.MaxInt16)
		case schema.Byte:
			v.i, ok = n.integer(t, s, math.MinInt8, math.MaxInt8)
		case schema.Double:
			v.f, ok = n.float(t, s, 64)
		case schema.Float:
			v.f, ok = n.float(t, s, 32)
		case schema.Boolean:
			v.i, ok = n.boolean(t, s)
		case schema.Binary:
			v.b, ok = n.bytes(t, s)
		case schema.Date:
			v.i, ok = n.date(t, s)
		case schema.Timestamp:
			v.i, ok = n.timestamp(t, s, true)
		case schema.TimestampNTZ:
			v.i, ok = n.timestamp(t, s, false)
		}
	case schema.Decimal:
		v.d, ok = n.decimal(t, s, typ)
	}
	return v, ok
}

// Int reads a whole JSON number that fits 64 bits.
func Int(raw []byte) (int64, bool) {
	i, neg := 0, false
	if len(raw) > 0 && raw[0] == '-' {
		neg = true
		i++
	}
	if i == len(raw) || len(raw)-i > 19 {
		return 0, false
	}
	var u uint64
	for ; i < len(raw); i++ {
		c := raw[i] - '0'
		if c > 9 {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	if neg {
		if u > 1<<63 {
			return 0, false
		}
		return -int64(u), true
	}
	return int64(u), u < 1<<63
}

func (n *Node) integer(t Token, s *scratch, lo, hi int64) (int64, bool) {
	var v int64
	var ok bool
	switch t.Kind {
	case Number:
		if v, ok = Int(t.Raw); !ok {
			// 5.0 and 1e3 are whole numbers, too; printers of doubles write them so.
			d, exact := decimalText(t.Raw, 19, 0)
			if !exact || !d.FitsInPrecision(19) {
				return 0, false
			}
			v = int64(d.LowBits())
			if (v < 0) != (d.Sign() < 0) && v != 0 {
				return 0, false
			}
		}
	case True, False:
		// The connector disagrees with itself: BOOLEAN in the stream, TINYINT in the snapshot.
		if t.Kind == True {
			v = 1
		}
	case String:
		if v, ok = Int(s.textOf(t)); !ok || !n.Lenient {
			return 0, false
		}
	default:
		return 0, false
	}
	return v, v >= lo && v <= hi
}

func (n *Node) float(t Token, s *scratch, bits int) (float64, bool) {
	switch t.Kind {
	case Number:
		f, err := strconv.ParseFloat(string(t.Raw), bits)
		return f, err == nil
	case String:
		switch text := s.textOf(t); string(text) {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		default:
			if _, err := number(append(text[:len(text):len(text)], 0), 0); n.Lenient && len(text) > 0 && err == nil {
				f, err := strconv.ParseFloat(string(text), bits)
				return f, err == nil
			}
		}
	}
	return 0, false
}

func (n *Node) boolean(t Token, s *scratch) (int64, bool) {
	switch t.Kind {
	case True:
		return 1, true
	case False:
		return 0, true
	case Number:
		if len(t.Raw) == 1 && (t.Raw[0] == '0' || t.Raw[0] == '1') {
			return int64(t.Raw[0] - '0'), true
		}
	case String:
		if !n.Lenient {
			return 0, false
		}
		switch string(s.textOf(t)) {
		case "true", "TRUE", "True", "t", "1":
			return 1, true
		case "false", "FALSE", "False", "f", "0":
			return 0, true
		}
	}
	return 0, false
}

func (n *Node) bytes(t Token, s *scratch) ([]byte, bool) {
	if t.Kind != String {
		return nil, false
	}
	return decodeBytes(s.textOf(t), n.Binary, s)
}

// decodeBytes reads hex (with or without \x or 0x) or base64 in either alphabet.
func decodeBytes(text []byte, mode BinaryMode, s *scratch) ([]byte, bool) {
	if mode == Latin1 {
		s.out = s.out[:0]
		for _, r := range string(text) {
			if r > 0xff {
				return nil, false
			}
			s.out = append(s.out, byte(r))
		}
		return s.out, true
	}
	if mode == Hex {
		if len(text) >= 2 && (text[0] == '\\' || text[0] == '0') && text[1] == 'x' {
			text = text[2:]
		}
		s.out = append(s.out[:0], make([]byte, hex.DecodedLen(len(text)))...)
		_, err := hex.Decode(s.out, text)
		return s.out, err == nil
	}
	enc := base64.StdEncoding
	for _, c := range text {
		if c == '-' || c == '_' {
			enc = base64.URLEncoding
			break
		}
		if c == '\r' || c == '\n' { // which the decoder would ignore
			return nil, false
		}
	}
	if len(text)%4 != 0 {
		enc = enc.WithPadding(base64.NoPadding)
	}
	if need := enc.DecodedLen(len(text)); cap(s.out) < need {
		s.out = make([]byte, need)
	}
	s.out = s.out[:cap(s.out)]
	w, err := enc.Decode(s.out, text)
	return s.out[:max(w, 0)], err == nil
}

func (n *Node) date(t Token, s *scratch) (int64, bool) {
	switch t.Kind {
	case Number:
		v, ok := Int(t.Raw)
		return v, ok && v <= maxDay && v >= -maxDay
	case String:
		d, ok := dateText(s.textOf(t))
		return int64(d), ok
	}
	return 0, false
}

func (n *Node) timestamp(t Token, s *scratch, zoned bool) (int64, bool) {
	switch t.Kind {
	case Number:
		v, ok := Int(t.Raw)
		if !ok {
			return 0, false
		}
		return micros(v, n.Unit)
	case String:
		return timestampText(s.textOf(t), zoned, n.Zone)
	}
	return 0, false
}

func (n *Node) decimal(t Token, s *scratch, typ schema.Decimal) (decimal128.Num, bool) {
	switch t.Kind {
	case Number:
		return decimalText(t.Raw, typ.Precision, typ.Scale)
	case String:
		text := s.textOf(t)
		if n.Decimal == DecimalText {
			return decimalText(text, typ.Precision, typ.Scale)
		}
		b, ok := decodeBytes(text, Base64, s)
		if !ok || len(b) == 0 {
			return decimal128.Num{}, false
		}
		return decimalBytes(b, n.Scale, typ.Precision, typ.Scale)
	}
	return decimal128.Num{}, false
}

// Modes are the wire forms that a bare value and a type leave open.
type Modes struct {
	Binary  BinaryMode
	Decimal DecimalMode
	Unit    Unit
	Zone    *time.Location
	Lenient bool
}

// NewNode is the plan of natural forms for a type.
func NewNode(t schema.Type, m Modes) *Node {
	n := &Node{Type: t, Binary: m.Binary, Decimal: m.Decimal, Unit: m.Unit, Zone: m.Zone, Lenient: m.Lenient}
	switch t := t.(type) {
	case schema.Decimal:
		n.Scale = t.Scale
	case *schema.Struct:
		for _, f := range t.Fields {
			n.Names = append(n.Names, f.Name)
			n.Kids = append(n.Kids, NewNode(f.Type, m))
		}
	case *schema.Array:
		n.Kids = []*Node{NewNode(t.Elem, m)}
	case *schema.Map:
		n.Kids = []*Node{NewNode(t.Key, m), NewNode(t.Value, m)}
	}
	return n
}

// Equal compares two plans.
func (n *Node) Equal(m *Node) bool {
	if n.Form != m.Form || n.Unit != m.Unit || n.Binary != m.Binary || n.Decimal != m.Decimal || n.Scale != m.Scale ||
		n.Zone != m.Zone || n.Lenient != m.Lenient || len(n.Kids) != len(m.Kids) || !schema.Equal(n.Type, m.Type) ||
		!slices.Equal(n.Labels, m.Labels) {
		return false
	}
	for i, k := range n.Kids {
		if !k.Equal(m.Kids[i]) {
			return false
		}
	}
	return true
}
