package curve_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/curve"
	"github.com/sluice-data/sluice/internal/testenv"
)

// TestHilbert_WalksEveryPoint: the curve visits every point of the cube once, and
// goes one step in one dimension each time.
func TestHilbert_WalksEveryPoint(t *testing.T) {
	for _, c := range []struct{ dims, bits int }{{1, 8}, {2, 1}, {2, 5}, {3, 4}, {4, 3}, {5, 2}} {
		total := 1 << (c.dims * c.bits)
		at := make([][]uint32, total)
		for n := range total {
			point := make([]uint32, c.dims)
			for d := range point {
				point[d] = uint32(n>>(d*c.bits)) & (1<<c.bits - 1)
			}
			p := curve.Hilbert(append([]uint32(nil), point...), c.bits)
			if p >= uint64(total) || at[p] != nil {
				t.Fatalf("%d dimensions of %d bits: position %d of %v is taken or out of range", c.dims, c.bits, p, point)
			}
			at[p] = point
		}
		for n := 1; n < total; n++ {
			steps := 0
			for d := range at[n] {
				steps += int(max(at[n][d], at[n-1][d]) - min(at[n][d], at[n-1][d]))
			}
			if steps != 1 {
				t.Fatalf("%d dimensions of %d bits: %v and %v are neighbours", c.dims, c.bits, at[n-1], at[n])
			}
		}
	}
}

func TestInterleave_Bits(t *testing.T) {
	for _, c := range []struct {
		ranks []uint32
		bits  int
		want  uint64
	}{
		{[]uint32{0b101}, 3, 0b101},
		{[]uint32{0b11, 0b00}, 2, 0b1010},
		{[]uint32{0b01, 0b10}, 2, 0b0110},
		{[]uint32{1, 0, 1}, 1, 0b101},
	} {
		if got := curve.Interleave(c.ranks, c.bits); got != c.want {
			t.Errorf("%b: got %b, want %b", c.ranks, got, c.want)
		}
	}
}

// TestRanks_KeepOrder: ranks never go down as values go up, stay below 2^bits, and
// reach the upper half when the sample has more than one value.
func TestRanks_KeepOrder(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(1, 16).Draw(t, "bits")
		number := rapid.Uint32Range(0, rapid.SampledFrom([]uint32{1, 5, 1000, 1 << 30}).Draw(t, "spread"))
		var sample [][]byte
		for _, v := range rapid.SliceOfN(number, 0, 300).Draw(t, "sample") {
			sample = append(sample, binary.BigEndian.AppendUint32(nil, v))
		}
		r := curve.NewRanks(sample, bits)
		values := append([][]byte{{}, bytes.Repeat([]byte{255}, 5)}, sample...)
		a, b := rapid.SampledFrom(values).Draw(t, "a"), rapid.SampledFrom(values).Draw(t, "b")
		if bytes.Compare(a, b) > 0 {
			a, b = b, a
		}
		ra, rb := r.Of(a), r.Of(b)
		if ra > rb || rb >= 1<<bits {
			t.Fatalf("ranks %d of %x and %d of %x, %d bits", ra, a, rb, b, bits)
		}
		if n := len(sample); n > 0 && !bytes.Equal(sample[0], sample[n-1]) && (r.Of(sample[0]) != 0 || r.Of(sample[n-1]) < 1<<(bits-1)) {
			t.Fatalf("%d to %d of %d bits are not spread", r.Of(sample[0]), r.Of(sample[n-1]), bits)
		}
	})
}

func TestBits_Fit(t *testing.T) {
	for dims := 1; dims <= curve.MaxDims; dims++ {
		if b := curve.Bits(dims); b < 1 || b*dims > 63 {
			t.Errorf("%d dimensions: %d bits", dims, b)
		}
	}
}
