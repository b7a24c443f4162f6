package avro

import (
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/source/wire"
	"github.com/sluice-data/sluice/log/schema"
)

// Columns gathers records of a schema into Arrow columns of Delta's types. It is
// used from one goroutine.
type Columns struct {
	schema *Schema
	arrow  *arrow.Schema
	nodes  []*wire.Node
	b      []array.Builder
	rows   int
	text   []byte
	bounds []int
	toks   []wire.Token
}

// NewColumns makes the columns of a record's fields; an error names the field that
// has no Delta type.
func NewColumns(s *Schema) (*Columns, error) {
	if s.Type != "record" {
		return nil, fmt.Errorf("the values are of type %s, not records: they have no columns", s.Type)
	}
	c := &Columns{schema: s}
	st := &schema.Struct{}
	for _, f := range s.Fields {
		n, err := columnNode(f.Schema, 0)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		c.nodes = append(c.nodes, n)
		st.Fields = append(st.Fields, schema.Field{Name: f.Name, Type: n.Type, Nullable: true})
	}
	var err error
	if c.arrow, err = schema.ArrowSchema(st); err != nil {
		return nil, err
	}
	for _, f := range c.arrow.Fields() {
		c.b = append(c.b, array.NewBuilder(memory.DefaultAllocator, f.Type))
	}
	return c, nil
}

// Add takes the record that body begins with and returns the bytes behind it. A
// value that its column cannot hold is told by bad, a code and a reason, and the
// record is left out.
func (c *Columns) Add(body []byte) (rest []byte, bad string, err error) {
	r := &reader{b: body, items: 1000 + 16*len(body), natural: true}
	c.text, c.bounds = c.text[:0], c.bounds[:0]
	for _, f := range c.schema.Fields {
		if c.text, err = r.append(c.text, f.Schema, 1); err != nil {
			return nil, "", fmt.Errorf("field %s: %w", f.Name, err)
		}
		c.bounds = append(c.bounds, len(c.text))
	}
	if !utf8.Valid(c.text) {
		return r.b, "INVALID_UTF8: a text of the record is not UTF-8", nil
	}
	from := 0
	c.toks = c.toks[:0]
	for i, n := range c.nodes {
		tok, _, err := wire.Value(c.text[from:c.bounds[i]], 0)
		if err != nil {
			return nil, "", fmt.Errorf("field %s: %w", c.schema.Fields[i].Name, err)
		}
		if !n.Fits(tok) {
			return r.b, fmt.Sprintf("FIELD_TYPE: field %s: cannot read %.100s as %s", c.schema.Fields[i].Name, tok.Raw, n.Type), nil
		}
		c.toks, from = append(c.toks, tok), c.bounds[i]
	}
	for i, n := range c.nodes {
		n.Append(c.b[i], c.toks[i])
	}
	c.rows++
	return r.b, "", nil
}

// Rows is how many records wait.
func (c *Columns) Rows() int { return c.rows }

// Take hands the rows over; the caller releases them.
func (c *Columns) Take() arrow.RecordBatch {
	arrays := make([]arrow.Array, len(c.b))
	for i, b := range c.b {
		arrays[i] = b.NewArray()
		defer arrays[i].Release()
	}
	out := array.NewRecordBatch(c.arrow, arrays, int64(c.rows))
	c.rows = 0
	return out
}

// columnNode is the plan that reads what reader prints of a schema with natural on.
func columnNode(s *Schema, depth int) (*wire.Node, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("a type that holds itself has no column type")
	}
	if s.Type == "union" {
		inner, ok := nullable(s)
		if !ok {
			return nil, fmt.Errorf("a union of several types has no column type")
		}
		return columnNode(inner, depth+1)
	}
	plain := func(t schema.Type) (*wire.Node, error) {
		return wire.NewNode(t, wire.Modes{Decimal: wire.DecimalText}), nil
	}
	clock := func(u wire.Unit) (*wire.Node, error) {
		return &wire.Node{Type: schema.String, Form: wire.Clock, Unit: u}, nil
	}
	switch s.Connect {
	case "io.debezium.time.Date", "org.apache.kafka.connect.data.Date":
		return plain(schema.Date)
	case "io.debezium.time.Time", "org.apache.kafka.connect.data.Time":
		return clock(wire.Millis)
	case "io.debezium.time.MicroTime":
		return clock(wire.Micros)
	case "io.debezium.time.NanoTime":
		return clock(wire.Nanos)
	case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp", "io.debezium.time.MicroTimestamp":
		return plain(schema.TimestampNTZ)
	case "io.debezium.time.NanoTimestamp":
		return wire.NewNode(schema.TimestampNTZ, wire.Modes{Unit: wire.Nanos}), nil
	case "io.debezium.time.ZonedTimestamp":
		return plain(schema.Timestamp)
	}
	switch s.Logical {
	case "date":
		return plain(schema.Date)
	case "time-millis":
		return clock(wire.Millis)
	case "time-micros":
		return clock(wire.Micros)
	case "timestamp-millis", "timestamp-micros", "timestamp-nanos":
		return plain(schema.Timestamp)
	case "local-timestamp-millis", "local-timestamp-micros":
		return plain(schema.TimestampNTZ)
	case "local-timestamp-nanos":
		return wire.NewNode(schema.TimestampNTZ, wire.Modes{Unit: wire.Nanos}), nil
	case "decimal":
		if s.Precision > 0 && s.Precision <= 38 && s.Scale >= 0 && s.Scale <= s.Precision {
			return plain(schema.Decimal{Precision: s.Precision, Scale: s.Scale})
		}
		return plain(schema.String)
	}
	switch s.Type {
	case "null", "string", "enum":
		return plain(schema.String)
	case "boolean":
		return plain(schema.Boolean)
	case "int":
		switch s.ConnectType {
		case "int8":
			return plain(schema.Byte)
		case "int16":
			return plain(schema.Short)
		}
		return plain(schema.Integer)
	case "long":
		return plain(schema.Long)
	case "float":
		return plain(schema.Float)
	case "double":
		return plain(schema.Double)
	case "bytes", "fixed":
		return plain(schema.Binary)
	case "array", "map":
		e, err := columnNode(s.Items, depth+1)
		if err != nil {
			return nil, err
		}
		if s.Type == "array" {
			return &wire.Node{Type: &schema.Array{Elem: e.Type, ContainsNull: true}, Kids: []*wire.Node{e}}, nil
		}
		return &wire.Node{Type: &schema.Map{Key: schema.String, Value: e.Type, ValueContainsNull: true}, Kids: []*wire.Node{{Type: schema.String}, e}}, nil
	case "record":
		st, n := &schema.Struct{}, &wire.Node{}
		for _, f := range s.Fields {
			kid, err := columnNode(f.Schema, depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			st.Fields = append(st.Fields, schema.Field{Name: f.Name, Type: kid.Type, Nullable: true})
			n.Names, n.Kids = append(n.Names, f.Name), append(n.Kids, kid)
		}
		n.Type = st
		return n, nil
	}
	return nil, fmt.Errorf("type %s has no column type", s.Type)
}
