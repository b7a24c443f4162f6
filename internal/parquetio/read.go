package parquetio

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// ReadOptions says what part of a file [File.Read] returns.
type ReadOptions struct {
	// MatchFieldID finds struct fields by field_id (metadata
	// delta.columnMapping.id) where the wanted field has one. Otherwise, and by
	// default, by name: exactly, else by the only name equal ignoring case.
	MatchFieldID bool
	// RowGroups lists the row groups to read, ascending; nil means all.
	RowGroups []int
	// Rows lists physical rows to return, ascending without repeats; nil means
	// all. Pages without such a row are not decoded.
	Rows []int64
	// Ranges lists spans of physical rows to return, ascending and apart; nil means
	// all. Pages outside are not decoded, a batch does not go beyond a span. Not
	// together with Rows.
	Ranges []RowRange
	// BatchRows is the most rows of a batch, 20480 if 0. Batches of wide rows have fewer.
	BatchRows int
}

// RowRange is the physical rows from From on, before To.
type RowRange struct{ From, To int64 }

// Batch is a record batch with the physical place of its rows.
type Batch struct {
	arrow.RecordBatch
	// FirstRow is the physical row of the first row.
	FirstRow int64
	// Rows is the physical row of each row if ReadOptions.Rows was set; otherwise
	// nil, and the rows are consecutive from FirstRow.
	Rows []int64
}

const (
	defaultBatchRows = 20480
	batchBytes       = 64 << 20 // of uncompressed pages behind a batch
	// A dictionary can stand for many times the bytes of its pages: a batch takes no
	// more rows than fit these bytes if all had its longest value.
	dictBytes = 256 << 20
)

// Read returns the rows of the file as batches of the wanted schema. Columns that
// the file does not have are null at any depth, columns that are not
// wanted are not read. A type that cannot be converted is a *[TypeMismatchError].
// A batch is valid until the next iteration unless retained. After an error the
// iteration ends.
func (f *File) Read(ctx context.Context, want *schema.Struct, o ReadOptions) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		fail := func(err error) { yield(Batch{}, fmt.Errorf("read parquet file: %w", err)) }
		p, err := f.plan(want, o.MatchFieldID)
		if err != nil {
			fail(err)
			return
		}
		if err := o.check(f); err != nil {
			fail(err)
			return
		}
		codec := &decompressor{}
		for g := range f.meta.rowGroups {
			if o.RowGroups != nil && !slices.Contains(o.RowGroups, g) {
				continue
			}
			s := p.scan(g, &o, codec)
			for {
				if err := ctx.Err(); err != nil {
					fail(err)
					return
				}
				b, ok, err := s.next()
				if err != nil {
					fail(err)
					return
				}
				if !ok {
					break
				}
				more := yield(b, nil)
				b.Release()
				if !more {
					return
				}
			}
		}
	}
}

func (o *ReadOptions) check(f *File) error {
	if o.BatchRows <= 0 {
		o.BatchRows = defaultBatchRows
	}
	for i, g := range o.RowGroups {
		if g < 0 || g >= len(f.meta.rowGroups) {
			return fmt.Errorf("row group %d of %d wanted", g, len(f.meta.rowGroups))
		}
		if i > 0 && g <= o.RowGroups[i-1] {
			return fmt.Errorf("row groups are not ascending")
		}
	}
	if o.Rows != nil && o.Ranges != nil {
		return fmt.Errorf("both rows and ranges wanted")
	}
	for i, r := range o.Ranges {
		if r.From < 0 || r.To <= r.From || r.To > f.meta.numRows || i > 0 && r.From < o.Ranges[i-1].To {
			return fmt.Errorf("range %d-%d of %d rows wanted", r.From, r.To, f.meta.numRows)
		}
	}
	for i, r := range o.Rows {
		if r < 0 || r >= f.meta.numRows {
			return fmt.Errorf("row %d of %d wanted", r, f.meta.numRows)
		}
		if i > 0 && r <= o.Rows[i-1] {
			return fmt.Errorf("wanted rows are not ascending at %d", r)
		}
	}
	return nil
}

// groupScan makes batches out of one row group.
type groupScan struct {
	p      *plan
	first  int64      // physical row of the group's row 0
	ranges []RowRange // rows left, relative to first; without selection of rows
	rows   []int64    // selected physical rows left
	sel    bool
	size   int
	begun  bool
	leaves []*leafReader
}

