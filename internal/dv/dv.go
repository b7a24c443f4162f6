package dv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/sluice-data/sluice/storage"
)

// ErrCorrupt marks a deletion vector whose bytes or descriptor contradict the
// format or each other.
var ErrCorrupt = errors.New("corrupt deletion vector")

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

const (
	formatVersion = 1
	magic         = 1681511377
	nativeMagic   = 1681511376
	maxSize       = 1 << 31
)

// Vector is a set of physical row numbers.
type Vector struct {
	keys []uint32 // high 32 bits, ascending
	maps []*roaring.Bitmap
}

// Contains reports whether row is in the set.
func (v *Vector) Contains(row int64) bool {
	if row < 0 {
		return false
	}
	key := uint32(row >> 32)
	i := sort.Search(len(v.keys), func(i int) bool { return v.keys[i] >= key })
	return i < len(v.keys) && v.keys[i] == key && v.maps[i].Contains(uint32(row))
}

// Cardinality counts the rows.
func (v *Vector) Cardinality() int64 {
	var n uint64
	for _, m := range v.maps {
		n += m.GetCardinality()
	}
	return int64(n)
}

// Max is the largest row, -1 for an empty set.
func (v *Vector) Max() int64 {
	for i := len(v.keys) - 1; i >= 0; i-- {
		if !v.maps[i].IsEmpty() {
			return int64(v.keys[i])<<32 | int64(v.maps[i].Maximum())
		}
	}
	return -1
}

// Rows yields the rows in ascending order.
func (v *Vector) Rows() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i, m := range v.maps {
			for it := m.Iterator(); it.HasNext(); {
				if !yield(int64(v.keys[i])<<32 | int64(it.Next())) {
					return
				}
			}
		}
	}
}

// Minus is the rows of v that are not in w; a nil w is empty.
func (v *Vector) Minus(w *Vector) *Vector {
	out := &Vector{}
	for i, m := range v.maps {
		if w != nil {
			if j := sort.Search(len(w.keys), func(j int) bool { return w.keys[j] >= v.keys[i] }); j < len(w.keys) && w.keys[j] == v.keys[i] {
				m = roaring.AndNot(m, w.maps[j])
			}
		}
		out.keys, out.maps = append(out.keys, v.keys[i]), append(out.maps, m)
	}
	return out
}

// Parse reads the data of a vector: magic and bitmap, no length, no checksum.
func Parse(data []byte) (_ *Vector, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = corruptf("bitmap: %v", p)
		}
	}()
	if len(data) < 12 {
		return nil, corruptf("%d bytes", len(data))
	}
	if binary.BigEndian.Uint32(data) == nativeMagic {
		return parseNative(data)
	}
	if m := binary.LittleEndian.Uint32(data); m != magic {
		return nil, corruptf("magic number %d", m)
	}
	n := binary.LittleEndian.Uint64(data[4:])
	r := bytes.NewReader(data[12:])
	if n > uint64(r.Len())/12 { // a bucket is a key and at least the 8 bytes of an empty bitmap
		return nil, corruptf("%d buckets in %d bytes", n, r.Len())
	}
	v := &Vector{}
	for i := range n {
		var key [4]byte
		if _, err := io.ReadFull(r, key[:]); err != nil {
			return nil, corruptf("bucket %d is cut off", i)
		}
		k := binary.LittleEndian.Uint32(key[:])
		if k > 1<<31-1 || len(v.keys) > 0 && k <= v.keys[len(v.keys)-1] {
			return nil, corruptf("bucket %d has key %d", i, k)
		}
		m, err := bitmap(data[len(data)-r.Len():], r)
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
		v.keys, v.maps = append(v.keys, k), append(v.maps, m)
	}
	return v, nil
}

