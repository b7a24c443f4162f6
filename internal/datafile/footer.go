package datafile

import (
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Footer is what the end of a Parquet file says of it.
type Footer struct {
	// Schema is the file's own, in Delta types; columns without one are schema.Unknown.
	Schema *schema.Struct
	Rows   int64

	groups []parquetio.RowGroup
}

// ReadFooter reads the footer of a file in the store by its key; errors are
// [*FileError].
func ReadFooter(ctx context.Context, store storage.Store, key string) (*Footer, error) {
	r, err := store.Open(ctx, key)
	if err != nil {
		return nil, fileError(key, err)
	}
	defer r.Close()
	f, err := parquetio.Open(r, r.Size())
	if err != nil {
		return nil, fileError(key, err)
	}
	return &Footer{Schema: f.Schema(), Rows: f.NumRows(), groups: f.RowGroups()}, nil
}

// Stats is the text of add.stats as far as the footer proves it. Bounds of floating
// point columns are left out, since a footer does not tell of NaN (W-606), as are null
// counts of arrays and maps.
func (f *Footer) Stats(l *Layout) string {
	leaves := map[string]*footerLeaf{}
	for _, lf := range schema.Leaves(l.file) {
		key := strings.Join(lf.Path, "\x00")
		if l.indexed[key] {
			leaves[key] = &footerLeaf{leafStats: leafStats{typ: lf.Field.Type}, counted: true, bounded: boundable(lf.Field.Type)}
		}
	}
	for _, g := range f.groups {
		seen := map[string]bool{}
		for _, c := range g.Columns {
			key := strings.Join(c.Path, "\x00")
			if lf := leaves[key]; lf != nil {
				seen[key] = true
				lf.add(c, g.Rows)
			}
		}
		for key, lf := range leaves {
			switch _, plain := lf.typ.(schema.Primitive); {
			case seen[key]:
			case plain && lf.typ != schema.Variant || isDecimal(lf.typ):
				lf.nulls += g.Rows // the file lacks the column: all null (W-602)
			default:
				lf.counted = false
			}
		}
	}
	c := newCollector(l.file, l.indexed, l.prefix, l.tight)
	c.rows = f.Rows
	attach(c.roots, "", leaves)
	return c.textOf(func(s *leafStats, what string) string {
		lf := leaves[s.key]
		switch {
		case what == "nullCount":
			if !lf.counted {
				return ""
			}
			return strconv.FormatInt(s.nulls, 10)
		case !lf.bounded:
			return ""
		}
		return s.bound(what == "maxValues", c.prefix)
	})
}

type footerLeaf struct {
	leafStats
	counted, bounded bool
}

func isDecimal(t schema.Type) bool {
	_, ok := t.(schema.Decimal)
	return ok
}

func boundable(t schema.Type) bool { return t != schema.Float && t != schema.Double }

// add takes the statistics of one row group.
func (f *footerLeaf) add(c parquetio.ColumnStats, rows int64) {
	if c.NullCount < 0 {
		f.counted = false
	} else {
		f.nulls += c.NullCount
	}
	if c.NullCount == rows {
		return
	}
	if c.Min == nil || c.Max == nil || !schema.Equal(c.Type, f.typ) || !f.widen(c.Min, c.Max) {
		f.bounded = false
	}
}

// widen grows the bounds; false for values that have none.
func (f *footerLeaf) widen(low, high any) bool {
	first := !f.seen
	switch lo := low.(type) {
	case int64:
		hi, ok := high.(int64)
		if !ok {
			return false
		}
		if first || lo < f.imin {
			f.imin = lo
		}
		if first || hi > f.imax {
			f.imax = hi
		}
	case string:
		hi, ok := high.(string)
		if !ok {
			return false
		}
		if first || lo < f.smin {
			f.smin = lo
		}
		if first || hi > f.smax {
			f.smax = hi
		}
	case decimal128.Num:
		hi, ok := high.(decimal128.Num)
		if !ok {
			return false
		}
		if first || lo.Less(f.dmin) {
			f.dmin = lo
		}
		if first || hi.Greater(f.dmax) {
			f.dmax = hi
		}
	default:
		return false
	}
	f.seen = true
	return true
}

// attach puts the statistics of footers into the tree that prints them.
func attach(nodes []*statNode, path string, leaves map[string]*footerLeaf) {
	for _, n := range nodes {
		at := pathKey(path, n.name)
		if n.children != nil {
			attach(n.children, at, leaves)
		} else if n.leaf != nil {
			n.leaf = &leaves[at].leafStats
			n.leaf.key = at
		}
	}
}

// textOf is the text of add.stats with the values that value gives, "" leaving one out.
func (c *collector) textOf(value func(l *leafStats, what string) string) string {
	var b bytes.Buffer
	b.WriteString(`{"numRecords":`)
	b.WriteString(strconv.FormatInt(c.rows, 10))
	for _, what := range []string{"minValues", "maxValues", "nullCount"} {
		b.WriteString(`,"` + what + `":`)
		writeNodes(&b, c.roots, func(l *leafStats) string { return value(l, what) })
	}
	if c.tight {
		b.WriteString(`,"tightBounds":true`)
	}
	b.WriteByte('}')
	return b.String()
}
