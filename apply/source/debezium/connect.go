package debezium

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// connectSchema is a Kafka Connect schema as the JSON converter embeds it.
type connectSchema struct {
	Type       string            `json:"type"`
	Optional   bool              `json:"optional"`
	Name       string            `json:"name"`
	Field      string            `json:"field"`
	Fields     []*connectSchema  `json:"fields"`
	Items      *connectSchema    `json:"items"`
	Keys       *connectSchema    `json:"keys"`
	Values     *connectSchema    `json:"values"`
	Parameters map[string]string `json:"parameters"`
	Default    json.RawMessage   `json:"default"`
}

// rowPlan is the columns of a table as a Connect schema gives them.
type rowPlan struct {
	names    []string
	nodes    []*wire.Node
	defaults []string // optional columns with a default
}

func parseConnect(raw []byte) (*connectSchema, error) {
	var s connectSchema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read embedded schema: %w", err)
	}
	return &s, nil
}

// row finds the schema of the row: the after or before field of an envelope, or
// the struct itself for flattened rows. nil if there is none.
func (s *connectSchema) row(flat bool) *connectSchema {
	if s == nil || s.Type != "struct" {
		return nil
	}
	if flat {
		return s
	}
	var found *connectSchema
	for _, f := range s.Fields {
		if (f.Field == "after" || found == nil && f.Field == "before") && f.Type == "struct" {
			found = f
		}
	}
	return found
}

// plan turns a row's schema into column plans, refined by the user's hints;
// skip names fields that are no columns.
func (o *Options) plan(s *connectSchema, skip func(string) bool) (*rowPlan, error) {
	p := &rowPlan{}
	for _, f := range s.Fields {
		if skip != nil && skip(f.Field) {
			continue
		}
		n, err := o.node(f, 0)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Field, err)
		}
		if hint, ok := o.hint(f.Field); ok {
			n = o.refine(n, f.Field, hint)
		}
		p.names = append(p.names, f.Field)
		p.nodes = append(p.nodes, n)
		if f.Optional && len(f.Default) > 0 && string(f.Default) != "null" {
			p.defaults = append(p.defaults, f.Field)
		}
	}
	return p, nil
}

// node maps one Connect schema to a plan (cdc-formats 2.2).
func (o *Options) node(s *connectSchema, depth int) (*wire.Node, error) {
	if depth > 64 {
		return nil, fmt.Errorf("schema nested too deep")
	}
	if n := logical(s); n != nil {
		return n, nil
	}
	prim := func(t schema.Type) (*wire.Node, error) { return &wire.Node{Type: t}, nil }
	switch s.Type {
	case "int8":
		return prim(schema.Byte)
	case "int16":
		return prim(schema.Short)
	case "int32":
		return prim(schema.Integer)
	case "int64":
		return prim(schema.Long)
	case "float", "float32":
		return prim(schema.Float)
	case "double", "float64":
		return prim(schema.Double)
	case "boolean":
		return prim(schema.Boolean)
	case "string":
		return prim(schema.String)
	case "bytes":
		return prim(schema.Binary)
	case "array":
		if s.Items == nil {
			return nil, fmt.Errorf("array without items")
		}
		e, err := o.node(s.Items, depth+1)
		if err != nil {
			return nil, err
		}
		return &wire.Node{Type: &schema.Array{Elem: e.Type, ContainsNull: true}, Kids: []*wire.Node{e}}, nil
	case "map":
		if s.Keys == nil || s.Values == nil {
			return nil, fmt.Errorf("map without keys or values")
		}
		k, err := o.node(s.Keys, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := o.node(s.Values, depth+1)
		if err != nil {
			return nil, err
		}
		return &wire.Node{Type: &schema.Map{Key: k.Type, Value: v.Type, ValueContainsNull: true}, Kids: []*wire.Node{k, v}}, nil
	case "struct":
		st, n := &schema.Struct{}, &wire.Node{}
		for _, f := range s.Fields {
			kid, err := o.node(f, depth+1)
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", f.Field, err)
			}
			st.Fields = append(st.Fields, schema.Field{Name: f.Field, Type: kid.Type, Nullable: true})
			n.Names, n.Kids = append(n.Names, f.Field), append(n.Kids, kid)
		}
		n.Type = st
		return n, nil
	}
	return nil, fmt.Errorf("unknown schema type %q", s.Type)
}

