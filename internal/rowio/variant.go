package rowio

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/variant"
	"github.com/sluice-data/sluice/log/schema"
)

// variantText is the JSON text of a variant that is not SQL's null; the variant null
// is the text null.
func variantText(arr arrow.Array, i int) ([]byte, error) {
	s, ok := arr.(*array.Struct)
	if !ok || s.NumField() != 2 {
		return nil, unexpected(schema.Variant, arr)
	}
	m, ok1 := s.Field(0).(*array.Binary)
	v, ok2 := s.Field(1).(*array.Binary)
	if !ok1 || !ok2 {
		return nil, unexpected(schema.Variant, arr)
	}
	return variant.AppendJSON(nil, m.Value(i), v.Value(i))
}

// variantColumn takes JSON text: in JSON lines a string holds the text, as it is
// printed; any other JSON value stands for itself.
func (c *column) variantColumn() error {
	b, ok := c.b.(*array.StructBuilder)
	if !ok || b.NumField() != 2 {
		return fmt.Errorf("column %s: type VARIANT cannot be read from text", c.path)
	}
	metadata, ok1 := b.FieldBuilder(0).(*array.BinaryBuilder)
	value, ok2 := b.FieldBuilder(1).(*array.BinaryBuilder)
	if !ok1 || !ok2 {
		return fmt.Errorf("column %s: type VARIANT cannot be read from text", c.path)
	}
	c.text = func(s []byte) error {
		m, v, err := variant.ParseJSON(s)
		if err != nil {
			return err
		}
		b.Append(true)
		metadata.Append(m)
		value.Append(v)
		return nil
	}
	c.json = func(p *scanner) error {
		if p.peek() == '"' {
			return c.stringToken(p)
		}
		from := p.pos
		if err := skipValue(p, 0); err != nil {
			return err
		}
		if err := c.text(p.data[from:p.pos]); err != nil {
			return fault(CodeTypeMismatch, c.path, "%v", err)
		}
		return nil
	}
	return nil
}

// skipValue moves over one JSON value.
func skipValue(p *scanner, depth int) error {
	if depth > variant.MaxDepth {
		return p.bad("nested deeper than %d", variant.MaxDepth)
	}
	switch p.peek() {
	case '{':
		p.accept('{')
		return readItems(p, '}', func() error {
			if p.peek() != '"' {
				return p.bad("expected a member name")
			}
			if _, err := p.str(); err != nil {
				return err
			}
			if err := p.expect(':'); err != nil {
				return err
			}
			return skipValue(p, depth+1)
		})
	case '[':
		p.accept('[')
		return readItems(p, ']', func() error { return skipValue(p, depth+1) })
	case '"':
		_, err := p.str()
		return err
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	}
	_, err := p.number()
	return err
}
