package apply

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// digits are the decimal digits that hold every value of an integer type.
var digits = map[schema.Type]int{schema.Byte: 3, schema.Short: 5, schema.Integer: 10, schema.Long: 19}

// widens tells whether every value of a source type has an exact form in the
// target's type. A target whose columns were made wider than its source's (or
// STRING) takes them as they come; the target's own type never changes.
func widens(from, to schema.Type) bool {
	if f, ok := digits[from]; ok {
		switch t := to.(type) {
		case schema.Primitive:
			if n, ok := digits[t]; ok {
				return n > f
			}
			return t == schema.String || t == schema.Double && f <= 10
		case schema.Decimal:
			return t.Precision-t.Scale >= f
		}
		return false
	}
	switch f := from.(type) {
	case schema.Decimal:
		if t, ok := to.(schema.Decimal); ok {
			return t.Scale >= f.Scale && t.Precision-t.Scale >= f.Precision-f.Scale
		}
		return to == schema.String
	case schema.Primitive:
		switch f {
		case schema.Float:
			return to == schema.Double
		case schema.Date:
			return to == schema.TimestampNTZ || to == schema.String
		case schema.Boolean, schema.Timestamp, schema.TimestampNTZ:
			return to == schema.String
		}
	}
	return false
}

// conversion turns a column of the source into the target's type.
type conversion struct {
	bound *expr.Bound // nil: nothing but nulls
	to    arrow.DataType
	adapt func(arrow.Array) (arrow.Array, error) // of nested values
}

func newConversion(c schema.Field, to schema.Type, zone expr.Options) (*conversion, error) {
	at, err := schema.ArrowType(to)
	if err != nil {
		return nil, err
	}
	if c.Type == schema.Void {
		return &conversion{to: at}, nil
	}
	if isNested(c.Type) {
		return &conversion{to: at, adapt: func(a arrow.Array) (arrow.Array, error) { return adapt(a, c.Type, to, zone) }}, nil
	}
	zone.Target = to
	b, err := expr.Column(c.Name).BindWith(&schema.Struct{Fields: []schema.Field{c}}, zone)
	if err != nil {
		return nil, fmt.Errorf("convert column %s: %w", c.Name, err)
	}
	return &conversion{bound: b, to: at}, nil
}

// apply converts an array; a nil conversion leaves it as it is.
func (c *conversion) apply(f schema.Field, a arrow.Array) (arrow.Array, error) {
	if c == nil {
		return a, nil
	}
	if c.adapt != nil {
		return c.adapt(a)
	}
	if c.bound == nil {
		return datafile.NullArray(c.to, a.Len()), nil
	}
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: f.Name, Type: a.DataType(), Nullable: true}}, nil), []arrow.Array{a}, int64(a.Len()))
	out, err := c.bound.Eval(rec)
	if err != nil {
		return nil, &Error{Code: codeOf(err, CodeIncompatibleType), Phase: PhaseRun, Message: "convert column " + f.Name, Err: err}
	}
	return out, nil
}
