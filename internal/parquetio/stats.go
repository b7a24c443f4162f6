package parquetio

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// RowGroup describes one row group for pruning.
type RowGroup struct {
	FirstRow int64 // physical row of its first row
	Rows     int64
	Bytes    int64 // compressed bytes of its columns
	Columns  []ColumnStats
}

// ColumnStats is what the footer proves about one leaf in one row group.
type ColumnStats struct {
	// Path are the names of the struct fields, list and map wrappers included.
	Path []string
	// Type is the Delta type of the leaf, schema.Unknown if there is none.
	Type schema.Type
	// NullCount counts nulls, those of enclosing values included; -1 is unknown.
	NullCount int64
	// Min and Max are bounds, not necessarily values that occur: nil if unknown or
	// not to be trusted. int64 for integers, dates (days) and timestamps
	// (microseconds, rounded down), float64, bool, string, []byte, or
	// decimal128.Num at the scale of Type. Bounds of float64 say nothing of NaN.
	Min, Max any
}

// RowGroups describes the row groups of the file. Bounds are given only where
// the column order is known and the writer is not known for wrong ones
// (delta-protocol 5.1, "Footer min/max").
func (f *File) RowGroups() []RowGroup {
	out := make([]RowGroup, len(f.meta.rowGroups))
	trust := !f.distrusted()
	types := make([]schema.Type, len(f.leaves))
	paths := make([][]string, len(f.leaves))
	for i, l := range f.leaves {
		types[i], paths[i] = l.primitiveType(), l.path()
	}
	for i := range out {
		g := &f.meta.rowGroups[i]
		out[i] = RowGroup{FirstRow: f.firstRows[i], Rows: g.numRows, Columns: make([]ColumnStats, len(f.leaves))}
		for j, l := range f.leaves {
			c := &g.columns[j]
			out[i].Bytes += c.compressed
			s := ColumnStats{Path: paths[j], Type: types[j], NullCount: -1}
			if n := c.stats.nullCount; trust && n >= 0 && n <= c.numValues {
				s.NullCount = n
			}
			if l.maxDef == 0 {
				s.NullCount = 0
			}
			lo, hi, ok := f.rawBounds(l, &c.stats, j)
			if ok && !f.rebased(l) {
				s.Min, s.Max = l.boundValue(lo), l.boundValue(hi)
				if s.Min == nil || s.Max == nil {
					s.Min, s.Max = nil, nil
				}
			}
			out[i].Columns[j] = s
		}
	}
	return out
}

// PageStats is what the column index proves about the rows of one page.
type PageStats struct {
	FirstRow, Rows int64 // physical
	NullCount      int64 // -1 if unknown
	Min, Max       any   // as in ColumnStats; both nil if unknown or if all is null
	AllNull        bool
}

