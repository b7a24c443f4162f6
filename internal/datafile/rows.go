package datafile

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/scalar"
)

// Take is the batch of the given row positions of b, in their order.
func Take(b arrow.RecordBatch, rows []int64) (arrow.RecordBatch, error) {
	if consecutive(rows) {
		if len(rows) == 0 {
			return b.NewSlice(0, 0), nil
		}
		return b.NewSlice(rows[0], rows[len(rows)-1]+1), nil
	}
	ib := array.NewInt64Builder(memory.DefaultAllocator)
	defer ib.Release()
	ib.AppendValues(rows, nil)
	idx := ib.NewArray()
	defer idx.Release()
	cols := make([]arrow.Array, b.NumCols())
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range cols {
		c, err := TakeArray(b.Column(i), idx)
		if err != nil {
			return nil, fmt.Errorf("take rows of column %s: %w", b.ColumnName(i), err)
		}
		cols[i] = c
	}
	return array.NewRecordBatch(b.Schema(), cols, int64(len(rows))), nil
}

func consecutive(rows []int64) bool {
	for i := 1; i < len(rows); i++ {
		if rows[i] != rows[i-1]+1 {
			return false
		}
	}
	return true
}

// TakeArray is the array of the values of a at the int64 positions idx; a null
// position gives null.
func TakeArray(a, idx arrow.Array) (arrow.Array, error) {
	switch a := a.(type) {
	case *array.Null:
		return array.NewNull(idx.Len()), nil
	case *array.Struct:
		// Field by field: the children of a sliced struct are already cut to the
		// slice by Field, which the generic kernel does not do for nested ones.
		return takeStruct(a, idx)
	}
	return compute.TakeArray(context.Background(), a, idx)
}

func takeStruct(a *array.Struct, idx arrow.Array) (arrow.Array, error) {
	n := idx.Len()
	children := make([]arrow.ArrayData, a.NumField())
	for i := range children {
		c, err := TakeArray(a.Field(i), idx)
		if err != nil {
			return nil, err
		}
		defer c.Release()
		children[i] = c.Data()
	}
	var bits *memory.Buffer
	nulls := 0
	positions, ok := idx.(*array.Int64)
	if !ok {
		return nil, fmt.Errorf("take rows: positions are %s, not int64", idx.DataType())
	}
	if a.NullN() > 0 || positions.NullN() > 0 {
		bb := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer bb.Release()
		bb.Reserve(n)
		for i := range n {
			ok := positions.IsValid(i) && a.IsValid(int(positions.Value(i)))
			if !ok {
				nulls++
			}
			bb.UnsafeAppend(ok)
		}
		m := bb.NewBooleanArray()
		defer m.Release()
		bits = m.Data().Buffers()[1]
	}
	data := array.NewData(a.DataType(), n, []*memory.Buffer{bits}, children, nulls, 0)
	defer data.Release()
	return array.NewStructData(data), nil
}

// Concat joins batches of one schema into one.
func Concat(s *arrow.Schema, batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	var rows int64
	for _, b := range batches {
		rows += b.NumRows()
	}
	if len(batches) == 1 {
		batches[0].Retain()
		return batches[0], nil
	}
	cols := make([]arrow.Array, s.NumFields())
	for i := range cols {
		if len(batches) == 0 {
			cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, s.Field(i).Type, 0)
			continue
		}
		if s.Field(i).Type.ID() == arrow.NULL {
			cols[i] = array.NewNull(int(rows))
			continue
		}
		parts := make([]arrow.Array, len(batches))
		for j, b := range batches {
			parts[j] = b.Column(i)
		}
		c, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return nil, fmt.Errorf("join column %s: %w", s.Field(i).Name, err)
		}
		cols[i] = c
	}
	return array.NewRecordBatch(s, cols, rows), nil
}

// NullArray is n nulls of type t.
func NullArray(t arrow.DataType, n int) arrow.Array {
	if t.ID() == arrow.NULL {
		return array.NewNull(n)
	}
	return array.MakeArrayOfNull(memory.DefaultAllocator, t, n)
}

// Repeat is n times the value v.
func Repeat(v scalar.Scalar, n int) (arrow.Array, error) {
	if !v.IsValid() {
		return NullArray(v.DataType(), n), nil
	}
	a, err := scalar.MakeArrayFromScalar(v, n, memory.DefaultAllocator)
	if err != nil {
		return nil, fmt.Errorf("repeat value %s: %w", v, err)
	}
	return a, nil
}

// Rename gives an array the type want, which differs in
// names and nullability only.
func Rename(a arrow.Array, want arrow.DataType) arrow.Array {
	if arrow.TypeEqual(a.DataType(), want) {
		a.Retain()
		return a
	}
	d := renameData(a.Data(), want)
	defer d.Release()
	return array.MakeFromData(d)
}

func renameData(d arrow.ArrayData, want arrow.DataType) arrow.ArrayData {
	nested, ok := want.(arrow.NestedType)
	if !ok {
		d.Retain()
		return d
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, f := range nested.Fields() {
		children[i] = renameData(d.Children()[i], f.Type)
		defer children[i].Release()
	}
	return array.NewData(want, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
}
