package merge

import (
	"math/bits"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// probe is the set of keys in the form in which the rows of files are held against it.
// It is immutable and shared by those who read.
//
// A set of one integer column is a table of integers: a row costs a multiplication and
// one look at a bitmap that the processor's cache holds, and no memory. Any other set,
// and a batch with nulls, goes by the bytes of the keys, which a bitmap of their hashes
// sifts first.
type probe struct {
	set    map[string]int
	names  [][]byte // by index, of a set of integers
	filter []uint64 // bitmap over the top bits of hashes
	shift  uint
	ints   *intTable // nil: not integers
	pages  *datafile.KeySet
}

func newProbe(s *schema.Struct, keys Keys) *probe {
	p := &probe{set: keys.Set}
	size := bits.Len(uint(16 * max(len(keys.Set), 4))) // a bit in 16 to 32 is set
	p.filter, p.shift = make([]uint64, 1<<(size-6)), uint(64-size)
	if len(keys.Columns) == 1 {
		if i := s.Index(keys.Columns[0]); i >= 0 {
			p.byType(s.Fields[i], keys)
		}
	}
	for key := range keys.Set {
		h := keycode.Hash64([]byte(key))
		if p.ints != nil {
			break
		}
		p.mark(h)
	}
	return p
}

func (p *probe) mark(h uint64) { p.filter[h>>p.shift>>6] |= 1 << (h >> p.shift & 63) }

func (p *probe) may(h uint64) bool { return p.filter[h>>p.shift>>6]>>(h>>p.shift&63)&1 == 1 }

// byType takes the values out of the keys where the column's type has pages whose
// bounds can be compared with them.
func (p *probe) byType(f schema.Field, keys Keys) {
	t, err := schema.ArrowType(f.Type)
	if err != nil {
		return
	}
	e, err := keycode.NewEncoder([]arrow.DataType{t})
	if err != nil {
		return
	}
	switch f.Type {
	case schema.Long, schema.Integer, schema.Short, schema.Byte, schema.String:
	default:
		return
	}
	values, indexes, ok := decodeKeys(e, t, keys.Set)
	if !ok {
		return
	}
	defer values.Release()
	p.pages = &datafile.KeySet{Column: keys.Columns[0]}
	if a, ok := values.(*array.String); ok {
		for i := range a.Len() {
			p.pages.Texts = append(p.pages.Texts, a.Value(i))
		}
		slices.Sort(p.pages.Texts)
		return
	}
	p.pages.Ints = make([]int64, values.Len())
	p.ints = newIntTable(values.Len())
	p.names = make([][]byte, 0, len(keys.Set))
	for i := range p.pages.Ints {
		v := intAt(values, i)
		p.pages.Ints[i] = v
		p.ints.put(v, int32(indexes[i]))
		p.mark(mix(v))
	}
	slices.Sort(p.pages.Ints)
	for key, i := range keys.Set {
		for len(p.names) <= i {
			p.names = append(p.names, nil)
		}
		p.names[i] = []byte(key)
	}
}

// decodeKeys are the values of a set of one column, and the caller's index of each;
// false where one is null or an index is out of the ordinary.
func decodeKeys(e *keycode.Encoder, t arrow.DataType, set map[string]int) (arrow.Array, []int, bool) {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	b.Reserve(len(set))
	indexes := make([]int, 0, len(set))
	for key, i := range set {
		if _, err := e.Decode([]byte(key), []array.Builder{b}); err != nil || i < 0 || i > 2*len(set)+1024 {
			return nil, nil, false
		}
		indexes = append(indexes, i)
	}
	a := b.NewArray()
	if a.NullN() > 0 {
		a.Release()
		return nil, nil, false
	}
	return a, indexes, true
}

func intAt(a arrow.Array, i int) int64 {
	switch a := a.(type) {
	case *array.Int64:
		return a.Value(i)
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	}
	return int64(a.(*array.Int8).Value(i))
}

// mix spreads an integer over the top bits.
func mix(v int64) uint64 {
	h := uint64(v)
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15
	h ^= h >> 29
	return h * 0xBF58476D1CE4E5B9
}

// intTable is a table of integers with open addressing, less than half full.
type intTable struct {
	keys    []int64
	indexes []int32 // -1: free
	shift   uint
}

func newIntTable(n int) *intTable {
	size := bits.Len(uint(2*n + 1))
	t := &intTable{keys: make([]int64, 1<<size), indexes: make([]int32, 1<<size), shift: uint(64 - size)}
	for i := range t.indexes {
		t.indexes[i] = -1
	}
	return t
}

func (t *intTable) put(v int64, index int32) {
	at := mix(v) >> t.shift
	for t.indexes[at] >= 0 && t.keys[at] != v {
		at = (at + 1) & uint64(len(t.keys)-1)
	}
	t.keys[at], t.indexes[at] = v, index
}

func (t *intTable) get(v int64, hash uint64) (int32, bool) {
	for at := hash >> t.shift; t.indexes[at] >= 0; at = (at + 1) & uint64(len(t.keys)-1) {
		if t.keys[at] == v {
			return t.indexes[at], true
		}
	}
	return 0, false
}

// match calls hit with the rows of key columns that are in the set, ascending, the
// caller's index of each key and its bytes, which are valid during the call.
func (p *probe) match(cols []arrow.Array, n int, hit func(row, index int, key []byte)) {
	if p.ints != nil && cols[0].NullN() == 0 {
		switch a := cols[0].(type) {
		case *array.Int64:
			matchInts(p, a.Int64Values(), hit)
			return
		case *array.Int32:
			matchInts(p, a.Int32Values(), hit)
			return
		}
	}
	var buf []byte
	for r := range n {
		buf = KeyOf(buf[:0], cols, r)
		if p.ints == nil && !p.may(keycode.Hash64(buf)) {
			continue
		}
		if index, ok := p.set[string(buf)]; ok {
			hit(r, index, buf)
		}
	}
}

func matchInts[T int32 | int64](p *probe, values []T, hit func(row, index int, key []byte)) {
	for r, v := range values {
		h := mix(int64(v))
		if !p.may(h) {
			continue
		}
		if index, ok := p.ints.get(int64(v), h); ok {
			hit(r, int(index), p.names[index])
		}
	}
}
