package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// printValues prints rows of plain Go values: int64, string, bool, time.Time,
// map[string]string and nil.
func (a *app) printValues(s *schema.Struct, rows [][]any) error {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		return err
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, as)
	defer rb.Release()
	for _, row := range rows {
		for c, v := range row {
			if err := appendValue(rb.Field(c), v); err != nil {
				return fmt.Errorf("column %s: %w", s.Fields[c].Name, err)
			}
		}
	}
	b := rb.NewRecordBatch()
	defer b.Release()
	return a.printRows(s, single(b))
}

func single(b arrow.RecordBatch) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) { yield(b, nil) }
}

func appendValue(b array.Builder, v any) error {
	switch v := v.(type) {
	case nil:
		b.AppendNull()
		return nil
	case int64:
		if b, ok := b.(*array.Int64Builder); ok {
			b.Append(v)
			return nil
		}
	case string:
		if b, ok := b.(*array.StringBuilder); ok {
			b.Append(v)
			return nil
		}
	case bool:
		if b, ok := b.(*array.BooleanBuilder); ok {
			b.Append(v)
			return nil
		}
	case time.Time:
		if b, ok := b.(*array.TimestampBuilder); ok {
			b.Append(arrow.Timestamp(v.UnixMicro()))
			return nil
		}
	case map[string]string:
		m, ok := b.(*array.MapBuilder)
		if !ok {
			break
		}
		m.Append(true)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := appendValue(m.KeyBuilder(), k); err != nil {
				return err
			}
			if err := appendValue(m.ItemBuilder(), v[k]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("value %T does not fit %s", v, b.Type())
}
