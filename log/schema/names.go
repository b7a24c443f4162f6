package schema

import (
	"fmt"
	"strings"
)

// RuleError reports a schema that is well formed but not allowed.
type RuleError struct {
	// ErrorCode is Spark's name for the fault, for example DELTA_DUPLICATE_COLUMNS_FOUND.
	ErrorCode string
	// Column is the dot-separated path of the offending column, if one offends.
	Column string
	Reason string
}

func (e *RuleError) Error() string {
	if e.Column == "" {
		return "schema: " + e.Reason
	}
	return fmt.Sprintf("schema: column %s: %s", e.Column, e.Reason)
}

// Code is the stable error code.
func (e *RuleError) Code() string { return e.ErrorCode }

// ForbiddenNameChars may not occur in a column name without column mapping (W-401).
const ForbiddenNameChars = " ,;{}()=\t\n"

// CheckNames holds a schema to the name rules (W-401): unique ignoring case at
// every struct level, never empty and, unless mapped (column mapping is on), free
// of [ForbiddenNameChars]. The error is a *[RuleError].
func CheckNames(s *Struct, mapped bool) error {
	return eachStruct(s, "", func(s *Struct, path string) error {
		seen := make(map[string]bool, len(s.Fields))
		for _, f := range s.Fields {
			at := join(path, f.Name)
			if f.Name == "" {
				return &RuleError{"DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", path, "a column name is empty"}
			}
			if lower := strings.ToLower(f.Name); seen[lower] {
				return &RuleError{"DELTA_DUPLICATE_COLUMNS_FOUND", at, "the name occurs twice (names are compared ignoring case)"}
			} else {
				seen[lower] = true
			}
			if !mapped && strings.ContainsAny(f.Name, ForbiddenNameChars) {
				return &RuleError{"DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", at,
					`names with space, tab, newline or one of ,;{}()= need column mapping (delta.columnMapping.mode=name)`}
			}
		}
		return nil
	})
}

// eachStruct calls visit for s and every struct below it.
func eachStruct(t Type, path string, visit func(*Struct, string) error) error {
	switch t := t.(type) {
	case *Struct:
		if err := visit(t, path); err != nil {
			return err
		}
		for _, f := range t.Fields {
			if err := eachStruct(f.Type, join(path, f.Name), visit); err != nil {
				return err
			}
		}
	case *Array:
		return eachStruct(t.Elem, join(path, "element"), visit)
	case *Map:
		if err := eachStruct(t.Key, join(path, "key"), visit); err != nil {
			return err
		}
		return eachStruct(t.Value, join(path, "value"), visit)
	}
	return nil
}

// CheckNewTable holds the schema of a table to be created, or of a schema change,
// to the rules beyond names: partition columns (W-406), NOT NULL inside arrays
// and maps (W-403), void (W-404). The error is a *[RuleError].
func CheckNewTable(s *Struct, partitionColumns []string) error {
	seen := map[int]bool{}
	for _, c := range partitionColumns {
		i := s.Index(c)
		if i < 0 {
			return &RuleError{"DELTA_INVALID_PARTITION_COLUMN", c, "partition column is not in the schema"}
		}
		if seen[i] {
			return &RuleError{"DELTA_INVALID_PARTITION_COLUMN", c, "partition column is named twice"}
		}
		seen[i] = true
		switch t := s.Fields[i].Type.(type) {
		case *Struct, *Array, *Map, Unknown:
			return &RuleError{"DELTA_INVALID_PARTITION_COLUMN", c, fmt.Sprintf("type %s cannot partition a table", t)}
		case Primitive:
			if t == Void || t == Variant {
				return &RuleError{"DELTA_INVALID_PARTITION_COLUMN", c, fmt.Sprintf("type %s cannot partition a table", t)}
			}
		}
	}
	if len(s.Fields) > 0 && len(seen) == len(s.Fields) {
		return &RuleError{"DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", "", "at least one column must not be a partition column"}
	}
	for _, f := range s.Fields {
		if err := checkNested(f.Type, f.Name, false); err != nil {
			return err
		}
	}
	return nil
}

func checkNested(t Type, path string, inside bool) error {
	switch t := t.(type) {
	case *Struct:
		for _, f := range t.Fields {
			if inside && !f.Nullable {
				return &RuleError{"DELTA_NESTED_NOT_NULL_CONSTRAINT", join(path, f.Name), "NOT NULL inside an array or map cannot be enforced"}
			}
			if err := checkNested(f.Type, join(path, f.Name), inside); err != nil {
				return err
			}
		}
	case *Array:
		if !t.ContainsNull {
			return &RuleError{"DELTA_NESTED_NOT_NULL_CONSTRAINT", path, "array elements that are NOT NULL cannot be enforced"}
		}
		return checkNested(t.Elem, join(path, "element"), true)
	case *Map:
		if !t.ValueContainsNull {
			return &RuleError{"DELTA_NESTED_NOT_NULL_CONSTRAINT", path, "map values that are NOT NULL cannot be enforced"}
		}
		if err := checkNested(t.Key, join(path, "key"), true); err != nil {
			return err
		}
		return checkNested(t.Value, join(path, "value"), true)
	}
	return nil
}

// CheckWritable refuses schemas that no data file can hold: void inside an array
// or map, structs of only voids, only void columns (W-404), unknown types.
// The error is a *[RuleError].
func CheckWritable(s *Struct) error {
	data := 0
	for _, f := range s.Fields {
		if f.Type == Void {
			continue
		}
		data++
		if err := checkWritable(f.Type, f.Name); err != nil {
			return err
		}
	}
	if data == 0 {
		return &RuleError{"DELTA_NULL_SCHEMA_IN_TABLE", "", "the table has only void columns"}
	}
	return nil
}

func checkWritable(t Type, path string) error {
	switch t := t.(type) {
	case Unknown:
		return &RuleError{"DELTA_UNSUPPORTED_DATA_TYPES", path, fmt.Sprintf("type %s is not known", t)}
	case *Struct:
		data := 0
		for _, f := range t.Fields {
			if f.Type == Void {
				continue
			}
			data++
			if err := checkWritable(f.Type, join(path, f.Name)); err != nil {
				return err
			}
		}
		if data == 0 {
			return &RuleError{"DELTA_NULL_SCHEMA_IN_TABLE", path, "a struct of only void fields cannot be written"}
		}
	case *Array:
		if t.Elem == Void {
			return &RuleError{"DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE", path, "void inside an array cannot be written"}
		}
		return checkWritable(t.Elem, join(path, "element"))
	case *Map:
		if t.Key == Void || t.Value == Void {
			return &RuleError{"DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE", path, "void inside a map cannot be written"}
		}
		if err := checkWritable(t.Key, join(path, "key")); err != nil {
			return err
		}
		return checkWritable(t.Value, join(path, "value"))
	}
	return nil
}

// Leaf is a column that statistics speak of: anything but a struct; an array or
// map is one leaf (W-602).
type Leaf struct {
	// Path is the names from the top-level column down.
	Path  []string
	Field Field
}

// Leaves lists the leaf columns of s depth first, in schema order.
func Leaves(s *Struct) []Leaf { return appendLeaves(nil, s, nil) }

func appendLeaves(out []Leaf, s *Struct, path []string) []Leaf {
	for _, f := range s.Fields {
		at := append(path[:len(path):len(path)], f.Name)
		if sub, ok := f.Type.(*Struct); ok {
			out = appendLeaves(out, sub, at)
			continue
		}
		out = append(out, Leaf{Path: at, Field: f})
	}
	return out
}