// Pages returns the pages of a leaf (position in RowGroup.Columns) in one row
// group, from its page index; nil if the file has none that can be trusted. With
// [ReadOptions.Ranges] it lets a scan skip pages.
func (f *File) Pages(rowGroup, leaf int) (pages []PageStats, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read page index of column %s: %w", pathString(f.leaves[leaf].path()), err)
		}
	}()
	l := f.leaves[leaf]
	r := newLeafReader(f, rowGroup, leaf, true, true, nil)
	if err := r.loadIndex(); err != nil || len(r.index) == 0 {
		return nil, err
	}
	m := r.meta
	typed := leaf < len(f.meta.typeOrders) && f.meta.typeOrders[leaf]
	if !typed || f.distrusted() || f.rebased(l) || m.colIdx <= 0 || m.colIdxLen <= 0 || m.colIdx > f.size-int64(m.colIdxLen) {
		return nil, nil
	}
	b := make([]byte, m.colIdxLen)
	if err := readFull(f.r, b, m.colIdx); err != nil {
		return nil, err
	}
	x, err := parseColumnIndex(b)
	if err != nil {
		return nil, err
	}
	n := len(r.index)
	if len(x.nullPages) != n || len(x.mins) != n || len(x.maxs) != n || x.nullCounts != nil && len(x.nullCounts) != n {
		return nil, corruptf("column index of %d pages, offset index of %d", len(x.nullPages), n)
	}
	for i, loc := range r.index {
		end := r.rows
		if i+1 < n {
			end = r.index[i+1].firstRow
		}
		p := PageStats{FirstRow: f.firstRows[rowGroup] + loc.firstRow, Rows: end - loc.firstRow, NullCount: -1, AllNull: x.nullPages[i]}
		if x.nullCounts != nil && x.nullCounts[i] >= 0 {
			p.NullCount = x.nullCounts[i]
		}
		if !p.AllNull {
			p.Min, p.Max = l.boundValue(x.mins[i]), l.boundValue(x.maxs[i])
			if p.Min == nil || p.Max == nil {
				p.Min, p.Max = nil, nil
			}
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// distrusted names writers whose null counts were too small for some columns
// (field report B38).
func (f *File) distrusted() bool {
	by := strings.ToLower(f.meta.createdBy)
	for _, w := range []string{"parquet-go", "xitongsys", "fraugster"} {
		if strings.Contains(by, w) {
			return true
		}
	}
	return false
}

// rebased reports whether values of the leaf are moved to another calendar on
// read, so that raw bounds do not hold.
func (f *File) rebased(l *node) bool {
	return f.rebase.datetime && (l.logical.kind == logicalDate || l.logical.kind == logicalTimestamp)
}

func (f *File) rawBounds(l *node, s *chunkStats, leaf int) (lo, hi []byte, ok bool) {
	signed := l.logical.kind != logicalInt || l.logical.signed
	if s.hasMinValue && s.hasMaxValue && leaf < len(f.meta.typeOrders) && f.meta.typeOrders[leaf] {
		bytesDecimal := l.logical.kind == logicalDecimal && (l.typ == format.ByteArray || l.typ == format.FixedLenByteArray)
		if bytesDecimal && f.distrusted() {
			return nil, nil, false
		}
		return s.minValue, s.maxValue, true
	}
	// The old pair was always compared as signed: right for these types only.
	if s.hasOldMin && s.hasOldMax && signed && (l.typ == format.Int32 || l.typ == format.Int64) {
		return s.oldMin, s.oldMax, true
	}
	return nil, nil, false
}

// boundValue decodes a bound; nil if it has the wrong length, is NaN, or its type
// has no order here.
func (n *node) boundValue(b []byte) any {
	var num int64
	switch n.typ {
	case format.Boolean:
		if len(b) != 1 {
			return nil
		}
		return b[0] != 0
	case format.Int32:
		if len(b) != 4 {
			return nil
		}
		num = int64(int32(binary.LittleEndian.Uint32(b)))
		if n.logical.kind == logicalInt && !n.logical.signed {
			num = int64(uint32(num))
		}
	case format.Int64:
		if len(b) != 8 || n.logical.kind == logicalInt && !n.logical.signed {
			return nil
		}
		num = int64(binary.LittleEndian.Uint64(b))
	case format.Float, format.Double:
		if len(b) != widthOf(n) {
			return nil
		}
		v := floatLE(b)
		if math.IsNaN(v) {
			return nil
		}
		return v
	case format.ByteArray, format.FixedLenByteArray:
		switch n.logical.kind {
		case logicalString, logicalEnum, logicalJSON:
			return string(b)
		case logicalDecimal:
			d, err := decimalBytes(b)
			if err != nil {
				return nil
			}
			return d
		case logicalNone:
			return append([]byte{}, b...)
		}
		return nil
	default:
		return nil
	}
	switch n.logical.kind {
	case logicalDecimal:
		return decimal128.FromI64(num)
	case logicalTimestamp:
		switch n.logical.unit {
		case unitMillis:
			if num > math.MaxInt64/1000 || num < math.MinInt64/1000 {
				return nil
			}
			return num * 1000
		case unitNanos:
			return floorDiv(num, 1000)
		}
	}
	return num
}
