package parquetio

import (
	"slices"

	"github.com/parquet-go/parquet-go/format"
)

// leafWriter collects the values of one leaf into pages and the pages of the
// current row group into a chunk.
type leafWriter struct {
	column    string
	path      []string
	typ       format.Type
	width     int // bytes of a value in fixed, 0 for byte arrays
	precision int32
	order     valueOrder
	src       leafSource
	text      bool // values are UTF-8
	maxDef    uint8
	maxRep    uint8
	o         *WriterOptions
	enc       *pageEncoder

	// The open page: levels of its entries and its non-null values.
	def, rep []uint8
	entries  int
	rows     int
	values   int
	fixed    []byte   // booleans take a byte each
	data     []byte   // byte arrays
	offs     []uint32 // values+1

	// The open chunk.
	dict     *dictTable // nil while plain
	plain    bool       // dictionary given up
	pages    []byte
	pageList []pageInfo
	stats    chunkBounds
	nulls    int64
	numVals  int64
	numRows  int64
	unpacked int64 // bytes of pages and headers before compression
	encStats []format.PageEncodingStats
}

type pageInfo struct {
	size     int32
	firstRow int64
	nulls    int64
	nullPage bool
	min, max []byte
	bounds   bool
}

func (l *leafWriter) init(o *WriterOptions, enc *pageEncoder) {
	l.o, l.enc = o, enc
	l.resetPage()
	l.resetChunk()
}

func (l *leafWriter) resetPage() {
	l.def, l.rep, l.fixed, l.data = l.def[:0], l.rep[:0], l.fixed[:0], l.data[:0]
	l.entries, l.rows, l.values = 0, 0, 0
	if l.width == 0 {
		l.offs = append(l.offs[:0], 0)
	}
}

func (l *leafWriter) resetChunk() {
	l.pages, l.pageList, l.encStats = l.pages[:0], nil, nil
	l.stats = chunkBounds{}
	l.nulls, l.numVals, l.numRows, l.unpacked = 0, 0, 0, 0
	l.plain = l.o.DictBytes < 0 || l.typ == format.Boolean
	l.dict = nil
	if !l.plain {
		l.dict = newDictTable(l.width)
	}
}

func (l *leafWriter) buffered() int64 {
	n := int64(len(l.pages) + len(l.fixed) + len(l.data) + len(l.def) + len(l.rep))
	if l.dict != nil {
		n += int64(l.dict.size())
	}
	return n
}

// addLevels adds n entries of one definition level, at repetition level 0.
func (l *leafWriter) addLevels(n int, def uint8) {
	l.entries += n
	if l.maxDef == 0 {
		return
	}
	at := len(l.def)
	l.def = slices.Grow(l.def, n)[:at+n]
	for i := range l.def[at:] {
		l.def[at+i] = def
	}
}

// endRows counts n complete rows and closes the page if it is full. Pages under
// a dictionary are small once encoded, so only their rows count, and their bytes
// with more room.
func (l *leafWriter) endRows(n int) error {
	l.rows += n
	limit := l.o.PageBytes
	if l.dict != nil && !l.plain && len(l.pageList) > 0 {
		limit *= 8
	}
	if l.rows+writeStep > l.o.PageRows || len(l.fixed)+len(l.data)+4*len(l.offs) >= limit || l.entries >= 1<<20 {
		return l.flushPage()
	}
	return nil
}

func (l *leafWriter) flushPage() error {
	if l.entries == 0 {
		return nil
	}
	var idx []int32
	if !l.plain {
		var ok bool
		before := l.dict.n
		idx, ok = l.dict.add(l)
		first := len(l.pageList) == 0
		if !ok || l.dict.size() > l.o.DictBytes || first && l.values >= 64 && l.dict.n > l.values/2 || l.order == orderFloat && l.dict.negativeZero(before) {
			// Few repeats, or too many values: this page and the rest go plain. So do
			// pages with -0.0: parquet-java drops a row group that is all dictionary
			// if the bytes of 0.0 are not in it, and with it the rows that equal 0.0.
			l.dict.truncate(before)
			l.plain, idx = true, nil
			if first {
				l.dict = nil
			}
		}
	}
	nulls := int64(l.entries - l.values)
	p := pageInfo{firstRow: l.numRows, nulls: nulls, nullPage: l.values == 0}
	p.min, p.max, p.bounds = l.bounds()
	before := len(l.pages)
	unpacked, err := l.enc.page(l, idx, nulls)
	if err != nil {
		return err
	}
	p.size = int32(len(l.pages) - before)
	l.unpacked += int64(unpacked)
	l.pageList = append(l.pageList, p)
	l.stats.add(l, p)
	l.nulls += nulls
	l.numVals += int64(l.entries)
	l.numRows += int64(l.rows)
	l.resetPage()
	return nil
}

