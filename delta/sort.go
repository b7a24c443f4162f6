package delta

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Order is one key of a row order.
type Order struct {
	Column string
	// Desc reverses the order of the values; nulls come first ascending and last
	// descending, as in Spark.
	Desc bool
}

// sortedRows are the row numbers of b in the order of the keys, at most limit of
// them when limit is not negative. Equal rows keep their order.
func sortedRows(b arrow.RecordBatch, keys []Order, limit int64) ([]int64, error) {
	cmps := make([]func(i, j int) int, len(keys))
	for k, key := range keys {
		at := b.Schema().FieldIndices(key.Column)
		if len(at) == 0 {
			for i, f := range b.Schema().Fields() {
				if strings.EqualFold(f.Name, key.Column) {
					at = append(at, i)
				}
			}
		}
		if len(at) != 1 {
			return nil, fmt.Errorf("order by %s: %w: no such column", key.Column, ErrInvalid)
		}
		c, err := comparer(b.Column(at[0]))
		if err != nil {
			return nil, fmt.Errorf("order by %s: %w", key.Column, err)
		}
		cmps[k] = c
	}
	rows := make([]int64, b.NumRows())
	for i := range rows {
		rows[i] = int64(i)
	}
	slices.SortStableFunc(rows, func(i, j int64) int {
		for k, c := range cmps {
			if o := c(int(i), int(j)); o != 0 {
				if keys[k].Desc {
					return -o
				}
				return o
			}
		}
		return 0
	})
	if limit >= 0 && limit < int64(len(rows)) {
		rows = rows[:limit]
	}
	return rows, nil
}

// comparer orders two rows of a; null is lowest, NaN highest.
func comparer(a arrow.Array) (func(i, j int) int, error) {
	var values func(i, j int) int
	switch a := a.(type) {
	case *array.Null:
		values = func(i, j int) int { return 0 }
	case *array.Boolean:
		values = func(i, j int) int { return cmpBool(a.Value(i), a.Value(j)) }
	case *array.Int8:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int16:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int32:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int64:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Date32:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Timestamp:
		values = func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Float32:
		values = func(i, j int) int { return cmpFloat(float64(a.Value(i)), float64(a.Value(j))) }
	case *array.Float64:
		values = func(i, j int) int { return cmpFloat(a.Value(i), a.Value(j)) }
	case *array.String:
		values = func(i, j int) int { return strings.Compare(a.Value(i), a.Value(j)) }
	case *array.Binary:
		values = func(i, j int) int { return bytes.Compare(a.Value(i), a.Value(j)) }
	case *array.Decimal128:
		values = func(i, j int) int { return a.Value(i).Cmp(a.Value(j)) }
	default:
		return nil, fmt.Errorf("%w: type %s has no order", ErrInvalid, a.DataType())
	}
	return func(i, j int) int {
		switch x, y := a.IsNull(i), a.IsNull(j); {
		case x && y:
			return 0
		case x:
			return -1
		case y:
			return 1
		}
		return values(i, j)
	}, nil
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func cmpFloat(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	case math.IsNaN(b):
		return -1
	}
	if a == b {
		return 0
	}
	return cmp.Compare(a, b)
}
