package parquetio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

const (
	maxPageHeader  = 16 << 20 // headers carry min and max of the page
	maxPageEntries = 1 << 26
	// maxBatchEntries bounds the list elements of one column in a batch: a few bytes of
	// run-length data can claim any number of them for one row.
	maxBatchEntries = 1 << 26
	readAhead       = 1 << 20
)

// leafReader reads one leaf column of one row group, forward only. Rows are
// counted from the start of the row group.
type leafReader struct {
	f          *File
	leaf       *node
	meta       *chunkMeta
	rows       int64
	levelsOnly bool // values are not wanted, only the shape of a parent
	sparse     bool // rows are skipped: read single pages, not ahead
	codec      *decompressor

	next, end int64 // byte position of the next page header, end of the chunk
	win       []byte
	winOff    int64
	pageSize  int32 // of the page jumped to, header included: read it in one go

	dict        *values
	index       []pageLocation
	indexLoaded bool

	row  int64 // rows begun so far
	page page

	scratch        []byte
	idx            []uint32
	defBuf, repBuf []uint8

	col column
}

// column is what a leafReader has collected for the current batch.
type column struct {
	def, rep []uint8 // nil if the maximum level is 0
	entries  int
	values   values
}

// page is a decoded page and the position in it.
type page struct {
	n, pos     int // level entries
	def, rep   []uint8
	vals       valueCursor
	rowAligned bool // the page after this one begins with a new row
}

func newLeafReader(f *File, group, leaf int, levelsOnly, sparse bool, codec *decompressor) *leafReader {
	g := &f.meta.rowGroups[group]
	r := &leafReader{f: f, leaf: f.leaves[leaf], meta: &g.columns[leaf], rows: g.numRows, levelsOnly: levelsOnly, sparse: sparse, codec: codec}
	start, n := r.meta.span()
	r.next, r.end = start, start+n
	return r
}

func (r *leafReader) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("column %s: %w", pathString(r.leaf.path()), err)
}

// begin starts a new batch.
func (r *leafReader) begin() {
	c := &r.col
	c.entries = 0
	c.def, c.rep = c.def[:0], c.rep[:0]
	// Values end up in Arrow buffers that outlive the batch: new memory each time.
	size := len(c.values.fixed)
	bytes, offs := len(c.values.data), len(c.values.offs)
	c.values.reset(false)
	if widthOf(r.leaf) == 0 {
		c.values.offs = append(make([]int32, 0, offs+1), 0)
		c.values.data = make([]byte, 0, bytes+bytes/8)
	} else {
		c.values.fixed = make([]byte, 0, size)
	}
}

// read appends the rows [from, from+n) to the current batch; from must not lie
// before the end of the last read.
func (r *leafReader) read(from int64, n int) error {
	if err := r.seek(from); err != nil {
		return r.wrap(err)
	}
	if r.leaf.maxRep > 0 {
		return r.wrap(r.repeated(int64(n), true))
	}
	for n > 0 {
		if r.page.pos == r.page.n {
			if err := r.nextPage(r.row); err != nil {
				return r.wrap(err)
			}
			continue
		}
		k := min(n, r.page.n-r.page.pos)
		if err := r.entries(k, true); err != nil {
			return r.wrap(err)
		}
		r.row += int64(k)
		n -= k
	}
	return nil
}

// entries takes or skips the next k level entries of the page and their values.
func (r *leafReader) entries(k int, take bool) error {
	p := &r.page
	nonNull := k
	if p.def != nil {
		def := p.def[p.pos : p.pos+k]
		nonNull = bytes.Count(def, []byte{r.leaf.maxDef})
		if take {
			r.col.def = append(r.col.def, def...)
		}
	}
	if take {
		if r.col.entries += k; r.col.entries > maxBatchEntries {
			return unsupportedf("more than %d list elements of one column in a batch", maxBatchEntries)
		}
		if p.rep != nil {
			r.col.rep = append(r.col.rep, p.rep[p.pos:p.pos+k]...)
		}
	}
	p.pos += k
	switch {
	case r.levelsOnly:
		return nil
	case take:
		return p.vals.take(nonNull, &r.col.values)
	}
	return p.vals.skip(nonNull)
}

// repeated takes or skips n whole rows of a column with repetition.
func (r *leafReader) repeated(n int64, take bool) error {
	for {
		p := &r.page
		if p.pos == p.n {
			if n == 0 && (p.rowAligned || r.row >= r.rows && r.next >= r.end) {
				return nil
			}
			if n == 0 && r.next >= r.end {
				return nil
			}
			if err := r.nextPage(r.row); err != nil {
				return err
			}
			continue
		}
		// k entries up to the first that begins a row too many
		k, rep := 0, p.rep[p.pos:]
		for k < len(rep) {
			if rep[k] == 0 {
				if n == 0 {
					break
				}
				n--
				r.row++
			}
			k++
		}
		if k > 0 {
			if err := r.entries(k, take); err != nil {
				return err
			}
		}
		if p.pos < p.n {
			return nil
		}
	}
}

