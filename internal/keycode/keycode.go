package keycode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cespare/xxhash/v2"

	"github.com/sluice-data/sluice/log/schema"
)

// ErrUnsupported is the class of types without an order.
var ErrUnsupported = errors.New("type has no order")

// ErrCorrupt is the class of bytes that are not an encoding of the types.
var ErrCorrupt = errors.New("malformed key encoding")

// TypeError names a type that cannot be encoded.
type TypeError struct{ Type string }

func (e *TypeError) Error() string { return fmt.Sprintf("encode key: %s has no order", e.Type) }

// Is reports the class of the error.
func (e *TypeError) Is(target error) bool { return target == ErrUnsupported }

// CheckType returns a *[TypeError] if values of t have no order: MAP, VARIANT,
// VOID, unknown types, and types that contain one.
func CheckType(t schema.Type) error {
	switch x := t.(type) {
	case *schema.Struct:
		for _, f := range x.Fields {
			if err := CheckType(f.Type); err != nil {
				return err
			}
		}
		return nil
	case *schema.Array:
		return CheckType(x.Elem)
	case schema.Decimal:
		return nil
	case schema.Primitive:
		if x != schema.Variant && x != schema.Void {
			return nil
		}
	}
	return &TypeError{Type: t.String()}
}

// The first byte of a value, and of each element of an array.
const (
	tagNull  = 0x00 // null, end of an array
	tagValue = 0x01
)

// Bytes of a string are copied, 0x00 as 0x00 0xFF; 0x00 0x01 ends it.
const (
	escape    = 0x00
	escaped00 = 0xFF
	escapeEnd = 0x01
)

// canonicalNaN64 and canonicalNaN32 sort above +Inf once the sign bit is flipped.
const (
	canonicalNaN64 = uint64(0x7FF8000000000000)
	canonicalNaN32 = uint32(0x7FC00000)
)

// Encoder encodes tuples of one list of types. It is immutable and safe to share.
type Encoder struct{ types []arrow.DataType }

// NewEncoder makes an encoder of tuples of the given Arrow types (those of
// schema.ArrowType). The error is a *[TypeError].
func NewEncoder(types []arrow.DataType) (*Encoder, error) {
	for _, t := range types {
		if err := checkArrow(t); err != nil {
			return nil, err
		}
	}
	return &Encoder{types: append([]arrow.DataType(nil), types...)}, nil
}

func checkArrow(t arrow.DataType) error {
	switch x := t.(type) {
	case *arrow.StructType:
		for _, f := range x.Fields() {
			if err := checkArrow(f.Type); err != nil {
				return err
			}
		}
		return nil
	case *arrow.ListType:
		return checkArrow(x.Elem())
	}
	switch t.ID() {
	case arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.FLOAT32, arrow.FLOAT64,
		arrow.DATE32, arrow.TIMESTAMP, arrow.DECIMAL128, arrow.STRING, arrow.BINARY:
		return nil
	}
	return &TypeError{Type: t.String()}
}

// Types are the types of the tuples.
func (e *Encoder) Types() []arrow.DataType { return e.types }

// Append appends the encoding of row of cols to dst. There are as many columns as
// types, and each has its type.
func (e *Encoder) Append(dst []byte, cols []arrow.Array, row int) []byte {
	for _, c := range cols {
		dst = AppendValue(dst, c, row)
	}
	return dst
}

// AppendValue appends the encoding of one value. The type must be one that
// [NewEncoder] takes; a value of another type is encoded as null.
func AppendValue(dst []byte, a arrow.Array, i int) []byte {
	if a.IsNull(i) {
		return append(dst, tagNull)
	}
	switch x := a.(type) {
	case *array.Boolean:
		if x.Value(i) {
			return append(dst, tagValue, 1)
		}
		return append(dst, tagValue, 0)
	case *array.Int8:
		return append(dst, tagValue, byte(x.Value(i))^0x80)
	case *array.Int16:
		return binary.BigEndian.AppendUint16(append(dst, tagValue), uint16(x.Value(i))^1<<15)
	case *array.Int32:
		return append32(dst, x.Value(i))
	case *array.Date32:
		return append32(dst, int32(x.Value(i)))
	case *array.Int64:
		return append64(dst, x.Value(i))
	case *array.Timestamp:
		return append64(dst, int64(x.Value(i)))
	case *array.Float32:
		return binary.BigEndian.AppendUint32(append(dst, tagValue), orderFloat32(x.Value(i)))
	case *array.Float64:
		return binary.BigEndian.AppendUint64(append(dst, tagValue), orderFloat64(x.Value(i)))
	case *array.Decimal128:
		v := x.Value(i)
		dst = binary.BigEndian.AppendUint64(append(dst, tagValue), uint64(v.HighBits())^1<<63)
		return binary.BigEndian.AppendUint64(dst, v.LowBits())
	case *array.String:
		return appendText(append(dst, tagValue), x.Value(i))
	case *array.Binary:
		return appendText(append(dst, tagValue), x.ValueString(i))
	case *array.Struct:
		dst = append(dst, tagValue)
		for f := range x.NumField() {
			dst = AppendValue(dst, x.Field(f), i)
		}
		return dst
	case *array.List:
		dst = append(dst, tagValue)
		for j, end := x.ValueOffsets(i); j < end; j++ {
			dst = AppendValue(append(dst, tagValue), x.ListValues(), int(j))
		}
		return append(dst, tagNull)
	}
	return append(dst, tagNull)
}

