package parquetio

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go/format"
)

// values holds non-null values of one leaf, dense and in order.
//
//  1. Fixed-width types: fixed has n*width bytes, little endian; a boolean takes
//     one byte.
//  2. Byte arrays: offs has n+1 offsets into data.
type values struct {
	n     int
	fixed []byte
	offs  []int32
	data  []byte
}

func (v *values) reset(bytes bool) {
	v.n, v.fixed, v.data, v.offs = 0, nil, nil, nil
	if bytes {
		v.offs = []int32{0}
	}
}

// widthOf is the bytes that a value of the leaf takes in values.fixed, 0 for
// byte arrays.
func widthOf(n *node) int {
	switch n.typ {
	case format.Boolean:
		return 1
	case format.Int32, format.Float:
		return 4
	case format.Int64, format.Double:
		return 8
	case format.Int96:
		return 12
	case format.FixedLenByteArray:
		return int(n.typeLength)
	}
	return 0
}

// valueCursor hands out the values of one page in order.
type valueCursor struct {
	width int    // 0 for byte arrays
	left  int    // values left
	buf   []byte // plain values from here on
	idx   []uint32
	dict  *values // nil for plain values
}

func (c *valueCursor) skip(n int) error {
	if n > c.left {
		return corruptf("page has %d values less than its levels say", n-c.left)
	}
	c.left -= n
	switch {
	case c.dict != nil:
		c.idx = c.idx[n:]
	case c.width > 0:
		c.buf = c.buf[n*c.width:]
	default:
		for range n {
			l, err := c.length()
			if err != nil {
				return err
			}
			c.buf = c.buf[4+l:]
		}
	}
	return nil
}

func (c *valueCursor) length() (int, error) {
	if len(c.buf) < 4 {
		return 0, corruptf("page ends inside the length of a byte array")
	}
	l := binary.LittleEndian.Uint32(c.buf)
	if uint64(l) > uint64(len(c.buf)-4) {
		return 0, corruptf("byte array of %d bytes where %d are left", l, len(c.buf)-4)
	}
	return int(l), nil
}

// take appends the next n values to out.
func (c *valueCursor) take(n int, out *values) error {
	if n > c.left {
		return corruptf("page has %d values less than its levels say", n-c.left)
	}
	c.left -= n
	out.n += n
	switch {
	case c.dict != nil:
		idx := c.idx[:n]
		c.idx = c.idx[n:]
		return c.gather(idx, out)
	case c.width > 0:
		out.fixed = append(out.fixed, c.buf[:n*c.width]...)
		c.buf = c.buf[n*c.width:]
		return nil
	}
	out.offs = slices.Grow(out.offs, n)
	data, buf := out.data, c.buf
	for range n {
		if len(buf) < 4 {
			return corruptf("page ends inside the length of a byte array")
		}
		l := int(binary.LittleEndian.Uint32(buf))
		if l > len(buf)-4 {
			return corruptf("byte array of %d bytes where %d are left", l, len(buf)-4)
		}
		data = append(data, buf[4:4+l]...)
		buf = buf[4+l:]
		out.offs = append(out.offs, int32(len(data)))
	}
	out.data, c.buf = data, buf
	return tooLong(int64(len(data)))
}

func (c *valueCursor) gather(idx []uint32, out *values) error {
	d := c.dict
	switch c.width {
	case 0:
		// Known before it is copied: a few indexes can stand for any number of bytes.
		size := int64(len(out.data))
		for _, i := range idx {
			size += int64(d.offs[i+1] - d.offs[i])
		}
		if err := tooLong(size); err != nil {
			return err
		}
		out.offs = slices.Grow(out.offs, len(idx))
		data := slices.Grow(out.data, int(size)-len(out.data))
		for _, i := range idx {
			data = append(data, d.data[d.offs[i]:d.offs[i+1]]...)
			out.offs = append(out.offs, int32(len(data)))
		}
		out.data = data
	case 4:
		at := len(out.fixed)
		out.fixed = slices.Grow(out.fixed, 4*len(idx))[:at+4*len(idx)]
		dst := out.fixed[at:]
		for k, i := range idx {
			binary.LittleEndian.PutUint32(dst[4*k:], binary.LittleEndian.Uint32(d.fixed[4*i:]))
		}
	case 8:
		at := len(out.fixed)
		out.fixed = slices.Grow(out.fixed, 8*len(idx))[:at+8*len(idx)]
		dst := out.fixed[at:]
		for k, i := range idx {
			binary.LittleEndian.PutUint64(dst[8*k:], binary.LittleEndian.Uint64(d.fixed[8*i:]))
		}
	default:
		if err := tooLong(int64(len(out.fixed)) + int64(len(idx))*int64(c.width)); err != nil {
			return err
		}
		w := uint32(c.width)
		for _, i := range idx {
			out.fixed = append(out.fixed, d.fixed[i*w:(i+1)*w]...)
		}
	}
	return nil
}

