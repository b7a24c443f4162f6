package parquetio

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// outNode is a field to write, with its levels and its place in the Arrow data.
type outNode struct {
	kind   planKind // planLeaf, planStruct, planList, planMap
	column string
	typ    arrow.DataType
	src    int // child index in the parent's Arrow data
	opt    bool
	def    uint8 // level at which the node is present
	rep    uint8 // lists: level of further elements
	kids   []*outNode
	leaf   *leafWriter
}

// outSchema builds schema elements and writers of a file (delta-protocol 1.6).
type outSchema struct {
	o        *WriterOptions
	elements []format.SchemaElement
	leaves   []*leafWriter
}

func (s *outSchema) fields(fields []schema.Field, types []arrow.DataType, column string, path []string, def, rep uint8) ([]*outNode, error) {
	var out []*outNode
	for i, f := range fields {
		if f.Type == schema.Void {
			continue // W-404
		}
		name := f.Name
		if column != "" {
			name = column + "." + name
		}
		n, err := s.field(f.Name, f.Type, types[i], f.Nullable, name, path, f.Name, def, rep, nestedIDs(f.Metadata))
		if err != nil {
			return nil, err
		}
		if raw, ok := f.Metadata.Get(fieldIDKey); ok && s.o.FieldIDs {
			id, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 32)
			if err != nil {
				return nil, fmt.Errorf("column %s: %s %s: %w", name, fieldIDKey, raw, ErrInvalid)
			}
			s.elements[n.elem].FieldID = int32(id)
		}
		n.src = i
		out = append(out, n.outNode)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no column that can be written: %w", orRoot(column), ErrInvalid)
	}
	return out, nil
}

func orRoot(column string) string {
	if column == "" {
		return "schema"
	}
	return "column " + column
}

type placedNode struct {
	*outNode
	elem int // index of the schema element
}

// field adds the elements of one field. idPath is the field's path inside its
// nearest ancestor field, the key of delta.columnMapping.nested.ids.
func (s *outSchema) field(name string, t schema.Type, at arrow.DataType, nullable bool, column string, path []string, idPath string, def, rep uint8, nested map[string]int32) (placedNode, error) {
	n := &outNode{column: column, typ: at, opt: nullable || s.o.AllOptional}
	path = append(path[:len(path):len(path)], name)
	e := format.SchemaElement{Name: name, RepetitionType: thrift.New(format.Required)}
	if n.opt {
		e.RepetitionType.V = format.Optional
		def++
	}
	if len(path) > maxSchemaDepth {
		return placedNode{}, fmt.Errorf("column %s: nested deeper than %d: %w", column, maxSchemaDepth, ErrInvalid)
	}
	if id, ok := nested[idPath]; ok && s.o.FieldIDs {
		e.FieldID = id
	}
	n.def = def
	at0 := len(s.elements)
	out := placedNode{n, at0}
	s.elements = append(s.elements, e)
	var err error
	if t == schema.Variant {
		t = variantStruct
		s.elements[at0].LogicalType = format.LogicalType{Value: &format.VariantType{SpecificationVersion: 1}}
	}
	switch t := t.(type) {
	case *schema.Struct:
		n.kind = planStruct
		st := at.(*arrow.StructType)
		types := make([]arrow.DataType, st.NumFields())
		for i := range types {
			types[i] = st.Field(i).Type
		}
		n.kids, err = s.fields(t.Fields, types, column, path, def, rep)
		s.elements[at0].NumChildren = thrift.New(int32(len(n.kids)))
	case *schema.Array:
		n.kind, n.rep = planList, rep+1
		s.annotate(at0, &format.ListType{}, deprecated.List)
		s.elements[at0].NumChildren = thrift.New(int32(1))
		s.elements = append(s.elements, format.SchemaElement{Name: "list", RepetitionType: thrift.New(format.Repeated), NumChildren: thrift.New(int32(1))})
		n.kids, err = s.inner([]string{"element"}, []schema.Type{t.Elem}, []arrow.DataType{at.(*arrow.ListType).Elem()}, []bool{t.ContainsNull}, column, append(path, "list"), idPath, def+1, rep+1, nested)
	case *schema.Map:
		n.kind, n.rep = planMap, rep+1
		s.annotate(at0, &format.MapType{}, deprecated.Map)
		s.elements[at0].NumChildren = thrift.New(int32(1))
		s.elements = append(s.elements, format.SchemaElement{Name: "key_value", RepetitionType: thrift.New(format.Repeated), NumChildren: thrift.New(int32(2))})
		mt := at.(*arrow.MapType)
		n.kids, err = s.inner([]string{"key", "value"}, []schema.Type{t.Key, t.Value}, []arrow.DataType{mt.KeyType(), mt.ItemType()}, []bool{false, t.ValueContainsNull}, column, append(path, "key_value"), idPath, def+1, rep+1, nested)
	default:
		n.kind = planLeaf
		n.leaf, err = s.leaf(at0, t, n, path, def, rep)
	}
	return out, err
}

