package datafile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// MayMatch reports whether the file may hold a row for which b, bound to the
// layout's schema, is TRUE; false is proven by partition values and statistics.
func (l *Layout) MayMatch(b *expr.Bound, add *deltalog.Add) bool {
	return b == nil || b.MayMatch(l.bounds(add))
}

// AllMatch reports whether partition values and statistics prove that b is TRUE
// for every row of the file.
func (l *Layout) AllMatch(b *expr.Bound, add *deltalog.Add) bool {
	return b == nil || b.AllMatch(l.bounds(add))
}

// PartitionMatch evaluates a condition that reads partition columns only, exactly,
// for the file.
func (l *Layout) PartitionMatch(b *expr.Bound, add *deltalog.Add) (bool, error) {
	batch, err := l.PartitionRow(add.PartitionValues)
	if err != nil {
		return false, err
	}
	defer batch.Release()
	hits, err := b.EvalFilter(batch)
	return len(hits) > 0, err
}

// PartitionRow is the partition values of an action as one row of typed columns.
func (l *Layout) PartitionRow(values map[string]*string) (arrow.RecordBatch, error) {
	s := &schema.Struct{}
	cols := make([]arrow.Array, 0, len(l.partition))
	for _, i := range l.partition {
		f := l.Schema.Fields[i]
		v, err := schema.ParsePartitionValue(f.Type, values[l.columns[i].physical], l.Zone)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		a, err := Repeat(v, 1)
		if err != nil {
			return nil, err
		}
		defer a.Release()
		s.Fields = append(s.Fields, f)
		cols = append(cols, a)
	}
	as, err := schema.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	return array.NewRecordBatch(as, cols, 1), nil
}

// fileBounds answers for one file what expr asks.
type fileBounds struct {
	l     *Layout
	add   *deltalog.Add
	stats *Stats
}

func (l *Layout) bounds(add *deltalog.Add) *fileBounds {
	return &fileBounds{l, add, ParseStats(add.Stats)}
}

// RowCount pretends one row where the number is not known: partition values then
// still prove something, and null counts of statistics are not used (NullCount).
func (f *fileBounds) RowCount() (int64, bool) {
	if f.stats.NumRecords >= 0 {
		return f.stats.NumRecords, true
	}
	return 1, true
}

func (f *fileBounds) column(path []string) (int, bool) {
	i := f.l.Schema.Index(path[0])
	return i, i >= 0 && f.l.columns[i].partition
}

// leaf finds the physical path and type of a logical path.
func (f *fileBounds) leaf(path []string) (string, schema.Type, bool) {
	logical, physical := f.l.Schema, f.l.physical
	var key []string
	for d, name := range path {
		i := logical.Index(name)
		if i < 0 {
			return "", nil, false
		}
		key = append(key, physical.Fields[i].Name)
		t := logical.Fields[i].Type
		if d == len(path)-1 {
			return strings.Join(key, "\x00"), boundType(logical.Fields[i]), true
		}
		sub, ok := t.(*schema.Struct)
		if !ok {
			return "", nil, false
		}
		logical, physical = sub, physical.Fields[i].Type.(*schema.Struct)
	}
	return "", nil, false
}

// boundType is the type in which the bounds of a column are read. A DOUBLE that was a
// FLOAT has files whose bounds are the shortest text of a FLOAT, which as a DOUBLE is
// another number.
func boundType(f schema.Field) schema.Type {
	if f.Type == schema.Double && schema.WasFloat(f) {
		return schema.Float
	}
	return f.Type
}

func (f *fileBounds) partition(i int) (expr.Value, bool) {
	v, err := schema.ParsePartitionValue(f.l.Schema.Fields[i].Type, f.add.PartitionValues[f.l.columns[i].physical], f.l.Zone)
	if err != nil || !v.IsValid() {
		return expr.Value{}, false
	}
	return scalarValue(v)
}

func (f *fileBounds) Min(path []string) (expr.Value, bool) {
	if i, part := f.column(path); part {
		return f.partition(i)
	}
	if p, t, ok := f.leaf(path); ok {
		return parseBound(f.stats.min[p], t, false)
	}
	return expr.Value{}, false
}

func (f *fileBounds) Max(path []string) (expr.Value, bool) {
	if i, part := f.column(path); part {
		return f.partition(i)
	}
	if p, t, ok := f.leaf(path); ok {
		return parseBound(f.stats.max[p], t, true)
	}
	return expr.Value{}, false
}

func (f *fileBounds) NullCount(path []string) (int64, bool) {
	rows, _ := f.RowCount()
	if i, part := f.column(path); part {
		if v := f.add.PartitionValues[f.l.columns[i].physical]; v == nil || *v == "" {
			return rows, true
		}
		return 0, true
	}
	p, _, ok := f.leaf(path)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(f.stats.nulls[p]), 10, 64)
	switch {
	case err != nil || n < 0:
		return 0, false
	case f.stats.NumRecords < 0 && n != 0, !f.stats.Tight && n != 0 && n != rows:
		return 0, false
	}
	return n, true
}

func (f *fileBounds) Exact(path []string) bool {
	_, part := f.column(path)
	return part
}

// scalarValue is a partition value in the evaluator's form.
func scalarValue(s scalar.Scalar) (expr.Value, bool) {
	switch s := s.(type) {
	case *scalar.Boolean:
		return expr.BoolValue(s.Value), true
	case *scalar.Int8:
		return expr.IntValue(int64(s.Value)), true
	case *scalar.Int16:
		return expr.IntValue(int64(s.Value)), true
	case *scalar.Int32:
		return expr.IntValue(int64(s.Value)), true
	case *scalar.Int64:
		return expr.IntValue(s.Value), true
	case *scalar.Date32:
		return expr.IntValue(int64(s.Value)), true
	case *scalar.Timestamp:
		return expr.IntValue(int64(s.Value)), true
	case *scalar.Float32:
		return expr.FloatValue(float64(s.Value)), true
	case *scalar.Float64:
		return expr.FloatValue(s.Value), true
	case *scalar.Decimal128:
		return expr.DecimalValue(s.Value, s.Type.(*arrow.Decimal128Type).Scale), true
	case *scalar.String:
		return expr.BytesValue(string(s.Data())), true
	case *scalar.Binary:
		return expr.BytesValue(string(s.Data())), true
	}
	return expr.Value{}, false
}