// seek moves to the start of row target.
func (r *leafReader) seek(target int64) error {
	if target < r.row {
		return corruptf("row %d wanted after row %d", target, r.row)
	}
	for r.row < target {
		if r.leaf.maxRep == 0 && r.page.pos < r.page.n {
			k := int(min(target-r.row, int64(r.page.n-r.page.pos)))
			if err := r.entries(k, false); err != nil {
				return err
			}
			r.row += int64(k)
			continue
		}
		jumped, err := r.jump(target)
		if err != nil {
			return err
		}
		if r.leaf.maxRep > 0 {
			if !jumped || r.row < target {
				return r.repeated(target-r.row, false)
			}
			continue
		}
		if r.row < target {
			if err := r.nextPage(target); err != nil {
				return err
			}
		}
	}
	return nil
}

// jump uses the offset index to go to the page that holds row target, if that
// page is not the current one.
func (r *leafReader) jump(target int64) (bool, error) {
	if err := r.loadIndex(); err != nil || len(r.index) == 0 {
		return false, err
	}
	lo, hi := 0, len(r.index)
	for lo < hi { // first page that begins after target
		if m := (lo + hi) / 2; r.index[m].firstRow > target {
			hi = m
		} else {
			lo = m + 1
		}
	}
	if lo == 0 {
		return false, nil
	}
	loc := r.index[lo-1]
	if loc.offset < r.next {
		return false, nil // the current page
	}
	if r.dict == nil && r.next < r.index[0].offset {
		// The dictionary comes before the first data page.
		h, err := r.header()
		if err != nil {
			return false, err
		}
		if h.typ == int32(format.DictionaryPage) {
			if err := r.readDictionary(h); err != nil {
				return false, err
			}
		}
	}
	r.next, r.row, r.pageSize = loc.offset, loc.firstRow, loc.size
	r.page = page{rowAligned: true}
	return true, nil
}

// loadIndex reads the chunk's offset index once. An index that contradicts the
// chunk is corruption: following it would shift rows.
func (r *leafReader) loadIndex() error {
	if r.indexLoaded {
		return nil
	}
	r.indexLoaded = true
	m := r.meta
	if m.offsetIdx <= 0 || m.offsetIdxLen <= 0 || m.offsetIdx > r.f.size-int64(m.offsetIdxLen) {
		return nil
	}
	b := make([]byte, m.offsetIdxLen)
	if err := readFull(r.f.r, b, m.offsetIdx); err != nil {
		return err
	}
	index, err := parseOffsetIndex(b)
	if err != nil {
		return err
	}
	start, length := m.span()
	for i, p := range index {
		if p.offset < start || p.size <= 0 || int64(p.size) > start+length-p.offset || p.firstRow < 0 || p.firstRow >= r.rows ||
			i == 0 && p.firstRow != 0 || i > 0 && (p.firstRow < index[i-1].firstRow || p.offset < index[i-1].offset) {
			return corruptf("offset index entry %d: row %d at %d+%d", i, p.firstRow, p.offset, p.size)
		}
	}
	r.index = index
	return nil
}

// window returns up to n bytes of the chunk at off, reading ahead unless rows
// are being skipped.
func (r *leafReader) window(off int64, n int) ([]byte, error) {
	if off < r.winOff || off+int64(n) > r.winOff+int64(len(r.win)) {
		size := int64(n)
		if !r.sparse {
			size = max(size, readAhead)
		} else {
			size = max(size, int64(r.pageSize), 8<<10)
		}
		size = min(size, r.end-off)
		if int64(cap(r.win)) < size {
			r.win = make([]byte, size)
		}
		r.win = r.win[:size]
		r.winOff = off
		if err := readFull(r.f.r, r.win, off); err != nil {
			r.win = nil
			return nil, err
		}
	}
	b := r.win[off-r.winOff:]
	return b[:min(n, len(b))], nil
}