func (l *leafWriter) countPage(t format.PageType, e format.Encoding) {
	for i := range l.encStats {
		if l.encStats[i].PageType == t && l.encStats[i].Encoding == e {
			l.encStats[i].Count++
			return
		}
	}
	l.encStats = append(l.encStats, format.PageEncodingStats{PageType: t, Encoding: e, Count: 1})
}

// finish writes the chunk at offset through emit and returns its metadata.
func (l *leafWriter) finish(offset int64, emit func([]byte) error) (format.ColumnChunk, chunkIndex, error) {
	var c format.ColumnChunk
	var x chunkIndex
	if err := l.flushPage(); err != nil {
		return c, x, err
	}
	start := offset
	m := &c.MetaData
	if l.dict != nil {
		page, unpacked, err := l.enc.dictionary(l)
		if err != nil {
			return c, x, err
		}
		m.DictionaryPageOffset = offset
		offset += int64(len(page))
		l.unpacked += int64(unpacked)
		if err := emit(page); err != nil {
			return c, x, err
		}
	}
	if err := emit(l.pages); err != nil {
		return c, x, err
	}
	m.Type = l.typ
	m.PathInSchema = l.path
	m.NumValues = l.numVals
	m.DataPageOffset = offset
	m.TotalUncompressedSize = l.unpacked
	m.TotalCompressedSize = offset - start + int64(len(l.pages))
	m.Statistics = l.stats.statistics(l.nulls)
	m.EncodingStats = l.encStats
	if l.maxDef > 0 || l.maxRep > 0 {
		m.Encoding = append(m.Encoding, format.RLE)
	}
	for _, s := range l.encStats {
		if !slices.Contains(m.Encoding, s.Encoding) {
			m.Encoding = append(m.Encoding, s.Encoding)
		}
	}
	c.FileOffset = 0 // deprecated: "writers should set it to 0"
	for _, p := range l.pageList {
		x.offset.PageLocations = append(x.offset.PageLocations, format.PageLocation{Offset: offset, CompressedPageSize: p.size, FirstRowIndex: p.firstRow})
		offset += int64(p.size)
	}
	x.column = l.columnIndex()
	l.resetChunk()
	return c, x, nil
}

// columnIndex is the index of the chunk's pages, nil if a page with values has
// no bounds: the format has no way to leave out one page.
func (l *leafWriter) columnIndex() *format.ColumnIndex {
	x := &format.ColumnIndex{}
	for _, p := range l.pageList {
		if !p.nullPage && !p.bounds {
			return nil
		}
		min, max := p.min, p.max
		if p.nullPage {
			min, max = []byte{}, []byte{}
		}
		x.NullPages = append(x.NullPages, p.nullPage)
		x.MinValues = append(x.MinValues, min)
		x.MaxValues = append(x.MaxValues, max)
		x.NullCounts = append(x.NullCounts, p.nulls)
	}
	x.BoundaryOrder = l.boundaryOrder()
	return x
}

func (l *leafWriter) boundaryOrder() format.BoundaryOrder {
	asc, desc := true, true
	var last *pageInfo
	for i := range l.pageList {
		p := &l.pageList[i]
		if p.nullPage {
			continue
		}
		if last != nil {
			a, b := l.order.compare(last.min, p.min), l.order.compare(last.max, p.max)
			asc = asc && a <= 0 && b <= 0
			desc = desc && a >= 0 && b >= 0
		}
		last = p
	}
	switch {
	case asc:
		return format.Ascending
	case desc:
		return format.Descending
	}
	return format.Unordered
}
