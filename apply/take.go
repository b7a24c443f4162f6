package apply

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// cell is one value of some array; a nil array is NULL.
type cell struct {
	a   arrow.Array
	row int
}

// gather builds an array of the given type from n cells that may lie in
// different arrays of that type.
func gather(dt arrow.DataType, n int, at func(i int) cell) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	defer b.Release()
	b.Reserve(n)
	for i := range n {
		c := at(i)
		if c.a == nil || c.a.IsNull(c.row) {
			b.AppendNull()
			continue
		}
		if err := appendCell(b, c.a, c.row); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// appendCell copies one non-null value; the array must be of the builder's type.
func appendCell(b array.Builder, a arrow.Array, i int) error {
	switch b := b.(type) {
	case *array.StringBuilder:
		if a, ok := a.(*array.String); ok {
			b.Append(a.Value(i))
			return nil
		}
	case *array.BinaryBuilder:
		if a, ok := a.(*array.Binary); ok {
			b.Append(a.Value(i))
			return nil
		}
	case *array.Int64Builder:
		return appendTo(b, a, i)
	case *array.Int32Builder:
		return appendTo(b, a, i)
	case *array.Int16Builder:
		return appendTo(b, a, i)
	case *array.Int8Builder:
		return appendTo(b, a, i)
	case *array.Float64Builder:
		return appendTo(b, a, i)
	case *array.Float32Builder:
		return appendTo(b, a, i)
	case *array.BooleanBuilder:
		return appendTo(b, a, i)
	case *array.Date32Builder:
		return appendTo(b, a, i)
	case *array.TimestampBuilder:
		return appendTo(b, a, i)
	case *array.Decimal128Builder:
		return appendTo(b, a, i)
	case *array.NullBuilder:
		b.AppendNull()
		return nil
	case *array.StructBuilder:
		a, ok := a.(*array.Struct)
		if !ok || a.NumField() != b.NumField() {
			break
		}
		b.Append(true)
		for f := range b.NumField() {
			if err := appendNullable(b.FieldBuilder(f), a.Field(f), i); err != nil {
				return err
			}
		}
		return nil
	case *array.MapBuilder:
		a, ok := a.(*array.Map)
		if !ok {
			break
		}
		b.Append(true)
		from, to := a.ValueOffsets(i)
		for e := from; e < to; e++ {
			if err := appendNullable(b.KeyBuilder(), a.Keys(), int(e)); err != nil {
				return err
			}
			if err := appendNullable(b.ItemBuilder(), a.Items(), int(e)); err != nil {
				return err
			}
		}
		return nil
	case *array.ListBuilder:
		a, ok := a.(*array.List)
		if !ok {
			break
		}
		b.Append(true)
		from, to := a.ValueOffsets(i)
		for e := from; e < to; e++ {
			if err := appendNullable(b.ValueBuilder(), a.ListValues(), int(e)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("copy a value of type %s into a column of type %s", a.DataType(), b.Type())
}

func appendNullable(b array.Builder, a arrow.Array, i int) error {
	if a.IsNull(i) {
		b.AppendNull()
		return nil
	}
	return appendCell(b, a, i)
}

// appendTo copies a value of a fixed-width type.
func appendTo[V any, B interface {
	array.Builder
	Append(V)
}](b B, a arrow.Array, i int) error {
	v, ok := a.(interface{ Value(int) V })
	if !ok {
		return fmt.Errorf("copy a value of type %s into a column of type %s", a.DataType(), b.Type())
	}
	b.Append(v.Value(i))
	return nil
}
