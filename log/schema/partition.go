package schema

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/scalar"
)

// Partition values have three encodings, one on top of the other: value to raw
// string (add.partitionValues), raw string to directory name, directory path to
// add.path ("Partition Value Serialization"). This file is the first.

// PartitionValueError reports a value that has no partition form, or a raw string
// that is not a value of its column's type.
type PartitionValueError struct {
	Type   Type
	Raw    string
	Reason string
}

func (e *PartitionValueError) Error() string {
	return fmt.Sprintf("partition value %q of type %s: %s", e.Raw, e.Type, e.Reason)
}

// Code is the stable error code.
func (e *PartitionValueError) Code() string { return "DELTA_INVALID_PARTITION_VALUE" }

// FormatPartitionValue is the raw string of arr[i] for add.partitionValues; null
// is true for null and for the empty string and empty binary, which are null
// (W-551). The error is a *[PartitionValueError].
func FormatPartitionValue(arr arrow.Array, i int) (raw string, null bool, err error) {
	if arr.IsNull(i) {
		return "", true, nil
	}
	switch a := arr.(type) {
	case *array.Null:
		return "", true, nil
	case *array.String:
		return formatText(String, a.Value(i))
	case *array.Binary:
		return formatText(Binary, string(a.Value(i)))
	case *array.Int8:
		return strconv.FormatInt(int64(a.Value(i)), 10), false, nil
	case *array.Int16:
		return strconv.FormatInt(int64(a.Value(i)), 10), false, nil
	case *array.Int32:
		return strconv.FormatInt(int64(a.Value(i)), 10), false, nil
	case *array.Int64:
		return strconv.FormatInt(a.Value(i), 10), false, nil
	case *array.Float32:
		return formatFloat(float64(a.Value(i)), 32), false, nil
	case *array.Float64:
		return formatFloat(a.Value(i), 64), false, nil
	case *array.Boolean:
		return strconv.FormatBool(a.Value(i)), false, nil
	case *array.Date32:
		return time.Unix(int64(a.Value(i))*86400, 0).UTC().Format("2006-01-02"), false, nil
	case *array.Timestamp:
		t := time.UnixMicro(int64(a.Value(i))).UTC()
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			return t.Format("2006-01-02T15:04:05.000000Z"), false, nil
		}
		if t.Nanosecond() == 0 {
			return t.Format("2006-01-02 15:04:05"), false, nil
		}
		return t.Format("2006-01-02 15:04:05.000000"), false, nil
	case *array.Decimal128:
		return FormatDecimal(a.Value(i).BigInt(), int(a.DataType().(*arrow.Decimal128Type).Scale)), false, nil
	}
	return "", false, fmt.Errorf("partition value: Arrow type %s cannot partition a table", arr.DataType())
}

func formatText(t Type, s string) (string, bool, error) {
	switch {
	case s == "":
		return "", true, nil
	case strings.IndexByte(s, 0) >= 0:
		return "", false, &PartitionValueError{t, s, "NUL cannot be part of a partition value"}
	case !utf8.ValidString(s):
		return "", false, &PartitionValueError{t, s, "only UTF-8 text can be a partition value"}
	}
	return s, false, nil
}

// formatFloat is Java's Double.toString (Float.toString): shortest digits that read
// back, always with a fraction, an exponent outside [1e-3, 1e7).
func formatFloat(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 0:
		return "0.0"
	}
	if abs := math.Abs(v); abs >= 1e-3 && abs < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mant, exp, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, bits), "e")
	if !strings.Contains(mant, ".") {
		mant += ".0"
	}
	n, _ := strconv.Atoi(exp)
	return mant + "E" + strconv.Itoa(n)
}