// parseNative reads the older form of the reference implementation, in which the
// example of the protocol text is: big endian, buckets by position, each with its
// length.
func parseNative(data []byte) (*Vector, error) {
	n := int(int32(binary.BigEndian.Uint32(data[4:])))
	rest := data[8:]
	v := &Vector{}
	for i := range n {
		if len(rest) < 4 {
			return nil, corruptf("bucket %d is cut off", i)
		}
		size := binary.BigEndian.Uint32(rest)
		if uint64(size) > uint64(len(rest)-4) {
			return nil, corruptf("bucket %d has %d bytes", i, size)
		}
		b := rest[4 : 4+size]
		rest = rest[4+size:]
		m, err := bitmap(b, bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
		v.keys, v.maps = append(v.keys, uint32(i)), append(v.maps, m)
	}
	return v, nil
}

// bitmap reads one 32-bit bitmap from r, which stands at the start of b.
func bitmap(b []byte, r io.Reader) (*roaring.Bitmap, error) {
	if err := checkHeader(b); err != nil {
		return nil, err
	}
	m := roaring.New()
	if _, err := m.ReadFrom(r); err != nil {
		return nil, corruptf("%v", err)
	}
	if !m.IsEmpty() {
		if err := m.Validate(); err != nil {
			return nil, corruptf("%v", err)
		}
	}
	return m, nil
}

// checkHeader bounds the number of containers that a 32-bit bitmap claims by the
// bytes that are there.
func checkHeader(b []byte) error {
	const noRuns, runs = 12346, 12347
	if len(b) < 4 {
		return corruptf("bitmap is cut off")
	}
	cookie := binary.LittleEndian.Uint32(b)
	switch {
	case cookie&0xFFFF == runs:
		if n := int(cookie>>16) + 1; n*4 > len(b) {
			return corruptf("%d containers in %d bytes", n, len(b))
		}
	case cookie == noRuns:
		if len(b) < 8 {
			return corruptf("bitmap is cut off")
		}
		if n := binary.LittleEndian.Uint32(b[4:]); uint64(n)*4 > uint64(len(b)) {
			return corruptf("%d containers in %d bytes", n, len(b))
		}
	default:
		return corruptf("bitmap cookie %d", cookie)
	}
	return nil
}

// Load reads the vector of a descriptor. open opens a file by its path: relative to
// the table root for storage type u, as in the descriptor for p.
func Load(ctx context.Context, d Descriptor, open func(ctx context.Context, path string) (storage.Reader, error)) (*Vector, error) {
	data, err := d.inline()
	if err != nil {
		return nil, err
	}
	if data == nil {
		if data, err = d.stored(ctx, open); err != nil {
			return nil, err
		}
	}
	v, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if n := v.Cardinality(); n != d.Cardinality {
		return nil, corruptf("%d rows, its descriptor says %d", n, d.Cardinality)
	}
	return v, nil
}

// stored reads the data out of a file; a missing offset is 0 or 1, whichever
// verifies.
func (d Descriptor) stored(ctx context.Context, open func(context.Context, string) (storage.Reader, error)) (data []byte, err error) {
	path, err := d.Location()
	if err != nil {
		return nil, err
	}
	r, err := open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var version [1]byte
	if err := readAt(r, version[:], 0); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if version[0] != formatVersion {
		return nil, fmt.Errorf("%s: %w", path, corruptf("format version %d", version[0]))
	}
	offsets := []int64{1, 0}
	if d.Offset != nil {
		offsets = []int64{int64(*d.Offset)}
	}
	for _, at := range offsets {
		if data, err = d.block(r, at); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

// block reads length, data and checksum at an offset.
func (d Descriptor) block(r storage.Reader, at int64) ([]byte, error) {
	n := int64(d.SizeInBytes)
	if at < 0 || n < 0 || n > maxSize || at+n+8 > r.Size() {
		return nil, corruptf("%d bytes at %d in a file of %d", n, at, r.Size())
	}
	b := make([]byte, n+8)
	if err := readAt(r, b, at); err != nil {
		return nil, err
	}
	if got := binary.BigEndian.Uint32(b); int64(got) != n {
		return nil, corruptf("stored size %d, its descriptor says %d", got, n)
	}
	data := b[4 : 4+n]
	if got, want := crc32.ChecksumIEEE(data), binary.BigEndian.Uint32(b[4+n:]); got != want {
		return nil, corruptf("checksum %08x, stored is %08x", got, want)
	}
	return data, nil
}

func readAt(r storage.Reader, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return corruptf("file ends at byte %d", at+int64(n))
	}
	return err
}