// header reads the page header at r.next and moves behind it.
func (r *leafReader) header() (pageHeader, error) {
	if r.next >= r.end {
		return pageHeader{}, corruptf("pages end after %d of %d rows", r.row, r.rows)
	}
	for size := 256; ; size *= 8 {
		b, err := r.window(r.next, int(min(int64(size), r.end-r.next)))
		if err != nil {
			return pageHeader{}, err
		}
		t := thriftReader{b: b}
		h := t.pageHeader()
		if t.short && len(b) == size && size < maxPageHeader {
			continue
		}
		if t.err != nil {
			return h, t.err
		}
		r.next += int64(t.pos)
		if h.compressed < 0 || int64(h.compressed) > r.end-r.next || h.uncompressed < 0 || h.uncompressed > maxPageSize {
			return h, corruptf("page of %d bytes (%d unpacked) where the chunk has %d", h.compressed, h.uncompressed, r.end-r.next)
		}
		switch format.PageType(h.typ) {
		case format.DataPage, format.DataPageV2, format.DictionaryPage:
			if !h.hasData || h.numValues < 0 || h.numValues > maxPageEntries {
				return h, corruptf("page header: type %d, %d values", h.typ, h.numValues)
			}
		}
		return h, nil
	}
}

// body reads the page's bytes at r.next and moves behind them.
func (r *leafReader) body(h pageHeader) ([]byte, error) {
	b, err := r.window(r.next, int(h.compressed))
	if err != nil {
		return nil, err
	}
	r.next += int64(h.compressed)
	if h.hasCRC && crc32.ChecksumIEEE(b) != h.crc {
		return nil, corruptf("page at %d: checksum does not match", r.next-int64(h.compressed))
	}
	return b, nil
}

func (r *leafReader) readDictionary(h pageHeader) error {
	b, err := r.body(h)
	if err != nil || r.levelsOnly {
		return err
	}
	//lint:ignore SA1019 old files have it
	if h.encoding != format.Plain && h.encoding != format.PlainDictionary {
		return corruptf("dictionary in encoding %s", h.encoding)
	}
	if b, err = r.codec.decompress(r.meta.codec, r.scratch, b, int(h.uncompressed)); err != nil {
		return err
	}
	r.dict, err = r.dictionary(b, int(h.numValues))
	return err
}

// loadDictionary reads the dictionary if the chunk begins with one that is not read
// yet. What is wrong with it is said when a page needs it.
func (r *leafReader) loadDictionary() {
	start, _ := r.meta.span()
	if r.levelsOnly || r.dict != nil || r.next != start || r.next >= r.end {
		return
	}
	h, err := r.header()
	if err != nil || h.typ != int32(format.DictionaryPage) || r.readDictionary(h) != nil {
		r.next, r.dict = start, nil
	}
}

// nextPage decodes the next data page. Pages that end at or before row target
// are passed over undecoded where their header tells their rows.
func (r *leafReader) nextPage(target int64) error {
	for {
		h, err := r.header()
		if err != nil {
			return err
		}
		switch format.PageType(h.typ) {
		case format.DictionaryPage:
			if r.dict != nil {
				return corruptf("column has two dictionaries")
			}
			if err := r.readDictionary(h); err != nil {
				return err
			}
			continue
		case format.DataPage, format.DataPageV2:
		default:
			r.next += int64(h.compressed)
			continue
		}
		rows, known := int64(h.numValues), r.leaf.maxRep == 0
		if !known && h.typ == int32(format.DataPageV2) {
			rows, known = int64(h.numRows), true
		}
		if known && (rows < 0 || r.row+rows > r.rows) {
			return corruptf("page has %d rows after %d of %d", rows, r.row, r.rows)
		}
		if known && r.row+rows <= target && r.leaf.maxRep == 0 {
			r.next += int64(h.compressed)
			r.row += rows
			r.page = page{rowAligned: true}
			if r.row == target {
				return nil
			}
			continue
		}
		b, err := r.body(h)
		if err != nil {
			return err
		}
		return r.decodePage(h, b)
	}
}

