package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

var typeNames = map[string]schema.Primitive{
	"STRING": schema.String, "BIGINT": schema.Long, "LONG": schema.Long, "INT": schema.Integer, "INTEGER": schema.Integer,
	"SMALLINT": schema.Short, "SHORT": schema.Short, "TINYINT": schema.Byte, "BYTE": schema.Byte, "FLOAT": schema.Float,
	"REAL": schema.Float, "DOUBLE": schema.Double, "BOOLEAN": schema.Boolean, "BINARY": schema.Binary, "DATE": schema.Date,
	"TIMESTAMP": schema.Timestamp, "TIMESTAMP_LTZ": schema.Timestamp, "TIMESTAMP_NTZ": schema.TimestampNTZ,
	"VARCHAR": schema.String, "CHAR": schema.String,
}

// dataType reads the type of a CAST.
func (p *parser) dataType() schema.Type {
	if p.depth++; p.depth > maxDepth {
		p.failCode(p.cur().pos, CodeTooDeep, "type is nested too deeply")
	}
	defer func() { p.depth-- }()
	t := p.cur()
	up := strings.ToUpper(p.name("type"))
	switch up {
	case "DECIMAL", "DEC", "NUMERIC":
		return p.decimalType(t)
	case "ARRAY":
		p.expect("<")
		elem := p.dataType()
		p.expect(">")
		return &schema.Array{Elem: elem, ContainsNull: true}
	case "MAP":
		p.expect("<")
		k := p.dataType()
		p.expect(",")
		v := p.dataType()
		p.expect(">")
		return &schema.Map{Key: k, Value: v, ValueContainsNull: true}
	case "STRUCT":
		p.expect("<")
		s := &schema.Struct{}
		for p.err == nil {
			name := p.name("field name")
			p.accept(":")
			s.Fields = append(s.Fields, schema.Field{Name: name, Type: p.dataType(), Nullable: true})
			if !p.accept(",") {
				break
			}
		}
		p.expect(">")
		return s
	}
	typ, ok := typeNames[up]
	if !ok {
		p.fail(t.pos, fmt.Sprintf("unknown type '%s'", clip(t.text)))
		return schema.Void
	}
	if (up == "VARCHAR" || up == "CHAR") && p.accept("(") {
		p.take()
		p.expect(")")
	}
	return typ
}

func (p *parser) decimalType(t token) schema.Type {
	d := schema.Decimal{Precision: 10}
	if p.accept("(") {
		d.Precision = p.smallInt()
		if p.accept(",") {
			d.Scale = p.smallInt()
		}
		p.expect(")")
	}
	if p.err == nil && (d.Precision < 1 || d.Precision > 38 || d.Scale > d.Precision) {
		p.fail(t.pos, fmt.Sprintf("%s is not a decimal type (precision 1 to 38, scale up to the precision)", d))
	}
	return d
}

func (p *parser) smallInt() int {
	if p.err != nil {
		return 0
	}
	t := p.take()
	i, err := strconv.Atoi(t.text)
	if t.kind != tokNumber || err != nil || i < 0 || i > 1000 {
		p.fail(t.pos, "expected a small number, found "+t.describe())
	}
	return i
}

// class is the physical form of a type in a [vector].
type class uint8

const (
	clsNull   class = iota
	clsBool         // boolean
	clsInt          // byte to long, date, timestamps
	clsFloat        // float, double
	clsDec          // decimal
	clsBytes        // string, binary
	clsNested       // struct, array, map, variant: kept as Arrow
)

func classOf(t schema.Type) class {
	switch t := t.(type) {
	case schema.Decimal:
		return clsDec
	case schema.Primitive:
		switch t {
		case schema.Void:
			return clsNull
		case schema.Boolean:
			return clsBool
		case schema.Float, schema.Double:
			return clsFloat
		case schema.String, schema.Binary:
			return clsBytes
		case schema.Variant:
			return clsNested
		default:
			return clsInt
		}
	}
	return clsNested
}

