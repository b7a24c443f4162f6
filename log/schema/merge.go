package schema

import "fmt"

// MergeOptions say how far [Merge] may go; the zero value only adds fields.
type MergeOptions struct {
	// Widen reports whether a type of the table may become another one; nil: never.
	// [CanEvolve] where type widening is on.
	Widen func(from, to Type) bool
}

// Merge is the table schema grown by what incoming has and table lacks: columns and
// fields of structs at any depth, at the end and nullable; void columns that get a
// type (W-404); wider types where o.Widen allows them, with their history. Fields
// are matched ignoring case and keep the table's spelling, place, nullability and
// metadata. It is table itself when nothing is new. A type that is neither held by
// the table's nor widened is left as the table has it: whether values fit is for
// the writer to find. The error, for types that cannot be one (a struct and a
// number) or that need type widening, is a *[RuleError].
func Merge(table, incoming *Struct, o MergeOptions) (*Struct, error) {
	m := merger{o: o}
	out, err := m.structs(table, incoming, "")
	if err != nil || !m.changed {
		return table, err
	}
	return out, nil
}

type merger struct {
	o       MergeOptions
	changed bool
}

func (m *merger) structs(t, in *Struct, path string) (*Struct, error) {
	out := &Struct{Fields: append([]Field(nil), t.Fields...)}
	for _, f := range in.Fields {
		at := join(path, f.Name)
		i := out.Index(f.Name)
		if i < 0 {
			out.Fields = append(out.Fields, newField(f))
			m.changed = true
			continue
		}
		have := &out.Fields[i]
		var changes []TypeChange
		typ, err := m.types(have.Type, f.Type, at, "", &changes)
		if err != nil {
			return nil, err
		}
		have.Type = typ
		for _, c := range changes {
			*have = have.WithTypeChange(c)
		}
	}
	return out, nil
}

// types merges two types; inner is the path from the nearest field.
func (m *merger) types(t, in Type, path, inner string, changes *[]TypeChange) (Type, error) {
	bad := func(reason string) error {
		return &RuleError{"DELTA_FAILED_TO_MERGE_FIELDS", path, fmt.Sprintf("the table has %s, the rows have %s: %s", t, in, reason)}
	}
	switch {
	case in == Void || t == in:
		return t, nil
	case t == Void:
		m.changed = true
		return nullable(in), nil
	}
	const shape = "these are different kinds of types"
	switch a := t.(type) {
	case *Struct:
		b, ok := in.(*Struct)
		if !ok {
			return nil, bad(shape)
		}
		return m.structs(a, b, path)
	case *Array:
		b, ok := in.(*Array)
		if !ok {
			return nil, bad(shape)
		}
		elem, err := m.types(a.Elem, b.Elem, join(path, "element"), join(inner, "element"), changes)
		return &Array{Elem: elem, ContainsNull: a.ContainsNull}, err
	case *Map:
		b, ok := in.(*Map)
		if !ok {
			return nil, bad(shape)
		}
		k, err := m.types(a.Key, b.Key, join(path, "key"), join(inner, "key"), changes)
		if err != nil {
			return nil, err
		}
		v, err := m.types(a.Value, b.Value, join(path, "value"), join(inner, "value"), changes)
		return &Map{Key: k, Value: v, ValueContainsNull: a.ValueContainsNull}, err
	}
	switch in.(type) {
	case *Struct, *Array, *Map:
		return nil, bad(shape)
	}
	if CanWiden(t, in) {
		switch {
		case m.o.Widen == nil:
			return nil, bad("a wider type needs type widening (table property delta.enableTypeWidening=true)")
		case !m.o.Widen(t, in):
			return nil, bad("this change is not made by itself: change the column's type first")
		}
		m.changed = true
		*changes = append(*changes, TypeChange{From: t, To: in, FieldPath: inner})
		return in, nil
	}
	return t, nil
}

// newField is an incoming field as a table gets it: nullable at every depth, since
// rows that are there have no value for it, and without what its metadata says
// about another table.
func newField(f Field) Field {
	return Field{Name: f.Name, Type: nullable(f.Type), Nullable: true, Metadata: portable(f.Metadata)}
}

// portable keeps the metadata that describes values and not the table they came from.
func portable(m Metadata) Metadata {
	var out Metadata
	for _, e := range m {
		if e.Key == "comment" || e.Key == "__CHAR_VARCHAR_TYPE_STRING" {
			out = append(out, e)
		}
	}
	return out
}

func nullable(t Type) Type {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			out.Fields[i] = newField(f)
		}
		return out
	case *Array:
		return &Array{Elem: nullable(t.Elem), ContainsNull: true}
	case *Map:
		// Keys are never null; their inner fields may be.
		return &Map{Key: nullable(t.Key), Value: nullable(t.Value), ValueContainsNull: true}
	}
	return t
}

// Nullable is s with every field, element and value nullable and without the
// metadata that ties fields to the table they came from: what a new column, or the
// schema of a whole overwrite, is made of.
func Nullable(s *Struct) *Struct { return nullable(s).(*Struct) }
