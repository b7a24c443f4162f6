package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Type is a Delta data type: a [Primitive], a [Decimal], a *[Struct], an *[Array],
// a *[Map] or an [Unknown].
type Type interface {
	// String is the DDL form: BIGINT, DECIMAL(10,2), STRUCT<a: INT>, ARRAY<STRING>.
	String() string
	isType()
}

// Primitive is a type without parameters, by its name in the protocol's JSON.
type Primitive string

// The primitive types. Void is also read as "null" from old logs.
const (
	String       Primitive = "string"
	Long         Primitive = "long"
	Integer      Primitive = "integer"
	Short        Primitive = "short"
	Byte         Primitive = "byte"
	Float        Primitive = "float"
	Double       Primitive = "double"
	Boolean      Primitive = "boolean"
	Binary       Primitive = "binary"
	Date         Primitive = "date"
	Timestamp    Primitive = "timestamp"
	TimestampNTZ Primitive = "timestamp_ntz"
	Void         Primitive = "void"
	Variant      Primitive = "variant"
)

// Decimal is DECIMAL(Precision, Scale) with 1 <= Precision <= 38, 0 <= Scale <= Precision.
type Decimal struct{ Precision, Scale int }

// Struct is an ordered list of fields; a table's schema is one.
type Struct struct{ Fields []Field }

// Array is ARRAY<Elem>.
type Array struct {
	Elem         Type
	ContainsNull bool
}

// Map is MAP<Key, Value>.
type Map struct {
	Key, Value        Type
	ValueContainsNull bool
}

// Unknown is a type this version does not know, kept verbatim; reading or
// writing a column of it is an error.
type Unknown struct{ Raw string }

func (Primitive) isType() {}
func (Decimal) isType()   {}
func (*Struct) isType()   {}
func (*Array) isType()    {}
func (*Map) isType()      {}
func (Unknown) isType()   {}

// Field is one column or struct member.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
	Metadata Metadata
}

// Metadata is a field's metadata in the order it was read, values verbatim.
type Metadata []MetadataEntry

// MetadataEntry is one key with its raw JSON value.
type MetadataEntry struct {
	Key   string
	Value json.RawMessage
}

// Get returns the raw value of key.
func (m Metadata) Get(key string) (json.RawMessage, bool) {
	for _, e := range m {
		if e.Key == key {
			return e.Value, true
		}
	}
	return nil, false
}

// With returns a copy of m in which key has value (any JSON-encodable value).
func (m Metadata) With(key string, value any) Metadata {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("schema: metadata %s: %v", key, err))
	}
	out := make(Metadata, 0, len(m)+1)
	found := false
	for _, e := range m {
		if e.Key == key {
			e.Value, found = raw, true
		}
		out = append(out, e)
	}
	if !found {
		out = append(out, MetadataEntry{key, raw})
	}
	return out
}

// Index returns the position of the field with that name: an exact match, else
// the only case-insensitive one, else -1.
func (s *Struct) Index(name string) int {
	found := -1
	for i, f := range s.Fields {
		if f.Name == name {
			return i
		}
		if strings.EqualFold(f.Name, name) {
			if found >= 0 {
				found = -2
			} else if found == -1 {
				found = i
			}
		}
	}
	return max(found, -1)
}

// Names lists the field names in order.
func (s *Struct) Names() []string {
	out := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		out[i] = f.Name
	}
	return out
}

// Select returns the struct of the named fields in the given order.
func (s *Struct) Select(names []string) (*Struct, error) {
	out := &Struct{Fields: make([]Field, 0, len(names))}
	for _, n := range names {
		i := s.Index(n)
		if i < 0 {
			return nil, fmt.Errorf("column %q: not in schema (%s)", n, strings.Join(s.Names(), ", "))
		}
		out.Fields = append(out.Fields, s.Fields[i])
	}
	return out, nil
}

var ddlNames = map[Primitive]string{
	String: "STRING", Long: "BIGINT", Integer: "INT", Short: "SMALLINT", Byte: "TINYINT",
	Float: "FLOAT", Double: "DOUBLE", Boolean: "BOOLEAN", Binary: "BINARY", Date: "DATE",
	Timestamp: "TIMESTAMP", TimestampNTZ: "TIMESTAMP_NTZ", Void: "VOID", Variant: "VARIANT",
}

func (p Primitive) String() string { return ddlNames[p] }
func (d Decimal) String() string   { return fmt.Sprintf("DECIMAL(%d,%d)", d.Precision, d.Scale) }
func (a *Array) String() string    { return "ARRAY<" + a.Elem.String() + ">" }
func (m *Map) String() string      { return "MAP<" + m.Key.String() + ", " + m.Value.String() + ">" }
func (u Unknown) String() string   { return u.Raw }

func (s *Struct) String() string {
	var b strings.Builder
	b.WriteString("STRUCT<")
	for i, f := range s.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(QuoteName(f.Name))
		b.WriteString(": ")
		b.WriteString(f.Type.String())
		if !f.Nullable {
			b.WriteString(" NOT NULL")
		}
	}
	b.WriteString(">")
	return b.String()
}

// QuoteName writes an identifier for DDL, in backticks where it needs them.
func QuoteName(name string) string {
	plain := name != ""
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			plain = false
		}
	}
	if plain {
		return name
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// Equal compares two types, field names and nullability included, metadata excluded.
func Equal(a, b Type) bool { return equal(a, b, true) }

// EqualIgnoringNullability compares types and field names only.
func EqualIgnoringNullability(a, b Type) bool { return equal(a, b, false) }

func equal(a, b Type, nulls bool) bool {
	switch a := a.(type) {
	case *Struct:
		b, ok := b.(*Struct)
		if !ok || len(a.Fields) != len(b.Fields) {
			return false
		}
		for i, f := range a.Fields {
			g := b.Fields[i]
			if f.Name != g.Name || nulls && f.Nullable != g.Nullable || !equal(f.Type, g.Type, nulls) {
				return false
			}
		}
		return true
	case *Array:
		b, ok := b.(*Array)
		return ok && (!nulls || a.ContainsNull == b.ContainsNull) && equal(a.Elem, b.Elem, nulls)
	case *Map:
		b, ok := b.(*Map)
		return ok && (!nulls || a.ValueContainsNull == b.ValueContainsNull) &&
			equal(a.Key, b.Key, nulls) && equal(a.Value, b.Value, nulls)
	default:
		return a == b
	}
}