func append32(dst []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, tagValue), uint32(v)^1<<31)
}

func append64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tagValue), uint64(v)^1<<63)
}

func orderFloat64(f float64) uint64 {
	bits := math.Float64bits(f)
	switch {
	case f == 0:
		bits = 0
	case f != f:
		bits = canonicalNaN64
	}
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}

func orderFloat32(f float32) uint32 {
	bits := math.Float32bits(f)
	switch {
	case f == 0:
		bits = 0
	case f != f:
		bits = canonicalNaN32
	}
	if bits>>31 == 1 {
		return ^bits
	}
	return bits | 1<<31
}

func appendText(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, escape)
		if i < 0 {
			break
		}
		dst = append(append(dst, s[:i]...), escape, escaped00)
		s = s[i+1:]
	}
	return append(append(dst, s...), escape, escapeEnd)
}

// Hash64 is the stable 64-bit hash of an encoding.
func Hash64(key []byte) uint64 { return xxhash.Sum64(key) }

// HasNull reports whether a value of the tuple itself is null (fields inside it
// are not looked at).
func HasNull(cols []arrow.Array, row int) bool {
	for _, c := range cols {
		if c.IsNull(row) {
			return true
		}
	}
	return false
}

// HasNaN reports whether the value is or contains a NaN.
func HasNaN(a arrow.Array, i int) bool {
	if a.IsNull(i) {
		return false
	}
	switch x := a.(type) {
	case *array.Float32:
		return x.Value(i) != x.Value(i)
	case *array.Float64:
		return x.Value(i) != x.Value(i)
	case *array.Struct:
		for f := range x.NumField() {
			if HasNaN(x.Field(f), i) {
				return true
			}
		}
	case *array.List:
		for j, end := x.ValueOffsets(i); j < end; j++ {
			if HasNaN(x.ListValues(), int(j)) {
				return true
			}
		}
	}
	return false
}

// AllNull reports whether the value is null or a struct of nothing but nulls, at
// any depth.
func AllNull(a arrow.Array, i int) bool {
	if a.IsNull(i) {
		return true
	}
	s, ok := a.(*array.Struct)
	if !ok {
		return false
	}
	for f := range s.NumField() {
		if !AllNull(s.Field(f), i) {
			return false
		}
	}
	return true
}

// Decode appends the tuple that key encodes to one builder per type, and returns
// what follows it in key. After an error, which has the class [ErrCorrupt],
// nothing has been appended.
func (e *Encoder) Decode(key []byte, builders []array.Builder) (rest []byte, err error) {
	if len(builders) != len(e.types) {
		return nil, fmt.Errorf("decode key: %d builders for %d types", len(builders), len(e.types))
	}
	for i, t := range e.types {
		if !arrow.TypeEqual(t, builders[i].Type()) {
			return nil, fmt.Errorf("decode key: builder of %s for %s", builders[i].Type(), t)
		}
	}
	if _, err := e.Skip(key, len(e.types)); err != nil {
		return nil, err
	}
	d := decoder{rest: key}
	for i, t := range e.types {
		if err := d.value(t, builders[i]); err != nil {
			return nil, fmt.Errorf("decode key: %w", err)
		}
	}
	return d.rest, nil
}

// Skip returns what follows the first n values of a tuple in key, so that
// key[:len(key)-len(rest)] is the prefix.
func (e *Encoder) Skip(key []byte, n int) (rest []byte, err error) {
	d := decoder{rest: key}
	for i, t := range e.types[:n] {
		if err := d.value(t, nil); err != nil {
			return nil, fmt.Errorf("decode key: value %d at byte %d: %w", i, len(key)-len(d.rest), err)
		}
	}
	return d.rest, nil
}

