package parquetio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// converter makes the Arrow data of n slots out of dense values; valid is nil if
// no slot is null. It takes ownership of the memory of v.
type converter func(p *planNode, v *values, valid *validity, n int) (arrow.ArrayData, error)

// converter chooses how leaf n of the file is read as want; nil if it cannot be
// (the table of delta-protocol 1.6, and type widening).
func (f *File) converter(n *node, want schema.Type) (converter, error) {
	l := n.logical
	plainInt := l.kind == logicalNone || l.kind == logicalInt
	isInt := (n.typ == format.Int32 || n.typ == format.Int64) && plainInt
	switch want := want.(type) {
	case schema.Primitive:
		switch want {
		case schema.Boolean:
			if n.typ == format.Boolean {
				return boolConv, nil
			}
		case schema.Byte, schema.Short, schema.Integer, schema.Long:
			if isInt {
				return intConv(n, want), nil
			}
		case schema.Float:
			if n.typ == format.Float {
				return fixedConv(4, nil), nil
			}
		case schema.Double:
			switch {
			case n.typ == format.Double:
				return fixedConv(8, nil), nil
			case n.typ == format.Float:
				return fixedConv(8, widen(func(b []byte) uint64 {
					return math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
				})), nil
			case n.typ == format.Int32 && plainInt && (l.kind == logicalNone || l.signed):
				return fixedConv(8, widen(func(b []byte) uint64 {
					return math.Float64bits(float64(int32(binary.LittleEndian.Uint32(b))))
				})), nil
			}
		case schema.String:
			if n.typ == format.ByteArray {
				switch l.kind {
				case logicalNone, logicalString, logicalEnum, logicalJSON:
					return bytesConv, nil
				}
			}
		case schema.Binary:
			switch l.kind {
			case logicalNone, logicalString, logicalEnum, logicalJSON, logicalBSON, logicalUUID:
				if n.typ == format.ByteArray {
					return bytesConv, nil
				}
				if n.typ == format.FixedLenByteArray {
					return fixedBytesConv, nil
				}
			}
		case schema.Date:
			if n.typ == format.Int32 && l.kind == logicalDate {
				return fixedConv(4, f.rebase.dates()), nil
			}
		case schema.Timestamp, schema.TimestampNTZ:
			return f.timestampConv(n, want)
		}
	case schema.Decimal:
		return decimalConv(n, want), nil
	}
	return nil, nil
}

// transform rewrites dense values into dense values of the Arrow form.
type transform func(column string, in []byte) ([]byte, error)

func widen(f func([]byte) uint64) transform {
	return func(_ string, in []byte) ([]byte, error) {
		out := make([]byte, 2*len(in))
		for i := 0; i < len(in); i += 4 {
			binary.LittleEndian.PutUint64(out[2*i:], f(in[i:]))
		}
		return out, nil
	}
}

func fixedConv(width int, t transform) converter {
	return func(p *planNode, v *values, valid *validity, n int) (arrow.ArrayData, error) {
		dense := v.fixed
		if t != nil {
			var err error
			if dense, err = t(p.column, dense); err != nil {
				return nil, fmt.Errorf("column %s: %w", p.column, err)
			}
		}
		return fixedData(p.typ, width, dense, valid, n), nil
	}
}

func fixedData(typ arrow.DataType, width int, dense []byte, valid *validity, n int) arrow.ArrayData {
	nulls := 0
	if valid != nil {
		nulls = valid.nulls
		dense = spread(dense, width, valid, n)
	}
	return array.NewData(typ, n, []*memory.Buffer{valid.buffer(), memory.NewBufferBytes(dense)}, nil, nulls, 0)
}

// spread gives every slot its place, zero where it is null.
func spread(dense []byte, width int, valid *validity, n int) []byte {
	if valid.nulls == 0 {
		return dense
	}
	out := make([]byte, n*width)
	switch width {
	case 4:
		for i, k := 0, 0; i < n; i++ {
			if valid.bits[i>>3]>>(i&7)&1 != 0 {
				binary.LittleEndian.PutUint32(out[4*i:], binary.LittleEndian.Uint32(dense[4*k:]))
				k++
			}
		}
	case 8:
		for i, k := 0, 0; i < n; i++ {
			if valid.bits[i>>3]>>(i&7)&1 != 0 {
				binary.LittleEndian.PutUint64(out[8*i:], binary.LittleEndian.Uint64(dense[8*k:]))
				k++
			}
		}
	default:
		for i, k := 0, 0; i < n; i++ {
			if bitutil.BitIsSet(valid.bits, i) {
				copy(out[i*width:], dense[k*width:(k+1)*width])
				k++
			}
		}
	}
	return out
}

