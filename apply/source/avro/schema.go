package avro

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schema is a parsed Avro schema with the names that Kafka Connect adds to it.
type Schema struct {
	// Type is a primitive, record, enum, array, map, fixed, or union.
	Type string
	// Name of a record, enum or fixed, with its namespace.
	Name string
	// Logical is the logicalType; Connect the connect.name, which says more.
	Logical, Connect string
	// ConnectType is connect.type: int8 or int16.
	ConnectType string
	// Parameters are connect.parameters.
	Parameters map[string]string
	Precision  int
	Scale      int
	Size       int // of a fixed
	Symbols    []string
	Fields     []Field
	Items      *Schema // of an array; of a map its values
	Branches   []*Schema
}

// Field is a field of a record.
type Field struct {
	Name       string
	Schema     *Schema
	HasDefault bool // other than null
}

// maxSchemaDepth bounds nesting: deeper schemas are refused.
const maxSchemaDepth = 64

// ParseSchema reads a schema document.
func ParseSchema(text []byte) (*Schema, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("read avro schema: %w", err)
	}
	p := parser{names: map[string]*Schema{}}
	s, err := p.schema(v, "", 0)
	if err != nil {
		return nil, fmt.Errorf("read avro schema: %w", err)
	}
	return s, nil
}

// parser knows the named types of one document.
type parser struct{ names map[string]*Schema }

func (p *parser) schema(v any, space string, depth int) (*Schema, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("nested too deep")
	}
	switch v := v.(type) {
	case string:
		return p.named(v, space)
	case []any:
		s := &Schema{Type: "union"}
		for _, b := range v {
			branch, err := p.schema(b, space, depth+1)
			if err != nil {
				return nil, err
			}
			s.Branches = append(s.Branches, branch)
		}
		if len(s.Branches) == 0 {
			return nil, fmt.Errorf("a union without branches")
		}
		return s, nil
	case map[string]any:
		return p.object(v, space, depth)
	}
	return nil, fmt.Errorf("a schema is text, a list or an object, not %T", v)
}

func (p *parser) named(name, space string) (*Schema, error) {
	switch name {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return &Schema{Type: name}, nil
	}
	full := name
	if !strings.Contains(name, ".") && space != "" {
		full = space + "." + name
	}
	for _, n := range []string{full, name} {
		if s := p.names[n]; s != nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("type %q is not defined before its use", name)
}

func (p *parser) object(m map[string]any, space string, depth int) (*Schema, error) {
	typ, ok := m["type"].(string)
	if !ok {
		inner, err := p.schema(m["type"], space, depth+1)
		if err != nil {
			return nil, err
		}
		c := *inner
		c.attributes(m)
		return &c, nil
	}
	s := &Schema{Type: typ}
	s.attributes(m)
	switch typ {
	case "record", "error", "enum", "fixed":
		s.Name, space = fullName(m, space)
		p.names[s.Name] = s
	}
	var err error
	switch typ {
	case "record", "error":
		s.Type = "record"
		return s, p.fields(s, m["fields"], space, depth)
	case "enum":
		for _, sym := range list(m["symbols"]) {
			text, ok := sym.(string)
			if !ok {
				return nil, fmt.Errorf("a symbol of enum %s is no text", s.Name)
			}
			s.Symbols = append(s.Symbols, text)
		}
		return s, nil
	case "fixed":
		size, ok := m["size"].(float64)
		if !ok || size < 0 || size > 1<<20 || size != float64(int(size)) {
			return nil, fmt.Errorf("fixed %s has no usable size", s.Name)
		}
		s.Size = int(size)
		return s, nil
	case "array":
		s.Items, err = p.schema(m["items"], space, depth+1)
		return s, err
	case "map":
		s.Items, err = p.schema(m["values"], space, depth+1)
		return s, err
	}
	base, err := p.named(typ, space)
	if err != nil {
		return nil, err
	}
	c := *base
	c.attributes(m)
	return &c, nil
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// fullName is name and namespace of a named type.
func fullName(m map[string]any, space string) (name, inside string) {
	name, _ = m["name"].(string)
	if ns, ok := m["namespace"].(string); ok {
		space = ns
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name, name[:i]
	}
	if space == "" {
		return name, ""
	}
	return space + "." + name, space
}

func (p *parser) fields(s *Schema, v any, space string, depth int) error {
	for _, f := range list(v) {
		m, ok := f.(map[string]any)
		if !ok {
			return fmt.Errorf("a field of record %s is no object", s.Name)
		}
		name, _ := m["name"].(string)
		if name == "" {
			return fmt.Errorf("a field of record %s has no name", s.Name)
		}
		typ, err := p.schema(m["type"], space, depth+1)
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		// Every nullable field has the default null, which says nothing.
		s.Fields = append(s.Fields, Field{Name: name, Schema: typ, HasDefault: m["default"] != nil})
	}
	return nil
}

// attributes takes logical type and the names of Kafka Connect.
func (s *Schema) attributes(m map[string]any) {
	text := func(name string, into *string) {
		if v, ok := m[name].(string); ok {
			*into = v
		}
	}
	text("logicalType", &s.Logical)
	text("connect.name", &s.Connect)
	text("connect.type", &s.ConnectType)
	if v, ok := m["precision"].(float64); ok {
		s.Precision = int(v)
	}
	if v, ok := m["scale"].(float64); ok {
		s.Scale = int(v)
	}
	if params, ok := m["connect.parameters"].(map[string]any); ok {
		s.Parameters = map[string]string{}
		for k, v := range params {
			if t, ok := v.(string); ok {
				s.Parameters[k] = t
			}
		}
	}
}

// field is the field of that name; nil if there is none.
func (s *Schema) field(name string) *Schema {
	for _, f := range s.Fields {
		if f.Name == name {
			return f.Schema
		}
	}
	return nil
}
