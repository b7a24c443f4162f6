package schema

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// ArrowType is the in-memory form of t (invariant 3). Variant is
// struct<metadata: binary, value: binary>; Void is null; Unknown is an error.
func ArrowType(t Type) (arrow.DataType, error) {
	switch t := t.(type) {
	case Primitive:
		if at, ok := arrowPrimitives[t]; ok {
			return at, nil
		}
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}, nil
	case *Struct:
		fields, err := arrowFields(t)
		if err != nil {
			return nil, err
		}
		return arrow.StructOf(fields...), nil
	case *Array:
		elem, err := ArrowType(t.Elem)
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: elem, Nullable: t.ContainsNull}), nil
	case *Map:
		k, err := ArrowType(t.Key)
		if err != nil {
			return nil, err
		}
		v, err := ArrowType(t.Value)
		if err != nil {
			return nil, err
		}
		return arrow.MapOfFields(arrow.Field{Name: "key", Type: k}, arrow.Field{Name: "value", Type: v, Nullable: t.ValueContainsNull}), nil
	}
	return nil, fmt.Errorf("type %s: no Arrow form", t)
}

var arrowPrimitives = map[Primitive]arrow.DataType{
	String: arrow.BinaryTypes.String, Long: arrow.PrimitiveTypes.Int64, Integer: arrow.PrimitiveTypes.Int32,
	Short: arrow.PrimitiveTypes.Int16, Byte: arrow.PrimitiveTypes.Int8, Float: arrow.PrimitiveTypes.Float32,
	Double: arrow.PrimitiveTypes.Float64, Boolean: arrow.FixedWidthTypes.Boolean, Binary: arrow.BinaryTypes.Binary,
	Date: arrow.FixedWidthTypes.Date32, Timestamp: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	TimestampNTZ: &arrow.TimestampType{Unit: arrow.Microsecond}, Void: arrow.Null,
	Variant: arrow.StructOf(arrow.Field{Name: "metadata", Type: arrow.BinaryTypes.Binary}, arrow.Field{Name: "value", Type: arrow.BinaryTypes.Binary}),
}

func arrowFields(s *Struct) ([]arrow.Field, error) {
	out := make([]arrow.Field, len(s.Fields))
	for i, f := range s.Fields {
		t, err := ArrowType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		out[i] = arrow.Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	}
	return out, nil
}

// ArrowSchema is the schema of batches with the columns of s.
func ArrowSchema(s *Struct) (*arrow.Schema, error) {
	fields, err := arrowFields(s)
	if err != nil {
		return nil, err
	}
	return arrow.NewSchema(fields, nil), nil
}