func boolConv(p *planNode, v *values, valid *validity, n int) (arrow.ArrayData, error) {
	out := make([]byte, (n+7)/8)
	k := 0
	for i := range n {
		if valid != nil && !bitutil.BitIsSet(valid.bits, i) {
			continue
		}
		out[i>>3] |= v.fixed[k] & 1 << (i & 7)
		k++
	}
	nulls := 0
	if valid != nil {
		nulls = valid.nulls
	}
	return array.NewData(p.typ, n, []*memory.Buffer{valid.buffer(), memory.NewBufferBytes(out)}, nil, nulls, 0), nil
}

// bytesConv makes string and binary arrays.
func bytesConv(p *planNode, v *values, valid *validity, n int) (arrow.ArrayData, error) {
	return bytesData(p.typ, v.offs, v.data, valid, n), nil
}

func bytesData(typ arrow.DataType, offs []int32, data []byte, valid *validity, n int) arrow.ArrayData {
	nulls := 0
	if valid != nil && valid.nulls > 0 {
		nulls = valid.nulls
		out := make([]int32, n+1)
		k := 0
		for i := range n {
			if valid.bits[i>>3]>>(i&7)&1 != 0 {
				k++
			}
			out[i+1] = offs[k]
		}
		offs = out
	}
	bufs := []*memory.Buffer{valid.buffer(), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offs)), memory.NewBufferBytes(data)}
	return array.NewData(typ, n, bufs, nil, nulls, 0)
}

// fixedBytesConv reads FIXED_LEN_BYTE_ARRAY as binary.
func fixedBytesConv(p *planNode, v *values, valid *validity, n int) (arrow.ArrayData, error) {
	width := 0
	if v.n > 0 {
		width = len(v.fixed) / v.n
	}
	if err := tooLong(int64(len(v.fixed))); err != nil {
		return nil, fmt.Errorf("column %s: %w", p.column, err)
	}
	offs := make([]int32, v.n+1)
	for i := range offs {
		offs[i] = int32(i * width)
	}
	return bytesData(p.typ, offs, v.fixed, valid, n), nil
}

// intConv reads INT32 and INT64 of any annotation as an integer type, and fails
// on a value that does not fit. Narrowing INT64 is refused up front.
func intConv(n *node, want schema.Primitive) converter {
	unsigned := n.logical.kind == logicalInt && !n.logical.signed
	width := map[schema.Primitive]int{schema.Byte: 1, schema.Short: 2, schema.Integer: 4, schema.Long: 8}[want]
	in := 4
	if n.typ == format.Int64 {
		in = 8
	}
	switch {
	case in == 8 && width < 8:
		return nil
	case in == 8 && !unsigned, in == 4 && width == 4 && (!unsigned || n.logical.bits < 32):
		return fixedConv(width, nil)
	case in == 4 && width == 8 && !unsigned:
		return fixedConv(8, widen(func(b []byte) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }))
	case in == 4 && width == 8:
		return fixedConv(8, widen(func(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }))
	}
	lo, hi := int64(math.MinInt64)>>(64-8*width), int64(math.MaxInt64)>>(64-8*width)
	return fixedConv(width, func(_ string, src []byte) ([]byte, error) {
		out := make([]byte, len(src)/in*width)
		for i, k := 0, 0; i < len(src); i, k = i+in, k+width {
			var v int64
			switch {
			case in == 8:
				v = int64(binary.LittleEndian.Uint64(src[i:]))
				if v < 0 {
					return nil, corruptf("value %d is out of range for %s", uint64(v), want)
				}
			case unsigned:
				v = int64(binary.LittleEndian.Uint32(src[i:]))
			default:
				v = int64(int32(binary.LittleEndian.Uint32(src[i:])))
			}
			if v < lo || v > hi {
				return nil, corruptf("value %d is out of range for %s", v, want)
			}
			switch width {
			case 1:
				out[k] = byte(v)
			case 2:
				binary.LittleEndian.PutUint16(out[k:], uint16(v))
			case 4:
				binary.LittleEndian.PutUint32(out[k:], uint32(v))
			default:
				binary.LittleEndian.PutUint64(out[k:], uint64(v))
			}
		}
		return out, nil
	})
}

