package keycode

import (
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Compare orders two values of one type by the total order of the package. It
// is the plain reading of auto-cdc section 2.1 and takes no encoding. Maps have no
// order; they compare by their entries as stored.
func Compare(a arrow.Array, i int, b arrow.Array, j int) int {
	if an, bn := a.IsNull(i), b.IsNull(j); an || bn {
		return compareBool(!an, !bn)
	}
	switch x := a.(type) {
	case *array.Boolean:
		if y, ok := b.(*array.Boolean); ok {
			return compareBool(x.Value(i), y.Value(j))
		}
	case *array.Int8:
		if y, ok := b.(*array.Int8); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Int16:
		if y, ok := b.(*array.Int16); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Int32:
		if y, ok := b.(*array.Int32); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Int64:
		if y, ok := b.(*array.Int64); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Date32:
		if y, ok := b.(*array.Date32); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Timestamp:
		if y, ok := b.(*array.Timestamp); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Float32:
		if y, ok := b.(*array.Float32); ok {
			return compareFloat(float64(x.Value(i)), float64(y.Value(j)))
		}
	case *array.Float64:
		if y, ok := b.(*array.Float64); ok {
			return compareFloat(x.Value(i), y.Value(j))
		}
	case *array.Decimal128:
		if y, ok := b.(*array.Decimal128); ok {
			return x.Value(i).Cmp(y.Value(j))
		}
	case *array.String:
		if y, ok := b.(*array.String); ok {
			return cmp.Compare(x.Value(i), y.Value(j))
		}
	case *array.Binary:
		if y, ok := b.(*array.Binary); ok {
			return cmp.Compare(x.ValueString(i), y.ValueString(j))
		}
	case *array.Struct:
		if y, ok := b.(*array.Struct); ok && x.NumField() == y.NumField() {
			for f := range x.NumField() {
				if c := Compare(x.Field(f), i, y.Field(f), j); c != 0 {
					return c
				}
			}
			return 0
		}
	case *array.Map:
		if y, ok := b.(*array.Map); ok {
			return compareLists(x, x.ListValues(), i, y, y.ListValues(), j)
		}
	case *array.List:
		if y, ok := b.(*array.List); ok {
			return compareLists(x, x.ListValues(), i, y, y.ListValues(), j)
		}
	case *array.Null:
		return 0
	}
	return cmp.Compare(a.DataType().ID(), b.DataType().ID())
}

func compareLists(x array.ListLike, xs arrow.Array, i int, y array.ListLike, ys arrow.Array, j int) int {
	af, at := x.ValueOffsets(i)
	bf, bt := y.ValueOffsets(j)
	for ; af < at && bf < bt; af, bf = af+1, bf+1 {
		if c := Compare(xs, int(af), ys, int(bf)); c != 0 {
			return c
		}
	}
	return cmp.Compare(at-af, bt-bf)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return compareBool(a != a, b != b)
}

// Equal is value equality (auto-cdc section 2.1) of two values of one type:
// equality in the order, maps by their entries whatever their order, variants by
// their bytes.
func Equal(a arrow.Array, i int, b arrow.Array, j int) bool {
	if an, bn := a.IsNull(i), b.IsNull(j); an || bn {
		return an && bn
	}
	switch x := a.(type) {
	case *array.Struct:
		y, ok := b.(*array.Struct)
		if !ok || x.NumField() != y.NumField() {
			return false
		}
		for f := range x.NumField() {
			if !Equal(x.Field(f), i, y.Field(f), j) {
				return false
			}
		}
		return true
	case *array.Map:
		y, ok := b.(*array.Map)
		return ok && equalMaps(x, i, y, j)
	case *array.List:
		y, ok := b.(*array.List)
		if !ok {
			return false
		}
		af, at := x.ValueOffsets(i)
		bf, bt := y.ValueOffsets(j)
		if at-af != bt-bf {
			return false
		}
		for ; af < at; af, bf = af+1, bf+1 {
			if !Equal(x.ListValues(), int(af), y.ListValues(), int(bf)) {
				return false
			}
		}
		return true
	}
	return Compare(a, i, b, j) == 0
}

// equalMaps matches every entry of x with one of y that is not taken yet. Entries
// mostly come in the same order, so the search starts at the same place.
func equalMaps(x *array.Map, i int, y *array.Map, j int) bool {
	af, at := x.ValueOffsets(i)
	bf, bt := y.ValueOffsets(j)
	n := int(at - af)
	if n != int(bt-bf) {
		return false
	}
	taken := make([]bool, n)
	for k := range n {
		found := false
		for step := range n {
			m := (k + step) % n
			if !taken[m] && Equal(x.Keys(), int(af)+k, y.Keys(), int(bf)+m) && Equal(x.Items(), int(af)+k, y.Items(), int(bf)+m) {
				taken[m], found = true, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