var intRank = map[schema.Type]int{schema.Byte: 1, schema.Short: 2, schema.Integer: 3, schema.Long: 4}

func isInt(t schema.Type) bool { return intRank[t] > 0 }

func isFloat(t schema.Type) bool { return t == schema.Float || t == schema.Double }

func isDecimal(t schema.Type) bool { _, ok := t.(schema.Decimal); return ok }

func isNumeric(t schema.Type) bool { return isInt(t) || isFloat(t) || isDecimal(t) }

func isTime(t schema.Type) bool {
	return t == schema.Date || t == schema.Timestamp || t == schema.TimestampNTZ
}

func fitsInt(i int64, t schema.Type) bool {
	switch t {
	case schema.Byte:
		return i >= math.MinInt8 && i <= math.MaxInt8
	case schema.Short:
		return i >= math.MinInt16 && i <= math.MaxInt16
	case schema.Integer:
		return i >= math.MinInt32 && i <= math.MaxInt32
	}
	return true
}

// intDecimal is the decimal type that holds every value of an integer type.
func intDecimal(t schema.Type) schema.Decimal {
	return schema.Decimal{Precision: []int{0, 3, 5, 10, 20}[intRank[t]]}
}

func asDecimal(t schema.Type) (schema.Decimal, bool) {
	if d, ok := t.(schema.Decimal); ok {
		return d, true
	}
	if isInt(t) {
		return intDecimal(t), true
	}
	return schema.Decimal{}, false
}

// adjust caps a decimal type at 38 digits as Spark does: whole digits win, but
// up to six fraction digits are kept.
func adjust(precision, scale int) schema.Decimal {
	if precision <= 38 {
		return schema.Decimal{Precision: precision, Scale: scale}
	}
	whole := precision - scale
	return schema.Decimal{Precision: 38, Scale: max(38-whole, min(scale, 6))}
}

// commonType is the type to which values of both types are brought in CASE,
// COALESCE, IN, a comparison and the like.
func commonType(a, b schema.Type) (schema.Type, bool) {
	switch {
	case schema.EqualIgnoringNullability(a, b):
		return a, true
	case a == schema.Void:
		return b, true
	case b == schema.Void:
		return a, true
	case isInt(a) && isInt(b):
		if intRank[a] > intRank[b] {
			return a, true
		}
		return b, true
	case isFloat(a) && isNumeric(b) || isNumeric(a) && isFloat(b):
		return schema.Double, true
	case isNumeric(a) && isNumeric(b):
		x, _ := asDecimal(a)
		y, _ := asDecimal(b)
		scale := max(x.Scale, y.Scale)
		return adjust(max(x.Precision-x.Scale, y.Precision-y.Scale)+scale, scale), true
	case isTime(a) && isTime(b):
		if a == schema.Timestamp || b == schema.Timestamp {
			return schema.Timestamp, true
		}
		return schema.TimestampNTZ, true
	case a == schema.String && isStringPromotable(b):
		return promoteString(b), true
	case b == schema.String && isStringPromotable(a):
		return promoteString(a), true
	}
	return commonNested(a, b)
}

func isStringPromotable(t schema.Type) bool {
	return isNumeric(t) || isTime(t) || t == schema.Boolean || t == schema.Binary
}

// promoteString is what a string becomes beside t: integers become BIGINT, the
// other numbers DOUBLE.
func promoteString(t schema.Type) schema.Type {
	switch {
	case isInt(t):
		return schema.Long
	case isNumeric(t):
		return schema.Double
	}
	return t
}

