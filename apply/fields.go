package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// field is what events author and versions are kept for (auto-cdc 2.3): a data
// column, or a leaf of a struct column that ignore-null covers or ever covered.
type field struct {
	col  int    // in the shape's schema
	path []int  // into the column's struct type; nil: the whole column
	name string // physical name; parts of a path are joined by pathMark
	typ  arrow.DataType
	// inner are the names by which the state keeps structs inside of the field.
	inner *innerNames
}

// pathMark joins the physical names on the way to a leaf; no column name holds it
// by accident.
const pathMark = "\x1f"

// fieldsOf are the fields of a column.
func fieldsOf(col int, f schema.Field, t arrow.DataType, split bool) []field {
	whole := field{col: col, name: schema.PhysicalName(f), typ: t, inner: innerNamesOf(f.Type)}
	if !split {
		return []field{whole}
	}
	return leavesOf(whole, f.Type, t)
}

func leavesOf(at field, t schema.Type, dt arrow.DataType) []field {
	st, ok := t.(*schema.Struct)
	as, isStruct := dt.(*arrow.StructType)
	if !ok || !isStruct || len(st.Fields) == 0 || len(st.Fields) != as.NumFields() {
		return []field{at}
	}
	var out []field
	for i, f := range st.Fields {
		out = append(out, leavesOf(field{col: at.col, path: append(slices.Clone(at.path), i),
			name: at.name + pathMark + schema.PhysicalName(f), typ: as.Field(i).Type, inner: innerNamesOf(f.Type)}, f.Type, as.Field(i).Type)...)
	}
	return out
}

// isStruct tells whether a type has leaves.
func isStruct(t schema.Type) bool {
	st, ok := t.(*schema.Struct)
	return ok && len(st.Fields) > 0
}

// leaf is the array of a field within that of its column: null where any struct on
// the way is.
func (f *field) leaf(a arrow.Array) (arrow.Array, error) {
	for _, i := range f.path {
		st, ok := a.(*array.Struct)
		if !ok || i >= st.NumField() {
			return nil, fmt.Errorf("read field %s: %s has no such field", strings.ReplaceAll(f.name, pathMark, "."), a.DataType())
		}
		child := st.Field(i)
		if st.NullN() == 0 {
			a = child
			continue
		}
		masked, err := gather(child.DataType(), st.Len(), func(r int) cell {
			if st.IsNull(r) {
				return cell{}
			}
			return cell{child, r}
		})
		if err != nil {
			return nil, err
		}
		a = masked
	}
	return a, nil
}

// inEpoch tells whether the names of an epoch, which are sorted, hold a field:
// itself, or a struct that it was a part of when the epoch was made.
func inEpoch(names []string, field string) bool {
	if _, ok := slices.BinarySearch(names, field); ok {
		return true
	}
	for i := strings.LastIndex(field, pathMark); i > 0; i = strings.LastIndex(field[:i], pathMark) {
		if _, ok := slices.BinarySearch(names, field[:i]); ok {
			return true
		}
	}
	return false
}

// concerns tells whether what is stored under a name holds for a field.
func concerns(name, field string) bool {
	return name == field || len(field) > len(name) && strings.HasPrefix(field, name) && field[len(name)] == pathMark[0]
}

// column builds a column of n rows from the values of its fields.
func (s *shape) column(i, n int, at func(f, r int) cell) (arrow.Array, error) {
	own := s.ofColumn[i]
	if len(own) == 1 && s.fields[own[0]].path == nil {
		f := own[0]
		return gather(s.arrow[i], n, func(r int) cell { return at(f, r) })
	}
	rest := own
	return s.rebuild(s.arrow[i], &rest, 0, n, at)
}

// rebuild makes a struct from its leaves; one whose leaves are all null is null
// (auto-cdc 2.3).
func (s *shape) rebuild(t arrow.DataType, leaves *[]int, depth, n int, at func(f, r int) cell) (arrow.Array, error) {
	f := (*leaves)[0]
	if len(s.fields[f].path) == depth {
		*leaves = (*leaves)[1:]
		return gather(t, n, func(r int) cell { return at(f, r) })
	}
	st, ok := t.(*arrow.StructType)
	if !ok {
		return nil, fmt.Errorf("build rows: %s is no struct", t)
	}
	children := make([]arrow.Array, st.NumFields())
	for c := range children {
		var err error
		if children[c], err = s.rebuild(st.Field(c).Type, leaves, depth+1, n, at); err != nil {
			return nil, err
		}
	}
	valid := array.NewBooleanBuilder(memory.DefaultAllocator)
	defer valid.Release()
	nulls := 0
	for r := range n {
		v := slices.ContainsFunc(children, func(a arrow.Array) bool { return a.IsValid(r) })
		if valid.Append(v); !v {
			nulls++
		}
	}
	bits := valid.NewBooleanArray()
	return array.NewStructArrayWithFieldsAndNulls(children, st.Fields(), bits.Data().Buffers()[1], nulls, 0)
}