// logical is the plan of a named type; nil if the name says nothing.
func logical(s *connectSchema) *wire.Node {
	ts := func(u wire.Unit) *wire.Node { return &wire.Node{Type: schema.TimestampNTZ, Unit: u} }
	clock := func(u wire.Unit) *wire.Node { return &wire.Node{Type: schema.String, Form: wire.Clock, Unit: u} }
	switch s.Name {
	case "org.apache.kafka.connect.data.Decimal":
		return decimalNode(s)
	case "io.debezium.data.VariableScaleDecimal":
		return &wire.Node{Type: schema.String, Form: wire.Variable}
	case "io.debezium.time.Date", "org.apache.kafka.connect.data.Date", "io.debezium.time.IsoDate":
		return &wire.Node{Type: schema.Date}
	case "io.debezium.time.Time", "org.apache.kafka.connect.data.Time":
		return clock(wire.Millis)
	case "io.debezium.time.MicroTime", "io.debezium.time.IsoTime":
		return clock(wire.Micros)
	case "io.debezium.time.NanoTime":
		return clock(wire.Nanos)
	case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp":
		return ts(wire.Millis)
	case "io.debezium.time.MicroTimestamp", "io.debezium.time.IsoTimestamp":
		return ts(wire.Micros)
	case "io.debezium.time.NanoTimestamp":
		return ts(wire.Nanos)
	case "io.debezium.time.ZonedTimestamp":
		return &wire.Node{Type: schema.Timestamp}
	case "io.debezium.time.StructuredDate":
		return &wire.Node{Type: schema.Date, Form: wire.Structured}
	case "io.debezium.time.StructuredTime":
		return &wire.Node{Type: schema.String, Form: wire.Structured}
	case "io.debezium.time.StructuredTimestamp":
		return &wire.Node{Type: schema.TimestampNTZ, Form: wire.Structured}
	case "io.debezium.time.StructuredZonedTimestamp":
		return &wire.Node{Type: schema.Timestamp, Form: wire.Structured}
	case "io.debezium.data.Bits":
		length, _ := strconv.Atoi(s.Parameters["length"])
		return &wire.Node{Type: schema.String, Form: wire.Bits, Scale: length}
	case "io.debezium.data.geometry.Geometry", "io.debezium.data.geometry.Geography", "io.debezium.data.geometry.Point",
		"io.debezium.data.geometry.Circle", "io.debezium.data.geometry.Line":
		return geometryNode()
	}
	return nil
}

// geometryNode is STRUCT<srid: INT, wkb: BINARY>; the x and y of points are in the wkb.
func geometryNode() *wire.Node {
	return &wire.Node{
		Type: &schema.Struct{Fields: []schema.Field{
			{Name: "srid", Type: schema.Integer, Nullable: true}, {Name: "wkb", Type: schema.Binary, Nullable: true},
		}},
		Names: []string{"srid", "wkb"},
		Kids:  []*wire.Node{{Type: schema.Integer}, {Type: schema.Binary}},
	}
}

// decimalNode reads scale and precision; a precision over 38 is STRING, a
// missing one 38; a negative scale makes whole numbers.
func decimalNode(s *connectSchema) *wire.Node {
	scale, err := strconv.Atoi(s.Parameters["scale"])
	if err != nil || scale > 20000 || scale < -20000 {
		return nil
	}
	declared := wire.DeclaredScale(scale)
	precision := 38
	if p, err := strconv.Atoi(s.Parameters["connect.decimal.precision"]); err == nil && p > 0 {
		precision = p
	}
	t := schema.Decimal{Precision: precision, Scale: declared}
	if declared < 0 {
		t = schema.Decimal{Precision: min(precision-declared, 38), Scale: 0}
	}
	t.Precision = max(t.Precision, t.Scale)
	if t.Precision > 38 {
		return &wire.Node{Type: schema.String, Form: wire.BigDecimal, Scale: scale}
	}
	return &wire.Node{Type: t, Scale: scale}
}

// hint is the type that the user gave for a column.
func (o *Options) hint(column string) (schema.Type, bool) {
	if o.Schema == nil {
		return nil, false
	}
	i := o.Schema.Index(column)
	if i < 0 {
		return nil, false
	}
	return o.Schema.Fields[i].Type, true
}

// bare is the plan of a column that only the user's hint types.
func (o *Options) bare(column string, t schema.Type) *wire.Node {
	n := wire.NewNode(t, o.modes(column))
	if _, ok := t.(schema.Decimal); ok && n.Decimal == wire.DecimalBytes {
		n.Form = wire.Variable // which reads bare values, too
	}
	return n
}

// refine applies a hint where the schema leaves the meaning open: text that is a
// decimal, date, time or bytes; unlimited decimals; integers that want room.
// A hint that contradicts the schema is not followed.
func (o *Options) refine(n *wire.Node, column string, hint schema.Type) *wire.Node {
	if schema.EqualIgnoringNullability(n.Type, hint) {
		return n
	}
	_, toDecimal := hint.(schema.Decimal)
	switch {
	case n.Form == wire.Variable || n.Form == wire.BigDecimal:
		if toDecimal {
			m := *n
			m.Type = hint
			if m.Form == wire.BigDecimal {
				m.Form = wire.Plain
			}
			return &m
		}
	case n.Form != wire.Plain:
	case n.Type == schema.String:
		m := o.modes(column)
		m.Decimal = wire.DecimalText
		return wire.NewNode(hint, m)
	case n.Type == schema.Long && hint == schema.Type(schema.Decimal{Precision: 20}):
		return &wire.Node{Type: hint, Form: wire.Unsigned64}
	case rank(n.Type) > 0 && rank(hint) > rank(n.Type), n.Type == schema.Float && hint == schema.Double:
		m := *n
		m.Type = hint
		return &m
	}
	return n
}

// rank orders the integer types by width; 0 for others.
func rank(t schema.Type) int {
	switch t {
	case schema.Byte:
		return 1
	case schema.Short:
		return 2
	case schema.Integer:
		return 3
	case schema.Long:
		return 4
	}
	return 0
}
