package spill

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/datafile"
)

// cursor is a run that is being merged: one batch of it is in memory.
type cursor struct {
	rest []Segment
	head arrow.RecordBatch // nil: the run is at its end
	keys []int64
	pos  int
}

// Merge yields the rows of runs in the order of their int64 column `by`, which ascends
// in each run; rows with one number come in the order of the runs. All batches have one
// schema. A yielded batch is valid until the next one is asked for.
func (f *File) Merge(runs [][]Segment, by int) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		cursors := make([]*cursor, 0, len(runs))
		defer func() {
			for _, c := range cursors {
				c.drop()
			}
		}()
		for _, r := range runs {
			c := &cursor{rest: r}
			cursors = append(cursors, c)
			if err := c.load(f, by); err != nil {
				yield(nil, err)
				return
			}
		}
		for {
			b, err := f.round(cursors, by)
			if b == nil && err == nil {
				return
			}
			more := yield(b, err)
			if b != nil {
				b.Release()
			}
			if !more || err != nil {
				return
			}
		}
	}
}

func (c *cursor) drop() {
	if c.head != nil {
		c.head.Release()
	}
	c.head, c.keys, c.pos = nil, nil, 0
}

// load takes up the next batch that has rows.
func (c *cursor) load(f *File, by int) error {
	c.drop()
	for len(c.rest) > 0 {
		b, err := f.Read(c.rest[0])
		c.rest = c.rest[1:]
		if err != nil {
			return err
		}
		if b.NumRows() == 0 {
			b.Release()
			continue
		}
		a, ok := b.Column(by).(*array.Int64)
		if !ok {
			b.Release()
			return fmt.Errorf("merge spilled rows: column %d is %s", by, b.Column(by).DataType())
		}
		c.head, c.keys = b, a.Int64Values()
		return nil
	}
	return nil
}

// round is the rows up to the smallest last number of the batches in memory: nothing
// that is still in the file comes before them. nil: there are none left.
func (f *File) round(cursors []*cursor, by int) (arrow.RecordBatch, error) {
	first := true
	var bound int64
	for _, c := range cursors {
		if c.head != nil {
			if last := c.keys[len(c.keys)-1]; first || last < bound {
				first, bound = false, last
			}
		}
	}
	if first {
		return nil, nil
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	var keys []int64
	for _, c := range cursors {
		if c.head == nil {
			continue
		}
		to := c.pos
		for to < len(c.keys) && c.keys[to] <= bound {
			to++
		}
		if to > c.pos {
			parts = append(parts, c.head.NewSlice(int64(c.pos), int64(to)))
			keys = append(keys, c.keys[c.pos:to]...)
		}
		c.pos = to
	}
	schema := parts[0].Schema()
	for _, c := range cursors {
		if c.head != nil && c.pos == len(c.keys) {
			if err := c.load(f, by); err != nil {
				return nil, err
			}
		}
	}
	all, err := datafile.Concat(schema, parts)
	if err != nil {
		return nil, fmt.Errorf("merge spilled rows: %w", err)
	}
	if slices.IsSorted(keys) {
		return all, nil
	}
	defer all.Release()
	order := make([]int64, len(keys))
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortStableFunc(order, func(a, b int64) int { return cmp.Compare(keys[a], keys[b]) })
	b, err := datafile.Take(all, order)
	if err != nil {
		return nil, fmt.Errorf("merge spilled rows: %w", err)
	}
	return b, nil
}
