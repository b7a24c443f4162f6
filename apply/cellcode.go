package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// errCell: bytes of the state that are no value of the expected type.
var errCell = errors.New("the value does not fit its type")

// appendCellBytes appends a value in a compact form that keeps every bit: a byte 0
// for null or 1, then the value; text and lists are preceded by their length.
func appendCellBytes(dst []byte, a arrow.Array, i int) ([]byte, error) {
	if a.IsNull(i) {
		return append(dst, 0), nil
	}
	dst = append(dst, 1)
	var err error
	switch a := a.(type) {
	case *array.String:
		dst = binary.AppendUvarint(dst, uint64(len(a.Value(i))))
		return append(dst, a.Value(i)...), nil
	case *array.Binary:
		dst = binary.AppendUvarint(dst, uint64(len(a.Value(i))))
		return append(dst, a.Value(i)...), nil
	case *array.Int64:
		return binary.AppendVarint(dst, a.Value(i)), nil
	case *array.Int32:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Int16:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Int8:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Date32:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Timestamp:
		return binary.AppendVarint(dst, int64(a.Value(i))), nil
	case *array.Boolean:
		if a.Value(i) {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case *array.Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(a.Value(i))), nil
	case *array.Float32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(a.Value(i))), nil
	case *array.Decimal128:
		v := a.Value(i)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(v.HighBits()))
		return binary.LittleEndian.AppendUint64(dst, v.LowBits()), nil
	case *array.Struct:
		for f := range a.NumField() {
			if dst, err = appendCellBytes(dst, a.Field(f), i); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case *array.Map:
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(dst, uint64(to-from))
		for e := from; e < to; e++ {
			if dst, err = appendCellBytes(dst, a.Keys(), int(e)); err != nil {
				return nil, err
			}
			if dst, err = appendCellBytes(dst, a.Items(), int(e)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case *array.List:
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(dst, uint64(to-from))
		for e := from; e < to; e++ {
			if dst, err = appendCellBytes(dst, a.ListValues(), int(e)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	return nil, fmt.Errorf("keep a value of type %s in the state: %w", a.DataType(), errCell)
}

// readCell appends what appendCellBytes wrote to a builder of the value's type and
// answers what follows it.
func readCell(b array.Builder, src []byte) ([]byte, error) {
	if len(src) == 0 {
		return nil, errCell
	}
	valid := src[0] == 1
	src = src[1:]
	if !valid {
		b.AppendNull()
		return src, nil
	}
	r := cellReader{rest: src}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(string(r.text()))
	case *array.BinaryBuilder:
		b.Append(r.text())
	case *array.Int64Builder:
		b.Append(r.int())
	case *array.Int32Builder:
		b.Append(int32(r.int()))
	case *array.Int16Builder:
		b.Append(int16(r.int()))
	case *array.Int8Builder:
		b.Append(int8(r.int()))
	case *array.Date32Builder:
		b.Append(arrow.Date32(r.int()))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(r.int()))
	case *array.BooleanBuilder:
		v := r.take(1)
		b.Append(len(v) == 1 && v[0] == 1)
	case *array.Float64Builder:
		b.Append(math.Float64frombits(r.fixed64()))
	case *array.Float32Builder:
		v := r.take(4)
		if v == nil {
			v = make([]byte, 4)
		}
		b.Append(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	case *array.Decimal128Builder:
		high := int64(r.fixed64())
		b.Append(decimal128.New(high, r.fixed64()))
	case *array.StructBuilder:
		b.Append(true)
		for f := range b.NumField() {
			r.inner(b.FieldBuilder(f))
		}
	case *array.MapBuilder:
		b.Append(true)
		for n := r.length(); n > 0 && !r.bad; n-- {
			r.inner(b.KeyBuilder())
			r.inner(b.ItemBuilder())
		}
	case *array.ListBuilder:
		b.Append(true)
		for n := r.length(); n > 0 && !r.bad; n-- {
			r.inner(b.ValueBuilder())
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

func (r *cellReader) inner(b array.Builder) {
	rest, err := readCell(b, r.rest)
	if err != nil {
		r.bad = true
		return
	}
	r.rest = rest
}
