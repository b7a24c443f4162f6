package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MaxDepth bounds how deeply types may nest in any text this package parses.
const MaxDepth = 200

// FormatError reports text that is not a schema: the JSON of a log or the DDL of a user.
type FormatError struct {
	// Path is the column the fault is in (dot-separated), or "" for the whole.
	Path string
	// Reason says what is wrong.
	Reason string
}

func (e *FormatError) Error() string {
	if e.Path == "" {
		return "schema: " + e.Reason
	}
	return fmt.Sprintf("schema: column %s: %s", e.Path, e.Reason)
}

// ParseJSON reads the schemaString of a table's metadata ("Schema Serialization
// Format" of the protocol). Unknown type names are kept as [Unknown] (R-402),
// field metadata verbatim. The error is a *[FormatError].
func ParseJSON(data []byte) (*Struct, error) {
	t, err := parseJSONType(data, "", 0)
	if err != nil {
		return nil, err
	}
	s, ok := t.(*Struct)
	if !ok {
		return nil, &FormatError{Reason: fmt.Sprintf("a table's schema must be a struct, not %s", t)}
	}
	return s, nil
}

type jsonType struct {
	Type              *string         `json:"type"`
	Fields            []jsonField     `json:"fields"`
	ElementType       json.RawMessage `json:"elementType"`
	ContainsNull      *bool           `json:"containsNull"`
	KeyType           json.RawMessage `json:"keyType"`
	ValueType         json.RawMessage `json:"valueType"`
	ValueContainsNull *bool           `json:"valueContainsNull"`
}

type jsonField struct {
	Name     *string         `json:"name"`
	Type     json.RawMessage `json:"type"`
	Nullable *bool           `json:"nullable"`
	Metadata json.RawMessage `json:"metadata"`
}

// maxPath bounds the dotted names from the top to a column: everything about a column
// is kept by them, and one long name above many columns is a small text.
const maxPath = 16 << 10