// timestampConv reads every form of a point in time as microseconds, rounding
// toward the past.
func (f *File) timestampConv(n *node, want schema.Primitive) (converter, error) {
	l := n.logical
	ntz := want == schema.TimestampNTZ
	switch {
	case n.typ == format.Int96 && l.kind == logicalNone:
		return fixedConv(8, chain(int96Micros, f.rebase.timestamps(f.rebase.int96))), nil
	case n.typ == format.Int64 && l.kind == logicalTimestamp:
		if ntz && l.utc && l.utcKnown {
			return nil, nil
		}
		var scale transform
		switch l.unit {
		case unitMillis:
			scale = scaleMillis
		case unitNanos:
			scale = scaleNanos
		case unitMicros:
		default:
			return nil, nil
		}
		return fixedConv(8, chain(scale, f.rebase.timestamps(f.rebase.datetime))), nil
	case n.typ == format.Int32 && l.kind == logicalDate && ntz:
		return fixedConv(8, chain(f.rebase.dates(), dateMicros)), nil
	}
	return nil, nil
}

func chain(ts ...transform) transform {
	var use []transform
	for _, t := range ts {
		if t != nil {
			use = append(use, t)
		}
	}
	switch len(use) {
	case 0:
		return nil
	case 1:
		return use[0]
	}
	return func(column string, in []byte) ([]byte, error) {
		var err error
		for _, t := range use {
			if in, err = t(column, in); err != nil {
				return nil, err
			}
		}
		return in, nil
	}
}

const (
	microsPerDay   = 86_400_000_000
	julianDayEpoch = 2_440_588
)

// int96Micros reads nanoseconds of the day and Julian day.
func int96Micros(_ string, in []byte) ([]byte, error) {
	out := make([]byte, len(in)/12*8)
	for i, k := 0, 0; i < len(in); i, k = i+12, k+8 {
		nanos := int64(binary.LittleEndian.Uint64(in[i:]))
		days := int64(binary.LittleEndian.Uint32(in[i+8:])) - julianDayEpoch
		if days > math.MaxInt64/microsPerDay-1 || days < math.MinInt64/microsPerDay+1 {
			return nil, corruptf("timestamp of Julian day %d", days+julianDayEpoch)
		}
		t := days * microsPerDay
		m := floorDiv(nanos, 1000)
		if m > 0 && t > math.MaxInt64-m || m < 0 && t < math.MinInt64-m {
			return nil, corruptf("timestamp of Julian day %d and %d ns", days+julianDayEpoch, nanos)
		}
		binary.LittleEndian.PutUint64(out[k:], uint64(t+m))
	}
	return out, nil
}

func scaleMillis(_ string, in []byte) ([]byte, error) {
	in = bytes.Clone(in) // two wanted columns may share a file column
	for i := 0; i < len(in); i += 8 {
		v := int64(binary.LittleEndian.Uint64(in[i:]))
		if v > math.MaxInt64/1000 || v < math.MinInt64/1000 {
			return nil, corruptf("timestamp of %d ms", v)
		}
		binary.LittleEndian.PutUint64(in[i:], uint64(v*1000))
	}
	return in, nil
}

func scaleNanos(_ string, in []byte) ([]byte, error) {
	in = bytes.Clone(in)
	for i := 0; i < len(in); i += 8 {
		binary.LittleEndian.PutUint64(in[i:], uint64(floorDiv(int64(binary.LittleEndian.Uint64(in[i:])), 1000)))
	}
	return in, nil
}

func dateMicros(_ string, in []byte) ([]byte, error) {
	out := make([]byte, 2*len(in))
	for i := 0; i < len(in); i += 4 {
		d := int64(int32(binary.LittleEndian.Uint32(in[i:])))
		if d > math.MaxInt64/microsPerDay || d < math.MinInt64/microsPerDay {
			return nil, corruptf("date %d is out of range for a timestamp", d)
		}
		binary.LittleEndian.PutUint64(out[2*i:], uint64(d*microsPerDay))
	}
	return out, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
