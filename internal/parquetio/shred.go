package parquetio

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// entry is a place in a nested column on its way to a leaf: its levels so far
// and the index of the value in the Arrow array of the node at hand, -1 once the
// value is known to be null or its list empty.
type entry struct {
	rep, def uint8
	idx      int32
}

// shredder turns Arrow arrays into levels and dense values. Its memory is reused.
type shredder struct {
	idx []int32
}

// root adds n rows of a top-level column.
func (s *shredder) root(r *outNode, a arrow.Array, n int) error {
	if r.kind == planLeaf {
		return s.flat(r, a, n)
	}
	entries := make([]entry, n)
	for i := range entries {
		entries[i].idx = int32(i)
	}
	return s.node(r, a, entries, n)
}

// flat is the short way of a leaf at top level.
func (s *shredder) flat(r *outNode, a arrow.Array, n int) error {
	l := r.leaf
	nulls := a.NullN()
	if nulls > 0 && !r.opt {
		return fmt.Errorf("column %s: null in a required column: %w", r.column, ErrInvalid)
	}
	if nulls == 0 {
		l.addLevels(n, r.def)
		if err := l.addValues(a, nil, n); err != nil {
			return err
		}
		return l.endRows(n)
	}
	s.idx = s.idx[:0]
	bits, off := a.NullBitmapBytes(), a.Data().Offset()
	at := len(l.def)
	l.addLevels(n, 0)
	def := l.def[at:]
	for i := range n {
		if bitutil.BitIsSet(bits, off+i) {
			def[i] = 1
			s.idx = append(s.idx, int32(i))
		}
	}
	if err := l.addValues(a, s.idx, len(s.idx)); err != nil {
		return err
	}
	return l.endRows(n)
}

// node takes entries that point into a; it may change them.
func (s *shredder) node(r *outNode, a arrow.Array, entries []entry, rows int) error {
	if a.NullN() > 0 {
		for i := range entries {
			e := &entries[i]
			if e.idx < 0 {
				continue
			}
			switch {
			case a.IsValid(int(e.idx)):
				if r.opt {
					e.def++
				}
			case r.opt:
				e.idx = -1
			default:
				return fmt.Errorf("column %s: null in a required column: %w", r.column, ErrInvalid)
			}
		}
	} else if r.opt {
		for i := range entries {
			if entries[i].idx >= 0 {
				entries[i].def++
			}
		}
	}
	switch r.kind {
	case planStruct:
		st := a.(*array.Struct)
		for i, k := range r.kids {
			sub := entries
			if i < len(r.kids)-1 {
				sub = append(make([]entry, 0, len(entries)), entries...)
			}
			if err := s.node(k, st.Field(k.src), sub, rows); err != nil {
				return err
			}
		}
		return nil
	case planList:
		ls := a.(*array.List)
		return s.node(r.kids[0], ls.ListValues(), expand(r, ls, entries), rows)
	case planMap:
		m := a.(*array.Map)
		kv := m.ListValues().(*array.Struct)
		inner := expand(r, m, entries)
		keys := append(make([]entry, 0, len(inner)), inner...)
		if err := s.node(r.kids[0], kv.Field(0), keys, rows); err != nil {
			return err
		}
		return s.node(r.kids[1], kv.Field(1), inner, rows)
	}
	l := r.leaf
	s.idx = s.idx[:0]
	for _, e := range entries {
		l.rep = append(l.rep, e.rep)
		l.def = append(l.def, e.def)
		if e.idx >= 0 {
			s.idx = append(s.idx, e.idx)
		}
	}
	l.entries += len(entries)
	if err := l.addValues(a, s.idx, len(s.idx)); err != nil {
		return err
	}
	return l.endRows(rows)
}

// expand replaces each list by its elements.
func expand(r *outNode, a interface {
	ValueOffsets(i int) (start, end int64)
}, entries []entry) []entry {
	out := make([]entry, 0, len(entries))
	for _, e := range entries {
		if e.idx < 0 {
			out = append(out, e)
			continue
		}
		from, to := a.ValueOffsets(int(e.idx))
		if from == to {
			out = append(out, entry{e.rep, e.def, -1})
			continue
		}
		rep := e.rep
		for j := from; j < to; j++ {
			out = append(out, entry{rep, e.def + 1, int32(j)})
			rep = r.rep
		}
	}
	return out
}

// Where a leaf's values come from in Arrow.
type leafSource uint8

const (
	srcNone    leafSource = iota
	srcFixed              // buffer of the same width
	srcInt8               // to INT32
	srcInt16              // to INT32
	srcBool               // bitmap
	srcBytes              // offsets and data
	srcDecimal            // decimal128 to INT32, INT64 or big-endian bytes
)

// addValues appends the values of a at idx, or all n of them if idx is nil.
func (l *leafWriter) addValues(a arrow.Array, idx []int32, n int) error {
	d := a.Data()
	off := d.Offset()
	l.values += n
	if n == 0 {
		return nil
	}
	at := func(k int) int {
		if idx == nil {
			return k
		}
		return int(idx[k])
	}
	switch l.src {
	case srcFixed:
		src := d.Buffers()[1].Bytes()[off*l.width:]
		if idx == nil {
			l.fixed = append(l.fixed, src[:n*l.width]...)
			return nil
		}
		if l.width == 8 {
			for _, i := range idx {
				l.fixed = binary.LittleEndian.AppendUint64(l.fixed, binary.LittleEndian.Uint64(src[8*i:]))
			}
			return nil
		}
		for _, i := range idx {
			l.fixed = binary.LittleEndian.AppendUint32(l.fixed, binary.LittleEndian.Uint32(src[4*i:]))
		}
	case srcInt8:
		v := a.(*array.Int8).Int8Values()
		for k := range n {
			l.fixed = binary.LittleEndian.AppendUint32(l.fixed, uint32(int32(v[at(k)])))
		}
	case srcInt16:
		v := a.(*array.Int16).Int16Values()
		for k := range n {
			l.fixed = binary.LittleEndian.AppendUint32(l.fixed, uint32(int32(v[at(k)])))
		}
	case srcBool:
		bits := d.Buffers()[1].Bytes()
		for k := range n {
			i := off + at(k)
			l.fixed = append(l.fixed, bits[i>>3]>>(i&7)&1)
		}
	case srcBytes:
		offs := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[off:]
		var data []byte
		if b := d.Buffers()[2]; b != nil {
			data = b.Bytes()
		}
		for k := range n {
			i := at(k)
			l.data = append(l.data, data[offs[i]:offs[i+1]]...)
			l.offs = append(l.offs, uint32(len(l.data)))
		}
	case srcDecimal:
		v := a.(*array.Decimal128).Values()
		for k := range n {
			if err := l.addDecimal(v[at(k)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *leafWriter) addDecimal(v decimal128.Num) error {
	if !v.FitsInPrecision(l.precision) {
		return fmt.Errorf("column %s: decimal of more than %d digits: %w", l.column, l.precision, ErrInvalid)
	}
	switch l.width {
	case 4:
		l.fixed = binary.LittleEndian.AppendUint32(l.fixed, uint32(v.LowBits()))
	case 8:
		l.fixed = binary.LittleEndian.AppendUint64(l.fixed, v.LowBits())
	default:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], uint64(v.HighBits()))
		binary.BigEndian.PutUint64(b[8:], v.LowBits())
		l.fixed = append(l.fixed, b[16-l.width:]...)
	}
	return nil
}
