package dv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

const (
	formatVersion = 1
	magic         = 1681511377
	nativeMagic   = 1681511376 // Spark's native format; the protocol's own inline example has it
)

// Decode reads magic and bitmap, len(data) being the descriptor's SizeInBytes,
// and checks them against the cardinality.
func (d Descriptor) Decode(data []byte) (*roaring64.Bitmap, error) {
	if int64(len(data)) != int64(d.SizeInBytes) {
		return nil, corruptf("%d bytes, descriptor says %d", len(data), d.SizeInBytes)
	}
	bm, count, err := parse(data)
	if err != nil {
		return nil, err
	}
	if count != d.Cardinality {
		return nil, corruptf("%d rows, descriptor says %d", count, d.Cardinality)
	}
	return bm, nil
}

func parse(data []byte) (bm *roaring64.Bitmap, count int64, err error) {
	if len(data) < 12 {
		return nil, 0, corruptf("%d bytes", len(data))
	}
	var clean []byte
	switch m := binary.LittleEndian.Uint32(data); {
	case m == magic:
		clean, count, err = check(data[4:])
	case m == nativeMagic:
		clean, count, err = checkNative(data[4:], binary.LittleEndian)
	case binary.BigEndian.Uint32(data) == nativeMagic:
		clean, count, err = checkNative(data[4:], binary.BigEndian)
	default:
		return nil, 0, corruptf("magic number %d", m)
	}
	if err != nil {
		return nil, 0, err
	}
	bm = roaring64.New()
	n, err := bm.ReadFrom(bytes.NewReader(clean))
	if err != nil || n != int64(len(clean)) || bm.GetCardinality() != uint64(count) {
		return nil, 0, corruptf("bitmap of %d bytes: read %d: %v", len(clean), n, err)
	}
	return bm, count, nil
}

// DecodeInline reads the vector of an inline descriptor.
func (d Descriptor) DecodeInline() (*roaring64.Bitmap, error) {
	if d.StorageType != Inline {
		return nil, corruptf("storage type %q is not inline", d.StorageType)
	}
	data, err := decodeZ85(d.PathOrInlineDv)
	if err != nil {
		return nil, err
	}
	if d.SizeInBytes < 0 || int(d.SizeInBytes) > len(data) || len(data)-int(d.SizeInBytes) > 3 {
		return nil, corruptf("inline data of %d bytes, descriptor says %d", len(data), d.SizeInBytes)
	}
	return d.Decode(data[:d.SizeInBytes])
}

// ReadFrom reads the vector from its file of size bytes and verifies version,
// stored size, magic, checksum and cardinality. Without an offset, 1 and
// 0 are tried. Errors of r other than an early end are passed on.
func (d Descriptor) ReadFrom(r io.ReaderAt, size int64) (*roaring64.Bitmap, error) {
	bm, err := d.readFrom(r, size)
	if err != nil {
		return nil, fmt.Errorf("read deletion vector %s: %w", d.UniqueID(), err)
	}
	return bm, nil
}

func (d Descriptor) readFrom(r io.ReaderAt, size int64) (*roaring64.Bitmap, error) {
	if d.StorageType != Relative && d.StorageType != Absolute {
		return nil, corruptf("storage type %q has no file", d.StorageType)
	}
	if d.Offset != nil {
		return d.readAt(r, size, int64(*d.Offset))
	}
	bm, err := d.readAt(r, size, 1)
	if errors.Is(err, ErrCorrupt) {
		if bm, err0 := d.readAt(r, size, 0); err0 == nil {
			return bm, nil
		}
	}
	return bm, err
}

func (d Descriptor) readAt(r io.ReaderAt, size, offset int64) (*roaring64.Bitmap, error) {
	n := int64(d.SizeInBytes)
	if offset < 0 || n < 0 || offset+4+n+4 > size {
		return nil, corruptf("%d bytes at %d in a file of %d", n, offset, size)
	}
	if offset > 0 {
		var v [1]byte
		if err := readFull(r, v[:], 0); err != nil {
			return nil, err
		}
		if v[0] != formatVersion {
			return nil, corruptf("file version %d", v[0])
		}
	}
	b := make([]byte, 4+n+4)
	if err := readFull(r, b, offset); err != nil {
		return nil, err
	}
	if stored := binary.BigEndian.Uint32(b); int64(stored) != n {
		return nil, corruptf("stored size %d, descriptor says %d", stored, n)
	}
	data := b[4 : 4+n]
	if sum := binary.BigEndian.Uint32(b[4+n:]); sum != crc32.ChecksumIEEE(data) {
		return nil, corruptf("checksum does not match")
	}
	return d.Decode(data)
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corruptf("file ends at byte %d", off+int64(n))
	}
	return err
}

