package parquetio

import (
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// build makes the Arrow data of n slots of p from what the leaf readers hold.
func (p *planNode) build(cols []*column, n int) (arrow.ArrayData, error) {
	switch p.kind {
	case planLeaf:
		return p.buildLeaf(cols[p.slot], n)
	case planStruct:
		return p.buildStruct(cols, n)
	case planList, planMap:
		return p.buildList(cols, n)
	case planVariant:
		return p.buildVariant(cols, n)
	}
	a := array.MakeArrayOfNull(memory.DefaultAllocator, p.typ, n)
	defer a.Release()
	a.Data().Retain()
	return a.Data(), nil
}

// validity collects a bitmap; it stays nil while everything is valid.
type validity struct {
	bits  []byte
	n     int
	nulls int
}

func newValidity(n int) *validity { return &validity{bits: make([]byte, (n+7)/8)} }

// fill sets the bits from level entries: entry i is a slot if its levels reach
// the enclosing list, and valid from level def on.
func (v *validity) fill(def []uint8, from uint8) {
	n := len(def)
	for i := 0; i < n; i += 8 {
		var b byte
		for j, l := range def[i:min(i+8, n)] {
			if l >= from {
				b |= 1 << j
			}
		}
		v.bits[i>>3] = b
		v.nulls += min(8, n-i) - bits.OnesCount8(b)
	}
	v.n = n
}

func (v *validity) add(valid bool) {
	if valid {
		bitutil.SetBit(v.bits, v.n)
	} else {
		v.nulls++
	}
	v.n++
}

func (v *validity) buffer() *memory.Buffer {
	if v == nil || v.nulls == 0 {
		return nil
	}
	return memory.NewBufferBytes(v.bits)
}

func (p *planNode) buildLeaf(c *column, n int) (arrow.ArrayData, error) {
	var valid *validity
	slots := c.entries
	switch {
	case c.def == nil || p.def == 0:
	case p.ancDef == 0:
		if len(c.def) != c.values.n {
			valid = newValidity(len(c.def))
			valid.fill(c.def, p.def)
		}
	case p.def == p.ancDef: // required inside its list
		slots = c.values.n
	default:
		valid = newValidity(len(c.def))
		for _, d := range c.def {
			if d >= p.ancDef {
				valid.add(d >= p.def)
			}
		}
		slots = valid.n
	}
	if slots != n {
		return nil, corruptf("column %s: %d values where its siblings have %d", p.column, slots, n)
	}
	nulls := 0
	if valid != nil {
		nulls = valid.nulls
	}
	if n-nulls != c.values.n {
		return nil, corruptf("column %s: %d values, levels say %d", p.column, c.values.n, n-nulls)
	}
	return p.conv(p, &c.values, valid, n)
}

func (p *planNode) buildStruct(cols []*column, n int) (arrow.ArrayData, error) {
	c := cols[p.slot]
	var valid *validity
	if p.def > p.ancDef {
		if c.def == nil {
			return nil, corruptf("column %s: no levels", p.column)
		}
		valid = newValidity(n)
		for i, d := range c.def {
			if d < p.ancDef || c.rep != nil && c.rep[i] > p.ancRep {
				continue
			}
			if valid.n == n {
				return nil, corruptf("column %s: more than %d values", p.column, n)
			}
			valid.add(d >= p.def)
		}
		if valid.n != n {
			return nil, corruptf("column %s: %d values where its siblings have %d", p.column, valid.n, n)
		}
	}
	kids := make([]arrow.ArrayData, len(p.kids))
	for i, k := range p.kids {
		var err error
		if kids[i], err = k.build(cols, n); err != nil {
			return nil, err
		}
	}
	nulls := 0
	if valid != nil {
		nulls = valid.nulls
	}
	return array.NewData(p.typ, n, []*memory.Buffer{valid.buffer()}, kids, nulls, 0), nil
}

func (p *planNode) buildList(cols []*column, n int) (arrow.ArrayData, error) {
	c := cols[p.slot]
	if len(c.def) != c.entries || len(c.rep) != c.entries {
		return nil, corruptf("column %s: no levels", p.column)
	}
	valid := newValidity(n)
	offs := make([]int32, 1, n+1)
	count := int32(0)
	for i, d := range c.def {
		switch r := c.rep[i]; {
		case r > p.rep || d < p.ancDef:
			continue
		case r == p.rep:
			if d < p.elemDef || valid.n == 0 {
				return nil, corruptf("column %s: repeated value outside a list", p.column)
			}
			count++
		default:
			if valid.n == n {
				return nil, corruptf("column %s: more than %d lists", p.column, n)
			}
			if valid.n > 0 {
				offs = append(offs, count)
			}
			valid.add(d >= p.def)
			if d >= p.elemDef {
				count++
			}
		}
	}
	if valid.n > 0 {
		offs = append(offs, count)
	}
	if valid.n != n {
		return nil, corruptf("column %s: %d lists where its siblings have %d values", p.column, valid.n, n)
	}
	kids := make([]arrow.ArrayData, len(p.kids))
	for i, k := range p.kids {
		var err error
		if kids[i], err = k.build(cols, int(count)); err != nil {
			return nil, err
		}
	}
	elem := kids[0]
	if p.kind == planMap {
		if kids[0].NullN() > 0 {
			return nil, corruptf("column %s: null map key", p.column)
		}
		elem = array.NewData(p.typ.(*arrow.MapType).Elem(), int(count), []*memory.Buffer{nil}, kids, 0, 0)
	}
	bufs := []*memory.Buffer{valid.buffer(), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offs))}
	return array.NewData(p.typ, n, bufs, []arrow.ArrayData{elem}, valid.nulls, 0), nil
}
