package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// TypeChangesKey is the field metadata in which type widening keeps the history of
// a column's types (1.14 of the checklist).
const TypeChangesKey = "delta.typeChanges"

// TypeChange is one entry of that history.
type TypeChange struct {
	From, To Type
	// FieldPath is where in the field the type is, for array elements, map keys and
	// map values: "element", "value.element"; "" is the field itself.
	FieldPath string
}

var intDigits = map[Type]int{Byte: 10, Short: 10, Integer: 10, Long: 20}

// CanWiden reports whether type widening lets from become to: every value
// of from is a value of to, and files that hold from can be read as to.
func CanWiden(from, to Type) bool {
	rank := map[Type]int{Byte: 1, Short: 2, Integer: 3, Long: 4}
	switch to := to.(type) {
	case Decimal:
		if d, ok := from.(Decimal); ok {
			k2 := to.Scale - d.Scale
			return d != to && k2 >= 0 && to.Precision-d.Precision >= k2
		}
		digits, ok := intDigits[from]
		return ok && to.Precision-to.Scale >= digits
	case Primitive:
		switch {
		case rank[from] > 0 && rank[to] > rank[from]:
			return true
		case to == Double:
			return from == Float || from == Byte || from == Short || from == Integer
		case to == TimestampNTZ:
			return from == Date
		}
	}
	return false
}

// CanEvolve is the subset of [CanWiden] that schema evolution makes by itself, as
// Spark does (W-831): an integer does not become a double or a decimal unasked.
func CanEvolve(from, to Type) bool {
	if _, isInt := intDigits[from]; isInt {
		if _, stays := intDigits[to]; !stays {
			return false
		}
	}
	return CanWiden(from, to)
}

// WasFloat reports whether the field, by its history, has been a FLOAT.
func WasFloat(f Field) bool {
	changes, err := TypeChanges(f)
	if err != nil {
		return true // not known: the careful answer
	}
	for _, c := range changes {
		if c.From == Float && c.FieldPath == "" {
			return true
		}
	}
	return false
}

// TypeChanges is the history of a field, oldest first. Entries that cannot be read
// are an error.
func TypeChanges(f Field) ([]TypeChange, error) {
	raw, ok := f.Metadata.Get(TypeChangesKey)
	if !ok {
		return nil, nil
	}
	var list []struct {
		From string `json:"fromType"`
		To   string `json:"toType"`
		Path string `json:"fieldPath"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", TypeChangesKey, err)
	}
	out := make([]TypeChange, len(list))
	for i, e := range list {
		from, err := parseTypeName(e.From, f.Name)
		if err != nil {
			return nil, err
		}
		to, err := parseTypeName(e.To, f.Name)
		if err != nil {
			return nil, err
		}
		out[i] = TypeChange{from, to, e.Path}
	}
	return out, nil
}

// WithTypeChange is f with one more entry in its history; the entries that are there
// stay as they are.
func (f Field) WithTypeChange(c TypeChange) Field {
	var b strings.Builder
	fmt.Fprintf(&b, `{"toType":%s,"fromType":%s`, TypeJSON(c.To), TypeJSON(c.From))
	if c.FieldPath != "" {
		b.WriteString(`,"fieldPath":`)
		writeJSONString(&b, c.FieldPath)
	}
	b.WriteByte('}')
	list := []json.RawMessage{}
	if raw, ok := f.Metadata.Get(TypeChangesKey); ok {
		// What cannot be read was refused when the table was opened.
		_ = json.Unmarshal(raw, &list)
	}
	f.Metadata = f.Metadata.With(TypeChangesKey, append(list, json.RawMessage(b.String())))
	return f
}

// CheckTypeChanges verifies the history of every field: a pair that is not
// on the list of the protocol means that files may hold what this version cannot
// read. The error is a *[RuleError].
func CheckTypeChanges(s *Struct) error {
	return eachStruct(s, "", func(s *Struct, path string) error {
		for _, f := range s.Fields {
			list, err := TypeChanges(f)
			if err != nil {
				return &RuleError{"DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA", join(path, f.Name), err.Error()}
			}
			for _, c := range list {
				if !CanWiden(c.From, c.To) {
					return &RuleError{"DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA", join(path, f.Name),
						fmt.Sprintf("its type was changed from %s to %s, which is no type widening", c.From, c.To)}
				}
			}
		}
		return nil
	})
}

// HasTypeChanges reports whether any field has a history of types.
func HasTypeChanges(s *Struct) bool {
	found := false
	_ = eachStruct(s, "", func(s *Struct, _ string) error {
		for _, f := range s.Fields {
			_, ok := f.Metadata.Get(TypeChangesKey)
			found = found || ok
		}
		return nil
	})
	return found
}

// WithoutTypeChanges is s without any history, for tables whose files are all of
// the present types.
func WithoutTypeChanges(s *Struct) *Struct { return mapFields(s, dropTypeChanges).(*Struct) }

func dropTypeChanges(f Field) Field {
	f.Metadata = f.Metadata.Without(TypeChangesKey)
	return f
}

// mapFields is t with every struct field replaced by what change makes of it,
// inner fields first.
func mapFields(t Type, change func(Field) Field) Type {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			f.Type = mapFields(f.Type, change)
			out.Fields[i] = change(f)
		}
		return out
	case *Array:
		return &Array{Elem: mapFields(t.Elem, change), ContainsNull: t.ContainsNull}
	case *Map:
		return &Map{Key: mapFields(t.Key, change), Value: mapFields(t.Value, change), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}
