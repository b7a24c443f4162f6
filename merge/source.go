package merge

import (
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// Source are the rows to merge. Rows is run through once, whatever happens after.
type Source struct {
	Schema *schema.Struct
	Rows   iter.Seq2[arrow.RecordBatch, error]
}

// sourceRows are all rows of a source, kept for the length of the operation: every
// attempt and every pass sees the same ones (B56).
type sourceRows struct {
	schema *schema.Struct
	batch  arrow.RecordBatch
}

// collect reads the source. Its batches are fitted to its schema by name.
func collect(s Source) (*sourceRows, error) {
	want, err := schema.ArrowSchema(s.Schema)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	for b, err := range s.Rows {
		if err != nil {
			return nil, fmt.Errorf("read source: %w", err)
		}
		fit, err := delta.Conform(s.Schema, b)
		if err != nil {
			return nil, fmt.Errorf("read source: %w", err)
		}
		parts = append(parts, fit)
	}
	b, err := datafile.Concat(want, parts)
	if err != nil {
		return nil, fmt.Errorf("keep the source: %w", err)
	}
	return &sourceRows{s.Schema, b}, nil
}

func (s *sourceRows) rows() int { return int(s.batch.NumRows()) }

// named is some columns of a batch under their joint names.
func named(b arrow.RecordBatch, columns []string, joint func(string) string) ([]arrow.Field, []arrow.Array) {
	fields, cols := make([]arrow.Field, len(columns)), make([]arrow.Array, len(columns))
	for i, c := range columns {
		at := b.Schema().FieldIndices(c)[0]
		fields[i] = b.Schema().Field(at)
		fields[i].Name = joint(c)
		cols[i] = b.Column(at)
	}
	return fields, cols
}

// whole is the source under joint names.
func (s *sourceRows) whole(p *plan) arrow.RecordBatch {
	fields, cols := named(s.batch, s.schema.Names(), p.sourceName)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, s.batch.NumRows())
}

// index finds source rows by the bytes of their join keys.
type index struct {
	head map[string]int32 // the newest row of a key
	next []int32          // the one before it, -1 at the end
	// all are the rows that may find a partner, for a join without keys.
	all []int32
	// bounds is TRUE for every row of the table that may find one; nil: not known.
	bounds *expr.Bound
	keys   []arrow.Array
}

// newIndex leaves out rows that ON excludes whatever the table holds.
func newIndex(p *plan, s *sourceRows) (*index, error) {
	b := s.whole(p)
	x := &index{head: map[string]int32{}}
	if p.onSource != nil {
		hits, err := p.onSource.EvalFilter(b)
		if err != nil {
			return nil, fmt.Errorf("ON: %w", err)
		}
		x.all = hits
	} else {
		x.all = make([]int32, b.NumRows())
		for i := range x.all {
			x.all[i] = int32(i)
		}
	}
	if len(p.keys) == 0 {
		return x, nil
	}
	var ranged []string
	var rangedKeys []arrow.Array
	for _, k := range p.keys {
		a, err := k.source.Eval(b)
		if err != nil {
			return nil, fmt.Errorf("ON: %w", err)
		}
		x.keys = append(x.keys, a)
		if k.column != "" {
			ranged, rangedKeys = append(ranged, k.column), append(rangedKeys, a)
		}
	}
	bounds := NewRange(p.target, ranged)
	x.next = make([]int32, b.NumRows())
	var buf []byte
	for _, row := range x.all {
		key, ok := keyOf(buf[:0], p.keys, x.keys, int(row))
		buf = key
		if !ok {
			continue
		}
		bounds.Add(rangedKeys, int(row))
		last, seen := x.head[string(key)]
		if !seen {
			last = -1
		}
		x.next[row] = last
		x.head[string(key)] = row
	}
	if len(x.head) == 0 {
		return x, nil
	}
	var err error
	x.bounds, err = bounds.Bound(p.target)
	return x, err
}

// empty is true when no source row can have a partner.
func (x *index) empty(p *plan) bool {
	return len(x.all) == 0 || len(p.keys) > 0 && len(x.head) == 0
}

// keyOf appends the bytes of the keys of a row; ok is false for a null that equals
// nothing.
func keyOf(dst []byte, keys []joinKey, cols []arrow.Array, row int) (out []byte, ok bool) {
	for i, k := range keys {
		if !k.nullSafe && cols[i].IsNull(row) {
			return dst, false
		}
		dst = keycode.AppendValue(dst, cols[i], row)
	}
	return dst, true
}

// pick is some columns of a batch at the given rows, under joint names.
func pick(b arrow.RecordBatch, columns []string, joint func(string) string, rows []int64) ([]arrow.Field, []arrow.Array, error) {
	fields, cols := named(b, columns, joint)
	ib := array.NewInt64Builder(memory.DefaultAllocator)
	defer ib.Release()
	ib.AppendValues(rows, nil)
	idx := ib.NewArray()
	defer idx.Release()
	for i, c := range cols {
		a, err := datafile.TakeArray(c, idx)
		if err != nil {
			return nil, nil, fmt.Errorf("take rows of column %s: %w", columns[i], err)
		}
		cols[i] = a
	}
	return fields, cols, nil
}

// pairs is a batch of joint rows: row i is target row left[i] beside source row
// right[i]; a nil side contributes no columns.
func pairs(p *plan, target arrow.RecordBatch, left []int64, source *sourceRows, right []int64, need ...*expr.Bound) (arrow.RecordBatch, error) {
	var fields []arrow.Field
	var cols []arrow.Array
	n := len(right)
	if target != nil {
		f, c, err := pick(target, p.columnsOf(true, need...), p.targetName, left)
		if err != nil {
			return nil, err
		}
		fields, cols, n = append(fields, f...), append(cols, c...), len(left)
	}
	if source != nil {
		f, c, err := pick(source.batch, p.columnsOf(false, need...), p.sourceName, right)
		if err != nil {
			return nil, err
		}
		fields, cols = append(fields, f...), append(cols, c...)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(n)), nil
}