// tooLong refuses what 32-bit Arrow offsets cannot address. Batches are sized by
// the bytes of their rows, so this means a single enormous row group entry.
func tooLong(size int64) error {
	if size > math.MaxInt32 {
		return unsupportedf("more than 2 GiB of one column in a batch")
	}
	return nil
}

// cursor prepares the values of a page: n values in src, encoded with enc. For
// dictionary indexes and rare encodings it decodes the whole page into scratch
// memory, plain values stay where they are.
func (r *leafReader) cursor(enc format.Encoding, src []byte, n int) (valueCursor, error) {
	c := valueCursor{width: widthOf(r.leaf), left: n}
	if n == 0 {
		return c, nil
	}
	var err error
	switch enc {
	case format.Plain:
		c.buf = src
		if r.leaf.typ == format.Boolean {
			c.buf, err = unpackBools(src, n)
		}
	//lint:ignore SA1019 old files have it
	case format.RLEDictionary, format.PlainDictionary:
		if r.dict == nil {
			return c, corruptf("page uses a dictionary that is not there")
		}
		if len(src) == 0 {
			return c, corruptf("page has no dictionary indexes")
		}
		if cap(r.idx) < n {
			r.idx = make([]uint32, n)
		}
		r.idx = r.idx[:n]
		if err := decodeRLE(r.idx, src[1:], uint(src[0])); err != nil {
			return c, err
		}
		if top := slices.Max(r.idx); int64(top) >= int64(r.dict.n) {
			return c, corruptf("dictionary index %d of %d", top, r.dict.n)
		}
		c.idx, c.dict = r.idx, r.dict
		return c, nil
	case format.RLE:
		if r.leaf.typ != format.Boolean || len(src) < 4 {
			return c, corruptf("encoding RLE for %s", r.leaf)
		}
		c.buf = make([]byte, n)
		err = decodeRLE(c.buf, src[4:], 1)
	case format.DeltaBinaryPacked:
		if r.leaf.typ != format.Int32 && r.leaf.typ != format.Int64 {
			return c, corruptf("encoding %s for %s", enc, r.leaf)
		}
		c.buf, err = deltaFixed(src, n, c.width)
	case format.DeltaLengthByteArray:
		if c.width != 0 {
			return c, corruptf("encoding %s for %s", enc, r.leaf)
		}
		c.buf, err = deltaLengths(src, n)
	case format.DeltaByteArray:
		if c.width != 0 && r.leaf.typ != format.FixedLenByteArray {
			return c, corruptf("encoding %s for %s", enc, r.leaf)
		}
		c.buf, err = deltaStrings(src, n, c.width)
	case format.ByteStreamSplit:
		if c.width == 0 || r.leaf.typ == format.Boolean || r.leaf.typ == format.Int96 {
			return c, corruptf("encoding %s for %s", enc, r.leaf)
		}
		c.buf, err = splitStreams(src, n, c.width)
	default:
		return c, unsupportedf("encoding %s", enc)
	}
	if err != nil {
		return c, err
	}
	if len(c.buf) < n*c.width {
		return c, corruptf("page has %d bytes for %d values of %d", len(c.buf), n, c.width)
	}
	return c, nil
}

func unpackBools(src []byte, n int) ([]byte, error) {
	if (n+7)/8 > len(src) {
		return nil, corruptf("page has %d bytes for %d booleans", len(src), n)
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = src[i>>3] >> (i & 7) & 1
	}
	return out, nil
}

// dictionary decodes the n plain values of a dictionary page. The result owns
// its memory.
func (r *leafReader) dictionary(src []byte, n int) (*values, error) {
	c := valueCursor{width: widthOf(r.leaf), left: n, buf: src}
	if r.leaf.typ == format.Boolean || n < 0 || n > len(src)/cmp.Or(c.width, 4) {
		return nil, corruptf("dictionary of %d values in %d bytes", n, len(src))
	}
	d := &values{}
	d.reset(c.width == 0)
	return d, c.take(n, d)
}

// largest is the bytes of the longest value.
func (v *values) largest() int64 {
	n := int32(0)
	for i := range v.n {
		n = max(n, v.offs[i+1]-v.offs[i])
	}
	return int64(n)
}
