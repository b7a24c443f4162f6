package wire

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// column gathers the values of one column. It has a plan, or infers one: until
// the first value that is not null is known, cells wait as text.
type column struct {
	name  string
	node  *Node  // nil while nothing is known
	shape *Shape // not nil for an inferred column; its type only widens
	b     array.Builder

	text  []byte // waiting cells' bytes
	cells []waiting

	unauthored, unavailable event.Bits
}

// waiting is a cell of a column without a type: text[off:end].
type waiting struct {
	kind     Kind
	esc      bool
	off, end int
}

func (c *column) wait(t Token) {
	off := len(c.text)
	c.text = append(c.text, t.Raw...)
	c.cells = append(c.cells, waiting{t.Kind, t.Esc, off, len(c.text)})
}

func newBuilder(t schema.Type) (array.Builder, error) {
	at, err := schema.ArrowType(t)
	if err != nil {
		return nil, err
	}
	return array.NewBuilder(memory.DefaultAllocator, at), nil
}

// field is the column as it will be in the batch.
func (c *column) field() schema.Field {
	t := schema.Type(schema.Void)
	if c.node != nil {
		t = c.node.Type
	}
	return schema.Field{Name: c.name, Type: t, Nullable: true}
}

// finish hands over the column's values and clears it; an inferred column takes
// its type from what waited.
func (c *column) finish(rows int, modes Modes, s *scratch) (arrow.Array, error) {
	defer func() { c.cells, c.text, c.unauthored, c.unavailable = c.cells[:0], c.text[:0], nil, nil }()
	if c.node == nil {
		t := c.shape.Type()
		if t == nil {
			return array.NewNull(rows), nil
		}
		c.node = NewNode(t, modes)
		var err error
		if c.b, err = newBuilder(t); err != nil {
			return nil, err
		}
		c.b.Reserve(rows)
		for _, w := range c.cells {
			tok := Token{Kind: w.kind, Esc: w.esc, Raw: c.text[w.off:w.end]}
			if !c.node.add(c.b, tok, s) {
				c.b.AppendNull() // cannot be: the shape has seen the value
			}
		}
	}
	return c.b.NewArray(), nil
}

// add appends a token to a builder of the node's type; None and Null append
// null. It returns false, with nothing appended, if the plan cannot read it.
func (n *Node) add(b array.Builder, t Token, s *scratch) bool {
	if t.Kind <= Null {
		b.AppendNull()
		return true
	}
	if n.nested() {
		if !n.check(t, s) {
			return false
		}
		n.addNested(b, t, s)
		return true
	}
	v, ok := n.convert(t, s)
	if !ok {
		return false
	}
	n.put(b, v)
	return true
}

func (n *Node) put(b array.Builder, v scalar) {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.BinaryBuilder.Append(v.b)
	case *array.Int64Builder:
		b.Append(v.i)
	case *array.Int32Builder:
		b.Append(int32(v.i))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.i))
	case *array.Decimal128Builder:
		b.Append(v.d)
	case *array.BooleanBuilder:
		b.Append(v.i != 0)
	case *array.Float64Builder:
		b.Append(v.f)
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.i))
	case *array.Float32Builder:
		b.Append(float32(v.f))
	case *array.Int16Builder:
		b.Append(int16(v.i))
	case *array.Int8Builder:
		b.Append(int8(v.i))
	case *array.BinaryBuilder:
		b.Append(v.b)
	default:
		b.AppendNull()
	}
}

// addNested appends a checked container.
func (n *Node) addNested(b array.Builder, t Token, s *scratch) {
	kid := func(k *Node, b array.Builder, t Token) {
		if !k.add(b, t, s) {
			b.AppendNull()
		}
	}
	switch b := b.(type) {
	case *array.StructBuilder:
		b.Append(true)
		vals := make([]Token, len(n.Kids))
		Members(t, func(k, v Token) bool {
			if i := n.kid(k); i >= 0 {
				vals[i] = v
			}
			return true
		})
		for i, v := range vals {
			kid(n.Kids[i], b.FieldBuilder(i), v)
		}
	case *array.ListBuilder:
		b.Append(true)
		Elements(t, func(v Token) bool { kid(n.Kids[0], b.ValueBuilder(), v); return true })
	case *array.MapBuilder:
		b.Append(true)
		n.pairs(t, func(k, v Token) bool {
			kid(n.Kids[0], b.KeyBuilder(), k)
			kid(n.Kids[1], b.ItemBuilder(), v)
			return true
		})
	}
}

// PoisonError is why a record cannot become a row.
type PoisonError struct {
	Class  event.Class
	Code   string
	Reason string
}

func (e *PoisonError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Reason) }

// Poison builds a PoisonError.
func Poison(class event.Class, code, format string, args ...any) error {
	return &PoisonError{Class: class, Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Fits tells whether Append can read the token.
func (n *Node) Fits(t Token) bool {
	var s scratch
	return t.Kind <= Null || n.check(t, &s)
}

// Micros reads a token of a timestamp plan as microseconds since 1970; false if
// the plan cannot read it.
func (n *Node) Micros(t Token) (int64, bool) {
	var s scratch
	if t.Kind <= Null {
		return 0, false
	}
	v, ok := n.convert(t, &s)
	return v.i, ok
}

// Append reads a token into a builder of the node's type; false, with nothing
// appended, if the plan cannot read it.
func (n *Node) Append(b array.Builder, t Token) bool {
	var s scratch
	return n.add(b, t, &s)
}
