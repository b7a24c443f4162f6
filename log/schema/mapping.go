package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Mode is the value of delta.columnMapping.mode.
type Mode string

// The column mapping modes.
const (
	ModeNone Mode = "none"
	ModeName Mode = "name"
	ModeID   Mode = "id"
)

// Field metadata keys of column mapping.
const (
	MappingIDKey        = "delta.columnMapping.id"
	MappingNameKey      = "delta.columnMapping.physicalName"
	MappingNestedIDsKey = "delta.columnMapping.nested.ids"
)

// FieldID is the column mapping id of f, if it has one.
func FieldID(f Field) (int32, bool) {
	raw, ok := f.Metadata.Get(MappingIDKey)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	return int32(n), err == nil
}

// PhysicalName is the name of f in data files, partition values and statistics:
// its physical name if the metadata has one, in any mode, else its name.
func PhysicalName(f Field) string {
	if raw, ok := f.Metadata.Get(MappingNameKey); ok {
		var name string
		if json.Unmarshal(raw, &name) == nil && name != "" {
			return name
		}
	}
	return f.Name
}

// PhysicalStruct is s with physical names at every struct level. In modes name
// and id the fields keep their metadata, from which the writer takes field ids; in
// mode none the mapping keys are dropped, since files then carry no ids (W-501).
func PhysicalStruct(s *Struct, mode Mode) *Struct {
	return physical(s, mode).(*Struct)
}

func physical(t Type, mode Mode) Type {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			md := f.Metadata
			if mode != ModeName && mode != ModeID {
				md = md.Without(MappingIDKey).Without(MappingNameKey).Without(MappingNestedIDsKey)
			}
			out.Fields[i] = Field{Name: PhysicalName(f), Type: physical(f.Type, mode), Nullable: f.Nullable, Metadata: md}
		}
		return out
	case *Array:
		return &Array{Elem: physical(t.Elem, mode), ContainsNull: t.ContainsNull}
	case *Map:
		return &Map{Key: physical(t.Key, mode), Value: physical(t.Value, mode), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// Unmapped is s without the metadata of column mapping at any level: columns under
// their names alone.
func Unmapped(s *Struct) *Struct { return unmapped(s).(*Struct) }

func unmapped(t Type) Type {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			f.Metadata = f.Metadata.Without(MappingIDKey).Without(MappingNameKey).Without(MappingNestedIDsKey)
			f.Type = unmapped(f.Type)
			out.Fields[i] = f
		}
		return out
	case *Array:
		return &Array{Elem: unmapped(t.Elem), ContainsNull: t.ContainsNull}
	case *Map:
		return &Map{Key: unmapped(t.Key), Value: unmapped(t.Value), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// Without returns m without key; m itself when it does not hold the key.
func (m Metadata) Without(key string) Metadata {
	if _, ok := m.Get(key); !ok {
		return m
	}
	out := make(Metadata, 0, len(m)-1)
	for _, e := range m {
		if e.Key != key {
			out = append(out, e)
		}
	}
	return out
}

// AssignMapping gives every struct field that lacks them a column mapping id
// (counted up from the larger of startID and the largest id in s, parents before
// children) and a physical name from newName, or its logical name where newName is
// nil: the upgrade of an existing table (W-503). It returns the mapped schema and
// the largest id in it, the table's new delta.columnMapping.maxColumnId.
func AssignMapping(s *Struct, startID int32, newName func() string) (*Struct, int32) {
	maxID := startID
	_ = eachStruct(s, "", func(s *Struct, _ string) error {
		for _, f := range s.Fields {
			if id, ok := FieldID(f); ok {
				maxID = max(maxID, id)
			}
		}
		return nil
	})
	a := &assigner{next: maxID, newName: newName}
	return a.assign(s).(*Struct), a.next
}

type assigner struct {
	next    int32
	newName func() string
}

func (a *assigner) assign(t Type) Type {
	switch t := t.(type) {
	case *Struct:
		out := &Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			if _, ok := FieldID(f); !ok {
				a.next++
				f.Metadata = f.Metadata.With(MappingIDKey, a.next)
			}
			if _, ok := f.Metadata.Get(MappingNameKey); !ok {
				name := f.Name
				if a.newName != nil {
					name = a.newName()
				}
				f.Metadata = f.Metadata.With(MappingNameKey, name)
			}
			f.Type = a.assign(f.Type)
			out.Fields[i] = f
		}
		return out
	case *Array:
		return &Array{Elem: a.assign(t.Elem), ContainsNull: t.ContainsNull}
	case *Map:
		k := a.assign(t.Key)
		return &Map{Key: k, Value: a.assign(t.Value), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// CheckMapping verifies the mapping of a table in mode name or id (W-502): every
// struct field has an id and a physical name, ids are unique and at most maxID,
// physical paths are unique. The error is a *[RuleError].
func CheckMapping(s *Struct, maxID int32) error {
	ids := map[int32]string{}
	return eachStruct(s, "", func(s *Struct, path string) error {
		names := map[string]bool{}
		for _, f := range s.Fields {
			at := join(path, f.Name)
			id, ok := FieldID(f)
			if !ok {
				return &RuleError{"DELTA_MISSING_COLUMN_MAPPING_ID", at, MappingIDKey + " is missing"}
			}
			if _, ok := f.Metadata.Get(MappingNameKey); !ok {
				return &RuleError{"DELTA_MISSING_PHYSICAL_NAME", at, MappingNameKey + " is missing"}
			}
			if other, dup := ids[id]; dup {
				return &RuleError{"DELTA_DUPLICATED_COLUMN_MAPPING_ID", at, fmt.Sprintf("id %d is also the id of %s", id, other)}
			}
			if id > maxID {
				return &RuleError{"DELTA_COLUMN_MAPPING_SET_COLUMN_ID_NOT_SET", at, fmt.Sprintf("id %d is above delta.columnMapping.maxColumnId %d", id, maxID)}
			}
			ids[id] = at
			name := PhysicalName(f)
			if names[name] {
				return &RuleError{"DELTA_DUPLICATED_PHYSICAL_NAME", at, fmt.Sprintf("physical name %q occurs twice", name)}
			}
			names[name] = true
		}
		return nil
	})
}