func commonNested(a, b schema.Type) (schema.Type, bool) {
	switch x := a.(type) {
	case *schema.Array:
		if y, ok := b.(*schema.Array); ok {
			if e, ok := commonType(x.Elem, y.Elem); ok {
				return &schema.Array{Elem: e, ContainsNull: x.ContainsNull || y.ContainsNull}, true
			}
		}
	case *schema.Map:
		if y, ok := b.(*schema.Map); ok {
			k, ok1 := commonType(x.Key, y.Key)
			v, ok2 := commonType(x.Value, y.Value)
			return &schema.Map{Key: k, Value: v, ValueContainsNull: x.ValueContainsNull || y.ValueContainsNull}, ok1 && ok2
		}
	case *schema.Struct:
		y, ok := b.(*schema.Struct)
		if !ok || len(x.Fields) != len(y.Fields) {
			return nil, false
		}
		out := &schema.Struct{Fields: make([]schema.Field, len(x.Fields))}
		for i, f := range x.Fields {
			g := y.Fields[i]
			t, ok := commonType(f.Type, g.Type)
			if !ok || !strings.EqualFold(f.Name, g.Name) {
				return nil, false
			}
			out.Fields[i] = schema.Field{Name: f.Name, Type: t, Nullable: f.Nullable || g.Nullable}
		}
		return out, true
	}
	return nil, false
}

// castable reports whether CAST(from AS to) exists.
func castable(from, to schema.Type) bool {
	if from == schema.Void || schema.EqualIgnoringNullability(from, to) {
		return true
	}
	switch x := from.(type) {
	case *schema.Array:
		y, ok := to.(*schema.Array)
		return ok && castable(x.Elem, y.Elem)
	case *schema.Map:
		y, ok := to.(*schema.Map)
		return ok && castable(x.Key, y.Key) && castable(x.Value, y.Value)
	case *schema.Struct:
		y, ok := to.(*schema.Struct)
		if !ok || len(x.Fields) != len(y.Fields) {
			return false
		}
		for i := range x.Fields {
			if !castable(x.Fields[i].Type, y.Fields[i].Type) {
				return false
			}
		}
		return true
	}
	if classOf(from) == clsNested || classOf(to) == clsNested || to == schema.Void {
		return false
	}
	switch {
	case from == schema.String || to == schema.String:
		return true
	case from == schema.Binary || to == schema.Binary:
		return false
	case isNumeric(from):
		return isNumeric(to) || to == schema.Boolean || to == schema.Timestamp
	case from == schema.Boolean:
		return isNumeric(to)
	case isTime(from):
		return isTime(to) || from == schema.Timestamp && isNumeric(to)
	}
	return false
}

// assignable reports whether a value of type from may be stored in a column of
// type to without an explicit CAST (Spark's ANSI store assignment). Structs go by the
// names of their fields, in any order.
func assignable(from, to schema.Type) bool {
	if from == schema.Void || schema.EqualIgnoringNullability(from, to) {
		return true
	}
	switch x := from.(type) {
	case *schema.Array:
		y, ok := to.(*schema.Array)
		return ok && assignable(x.Elem, y.Elem)
	case *schema.Map:
		y, ok := to.(*schema.Map)
		return ok && assignable(x.Key, y.Key) && assignable(x.Value, y.Value)
	case *schema.Struct:
		y, ok := to.(*schema.Struct)
		if !ok || len(x.Fields) != len(y.Fields) {
			return false
		}
		for _, f := range y.Fields {
			i := x.Index(f.Name)
			if i < 0 || !assignable(x.Fields[i].Type, f.Type) {
				return false
			}
		}
		return true
	}
	switch {
	case isNumeric(from) && isNumeric(to), isTime(from) && isTime(to):
		return true
	case to == schema.String:
		return classOf(from) != clsNested && from != schema.Binary
	}
	return false
}

// orderable reports whether values of t can be compared.
func orderable(t schema.Type) bool {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			if !orderable(f.Type) {
				return false
			}
		}
		return true
	case *schema.Array:
		return orderable(t.Elem)
	case *schema.Map, schema.Unknown:
		return false
	}
	return t != schema.Variant
}

// Orderable reports whether values of t have an order (auto-cdc 2.1): not MAP,
// VARIANT, or a type that contains one.
func Orderable(t schema.Type) bool { return orderable(t) }