// Encode returns magic and bitmap of bm (not nil): the data that SizeInBytes counts.
func Encode(bm *roaring64.Bitmap) []byte {
	c := bm.Clone()
	c.RunOptimize()
	var b bytes.Buffer
	b.Grow(4 + int(c.GetSerializedSizeInBytes()))
	b.Write(binary.LittleEndian.AppendUint32(nil, magic))
	// Writing to a buffer cannot fail.
	_, _ = c.WriteTo(&b)
	return b.Bytes()
}

// EncodeInline returns the descriptor of bm as an inline vector. Tables get
// stored ones (W-654).
func EncodeInline(bm *roaring64.Bitmap) Descriptor {
	data := Encode(bm)
	return Descriptor{
		StorageType: Inline, PathOrInlineDv: encodeZ85(data), SizeInBytes: int32(len(data)), Cardinality: int64(bm.GetCardinality()),
	}
}

// WriteFile returns the bytes of a file that packs the bitmaps, and for each its
// place: Offset, SizeInBytes and Cardinality, the rest of the descriptor being
// the caller's. The first offset is 1 (W-653).
func WriteFile(bms []*roaring64.Bitmap) ([]byte, []Descriptor, error) {
	out := []byte{formatVersion}
	places := make([]Descriptor, len(bms))
	for i, bm := range bms {
		data := Encode(bm)
		if int64(len(out))+int64(len(data))+8 > math.MaxInt32 {
			return nil, nil, fmt.Errorf("write deletion vectors: file is larger than %d bytes", math.MaxInt32)
		}
		offset := int32(len(out))
		places[i] = Descriptor{Offset: &offset, SizeInBytes: int32(len(data)), Cardinality: int64(bm.GetCardinality())}
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(data))
	}
	return out, places, nil
}

// check walks a 64-bit portable bitmap, proves its structure in one pass, and
// counts its values. Buckets without values, which Spark writes below the first
// used one, are left out of clean.
func check(b []byte) (clean []byte, count int64, err error) {
	buckets := binary.LittleEndian.Uint64(b)
	rest := b[8:]
	if buckets > uint64(len(rest))/12 { // key, cookie and container count
		return nil, 0, corruptf("%d buckets in %d bytes", buckets, len(rest))
	}
	last := int64(-1)
	kept := uint64(0)
	clean = append(make([]byte, 0, len(b)), b[:8]...)
	for range buckets {
		if len(rest) < 12 {
			return nil, 0, corruptf("bitmap ends early")
		}
		key := int64(binary.LittleEndian.Uint32(rest))
		if key <= last || key > math.MaxInt32 {
			return nil, 0, corruptf("bucket %d after %d", key, last)
		}
		last = key
		n, c, err := checkBucket(rest[4:])
		if err != nil {
			return nil, 0, err
		}
		if c > 0 {
			kept++
			clean = append(clean, rest[:4+n]...)
		}
		count += c
		rest = rest[4+n:]
	}
	if len(rest) > 0 {
		return nil, 0, corruptf("%d bytes after the bitmap", len(rest))
	}
	binary.LittleEndian.PutUint64(clean, kept)
	return clean, count, nil
}