// FormatDecimal writes an unscaled value in plain notation with all scale digits.
func FormatDecimal(unscaled *big.Int, scale int) string {
	digits := new(big.Int).Abs(unscaled).String()
	if scale > 0 {
		if pad := scale + 1 - len(digits); pad > 0 {
			digits = strings.Repeat("0", pad) + digits
		}
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if unscaled.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// ParsePartitionValue reads the raw string of a partition column of type t into a
// scalar of [ArrowType] of t. A nil raw and "" are null. loc is the zone
// of timestamps that name none; nil is UTC. The error is a *[PartitionValueError].
func ParsePartitionValue(t Type, raw *string, loc *time.Location) (scalar.Scalar, error) {
	at, err := ArrowType(t)
	if err != nil {
		return nil, err
	}
	if raw == nil || *raw == "" {
		return scalar.MakeNullScalar(at), nil
	}
	s := *raw
	fail := func(reason string) (scalar.Scalar, error) {
		return nil, &PartitionValueError{t, s, reason}
	}
	switch t := t.(type) {
	case Decimal:
		v, reason := parseDecimal(s, t)
		if reason != "" {
			return fail(reason)
		}
		return scalar.NewDecimal128Scalar(decimal128.FromBigInt(v), at), nil
	case Primitive:
		switch t {
		case String:
			return scalar.NewStringScalar(s), nil
		case Binary:
			return scalar.NewBinaryScalar(memory.NewBufferBytes(parseBinary(s)), at), nil
		case Byte, Short, Integer, Long:
			n, err := strconv.ParseInt(s, 10, intBits[t])
			if err != nil || s[0] == '+' {
				return fail("not an integer of this width")
			}
			switch t {
			case Byte:
				return scalar.NewInt8Scalar(int8(n)), nil
			case Short:
				return scalar.NewInt16Scalar(int16(n)), nil
			case Integer:
				return scalar.NewInt32Scalar(int32(n)), nil
			}
			return scalar.NewInt64Scalar(n), nil
		case Float, Double:
			bits := 64
			if t == Float {
				bits = 32
			}
			v, err := strconv.ParseFloat(strings.TrimRight(s, "dDfF"), bits)
			if isWordNumber(s) {
				v, err = strconv.ParseFloat(s, bits)
			}
			if err != nil || strings.ContainsAny(s, "_xX") {
				return fail("not a number")
			}
			if t == Float {
				return scalar.NewFloat32Scalar(float32(v)), nil
			}
			return scalar.NewFloat64Scalar(v), nil
		case Boolean:
			switch strings.ToLower(s) {
			case "true":
				return scalar.NewBooleanScalar(true), nil
			case "false":
				return scalar.NewBooleanScalar(false), nil
			}
			return fail("not true or false")
		case Date:
			days, rest, ok := parseDate(s)
			if !ok || rest != "" {
				return fail("not a date (yyyy-MM-dd)")
			}
			return scalar.NewDate32Scalar(arrow.Date32(days)), nil
		case Timestamp, TimestampNTZ:
			us, reason := parseTimestamp(s, t == TimestampNTZ, loc)
			if reason != "" {
				return fail(reason)
			}
			return scalar.NewTimestampScalar(arrow.Timestamp(us), at), nil
		}
	}
	return fail("this type cannot partition a table")
}

var intBits = map[Primitive]int{Byte: 8, Short: 16, Integer: 32, Long: 64}

// isWordNumber is true for NaN and the infinities, whose last letter is no suffix.
func isWordNumber(s string) bool {
	l := strings.ToLower(strings.TrimLeft(s, "+-"))
	return l == "nan" || l == "inf" || l == "infinity"
}

// parseBinary reads text, or the \u0001 escapes of the protocol text and delta-rs.
func parseBinary(s string) []byte {
	if len(s)%6 != 0 {
		return []byte(s)
	}
	out := make([]byte, 0, len(s)/6)
	for i := 0; i < len(s); i += 6 {
		n, err := strconv.ParseUint(s[i+2:i+6], 16, 16)
		if s[i] != '\\' || s[i+1] != 'u' || err != nil || n > 0xff {
			return []byte(s)
		}
		out = append(out, byte(n))
	}
	return out
}

func parseDecimal(s string, t Decimal) (*big.Int, string) {
	mant, expText, hasExp := strings.Cut(strings.ToLower(s), "e")
	exp := 0
	if hasExp {
		var err error
		if exp, err = strconv.Atoi(expText); err != nil || exp > 100 || exp < -100 {
			return nil, "not a decimal number"
		}
	}
	whole, frac, _ := strings.Cut(mant, ".")
	digits := strings.TrimPrefix(whole, "-") + frac
	if digits == "" || len(digits) > 200 || strings.Trim(digits, "0123456789") != "" {
		return nil, "not a decimal number"
	}
	v, _ := new(big.Int).SetString(digits, 10)
	shift := t.Scale - len(frac) + exp
	ten := big.NewInt(10)
	if shift >= 0 {
		v.Mul(v, new(big.Int).Exp(ten, big.NewInt(int64(shift)), nil))
	} else {
		rem := new(big.Int)
		v.QuoRem(v, new(big.Int).Exp(ten, big.NewInt(int64(-shift)), nil), rem)
		if rem.Sign() != 0 {
			return nil, "more digits after the point than the scale has"
		}
	}
	if len(v.String()) > t.Precision && v.Sign() != 0 {
		return nil, "more digits than the precision has"
	}
	if strings.HasPrefix(whole, "-") {
		v.Neg(v)
	}
	return v, ""
}

// parseDate reads [-]yyyy-M-d from the start of s into days since 1970.
func parseDate(s string) (days int64, rest string, ok bool) {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "-"), "+")
	y, s, ok1 := digits(s, 4, 6)
	s, ok2 := strings.CutPrefix(s, "-")
	m, s, ok3 := digits(s, 1, 2)
	s, ok4 := strings.CutPrefix(s, "-")
	d, s, ok5 := digits(s, 1, 2)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return 0, "", false
	}
	if neg {
		y = -y
	}
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC)
	if int(t.Month()) != m || t.Day() != d {
		return 0, "", false
	}
	return t.Unix() / 86400, s, true
}

