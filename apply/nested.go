package apply

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// This file takes nested values of a source whose structs have fewer fields than the
// target's, or narrower ones: what is missing is null, at every depth.

// fits tells whether every value of a source type has a place in the target's type.
func fits(from, to schema.Type) bool {
	if from == schema.Void || widens(from, to) || schema.EqualIgnoringNullability(plainType(from), plainType(to)) {
		return true
	}
	switch f := from.(type) {
	case *schema.Struct:
		t, ok := to.(*schema.Struct)
		if !ok {
			return false
		}
		taken := map[int]bool{} // names that differ in case alone are one
		for _, c := range f.Fields {
			at := t.Index(c.Name)
			if at < 0 || taken[at] || !fits(c.Type, t.Fields[at].Type) {
				return false
			}
			taken[at] = true
		}
		return len(f.Fields) > 0
	case *schema.Array:
		t, ok := to.(*schema.Array)
		return ok && fits(f.Elem, t.Elem)
	case *schema.Map:
		t, ok := to.(*schema.Map)
		return ok && schema.EqualIgnoringNullability(plainType(f.Key), plainType(t.Key)) && fits(f.Value, t.Value)
	}
	return false
}

// isNested tells whether a type has parts.
func isNested(t schema.Type) bool {
	switch t.(type) {
	case *schema.Struct, *schema.Array, *schema.Map:
		return true
	}
	return false
}

// joined is the type that holds the values of both, by the rules of [schema.Merge];
// fields that only b has come last.
func joined(name string, a, b schema.Type) (schema.Type, bool) {
	one := func(t schema.Type) *schema.Struct {
		return &schema.Struct{Fields: []schema.Field{{Name: name, Type: nullable(t), Nullable: true}}}
	}
	s, err := schema.Merge(one(a), one(b), schema.MergeOptions{})
	if err != nil {
		return nil, false
	}
	t := s.Fields[0].Type
	return t, fits(a, t) && fits(b, t)
}

// adapt makes values of one type those of another that it fits.
func adapt(a arrow.Array, from, to schema.Type, zone expr.Options) (arrow.Array, error) {
	if schema.EqualIgnoringNullability(plainType(from), plainType(to)) {
		return a, nil
	}
	dt, err := schema.ArrowType(to)
	if err != nil {
		return nil, err
	}
	switch f := from.(type) {
	case *schema.Struct:
		st, ok := a.(*array.Struct)
		t, isStruct := to.(*schema.Struct)
		if !ok || !isStruct {
			break
		}
		at := map[string]int{}
		for i, c := range f.Fields {
			at[strings.ToLower(c.Name)] = i
		}
		children := make([]arrow.Array, len(t.Fields))
		for i, c := range t.Fields {
			n, ok := at[strings.ToLower(c.Name)]
			if !ok {
				children[i] = datafile.NullArray(dt.(*arrow.StructType).Field(i).Type, a.Len())
				continue
			}
			if children[i], err = adapt(st.Field(n), f.Fields[n].Type, c.Type, zone); err != nil {
				return nil, err
			}
		}
		valid := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer valid.Release()
		for i := range a.Len() {
			valid.Append(a.IsValid(i))
		}
		return array.NewStructArrayWithFieldsAndNulls(children, dt.(*arrow.StructType).Fields(), valid.NewBooleanArray().Data().Buffers()[1], a.NullN(), 0)
	case *schema.Array:
		l, ok := a.(*array.List)
		t, isArray := to.(*schema.Array)
		if !ok || !isArray {
			break
		}
		values, err := adapt(l.ListValues(), f.Elem, t.Elem, zone)
		if err != nil {
			return nil, err
		}
		d := a.Data()
		return array.NewListData(array.NewData(dt, d.Len(), d.Buffers(), []arrow.ArrayData{values.Data()}, d.NullN(), d.Offset())), nil
	case *schema.Map:
		m, ok := a.(*array.Map)
		t, isMap := to.(*schema.Map)
		if !ok || !isMap {
			break
		}
		items, err := adapt(m.Items(), f.Value, t.Value, zone)
		if err != nil {
			return nil, err
		}
		d := a.Data()
		entries := array.NewData(dt.(*arrow.MapType).Elem(), m.Keys().Len(), d.Children()[0].Buffers()[:1], []arrow.ArrayData{m.Keys().Data(), items.Data()}, 0, 0)
		return array.NewMapData(array.NewData(dt, d.Len(), d.Buffers(), []arrow.ArrayData{entries}, d.NullN(), d.Offset())), nil
	}
	f := schema.Field{Name: "value", Type: from, Nullable: true}
	c, err := newConversion(f, to, zone)
	if err != nil {
		return nil, err
	}
	return c.apply(f, a)
}