func (r *leafReader) decodePage(h pageHeader, b []byte) error {
	n := int(h.numValues)
	r.page = page{n: n, rowAligned: r.leaf.maxRep == 0 || h.typ == int32(format.DataPageV2)}
	if !r.page.rowAligned {
		// Pages with an offset index begin at row boundaries.
		r.page.rowAligned = len(r.index) > 0
	}
	var rep, def []byte
	if h.typ == int32(format.DataPageV2) {
		if h.repLength < 0 || h.defLength < 0 || int64(h.repLength)+int64(h.defLength) > int64(min(len(b), int(h.uncompressed))) {
			return corruptf("page with levels of %d and %d bytes in %d", h.repLength, h.defLength, len(b))
		}
		levels := int(h.repLength + h.defLength)
		rep, def = b[:h.repLength], b[h.repLength:levels]
		b = b[levels:]
		if size := int(h.uncompressed) - levels; !h.v2Compressed {
			if len(b) != size {
				return corruptf("page has %d bytes, header says %d", len(b), size)
			}
		} else if size > 0 || len(b) > 0 {
			out, err := r.codec.decompress(r.meta.codec, r.scratch, b, size)
			if err != nil {
				return err
			}
			b = r.keep(out)
		}
		if err := r.levels(rep, def, n); err != nil {
			return err
		}
	} else {
		out, err := r.codec.decompress(r.meta.codec, r.scratch, b, int(h.uncompressed))
		if err != nil {
			return err
		}
		b = r.keep(out)
		if rep, b, err = levelBytes(b, h.repEncoding, n, r.leaf.maxRep); err != nil {
			return err
		}
		if def, b, err = levelBytes(b, h.defEncoding, n, r.leaf.maxDef); err != nil {
			return err
		}
		if h.repEncoding == format.BitPacked || h.defEncoding == format.BitPacked {
			err = r.oldLevels(h, rep, def, n)
		} else {
			err = r.levels(rep, def, n)
		}
		if err != nil {
			return err
		}
	}
	if r.levelsOnly {
		return nil
	}
	nonNull := n
	if r.page.def != nil {
		nonNull = bytes.Count(r.page.def, []byte{r.leaf.maxDef})
	}
	var err error
	r.page.vals, err = r.cursor(h.encoding, b, nonNull)
	return err
}

// keep remembers decompressed memory for the next page.
func (r *leafReader) keep(out []byte) []byte {
	if r.meta.codec != format.Uncompressed && cap(out) > cap(r.scratch) {
		r.scratch = out[:0]
	}
	return out
}

// levelBytes cuts the levels of a V1 page off b.
func levelBytes(b []byte, enc format.Encoding, n int, maxLevel uint8) (levels, rest []byte, err error) {
	if maxLevel == 0 {
		return nil, b, nil
	}
	size := (n*bits.Len8(maxLevel) + 7) / 8
	if enc != format.BitPacked {
		if enc != format.RLE {
			return nil, nil, unsupportedf("levels in encoding %s", enc)
		}
		if len(b) < 4 {
			return nil, nil, corruptf("page ends before its levels")
		}
		u := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if uint64(u) > uint64(len(b)) {
			return nil, nil, corruptf("levels of %d bytes in %d", u, len(b))
		}
		size = int(u)
	}
	if size > len(b) {
		return nil, nil, corruptf("levels of %d bytes in %d", size, len(b))
	}
	return b[:size], b[size:], nil
}

func (r *leafReader) levels(rep, def []byte, n int) error {
	p := &r.page
	if m := r.leaf.maxRep; m > 0 {
		r.repBuf = sized(r.repBuf, n)
		p.rep = r.repBuf
		if err := decodeRLE(p.rep, rep, uint(bits.Len8(m))); err != nil {
			return fmt.Errorf("repetition levels: %w", err)
		}
	}
	if m := r.leaf.maxDef; m > 0 {
		r.defBuf = sized(r.defBuf, n)
		p.def = r.defBuf
		if err := decodeRLE(p.def, def, uint(bits.Len8(m))); err != nil {
			return fmt.Errorf("definition levels: %w", err)
		}
	}
	return r.checkLevels()
}

func (r *leafReader) oldLevels(h pageHeader, rep, def []byte, n int) error {
	p := &r.page
	one := func(enc format.Encoding, src []byte, m uint8) ([]uint8, error) {
		if m == 0 {
			return nil, nil
		}
		out := make([]uint8, n)
		if enc == format.BitPacked {
			return out, unpackBE(out, src, uint(bits.Len8(m)))
		}
		return out, decodeRLE(out, src, uint(bits.Len8(m)))
	}
	var err error
	if p.rep, err = one(h.repEncoding, rep, r.leaf.maxRep); err != nil {
		return err
	}
	if p.def, err = one(h.defEncoding, def, r.leaf.maxDef); err != nil {
		return err
	}
	return r.checkLevels()
}

func (r *leafReader) checkLevels() error {
	if err := checkLevels(r.page.def, r.leaf.maxDef); err != nil {
		return err
	}
	if err := checkLevels(r.page.rep, r.leaf.maxRep); err != nil {
		return err
	}
	if len(r.page.rep) > 0 && r.page.rep[0] != 0 && r.row == 0 {
		return corruptf("column does not begin with a row")
	}
	return nil
}

func checkLevels(levels []uint8, top uint8) error {
	if top&(top+1) == 0 {
		return nil // the bit width allows no more
	}
	for _, l := range levels {
		if l > top {
			return corruptf("level %d of %d", l, top)
		}
	}
	return nil
}