// checkNative does the same for the native format: a count, then for each bucket
// from 0 on its size and 32-bit bitmap. Its byte order shows in the magic.
func checkNative(b []byte, order binary.ByteOrder) (clean []byte, count int64, err error) {
	buckets := order.Uint32(b)
	rest := b[4:]
	if uint64(buckets) > uint64(len(rest))/12 { // size, cookie and container count
		return nil, 0, corruptf("%d buckets in %d bytes", buckets, len(rest))
	}
	kept := uint64(0)
	clean = make([]byte, 8, 8+len(b))
	for key := range buckets {
		if len(rest) < 12 {
			return nil, 0, corruptf("bitmap ends early")
		}
		n, c, err := checkBucket(rest[4:])
		if err != nil {
			return nil, 0, err
		}
		if size := order.Uint32(rest); int64(size) != int64(n) {
			return nil, 0, corruptf("bucket %d of %d bytes, has %d", key, size, n)
		}
		if c > 0 {
			kept++
			clean = binary.LittleEndian.AppendUint32(clean, key)
			clean = append(clean, rest[4:4+n]...)
		}
		count += c
		rest = rest[4+n:]
	}
	if len(rest) > 0 {
		return nil, 0, corruptf("%d bytes after the bitmap", len(rest))
	}
	binary.LittleEndian.PutUint64(clean, kept)
	return clean, count, nil
}

const (
	cookieNoRuns  = 12346
	cookieRuns    = 12347
	arrayMax      = 4096 // values of an array container
	offsetsFrom   = 4    // containers from which a bitmap with runs has offsets
	bitmapBytes   = 8192
	maxContainers = 1 << 16
)

// checkBucket walks one 32-bit portable bitmap ("RoaringFormatSpec") and returns
// its length and number of values.
func checkBucket(b []byte) (n int, count int64, err error) {
	short := corruptf("bitmap ends early")
	pos := 4
	take := func(k int) []byte {
		if k > len(b)-pos {
			return nil
		}
		pos += k
		return b[pos-k : pos]
	}
	if len(b) < 8 {
		return 0, 0, short
	}
	cookie := binary.LittleEndian.Uint32(b)
	size := 0
	var runs []byte
	switch {
	case cookie&0xffff == cookieRuns:
		size = int(cookie>>16) + 1
		if runs = take((size + 7) / 8); runs == nil {
			return 0, 0, short
		}
	case cookie == cookieNoRuns:
		u := binary.LittleEndian.Uint32(take(4))
		if u > maxContainers {
			return 0, 0, corruptf("%d containers", u)
		}
		size = int(u)
	default:
		return 0, 0, corruptf("bitmap cookie %d", cookie)
	}
	head := take(4 * size)
	if head == nil {
		return 0, 0, short
	}
	if runs == nil || size >= offsetsFrom {
		if take(4*size) == nil {
			return 0, 0, short
		}
	}
	last := -1
	for i := range size {
		key := int(binary.LittleEndian.Uint16(head[4*i:]))
		card := int(binary.LittleEndian.Uint16(head[4*i+2:])) + 1
		if key <= last {
			return 0, 0, corruptf("container %d after %d", key, last)
		}
		last = key
		got := 0
		switch {
		case runs != nil && runs[i/8]>>(i%8)&1 != 0:
			h := take(2)
			if h == nil {
				return 0, 0, short
			}
			data := take(4 * int(binary.LittleEndian.Uint16(h)))
			if data == nil {
				return 0, 0, short
			}
			if got, err = countRuns(data); err != nil {
				return 0, 0, err
			}
		case card > arrayMax:
			data := take(bitmapBytes)
			if data == nil {
				return 0, 0, short
			}
			for j := 0; j < len(data); j += 8 {
				got += bits.OnesCount64(binary.LittleEndian.Uint64(data[j:]))
			}
		default:
			data := take(2 * card)
			if data == nil {
				return 0, 0, short
			}
			prev := -1
			for j := 0; j < len(data); j += 2 {
				v := int(binary.LittleEndian.Uint16(data[j:]))
				if v <= prev {
					return 0, 0, corruptf("value %d after %d", v, prev)
				}
				prev = v
			}
			got = card
		}
		if got != card {
			return 0, 0, corruptf("container has %d values, header says %d", got, card)
		}
		count += int64(got)
	}
	return pos, count, nil
}

// countRuns counts the values of start and length-1 pairs.
func countRuns(b []byte) (int, error) {
	n, end := 0, -1
	for i := 0; i < len(b); i += 4 {
		start, more := int(binary.LittleEndian.Uint16(b[i:])), int(binary.LittleEndian.Uint16(b[i+2:]))
		if start <= end || start+more > math.MaxUint16 {
			return 0, corruptf("run %d+%d after %d", start, more, end)
		}
		end = start + more
		n += more + 1
	}
	return n, nil
}
