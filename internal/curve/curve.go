package curve

import (
	"bytes"
	"slices"
	"sort"
)

// MaxDims is the largest number of dimensions.
const MaxDims = 32

// Bits is how many bits of each rank fit a position of 64 bits, 16 at most.
func Bits(dims int) int { return min(16, 63/max(dims, 1)) }

// Interleave is the position on the Z-order curve: the bits of the ranks in turn,
// highest first. Each rank has the given number of bits.
func Interleave(ranks []uint32, bits int) uint64 {
	var out uint64
	for b := bits - 1; b >= 0; b-- {
		for _, r := range ranks {
			out = out<<1 | uint64(r>>b&1)
		}
	}
	return out
}

// Hilbert is the position on the Hilbert curve (Skilling, "Programming the Hilbert
// curve", 2004). It overwrites ranks.
func Hilbert(ranks []uint32, bits int) uint64 {
	n := len(ranks)
	if n == 1 {
		return uint64(ranks[0])
	}
	top := uint32(1) << (bits - 1)
	// Undo the rotations and reflections of the sub-cubes.
	for q := top; q > 1; q >>= 1 {
		p := q - 1
		for i := range ranks {
			if ranks[i]&q != 0 {
				ranks[0] ^= p
			} else {
				t := (ranks[0] ^ ranks[i]) & p
				ranks[0] ^= t
				ranks[i] ^= t
			}
		}
	}
	// Gray code.
	for i := 1; i < n; i++ {
		ranks[i] ^= ranks[i-1]
	}
	var t uint32
	for q := top; q > 1; q >>= 1 {
		if ranks[n-1]&q != 0 {
			t ^= q - 1
		}
	}
	for i := range ranks {
		ranks[i] ^= t
	}
	return Interleave(ranks, bits)
}

// Ranks turns values of one column, as bytes that sort, into ranks of some bits by
// boundaries taken from a sample.
type Ranks struct {
	bounds [][]byte // ascending, distinct
	bits   int
}

// NewRanks makes ranks from a sample, which it sorts. Without a sample every rank is 0.
func NewRanks(sample [][]byte, bits int) *Ranks {
	slices.SortFunc(sample, bytes.Compare)
	r := &Ranks{bits: bits}
	want := 1<<bits - 1 // boundaries
	if distinct := slices.CompactFunc(slices.Clone(sample), bytes.Equal); len(distinct)-1 <= want {
		// Every value of the sample has a rank of its own.
		if len(distinct) > 0 {
			r.bounds = distinct[1:]
		}
		return r
	}
	for i := 1; i <= want; i++ {
		v := sample[i*len(sample)/(want+1)]
		if len(r.bounds) == 0 && bytes.Compare(v, sample[0]) > 0 || len(r.bounds) > 0 && bytes.Compare(v, r.bounds[len(r.bounds)-1]) > 0 {
			r.bounds = append(r.bounds, v)
		}
	}
	return r
}

// Of is the rank of a value.
func (r *Ranks) Of(v []byte) uint32 {
	at := sort.Search(len(r.bounds), func(i int) bool { return bytes.Compare(r.bounds[i], v) > 0 })
	return uint32(uint64(at) << r.bits / uint64(len(r.bounds)+1))
}
