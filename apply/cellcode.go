package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

// errCell: bytes of the state that are no value of the expected type.
var errCell = errors.New("the value does not fit its type")

// The first byte of a value says how the rest is written, so that it can be read as
// a type that its column was widened to meanwhile.
const (
	cellNull = iota
	cellPlain
	cellInt
	cellDate
	cellFloat
	cellDouble
	cellDecimal
	cellStruct // with the number of its fields: later ones may have joined since
	cellNamed  // with their names: any may have joined, gone or changed places since
)

// innerNames are the physical names of the struct fields inside of a type; nil: it has
// none.
type innerNames struct {
	names []string      // of a struct
	inner []*innerNames // of its fields; of the element, or of key and value
}

func innerNamesOf(t schema.Type) *innerNames {
	of := func(types ...schema.Type) *innerNames {
		n, any := &innerNames{}, false
		for _, x := range types {
			in := innerNamesOf(x)
			n.inner, any = append(n.inner, in), any || in != nil
		}
		if !any {
			return nil
		}
		return n
	}
	switch t := t.(type) {
	case *schema.Struct:
		n := &innerNames{}
		for _, f := range t.Fields {
			n.names, n.inner = append(n.names, schema.PhysicalName(f)), append(n.inner, innerNamesOf(f.Type))
		}
		return n
	case *schema.Array:
		return of(t.Elem)
	case *schema.Map:
		return of(t.Key, t.Value)
	}
	return nil
}

func (n *innerNames) of(i int) *innerNames {
	if n == nil || i >= len(n.inner) {
		return nil
	}
	return n.inner[i]
}

