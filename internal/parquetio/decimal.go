package parquetio

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// decimalConv reads decimals in any physical form, and integers, as want. The
// scale may only grow (R-408 and type widening); a value that needs more digits
// than want has is an error.
func decimalConv(n *node, want schema.Decimal) converter {
	scale, digits := 0, 0
	unsigned := false
	switch l := n.logical; {
	case l.kind == logicalDecimal:
		scale, digits = int(l.scale), int(l.precision)
	case n.typ != format.Int32 && n.typ != format.Int64:
		return nil
	case l.kind == logicalInt:
		unsigned = !l.signed
		digits = map[int8]int{8: 3, 16: 5, 32: 10, 64: 20}[l.bits]
	case l.kind == logicalNone && n.typ == format.Int32:
		digits = 10
	case l.kind == logicalNone:
		digits = 19
	default:
		return nil
	}
	if scale < 0 || scale > want.Scale || n.typ == format.Boolean || n.typ == format.Float || n.typ == format.Double || n.typ == format.Int96 {
		return nil
	}
	check := digits == 0 || digits+want.Scale-scale > want.Precision
	return func(p *planNode, v *values, valid *validity, slots int) (arrow.ArrayData, error) {
		out := make([]byte, 16*v.n)
		for i := range v.n {
			d, err := decimalAt(n, v, i, unsigned)
			if err == nil && scale != want.Scale {
				d, err = d.Rescale(int32(scale), int32(want.Scale))
			}
			if err == nil && check && !d.FitsInPrecision(int32(want.Precision)) {
				err = corruptf("value %s is out of range for %s", d.ToString(int32(want.Scale)), want)
			}
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", p.column, err)
			}
			binary.LittleEndian.PutUint64(out[16*i:], d.LowBits())
			binary.LittleEndian.PutUint64(out[16*i+8:], uint64(d.HighBits()))
		}
		return fixedData(p.typ, 16, out, valid, slots), nil
	}
}

func decimalAt(n *node, v *values, i int, unsigned bool) (decimal128.Num, error) {
	switch n.typ {
	case format.Int32:
		u := binary.LittleEndian.Uint32(v.fixed[4*i:])
		if unsigned {
			return decimal128.FromU64(uint64(u)), nil
		}
		return decimal128.FromI64(int64(int32(u))), nil
	case format.Int64:
		u := binary.LittleEndian.Uint64(v.fixed[8*i:])
		if unsigned {
			return decimal128.FromU64(u), nil
		}
		return decimal128.FromI64(int64(u)), nil
	case format.FixedLenByteArray:
		w := int(n.typeLength)
		return decimalBytes(v.fixed[w*i : w*(i+1)])
	}
	return decimalBytes(v.data[v.offs[i]:v.offs[i+1]])
}

// decimalBytes reads a big-endian two's complement number of any length.
func decimalBytes(b []byte) (decimal128.Num, error) {
	if len(b) == 0 {
		return decimal128.Num{}, corruptf("decimal of no bytes")
	}
	fill := byte(int8(b[0]) >> 7)
	for len(b) > 16 {
		if b[0] != fill || (b[1]^fill)&0x80 != 0 {
			return decimal128.Num{}, corruptf("decimal of %d bytes is out of range", len(b))
		}
		b = b[1:]
	}
	var full [16]byte
	for i := range full[:16-len(b)] {
		full[i] = fill
	}
	copy(full[16-len(b):], b)
	return decimal128.New(int64(binary.BigEndian.Uint64(full[:])), binary.BigEndian.Uint64(full[8:])), nil
}