func (s *outSchema) inner(names []string, types []schema.Type, ats []arrow.DataType, nullable []bool, column string, path []string, idPath string, def, rep uint8, nested map[string]int32) ([]*outNode, error) {
	var out []*outNode
	for i, t := range types {
		if t == schema.Void {
			return nil, fmt.Errorf("column %s: void inside an array or map cannot be written: %w", column, ErrInvalid)
		}
		// Keys are required whatever AllOptional says (W-702).
		o := *s.o
		if names[i] == "key" {
			o.AllOptional = false
		}
		save := s.o
		if names[i] == "key" {
			s.o = &o
		}
		n, err := s.field(names[i], t, ats[i], nullable[i], column+"."+names[i], path, idPath+"."+names[i], def, rep, nested)
		s.o = save
		if err != nil {
			return nil, err
		}
		n.src = i
		out = append(out, n.outNode)
	}
	return out, nil
}

func (s *outSchema) annotate(i int, l format.LogicalTypeValue, c deprecated.ConvertedType) {
	s.elements[i].LogicalType = format.LogicalType{Value: l}
	s.elements[i].ConvertedType = thrift.New(c)
}

func (s *outSchema) leaf(i int, t schema.Type, n *outNode, path []string, def, rep uint8) (*leafWriter, error) {
	e := &s.elements[i]
	l := &leafWriter{column: n.column, path: path, maxDef: def, maxRep: rep}
	phys := func(t format.Type, width int) {
		e.Type = thrift.New(t)
		l.typ, l.width = t, width
	}
	switch t := t.(type) {
	case schema.Decimal:
		l.precision = int32(t.Precision)
		switch {
		case t.Precision <= 9:
			phys(format.Int32, 4)
		case t.Precision <= 18:
			phys(format.Int64, 8)
		default:
			phys(format.FixedLenByteArray, decimalWidth(t.Precision))
			e.TypeLength = thrift.New(int32(l.width))
		}
		l.order = orderSigned
		if l.typ == format.FixedLenByteArray {
			l.order = orderDecimal
		}
		l.src = srcDecimal
		s.annotate(i, &format.DecimalType{Scale: int32(t.Scale), Precision: int32(t.Precision)}, deprecated.Decimal)
		e.Scale, e.Precision = thrift.New(int32(t.Scale)), thrift.New(int32(t.Precision))
	case schema.Primitive:
		switch t {
		case schema.String:
			phys(format.ByteArray, 0)
			l.order, l.src, l.text = orderBytes, srcBytes, true
			s.annotate(i, &format.StringType{}, deprecated.UTF8)
		case schema.Binary:
			phys(format.ByteArray, 0)
			l.order, l.src = orderBytes, srcBytes
		case schema.Boolean:
			phys(format.Boolean, 1)
			l.order, l.src = orderBool, srcBool
		case schema.Byte:
			phys(format.Int32, 4)
			l.order, l.src = orderSigned, srcInt8
			s.annotate(i, &format.IntType{BitWidth: 8, IsSigned: true}, deprecated.Int8)
		case schema.Short:
			phys(format.Int32, 4)
			l.order, l.src = orderSigned, srcInt16
			s.annotate(i, &format.IntType{BitWidth: 16, IsSigned: true}, deprecated.Int16)
		case schema.Integer:
			phys(format.Int32, 4)
			l.order, l.src = orderSigned, srcFixed
		case schema.Long:
			phys(format.Int64, 8)
			l.order, l.src = orderSigned, srcFixed
		case schema.Float:
			phys(format.Float, 4)
			l.order, l.src = orderFloat, srcFixed
		case schema.Double:
			phys(format.Double, 8)
			l.order, l.src = orderFloat, srcFixed
		case schema.Date:
			phys(format.Int32, 4)
			l.order, l.src = orderSigned, srcFixed
			s.annotate(i, &format.DateType{}, deprecated.Date)
		case schema.Timestamp, schema.TimestampNTZ:
			phys(format.Int64, 8)
			l.order, l.src = orderSigned, srcFixed
			utc := t == schema.Timestamp
			e.LogicalType = format.LogicalType{Value: &format.TimestampType{IsAdjustedToUTC: utc, Unit: format.TimeUnit{Value: &format.MicroSeconds{}}}}
			if utc {
				e.ConvertedType = thrift.New(deprecated.TimestampMicros)
			}
		}
	}
	if l.src == srcNone {
		return nil, fmt.Errorf("column %s: type %s cannot be written: %w", n.column, t, ErrInvalid)
	}
	s.leaves = append(s.leaves, l)
	return l, nil
}

// decimalWidth is the least bytes that hold any number of that many digits.
func decimalWidth(precision int) int {
	return int(math.Ceil((float64(precision)*math.Log2(10) + 1) / 8))
}

// nestedIDs reads delta.columnMapping.nested.ids: ids of list elements, map keys
// and values by their path below the field (W-501).
func nestedIDs(m schema.Metadata) map[string]int32 {
	raw, ok := m.Get("delta.columnMapping.nested.ids")
	if !ok {
		return nil
	}
	return parseIDs(raw)
}
