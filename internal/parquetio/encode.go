package parquetio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"math/bits"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/gzip"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// pageEncoder turns pages into bytes; its memory is shared by all leaves of a
// writer.
type pageEncoder struct {
	codec format.CompressionCodec
	other compress.Codec // for codecs but snappy and none
	proto thrift.CompactProtocol
	body  []byte
	tmp   []byte
	out   []byte
}

func newPageEncoder(codec format.CompressionCodec) *pageEncoder {
	e := &pageEncoder{codec: codec}
	switch codec {
	case format.Gzip:
		e.other = &gzip.Codec{Level: gzip.DefaultCompression}
	case format.Zstd:
		e.other = &zstd.Codec{}
	case format.Lz4Raw:
		e.other = &lz4.Codec{Level: lz4.Fastest}
	}
	return e
}

// page appends the open page of l to l.pages, as a V1 data page. idx are its
// dictionary indexes, nil for plain values.
func (e *pageEncoder) page(l *leafWriter, idx []int32, nulls int64) (unpacked int, err error) {
	body := e.body[:0]
	if body, err = e.levels(body, l.rep, l.maxRep); err != nil {
		return 0, err
	}
	if body, err = e.levels(body, l.def, l.maxDef); err != nil {
		return 0, err
	}
	enc := format.Plain
	switch {
	case idx != nil || !l.plain:
		enc = format.RLEDictionary
		width := bits.Len(uint(max(l.dict.n-1, 1)))
		body = append(body, byte(width))
		if e.tmp, err = (&rle.Encoding{BitWidth: width}).EncodeInt32(e.tmp[:0], idx); err != nil {
			return 0, err
		}
		body = append(body, e.tmp...)
	case l.typ == format.Boolean:
		body = packBools(body, l.fixed)
	case l.width > 0:
		body = append(body, l.fixed...)
	default:
		body = plainBytes(body, l.data, l.offs)
	}
	e.body = body
	h := format.PageHeader{Type: format.DataPage}
	h.DataPageHeader = thrift.New(format.DataPageHeader{
		NumValues: int32(l.entries), Encoding: enc,
		DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
		Statistics: format.Statistics{NullCount: nulls},
	})
	l.countPage(format.DataPage, enc)
	l.pages, unpacked, err = e.finish(l.pages, &h)
	return unpacked, err
}

// dictionary returns the bytes of the dictionary page; they are valid until the
// next page.
func (e *pageEncoder) dictionary(l *leafWriter) (page []byte, unpacked int, err error) {
	d := l.dict
	if d.width > 0 {
		e.body = append(e.body[:0], d.fixed...)
	} else {
		e.body = plainBytes(e.body[:0], d.data, d.offs)
	}
	h := format.PageHeader{Type: format.DictionaryPage}
	h.DictionaryPageHeader = thrift.New(format.DictionaryPageHeader{NumValues: int32(d.n), Encoding: format.Plain})
	l.countPage(format.DictionaryPage, format.Plain)
	e.out, unpacked, err = e.finish(e.out[:0], &h)
	return e.out, unpacked, err
}

// finish compresses e.body and appends header and page to dst.
func (e *pageEncoder) finish(dst []byte, h *format.PageHeader) ([]byte, int, error) {
	packed := e.body
	if len(e.body) > maxPageSize {
		return dst, 0, fmt.Errorf("page of %d bytes: %w", len(e.body), ErrInvalid)
	}
	switch {
	case e.codec == format.Snappy:
		if n := s2.MaxEncodedLen(len(e.body)); cap(e.tmp) < n {
			e.tmp = make([]byte, n)
		}
		packed = s2.EncodeSnappy(e.tmp[:cap(e.tmp)], e.body)
	case e.other != nil:
		var err error
		if e.tmp, err = e.other.Encode(e.tmp[:0], e.body); err != nil {
			return dst, 0, err
		}
		packed = e.tmp
	}
	h.UncompressedPageSize, h.CompressedPageSize = int32(len(e.body)), int32(len(packed))
	h.CRC = int32(crc32.ChecksumIEEE(packed))
	head, err := thrift.Marshal(&e.proto, h)
	if err != nil {
		return dst, 0, err
	}
	dst = append(dst, head...)
	dst = append(dst, packed...)
	return dst, len(head) + len(e.body), nil
}