type decoder struct{ rest []byte }

func (d *decoder) take(n int) ([]byte, error) {
	if len(d.rest) < n {
		return nil, ErrCorrupt
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}

// tag reads whether a value follows.
func (d *decoder) tag() (bool, error) {
	b, err := d.take(1)
	if err != nil || b[0] > tagValue {
		return false, ErrCorrupt
	}
	return b[0] == tagValue, nil
}

// value reads one value into b, or past it if b is nil.
func (d *decoder) value(t arrow.DataType, b array.Builder) error {
	present, err := d.tag()
	if err != nil {
		return err
	}
	if !present {
		if b != nil {
			b.AppendNull()
		}
		return nil
	}
	switch t := t.(type) {
	case *arrow.StructType:
		sb, _ := b.(*array.StructBuilder)
		if sb != nil {
			sb.Append(true)
		}
		for f, field := range t.Fields() {
			var fb array.Builder
			if sb != nil {
				fb = sb.FieldBuilder(f)
			}
			if err := d.value(field.Type, fb); err != nil {
				return err
			}
		}
		return nil
	case *arrow.ListType:
		lb, _ := b.(*array.ListBuilder)
		var eb array.Builder
		if lb != nil {
			lb.Append(true)
			eb = lb.ValueBuilder()
		}
		for {
			more, err := d.tag()
			if err != nil || !more {
				return err
			}
			if err := d.value(t.Elem(), eb); err != nil {
				return err
			}
		}
	}
	return d.primitive(t, b)
}

var widths = map[arrow.Type]int{
	arrow.BOOL: 1, arrow.INT8: 1, arrow.INT16: 2, arrow.INT32: 4, arrow.DATE32: 4, arrow.FLOAT32: 4,
	arrow.INT64: 8, arrow.TIMESTAMP: 8, arrow.FLOAT64: 8, arrow.DECIMAL128: 16,
}

func (d *decoder) primitive(t arrow.DataType, b array.Builder) error {
	if t.ID() == arrow.STRING || t.ID() == arrow.BINARY {
		s, err := d.text()
		if err != nil || b == nil {
			return err
		}
		if sb, ok := b.(*array.StringBuilder); ok {
			sb.Append(string(s))
		} else {
			b.(*array.BinaryBuilder).Append(s)
		}
		return nil
	}
	raw, err := d.take(widths[t.ID()])
	if err != nil {
		return err
	}
	if t.ID() == arrow.BOOL && raw[0] > 1 {
		return ErrCorrupt
	}
	if b == nil {
		return nil
	}
	var v uint64
	for _, c := range raw[:min(len(raw), 8)] {
		v = v<<8 | uint64(c)
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v == 1)
	case *array.Int8Builder:
		b.Append(int8(v ^ 1<<7))
	case *array.Int16Builder:
		b.Append(int16(v ^ 1<<15))
	case *array.Int32Builder:
		b.Append(int32(v ^ 1<<31))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v ^ 1<<31))
	case *array.Int64Builder:
		b.Append(int64(v ^ 1<<63))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v ^ 1<<63))
	case *array.Float32Builder:
		bits := uint32(v)
		if bits>>31 == 1 {
			bits &^= 1 << 31
		} else {
			bits = ^bits
		}
		b.Append(math.Float32frombits(bits))
	case *array.Float64Builder:
		if v>>63 == 1 {
			v &^= 1 << 63
		} else {
			v = ^v
		}
		b.Append(math.Float64frombits(v))
	case *array.Decimal128Builder:
		b.Append(decimal128.New(int64(v^1<<63), binary.BigEndian.Uint64(raw[8:])))
	default:
		return fmt.Errorf("builder of %s for %s: %w", b.Type(), t, ErrCorrupt)
	}
	return nil
}

func (d *decoder) text() ([]byte, error) {
	var out []byte
	for {
		i := bytes.IndexByte(d.rest, escape)
		if i < 0 || i+1 >= len(d.rest) {
			return nil, ErrCorrupt
		}
		out = append(out, d.rest[:i]...)
		next := d.rest[i+1]
		d.rest = d.rest[i+2:]
		switch next {
		case escapeEnd:
			return out, nil
		case escaped00:
			out = append(out, 0)
		default:
			return nil, ErrCorrupt
		}
	}
}
