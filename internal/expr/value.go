package expr

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

// Kind says which field of a [Value] holds it.
type Kind uint8

// The kinds of a value. Integers of all widths, dates (days) and timestamps
// (microseconds) are KindInt; strings and binary are KindBytes.
const (
	KindNull Kind = iota
	KindBool
	KindInt
	KindFloat
	KindDecimal
	KindBytes
)

// Value is one primitive value, such as a bound of a column. Its type is known
// from where it comes.
type Value struct {
	Kind  Kind
	Bool  bool
	Int   int64          // integer, days or microseconds since 1970-01-01
	Float float64        // float and double
	Dec   decimal128.Num // unscaled decimal
	Scale int32          // of Dec
	Bytes string         // string or binary
}

// BoolValue, IntValue, FloatValue, DecimalValue and BytesValue make values.
func BoolValue(b bool) Value { return Value{Kind: KindBool, Bool: b} }

// IntValue is an integer, a date in days or a timestamp in microseconds.
func IntValue(i int64) Value { return Value{Kind: KindInt, Int: i} }

// FloatValue is a float or a double.
func FloatValue(f float64) Value { return Value{Kind: KindFloat, Float: f} }

// DecimalValue is unscaled * 10^-scale.
func DecimalValue(unscaled decimal128.Num, scale int32) Value {
	return Value{Kind: KindDecimal, Dec: unscaled, Scale: scale}
}

// BytesValue is a string or a binary value.
func BytesValue(s string) Value { return Value{Kind: KindBytes, Bytes: s} }

func (v Value) negative() bool {
	switch v.Kind {
	case KindInt:
		return v.Int < 0
	case KindFloat:
		return math.Signbit(v.Float)
	case KindDecimal:
		return v.Dec.Sign() < 0
	}
	return false
}

// Compare orders two values of one kind by auto-cdc section 2.1; null is lowest.
// Values of different kinds compare by kind, which is of no use but total.
func (v Value) Compare(w Value) int {
	if v.Kind != w.Kind {
		return cmp.Compare(v.Kind, w.Kind)
	}
	switch v.Kind {
	case KindBool:
		return compareBool(v.Bool, w.Bool)
	case KindInt:
		return cmp.Compare(v.Int, w.Int)
	case KindFloat:
		return compareFloat(v.Float, w.Float)
	case KindDecimal:
		return compareDecimal(v.Dec, v.Scale, w.Dec, w.Scale)
	case KindBytes:
		return cmp.Compare(v.Bytes, w.Bytes)
	}
	return 0
}

// literalText is the canonical text of a literal node.
func (n *node) literalText() string {
	v := n.value
	switch t := n.typ.(type) {
	case schema.Decimal:
		s := v.Dec.ToString(int32(t.Scale))
		if t.Scale == 0 {
			s += "BD"
		}
		return s
	case schema.Primitive:
		switch t {
		case schema.Boolean:
			return strings.ToUpper(strconv.FormatBool(v.Bool))
		case schema.Integer:
			return strconv.FormatInt(v.Int, 10)
		case schema.Long:
			return strconv.FormatInt(v.Int, 10) + "L"
		case schema.Short:
			return strconv.FormatInt(v.Int, 10) + "S"
		case schema.Byte:
			return strconv.FormatInt(v.Int, 10) + "Y"
		case schema.Float:
			return strconv.FormatFloat(v.Float, 'g', -1, 32) + "F"
		case schema.Double:
			return strconv.FormatFloat(v.Float, 'g', -1, 64) + "D"
		case schema.String:
			return quoteString(v.Bytes)
		case schema.Binary:
			const digits = "0123456789ABCDEF"
			var b strings.Builder
			b.WriteString("X'")
			for i := 0; i < len(v.Bytes); i++ {
				b.WriteByte(digits[v.Bytes[i]>>4])
				b.WriteByte(digits[v.Bytes[i]&15])
			}
			b.WriteByte('\'')
			return b.String()
		case schema.Date, schema.Timestamp, schema.TimestampNTZ:
			return t.String() + " " + quoteString(n.text)
		}
	}
	return "NULL"
}