func (p *plan) scan(group int, o *ReadOptions, codec *decompressor) *groupScan {
	g := &p.f.meta.rowGroups[group]
	s := &groupScan{p: p, first: p.f.firstRows[group], sel: o.Rows != nil, size: o.BatchRows}
	wanted := g.numRows
	switch {
	case s.sel:
		lo, _ := slices.BinarySearch(o.Rows, s.first)
		hi, _ := slices.BinarySearch(o.Rows, s.first+g.numRows)
		s.rows = o.Rows[lo:hi]
		wanted = 20 * int64(hi-lo) // each may lie in a page of its own
	case o.Ranges != nil:
		wanted = 0
		for _, r := range o.Ranges {
			from, to := max(r.From-s.first, 0), min(r.To-s.first, g.numRows)
			if from < to {
				s.ranges = append(s.ranges, RowRange{from, to})
				wanted += to - from
			}
		}
	case g.numRows > 0:
		s.ranges = []RowRange{{0, g.numRows}}
	}
	bytes := int64(0)
	for _, u := range p.leaves {
		// Reading single pages pays only if most are skipped.
		sparse := wanted < g.numRows/50
		s.leaves = append(s.leaves, newLeafReader(p.f, group, u.leaf, u.levelsOnly, sparse, codec))
		bytes += max(g.columns[u.leaf].uncompressed, 0)
	}
	if g.numRows > 0 {
		if per := bytes / g.numRows; per > 0 {
			s.size = int(min(int64(s.size), max(batchBytes/per, 1)))
		}
	}
	return s
}

// begin makes batches smaller where dictionaries have long values.
func (s *groupScan) begin() error {
	s.begun = true
	longest := int64(0)
	err := guard(func() error {
		for _, l := range s.leaves {
			if l.loadDictionary(); l.dict != nil && widthOf(l.leaf) == 0 {
				longest += l.dict.largest()
			}
		}
		return nil
	})
	if longest > 0 {
		s.size = int(min(int64(s.size), max(dictBytes/longest, 1)))
	}
	return err
}

func (s *groupScan) next() (Batch, bool, error) {
	var b Batch
	var n int
	if !s.begun && len(s.rows)+len(s.ranges) > 0 {
		if err := s.begin(); err != nil {
			return b, false, err
		}
	}
	switch {
	case s.sel && len(s.rows) > 0:
		n = min(len(s.rows), s.size)
		b.Rows = s.rows[:n:n]
		b.FirstRow = b.Rows[0]
		s.rows = s.rows[n:]
	case !s.sel && len(s.ranges) > 0:
		r := &s.ranges[0]
		n = int(min(r.To-r.From, int64(s.size)))
		b.FirstRow = s.first + r.From
		if r.From += int64(n); r.From == r.To {
			s.ranges = s.ranges[1:]
		}
	default:
		return b, false, nil
	}
	cols := make([]*column, len(s.leaves))
	for i, l := range s.leaves {
		l.begin()
		cols[i] = &l.col
		if err := guard(func() error { return s.collect(l, b, n) }); err != nil {
			return b, false, err
		}
	}
	arrays := make([]arrow.Array, len(s.p.roots))
	err := guard(func() error {
		for i, r := range s.p.roots {
			d, err := r.build(cols, n)
			if err != nil {
				return err
			}
			arrays[i] = array.MakeFromData(d)
		}
		return nil
	})
	if err != nil {
		return b, false, err
	}
	b.RecordBatch = array.NewRecordBatch(s.p.schema, arrays, int64(n))
	return b, true, nil
}

// collect reads the rows of the batch from one leaf.
func (s *groupScan) collect(l *leafReader, b Batch, n int) error {
	if !s.sel {
		return l.read(b.FirstRow-s.first, n)
	}
	for i := 0; i < n; {
		j := i + 1
		for j < n && b.Rows[j] == b.Rows[j-1]+1 {
			j++
		}
		if err := l.read(b.Rows[i]-s.first, j-i); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// guard turns a panic over bytes of the file (ours or of a codec) into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = corruptf("%v", p)
		}
	}()
	return f()
}