// appendCellBytes appends a value in a compact form that keeps every bit; text and
// lists are preceded by their length. With names, fields of structs are kept by them.
func appendCellBytes(dst []byte, a arrow.Array, i int, names *innerNames) ([]byte, error) {
	if a.IsNull(i) {
		return append(dst, cellNull), nil
	}
	integer := func(v int64) ([]byte, error) { return binary.AppendVarint(append(dst, cellInt), v), nil }
	var err error
	switch a := a.(type) {
	case *array.Int64:
		return integer(a.Value(i))
	case *array.Int32:
		return integer(int64(a.Value(i)))
	case *array.Int16:
		return integer(int64(a.Value(i)))
	case *array.Int8:
		return integer(int64(a.Value(i)))
	case *array.Date32:
		return binary.AppendVarint(append(dst, cellDate), int64(a.Value(i))), nil
	case *array.Float64:
		return binary.LittleEndian.AppendUint64(append(dst, cellDouble), math.Float64bits(a.Value(i))), nil
	case *array.Float32:
		return binary.LittleEndian.AppendUint32(append(dst, cellFloat), math.Float32bits(a.Value(i))), nil
	case *array.Struct:
		if names != nil {
			return appendNamed(dst, a, i, names)
		}
		dst = binary.AppendUvarint(append(dst, cellStruct), uint64(a.NumField()))
		for f := range a.NumField() {
			if dst, err = appendCellBytes(dst, a.Field(f), i, nil); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case *array.Decimal128:
		v := a.Value(i)
		dst = append(dst, cellDecimal, byte(a.DataType().(*arrow.Decimal128Type).Scale))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v.HighBits()))
		return binary.LittleEndian.AppendUint64(dst, v.LowBits()), nil
	}
	dst = append(dst, cellPlain)
	switch a := a.(type) {
	case *array.String:
		dst = binary.AppendUvarint(dst, uint64(len(a.Value(i))))
		return append(dst, a.Value(i)...), nil
	case *array.Binary:
		dst = binary.AppendUvarint(dst, uint64(len(a.Value(i))))
		return append(dst, a.Value(i)...), nil
	case *array.Timestamp:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Boolean:
		if a.Value(i) {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case *array.Map:
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(dst, uint64(to-from))
		for e := from; e < to; e++ {
			if dst, err = appendCellBytes(dst, a.Keys(), int(e), names.of(0)); err != nil {
				return nil, err
			}
			if dst, err = appendCellBytes(dst, a.Items(), int(e), names.of(1)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case *array.List:
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(dst, uint64(to-from))
		for e := from; e < to; e++ {
			if dst, err = appendCellBytes(dst, a.ListValues(), int(e), names.of(0)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	return nil, fmt.Errorf("keep a value of type %s in the state: %w", a.DataType(), errCell)
}

// appendNamed appends a struct with the names of its fields.
func appendNamed(dst []byte, a *array.Struct, i int, names *innerNames) ([]byte, error) {
	if a.NumField() != len(names.names) {
		return nil, fmt.Errorf("keep a value of type %s in the state: %w", a.DataType(), errCell)
	}
	dst = binary.AppendUvarint(append(dst, cellNamed), uint64(a.NumField()))
	for f, name := range names.names {
		value, err := appendCellBytes(nil, a.Field(f), i, names.of(f))
		if err != nil {
			return nil, err
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
		dst = append(binary.AppendUvarint(dst, uint64(len(value))), value...)
	}
	return dst, nil
}

// named reads what appendNamed wrote: fields that the type does not have any more are
// passed over, those that joined it are null.
func (r *cellReader) named(b *array.StructBuilder, names *innerNames) {
	if names == nil || len(names.names) != b.NumField() {
		r.bad = true
		return
	}
	values := map[string][]byte{}
	for n := r.length(); n > 0 && !r.bad; n-- {
		name := string(r.text())
		values[name] = r.text()
	}
	b.Append(true)
	for f, name := range names.names {
		value, ok := values[name]
		if !ok || r.bad {
			b.FieldBuilder(f).AppendNull()
			continue
		}
		if rest, err := readCell(b.FieldBuilder(f), value, names.of(f)); err != nil || len(rest) > 0 {
			r.bad = true
		}
	}
}

// readCell appends what appendCellBytes wrote to a builder of the value's type, or of
// one that it can be widened to, and answers what follows it.
func readCell(b array.Builder, src []byte, names *innerNames) ([]byte, error) {
	if len(src) == 0 {
		return nil, errCell
	}
	kind := src[0]
	if src = src[1:]; kind == cellNull {
		b.AppendNull()
		return src, nil
	}
	r := cellReader{rest: src}
	want := func(k byte) { r.bad = r.bad || kind != k }
	switch b := b.(type) {
	case *array.Int64Builder:
		want(cellInt)
		b.Append(r.int())
	case *array.Int32Builder:
		want(cellInt)
		b.Append(int32(r.int()))
	case *array.Int16Builder:
		want(cellInt)
		b.Append(int16(r.int()))
	case *array.Int8Builder:
		want(cellInt)
		b.Append(int8(r.int()))
	case *array.Date32Builder:
		want(cellDate)
		b.Append(arrow.Date32(r.int()))
	case *array.TimestampBuilder:
		if kind == cellDate {
			b.Append(arrow.Timestamp(r.int() * 86400e6))
			break
		}
		want(cellPlain)
		b.Append(arrow.Timestamp(r.int()))
	case *array.Float64Builder:
		switch kind {
		case cellInt:
			b.Append(float64(r.int()))
		case cellFloat:
			b.Append(float64(math.Float32frombits(r.fixed32())))
		default:
			want(cellDouble)
			b.Append(math.Float64frombits(r.fixed64()))
		}
	case *array.Float32Builder:
		want(cellFloat)
		b.Append(math.Float32frombits(r.fixed32()))
	case *array.Decimal128Builder:
		b.Append(r.decimal(kind, b.Type().(*arrow.Decimal128Type).Scale))
	case *array.StringBuilder:
		want(cellPlain)
		b.Append(string(r.text()))
	case *array.BinaryBuilder:
		want(cellPlain)
		b.Append(r.text())
	case *array.BooleanBuilder:
		want(cellPlain)
		v := r.take(1)
		b.Append(len(v) == 1 && v[0] == 1)
	case *array.StructBuilder:
		if kind == cellNamed {
			r.named(b, names)
			break
		}
		n := b.NumField()
		if kind == cellStruct {
			n = r.length()
			r.bad = r.bad || n > b.NumField()
		} else {
			want(cellPlain)
		}
		b.Append(true)
		for f := range b.NumField() {
			if f < n {
				r.inner(b.FieldBuilder(f), names.of(f))
			} else {
				b.FieldBuilder(f).AppendNull()
			}
		}
	case *array.MapBuilder:
		want(cellPlain)
		b.Append(true)
		for n := r.length(); n > 0 && !r.bad; n-- {
			r.inner(b.KeyBuilder(), names.of(0))
			r.inner(b.ItemBuilder(), names.of(1))
		}
	case *array.ListBuilder:
		want(cellPlain)
		b.Append(true)
		for n := r.length(); n > 0 && !r.bad; n-- {
			r.inner(b.ValueBuilder(), names.of(0))
		}
	default:
		return nil, fmt.Errorf("read a value of type %s from the state: %w", b.Type(), errCell)
	}
	if r.bad {
		return nil, errCell
	}
	return r.rest, nil
}

// cellReader takes values off bytes; bad says that they were too short.
type cellReader struct {
	rest []byte
	bad  bool
}

func (r *cellReader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad = true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *cellReader) length() int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > uint64(len(r.rest)) {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *cellReader) text() []byte { return r.take(r.length()) }

func (r *cellReader) int() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *cellReader) fixed64() uint64 {
	v := r.take(8)
	if v == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(v)
}

func (r *cellReader) fixed32() uint32 {
	v := r.take(4)
	if v == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(v)
}

// decimal reads a decimal, or an integer, at another scale.
func (r *cellReader) decimal(kind byte, scale int32) decimal128.Num {
	var v decimal128.Num
	have := int32(0)
	switch kind {
	case cellInt:
		v = decimal128.FromI64(r.int())
	case cellDecimal:
		if s := r.take(1); s != nil {
			have = int32(s[0])
		}
		high := int64(r.fixed64())
		v = decimal128.New(high, r.fixed64())
	default:
		r.bad = true
	}
	if scale < have || scale-have > 38 {
		r.bad = true
		return v
	}
	return v.IncreaseScaleBy(scale - have)
}

func (r *cellReader) inner(b array.Builder, names *innerNames) {
	rest, err := readCell(b, r.rest, names)
	if err != nil {
		r.bad = true
		return
	}
	r.rest = rest
}