// digits reads between lo and hi decimal digits from the start of s.
func digits(s string, lo, hi int) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && i < hi && s[i] >= '0' && s[i] <= '9' {
		n = n*10 + int(s[i]-'0')
		i++
	}
	return n, s[i:], i >= lo
}

// parseTimestamp reads a date, then optionally T or a space, a time of day with 0
// to 9 fraction digits, and (not for NTZ) Z or an offset. The result is
// microseconds since 1970, floored.
func parseTimestamp(s string, ntz bool, loc *time.Location) (us int64, reason string) {
	const bad = "not a timestamp"
	days, rest, ok := parseDate(s)
	if !ok {
		return 0, bad
	}
	var h, m, sec, nanos int
	if rest != "" && (rest[0] == 'T' || rest[0] == ' ') {
		rest = rest[1:]
		var ok1, ok2, ok3, ok4, ok5 bool
		h, rest, ok1 = digits(rest, 1, 2)
		rest, ok2 = strings.CutPrefix(rest, ":")
		m, rest, ok3 = digits(rest, 1, 2)
		rest, ok4 = strings.CutPrefix(rest, ":")
		sec, rest, ok5 = digits(rest, 1, 2)
		if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || h > 23 || m > 59 || sec > 59 {
			return 0, bad
		}
		if f, ok := strings.CutPrefix(rest, "."); ok {
			n, after, _ := digits(f, 0, 9)
			for i := len(f) - len(after); i < 9; i++ {
				n *= 10
			}
			nanos, rest = n, after
		}
	}
	local := days*86400 + int64(h*3600+m*60+sec)
	switch {
	case rest == "" && (ntz || loc == nil):
	case rest == "":
		t := time.Unix(local, 0).UTC()
		local = time.Date(t.Year(), t.Month(), t.Day(), h, m, sec, 0, loc).Unix()
	case ntz:
		return 0, "a timestamp without zone must not name one"
	case rest == "Z" || rest == "z":
	default:
		off, ok := parseOffset(rest)
		if !ok {
			return 0, bad
		}
		local -= off
	}
	if local > math.MaxInt64/1_000_000-1 || local < math.MinInt64/1_000_000+1 {
		return 0, "out of range"
	}
	return local*1_000_000 + int64(nanos/1000), ""
}

// parseOffset reads +hh:mm, +hhmm or +hh into seconds.
func parseOffset(s string) (int64, bool) {
	if s == "" || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, rest, ok1 := digits(s[1:], 2, 2)
	rest = strings.TrimPrefix(rest, ":")
	m, ok2 := 0, true
	if rest != "" {
		m, rest, ok2 = digits(rest, 2, 2)
	}
	if !ok1 || !ok2 || rest != "" || h > 18 || m > 59 {
		return 0, false
	}
	off := int64(h*3600 + m*60)
	if s[0] == '-' {
		off = -off
	}
	return off, true
}

// CompareScalars orders two non-null scalars of the same partition type; strings
// and binary by bytes, NaN above everything. ok is false for types that
// have no order.
func CompareScalars(a, b scalar.Scalar) (order int, ok bool) {
	switch a := a.(type) {
	case *scalar.String:
		b, ok := b.(*scalar.String)
		return compareBytes(a, b, ok)
	case *scalar.Binary:
		b, ok := b.(*scalar.Binary)
		return compareBytes(a, b, ok)
	case *scalar.Decimal128:
		b, ok := b.(*scalar.Decimal128)
		if !ok {
			return 0, false
		}
		return a.Value.Cmp(b.Value), true
	case *scalar.Float32:
		b, ok := b.(*scalar.Float32)
		if !ok {
			return 0, false
		}
		return compareFloats(float64(a.Value), float64(b.Value)), true
	case *scalar.Float64:
		b, ok := b.(*scalar.Float64)
		if !ok {
			return 0, false
		}
		return compareFloats(a.Value, b.Value), true
	}
	x, ok1 := integral(a)
	y, ok2 := integral(b)
	if !ok1 || !ok2 || !arrow.TypeEqual(a.DataType(), b.DataType()) {
		return 0, false
	}
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func compareBytes(a, b scalar.BinaryScalar, ok bool) (int, bool) {
	if !ok {
		return 0, false
	}
	return strings.Compare(string(a.Data()), string(b.Data())), true
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b, math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	}
	return -1
}

func integral(s scalar.Scalar) (int64, bool) {
	switch s := s.(type) {
	case *scalar.Int8:
		return int64(s.Value), true
	case *scalar.Int16:
		return int64(s.Value), true
	case *scalar.Int32:
		return int64(s.Value), true
	case *scalar.Int64:
		return s.Value, true
	case *scalar.Boolean:
		if s.Value {
			return 1, true
		}
		return 0, true
	case *scalar.Date32:
		return int64(s.Value), true
	case *scalar.Timestamp:
		return int64(s.Value), true
	}
	return 0, false
}