func parseJSONType(data []byte, path string, depth int) (Type, error) {
	if len(path) > maxPath {
		return nil, &FormatError{path[:100] + "...", fmt.Sprintf("its name and those above it have more than %d bytes", maxPath)}
	}
	if depth > MaxDepth {
		return nil, &FormatError{path, fmt.Sprintf("types nest deeper than %d", MaxDepth)}
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil, &FormatError{path, "type is missing"}
	}
	if data[0] == '"' {
		var name string
		if err := json.Unmarshal(data, &name); err != nil {
			return nil, &FormatError{path, "type name: " + err.Error()}
		}
		return parseTypeName(name, path)
	}
	if data[0] != '{' {
		return nil, &FormatError{path, "a type must be a name or an object"}
	}
	var j jsonType
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, &FormatError{path, err.Error()}
	}
	if j.Type == nil {
		return nil, &FormatError{path, `a nested type needs "type"`}
	}
	orTrue := func(b *bool) bool { return b == nil || *b }
	switch *j.Type {
	case "struct":
		s := &Struct{Fields: make([]Field, len(j.Fields))}
		for i, f := range j.Fields {
			field, err := f.field(path, depth)
			if err != nil {
				return nil, err
			}
			s.Fields[i] = field
		}
		return s, nil
	case "array":
		elem, err := parseJSONType(j.ElementType, join(path, "element"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Array{Elem: elem, ContainsNull: orTrue(j.ContainsNull)}, nil
	case "map":
		k, err := parseJSONType(j.KeyType, join(path, "key"), depth+1)
		if err != nil {
			return nil, err
		}
		v, err := parseJSONType(j.ValueType, join(path, "value"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Map{Key: k, Value: v, ValueContainsNull: orTrue(j.ValueContainsNull)}, nil
	}
	return Unknown{Raw: string(data)}, nil
}

func (f jsonField) field(path string, depth int) (Field, error) {
	if f.Name == nil {
		return Field{}, &FormatError{path, `a field needs "name"`}
	}
	path = join(path, *f.Name)
	t, err := parseJSONType(f.Type, path, depth+1)
	if err != nil {
		return Field{}, err
	}
	md, err := parseMetadata(f.Metadata)
	if err != nil {
		return Field{}, &FormatError{path, "metadata: " + err.Error()}
	}
	return Field{Name: *f.Name, Type: t, Nullable: f.Nullable == nil || *f.Nullable, Metadata: md}, nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func parseMetadata(data []byte) (Metadata, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if tok != json.Delim('{') {
		return nil, fmt.Errorf("not an object")
	}
	var md Metadata
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		md = append(md, MetadataEntry{Key: tok.(string), Value: raw})
	}
	return md, nil
}

var decimalName = regexp.MustCompile(`^decimal\(\s*(\d{1,4})\s*,\s*(-?\d{1,4})\s*\)$`)

func parseTypeName(name, path string) (Type, error) {
	switch name {
	case "null":
		return Void, nil
	case "decimal":
		return Decimal{10, 0}, nil
	}
	if _, ok := ddlNames[Primitive(name)]; ok {
		return Primitive(name), nil
	}
	if m := decimalName.FindStringSubmatch(name); m != nil {
		p, _ := strconv.Atoi(m[1])
		s, _ := strconv.Atoi(m[2])
		d := Decimal{p, s}
		if !d.valid() {
			return nil, &FormatError{path, fmt.Sprintf("%s: precision must be 1 to 38 and scale 0 to precision", name)}
		}
		return d, nil
	}
	if strings.HasPrefix(name, "{") {
		// An unknown type that begins so is written as the object that it was.
		return nil, &FormatError{path, fmt.Sprintf("%.100q is no type name", name)}
	}
	return Unknown{Raw: name}, nil
}

func (d Decimal) valid() bool {
	return d.Precision >= 1 && d.Precision <= 38 && d.Scale >= 0 && d.Scale <= d.Precision
}

// JSON is the schemaString form of s, compact, fields and metadata keys in order.
func (s *Struct) JSON() string {
	var b strings.Builder
	writeJSONType(&b, s)
	return b.String()
}

// TypeJSON is the JSON form of one type: a quoted name, or an object.
func TypeJSON(t Type) string {
	var b strings.Builder
	writeJSONType(&b, t)
	return b.String()
}

func writeJSONType(b *strings.Builder, t Type) {
	switch t := t.(type) {
	case Decimal:
		fmt.Fprintf(b, `"decimal(%d,%d)"`, t.Precision, t.Scale)
	case *Struct:
		b.WriteString(`{"type":"struct","fields":[`)
		for i, f := range t.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`{"name":`)
			writeJSONString(b, f.Name)
			b.WriteString(`,"type":`)
			writeJSONType(b, f.Type)
			fmt.Fprintf(b, `,"nullable":%t,"metadata":{`, f.Nullable)
			for j, e := range f.Metadata {
				if j > 0 {
					b.WriteByte(',')
				}
				writeJSONString(b, e.Key)
				b.WriteByte(':')
				b.Write(e.Value)
			}
			b.WriteString(`}}`)
		}
		b.WriteString(`]}`)
	case *Array:
		b.WriteString(`{"type":"array","elementType":`)
		writeJSONType(b, t.Elem)
		fmt.Fprintf(b, `,"containsNull":%t}`, t.ContainsNull)
	case *Map:
		b.WriteString(`{"type":"map","keyType":`)
		writeJSONType(b, t.Key)
		b.WriteString(`,"valueType":`)
		writeJSONType(b, t.Value)
		fmt.Fprintf(b, `,"valueContainsNull":%t}`, t.ValueContainsNull)
	case Unknown:
		if strings.HasPrefix(t.Raw, "{") {
			b.WriteString(t.Raw)
			return
		}
		writeJSONString(b, t.Raw)
	case Primitive:
		writeJSONString(b, string(t))
	}
}

// writeJSONString quotes s without HTML escaping (W-103).
func writeJSONString(b *strings.Builder, s string) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	// Encoding a string cannot fail.
	_ = enc.Encode(s)
	b.Write(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}
