package dv

import (
	"context"
	"errors"
	"iter"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/sluice-data/sluice/storage"
)

// Vector is a set of physical row numbers that does not change.
type Vector struct{ bm *roaring64.Bitmap }

// NewVector is the set of the rows in bm, which the vector takes over.
func NewVector(bm *roaring64.Bitmap) *Vector { return &Vector{bm} }

// Bitmap is a copy of the set, to grow and write again (W-652).
func (v *Vector) Bitmap() *roaring64.Bitmap { return v.bm.Clone() }

// Contains reports whether row is in the set.
func (v *Vector) Contains(row int64) bool { return row >= 0 && v.bm.Contains(uint64(row)) }

// Cardinality counts the rows.
func (v *Vector) Cardinality() int64 { return int64(v.bm.GetCardinality()) }

// Max is the largest row, -1 for an empty set.
func (v *Vector) Max() int64 {
	if v.bm.IsEmpty() {
		return -1
	}
	return int64(v.bm.Maximum())
}

// Rows yields the rows in ascending order.
func (v *Vector) Rows() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for it := v.bm.Iterator(); it.HasNext(); {
			if !yield(int64(it.Next())) {
				return
			}
		}
	}
}

// Minus is the rows of v that are not in w; a nil w is empty.
func (v *Vector) Minus(w *Vector) *Vector {
	if w == nil {
		return v
	}
	return &Vector{roaring64.AndNot(v.bm, w.bm)}
}

// Parse reads the data of a vector: magic and bitmap, no length, no checksum.
func Parse(data []byte) (*Vector, error) {
	bm, _, err := parse(data)
	if err != nil {
		return nil, err
	}
	return &Vector{bm}, nil
}

// Load reads the vector of a descriptor. open opens a file by its path: relative to
// the table root for storage type u, as in the descriptor for p.
func Load(ctx context.Context, d Descriptor, open func(ctx context.Context, path string) (storage.Reader, error)) (v *Vector, err error) {
	if d.StorageType == Inline {
		bm, err := d.DecodeInline()
		if err != nil {
			return nil, err
		}
		return &Vector{bm}, nil
	}
	path, _, err := d.Path()
	if err != nil {
		return nil, err
	}
	r, err := open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	bm, err := d.ReadFrom(r, r.Size())
	if err != nil {
		return nil, err
	}
	return &Vector{bm}, nil
}
