package schema

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// FromArrow is the Delta schema for batches of an Arrow schema: widths and
// encodings without a Delta twin (large strings, dictionaries, timestamp units)
// map to the type that holds their values; types with no such type, unsigned
// integers among them, are an error naming the column.
func FromArrow(s *arrow.Schema) (*Struct, error) {
	return fromArrowFields(s.Fields(), "", 0)
}

func fromArrowFields(fields []arrow.Field, path string, depth int) (*Struct, error) {
	out := &Struct{Fields: make([]Field, len(fields))}
	for i, f := range fields {
		t, err := fromArrowType(f.Type, join(path, f.Name), depth+1)
		if err != nil {
			return nil, err
		}
		out.Fields[i] = Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	}
	return out, nil
}

func fromArrowType(t arrow.DataType, path string, depth int) (Type, error) {
	if depth > MaxDepth {
		return nil, &FormatError{path, fmt.Sprintf("types nest deeper than %d", MaxDepth)}
	}
	switch t := t.(type) {
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return String, nil
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType, *arrow.FixedSizeBinaryType:
		return Binary, nil
	case *arrow.Int64Type:
		return Long, nil
	case *arrow.Int32Type:
		return Integer, nil
	case *arrow.Int16Type:
		return Short, nil
	case *arrow.Int8Type:
		return Byte, nil
	case *arrow.Float32Type:
		return Float, nil
	case *arrow.Float64Type:
		return Double, nil
	case *arrow.BooleanType:
		return Boolean, nil
	case *arrow.Date32Type, *arrow.Date64Type:
		return Date, nil
	case *arrow.TimestampType:
		if t.TimeZone == "" {
			return TimestampNTZ, nil
		}
		return Timestamp, nil
	case *arrow.NullType:
		return Void, nil
	case arrow.DecimalType:
		d := Decimal{Precision: int(t.GetPrecision()), Scale: int(t.GetScale())}
		if !d.valid() {
			return nil, &FormatError{path, fmt.Sprintf("%s: precision must be 1 to 38 and scale 0 to precision", t)}
		}
		return d, nil
	case *arrow.StructType:
		return fromArrowFields(t.Fields(), path, depth)
	case *arrow.MapType:
		k, err := fromArrowType(t.KeyType(), join(path, "key"), depth+1)
		if err != nil {
			return nil, err
		}
		v, err := fromArrowType(t.ItemType(), join(path, "value"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Map{Key: k, Value: v, ValueContainsNull: t.ItemField().Nullable}, nil
	case arrow.ListLikeType:
		e, err := fromArrowType(t.Elem(), join(path, "element"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Array{Elem: e, ContainsNull: t.ElemField().Nullable}, nil
	case *arrow.DictionaryType:
		return fromArrowType(t.ValueType, path, depth+1)
	case arrow.ExtensionType:
		return fromArrowType(t.StorageType(), path, depth+1)
	}
	return nil, &FormatError{path, fmt.Sprintf("Arrow type %s has no Delta type", t)}
}
