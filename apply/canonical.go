package apply

import (
	"cmp"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/keycode"
)

// This file is about values that are equal (auto-cdc 2.1) and look different. The
// target is a pure function of the events to the last bit: which of two forms came
// first does not show. Forms that mean nothing (the order in which a map lists its
// entries, the payload of a NaN) are settled when an event is taken in; the sign of a
// zero is kept, and of two zeros that of the newer event shows.

// canonical is a column without forms that mean nothing; of a key, zeros have no
// sign either. An array without such a value is answered as it is.
func canonical(a arrow.Array, key bool) (arrow.Array, error) {
	form := func(v float64) float64 {
		switch {
		case math.IsNaN(v):
			return math.NaN()
		case key && v == 0:
			return 0
		}
		return v
	}
	if !otherForms(a, form) {
		return a, nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, a.DataType())
	defer b.Release()
	b.Reserve(a.Len())
	for i := range a.Len() {
		if err := appendCanonical(b, a, i, form); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// otherForms tells whether some value of an array is not in its canonical form.
func otherForms(a arrow.Array, form func(float64) float64) bool {
	switch a := a.(type) {
	case *array.Float64:
		return slices.ContainsFunc(a.Float64Values(), func(v float64) bool {
			return (v == 0 || v != v) && math.Float64bits(v) != math.Float64bits(form(v))
		})
	case *array.Float32:
		return slices.ContainsFunc(a.Float32Values(), func(v float32) bool {
			return (v == 0 || v != v) && math.Float32bits(v) != math.Float32bits(float32(form(float64(v))))
		})
	case *array.Struct:
		for f := range a.NumField() {
			if otherForms(a.Field(f), form) {
				return true
			}
		}
	case *array.Map:
		if otherForms(a.Keys(), form) || otherForms(a.Items(), form) {
			return true
		}
		for i := range a.Len() {
			from, to := a.ValueOffsets(i)
			for e := from + 1; a.IsValid(i) && e < to; e++ {
				if keycode.Compare(a.Keys(), int(e-1), a.Keys(), int(e)) > 0 {
					return true
				}
			}
		}
	case *array.List:
		return otherForms(a.ListValues(), form)
	}
	return false
}

// compareForms orders two equal values by their looks: a negative zero comes first.
func compareForms(a arrow.Array, i int, b arrow.Array, j int) int {
	if a.IsNull(i) || b.IsNull(j) {
		return 0
	}
	negative := func(v float64) int {
		if v == 0 && math.Signbit(v) {
			return 0
		}
		return 1
	}
	lists := func(x, y arrow.Array, xf, yf, n int64) int {
		for e := range n {
			if c := compareForms(x, int(xf+e), y, int(yf+e)); c != 0 {
				return c
			}
		}
		return 0
	}
	switch x := a.(type) {
	case *array.Float64:
		if y, ok := b.(*array.Float64); ok {
			return negative(x.Value(i)) - negative(y.Value(j))
		}
	case *array.Float32:
		if y, ok := b.(*array.Float32); ok {
			return negative(float64(x.Value(i))) - negative(float64(y.Value(j)))
		}
	case *array.Struct:
		if y, ok := b.(*array.Struct); ok {
			for f := range x.NumField() {
				if c := compareForms(x.Field(f), i, y.Field(f), j); c != 0 {
					return c
				}
			}
		}
	case *array.Map:
		if y, ok := b.(*array.Map); ok {
			xf, xt := x.ValueOffsets(i)
			yf, _ := y.ValueOffsets(j)
			return cmp.Or(lists(x.Keys(), y.Keys(), xf, yf, xt-xf), lists(x.Items(), y.Items(), xf, yf, xt-xf))
		}
	case *array.List:
		if y, ok := b.(*array.List); ok {
			xf, xt := x.ValueOffsets(i)
			yf, _ := y.ValueOffsets(j)
			return lists(x.ListValues(), y.ListValues(), xf, yf, xt-xf)
		}
	}
	return 0
}

// appendCanonical copies a value in its canonical form.
func appendCanonical(b array.Builder, a arrow.Array, i int, form func(float64) float64) error {
	if a.IsNull(i) {
		b.AppendNull()
		return nil
	}
	switch a := a.(type) {
	case *array.Float64:
		b.(*array.Float64Builder).Append(form(a.Value(i)))
		return nil
	case *array.Float32:
		b.(*array.Float32Builder).Append(float32(form(float64(a.Value(i)))))
		return nil
	case *array.Struct:
		sb := b.(*array.StructBuilder)
		sb.Append(true)
		for f := range a.NumField() {
			if err := appendCanonical(sb.FieldBuilder(f), a.Field(f), i, form); err != nil {
				return err
			}
		}
		return nil
	case *array.Map:
		mb := b.(*array.MapBuilder)
		mb.Append(true)
		from, to := a.ValueOffsets(i)
		order := make([]int, 0, to-from)
		for e := from; e < to; e++ {
			order = append(order, int(e))
		}
		slices.SortStableFunc(order, func(x, y int) int { return keycode.Compare(a.Keys(), x, a.Keys(), y) })
		for _, e := range order {
			if err := appendCanonical(mb.KeyBuilder(), a.Keys(), e, form); err != nil {
				return err
			}
			if err := appendCanonical(mb.ItemBuilder(), a.Items(), e, form); err != nil {
				return err
			}
		}
		return nil
	case *array.List:
		lb := b.(*array.ListBuilder)
		lb.Append(true)
		from, to := a.ValueOffsets(i)
		for e := from; e < to; e++ {
			if err := appendCanonical(lb.ValueBuilder(), a.ListValues(), int(e), form); err != nil {
				return err
			}
		}
		return nil
	}
	return appendCell(b, a, i)
}