func (e *pageEncoder) levels(dst []byte, levels []uint8, top uint8) ([]byte, error) {
	if top == 0 {
		return dst, nil
	}
	var err error
	if e.tmp, err = (&rle.Encoding{BitWidth: bits.Len8(top)}).EncodeLevels(e.tmp[:0], levels); err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.tmp)))
	return append(dst, e.tmp...), nil
}

func packBools(dst, src []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, (len(src)+7)/8)...)
	for i, b := range src {
		dst[at+i>>3] |= b << (i & 7)
	}
	return dst
}

func plainBytes(dst, data []byte, offs []uint32) []byte {
	for i := range len(offs) - 1 {
		v := data[offs[i]:offs[i+1]]
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v)))
		dst = append(dst, v...)
	}
	return dst
}

// dictTable numbers the distinct values of a chunk in the order they come.
type dictTable struct {
	width int
	n     int
	fixed []byte
	data  []byte
	offs  []uint32
	slots []int32 // index+1 into the values, open addressing
	seed  maphash.Seed
	idx   []int32
}

const maxDictValues = 1 << 17

func newDictTable(width int) *dictTable {
	return &dictTable{width: width, slots: make([]int32, 1<<10), offs: []uint32{0}, seed: maphash.MakeSeed()}
}

func (d *dictTable) size() int { return len(d.fixed) + len(d.data) + 4*len(d.offs) }

func (d *dictTable) hash(v []byte) uint64 {
	switch d.width {
	case 4:
		return mix(uint64(binary.LittleEndian.Uint32(v)))
	case 8:
		return mix(binary.LittleEndian.Uint64(v))
	}
	return maphash.Bytes(d.seed, v)
}

func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

func (d *dictTable) value(i int32) []byte {
	if d.width > 0 {
		return d.fixed[int(i)*d.width : (int(i)+1)*d.width]
	}
	return d.data[d.offs[i]:d.offs[i+1]]
}

// add numbers the values of the open page of l; ok is false if there are too
// many distinct ones.
func (d *dictTable) add(l *leafWriter) (idx []int32, ok bool) {
	d.idx = d.idx[:0]
	if d.idx == nil {
		d.idx = make([]int32, 0, l.values)
	}
	for i := range l.values {
		var v []byte
		if d.width > 0 {
			v = l.fixed[i*d.width : (i+1)*d.width]
		} else {
			v = l.data[l.offs[i]:l.offs[i+1]]
		}
		mask := uint64(len(d.slots) - 1)
		at := d.hash(v) & mask
		for {
			s := d.slots[at]
			if s == 0 {
				if d.n >= maxDictValues {
					return nil, false
				}
				d.slots[at] = int32(d.n + 1)
				d.append(v)
				d.idx = append(d.idx, int32(d.n-1))
				break
			}
			if bytes.Equal(d.value(s-1), v) {
				d.idx = append(d.idx, s-1)
				break
			}
			at = (at + 1) & mask
		}
	}
	return d.idx, true
}

func (d *dictTable) append(v []byte) {
	if d.width > 0 {
		d.fixed = append(d.fixed, v...)
	} else {
		d.data = append(d.data, v...)
		d.offs = append(d.offs, uint32(len(d.data)))
	}
	d.n++
	if 2*d.n > len(d.slots) {
		d.rehash(2 * len(d.slots))
	}
}

func (d *dictTable) rehash(size int) {
	d.slots = make([]int32, size)
	mask := uint64(size - 1)
	for i := range d.n {
		at := d.hash(d.value(int32(i))) & mask
		for d.slots[at] != 0 {
			at = (at + 1) & mask
		}
		d.slots[at] = int32(i + 1)
	}
}

// negativeZero tells whether -0.0 is among the values from n on.
func (d *dictTable) negativeZero(n int) bool {
	for i := n; i < d.n; i++ {
		v := d.value(int32(i))
		if v[d.width-1] == 0x80 && floatLE(v) == 0 {
			return true
		}
	}
	return false
}

// truncate forgets all values from n on; the table takes no more.
func (d *dictTable) truncate(n int) {
	d.n, d.slots = n, nil
	if d.width > 0 {
		d.fixed = d.fixed[:n*d.width]
	} else {
		d.offs = d.offs[:n+1]
		d.data = d.data[:d.offs[n]]
	}
}
