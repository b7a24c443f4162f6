package rowio

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// converter fits batches of a foreign Arrow schema to a target schema, where no
// value changes by it: widening of integers, floats and decimals, other widths
// and units of the same thing (large strings, dictionaries, timestamps in
// seconds or milliseconds). Anything else is TYPE_MISMATCH before a row is read.
type converter struct {
	o    ReadOptions
	as   *arrow.Schema
	from []int // target column -> input column, -1 absent

	rows int64
}

func newConverter(in *arrow.Schema, o ReadOptions) (*converter, error) {
	as, err := schema.ArrowSchema(o.Schema)
	if err != nil {
		return nil, err
	}
	c := &converter{o: o, as: as, from: make([]int, len(o.Schema.Fields))}
	for i := range c.from {
		c.from[i] = -1
	}
	for i, f := range in.Fields() {
		to := o.Schema.Index(f.Name)
		if to < 0 {
			return nil, &Error{ErrorCode: CodeUnknownColumn, File: o.File, Column: f.Name, Reason: "not a column of the table"}
		}
		if c.from[to] >= 0 {
			return nil, &Error{ErrorCode: CodeDuplicateColumn, File: o.File, Column: f.Name, Reason: "stands twice in the input"}
		}
		c.from[to] = i
		if err := convertible(f.Name, f.Type, as.Field(to).Type, o.Schema.Fields[to].Type); err != nil {
			err.File = o.File
			return nil, err
		}
	}
	for i, f := range o.Schema.Fields {
		if c.from[i] < 0 && !f.Nullable {
			return nil, &Error{ErrorCode: CodeNotNull, File: o.File, Column: f.Name, Reason: "missing from the input, and NOT NULL"}
		}
	}
	return c, nil
}

// batch converts b; the caller releases the answer.
func (c *converter) batch(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	n := int(b.NumRows())
	cols := make([]arrow.Array, len(c.from))
	defer func() {
		for _, a := range cols {
			if a != nil {
				a.Release()
			}
		}
	}()
	for i, from := range c.from {
		f := c.as.Field(i)
		if from < 0 {
			cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, n)
			continue
		}
		in := b.Column(from)
		if row := firstForbiddenNull(in, c.o.Schema.Fields[i]); row >= 0 {
			return nil, &Error{ErrorCode: CodeNotNull, File: c.o.File, Row: c.rows + int64(row) + 1, Column: f.Name, Reason: "null in a NOT NULL column"}
		}
		if arrow.TypeEqual(in.DataType(), f.Type) {
			in.Retain()
			cols[i] = in
			continue
		}
		bld := array.NewBuilder(memory.DefaultAllocator, f.Type)
		bld.Reserve(n)
		for r := range n {
			if err := appendConverted(bld, in, r); err != nil {
				bld.Release()
				return nil, &Error{ErrorCode: CodeTypeMismatch, File: c.o.File, Row: c.rows + int64(r) + 1, Column: f.Name,
					Reason: fmt.Sprintf("%s expected: %v", c.o.Schema.Fields[i].Type, err)}
			}
		}
		cols[i] = bld.NewArray()
		bld.Release()
	}
	c.rows += int64(n)
	return array.NewRecordBatch(c.as, cols, int64(n)), nil
}

// firstForbiddenNull is the first row with a null in a place that f declares
// NOT NULL, nested places included, or -1.
func firstForbiddenNull(arr arrow.Array, f schema.Field) int {
	if !f.Nullable && arr.NullN() > 0 {
		for i := range arr.Len() {
			if isNull(arr, i) {
				return i
			}
		}
	}
	s, ok := arr.(*array.Struct)
	t, ok2 := f.Type.(*schema.Struct)
	if !ok || !ok2 {
		return -1
	}
	for c := range s.NumField() {
		to := t.Index(s.DataType().(*arrow.StructType).Field(c).Name)
		if to < 0 || t.Fields[to].Nullable {
			continue
		}
		for i := range s.Len() {
			if s.IsValid(i) && isNull(s.Field(c), i) {
				return i
			}
		}
	}
	return -1
}

func mismatch(path string, from arrow.DataType, to schema.Type) *Error {
	return fault(CodeTypeMismatch, path, "%s expected, the input has %s", to, from)
}

func integerBits(t arrow.DataType) (bits int, signed, ok bool) {
	switch t.ID() {
	case arrow.INT8:
		return 8, true, true
	case arrow.INT16:
		return 16, true, true
	case arrow.INT32:
		return 32, true, true
	case arrow.INT64:
		return 64, true, true
	case arrow.UINT8:
		return 8, false, true
	case arrow.UINT16:
		return 16, false, true
	case arrow.UINT32:
		return 32, false, true
	case arrow.UINT64:
		return 64, false, true
	}
	return 0, false, false
}

// convertible tells whether every value of from has an equal one in to.
func convertible(path string, from, to arrow.DataType, t schema.Type) *Error {
	if d, ok := from.(*arrow.DictionaryType); ok {
		from = d.ValueType
	}
	if arrow.TypeEqual(from, to) || from.ID() == arrow.NULL {
		return nil
	}
	bad := mismatch(path, from, t)
	if fb, signed, ok := integerBits(from); ok {
		switch to := to.(type) {
		case *arrow.Decimal128Type:
			if digits := (fb*30103 + 99999) / 100000; int(to.Precision-to.Scale) >= digits {
				return nil
			}
			return bad
		default:
			tb, _, ok := integerBits(to)
			if ok && (signed && fb <= tb || !signed && fb < tb) {
				return nil
			}
			return bad
		}
	}
	switch to := to.(type) {
	case *arrow.Float64Type:
		if from.ID() == arrow.FLOAT32 || from.ID() == arrow.FLOAT16 {
			return nil
		}
	case *arrow.Float32Type:
		if from.ID() == arrow.FLOAT16 {
			return nil
		}
	case *arrow.StringType:
		if from.ID() == arrow.LARGE_STRING || from.ID() == arrow.STRING_VIEW {
			return nil
		}
	case *arrow.BinaryType:
		switch from.ID() {
		case arrow.LARGE_BINARY, arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY:
			return nil
		}
	case *arrow.Date32Type:
		if from.ID() == arrow.DATE64 {
			return nil
		}
	case *arrow.TimestampType:
		f, ok := from.(*arrow.TimestampType)
		if ok && (f.TimeZone != "") == (to.TimeZone != "") {
			return nil
		}
	case *arrow.Decimal128Type:
		if f, ok := from.(arrow.DecimalType); ok && f.GetScale() >= 0 && f.GetScale() <= to.Scale &&
			f.GetPrecision()-f.GetScale() <= to.Precision-to.Scale {
			switch from.ID() {
			case arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128:
				return nil
			}
		}
	case *arrow.StructType:
		return structConvertible(path, from, to, t)
	case *arrow.MapType:
		f, ok := from.(*arrow.MapType)
		if !ok {
			return bad
		}
		m := t.(*schema.Map)
		if err := convertible(path+".key", f.KeyType(), to.KeyType(), m.Key); err != nil {
			return err
		}
		return convertible(path+".value", f.ItemType(), to.ItemType(), m.Value)
	case *arrow.ListType:
		f, ok := from.(arrow.ListLikeType)
		if !ok || from.ID() == arrow.MAP {
			return bad
		}
		return convertible(path+".element", f.Elem(), to.Elem(), t.(*schema.Array).Elem)
	}
	return bad
}

func structConvertible(path string, from arrow.DataType, to *arrow.StructType, t schema.Type) *Error {
	f, ok := from.(*arrow.StructType)
	st, ok2 := t.(*schema.Struct)
	if !ok || !ok2 {
		return mismatch(path, from, t)
	}
	for _, member := range f.Fields() {
		if st.Index(member.Name) < 0 {
			return fault(CodeUnknownColumn, path+"."+member.Name, "not a column of the table")
		}
	}
	for i, member := range st.Fields {
		j := indexFold(f, member.Name)
		if j < 0 {
			if !member.Nullable {
				return fault(CodeNotNull, path+"."+member.Name, "missing from the input, and NOT NULL")
			}
			continue
		}
		if err := convertible(path+"."+member.Name, f.Field(j).Type, to.Field(i).Type, member.Type); err != nil {
			return err
		}
	}
	return nil
}

// appendConverted appends value i of arr to b; the pair of types has passed convertible.
func appendConverted(b array.Builder, arr arrow.Array, i int) error {
	if isNull(arr, i) {
		b.AppendNull()
		return nil
	}
	if d, ok := arr.(*array.Dictionary); ok {
		return appendConverted(b, d.Dictionary(), d.GetValueIndex(i))
	}
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(integerAt(arr, i))
	case *array.Int32Builder:
		b.Append(int32(integerAt(arr, i)))
	case *array.Int16Builder:
		b.Append(int16(integerAt(arr, i)))
	case *array.Int8Builder:
		b.Append(int8(integerAt(arr, i)))
	case *array.Float64Builder:
		b.Append(floatAt(arr, i))
	case *array.Float32Builder:
		b.Append(float32(floatAt(arr, i)))
	case *array.StringBuilder:
		b.Append(arr.(array.StringLike).Value(i))
	case *array.BinaryBuilder:
		b.Append(arr.(interface{ Value(int) []byte }).Value(i))
	case *array.BooleanBuilder:
		b.Append(arr.(*array.Boolean).Value(i))
	case *array.Date32Builder:
		if a, ok := arr.(*array.Date64); ok {
			days, rest := floorDivMod(int64(a.Value(i)), 86_400_000)
			if rest != 0 || days < math.MinInt32 || days > math.MaxInt32 {
				return fmt.Errorf("%d ms is not a whole day in range", a.Value(i))
			}
			b.Append(arrow.Date32(days))
			return nil
		}
		b.Append(arr.(*array.Date32).Value(i))
	case *array.TimestampBuilder:
		v, err := microsAt(arr.(*array.Timestamp), i)
		if err != nil {
			return err
		}
		b.Append(v)
	case *array.Decimal128Builder:
		return appendDecimalAt(b, arr, i)
	default:
		return appendNested(b, arr, i)
	}
	return nil
}

func appendNested(b array.Builder, arr arrow.Array, i int) error {
	switch b := b.(type) {
	case *array.StructBuilder:
		a := arr.(*array.Struct)
		from := a.DataType().(*arrow.StructType)
		b.Append(true)
		for c, f := range b.Type().(*arrow.StructType).Fields() {
			j := indexFold(from, f.Name)
			if j < 0 {
				b.FieldBuilder(c).AppendNull()
				continue
			}
			if err := appendConverted(b.FieldBuilder(c), a.Field(j), i); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		return nil
	case *array.MapBuilder:
		a := arr.(*array.Map)
		b.Append(true)
		lo, hi := a.ValueOffsets(i)
		for j := int(lo); j < int(hi); j++ {
			if err := appendConverted(b.KeyBuilder(), a.Keys(), j); err != nil {
				return err
			}
			if err := appendConverted(b.ItemBuilder(), a.Items(), j); err != nil {
				return err
			}
		}
		return nil
	case *array.ListBuilder:
		a := arr.(array.ListLike)
		b.Append(true)
		lo, hi := a.ValueOffsets(i)
		for j := int(lo); j < int(hi); j++ {
			if err := appendConverted(b.ValueBuilder(), a.ListValues(), j); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("no conversion from %s to %s", arr.DataType(), b.Type())
}

func indexFold(t *arrow.StructType, name string) int {
	s := &schema.Struct{}
	for _, f := range t.Fields() {
		s.Fields = append(s.Fields, schema.Field{Name: f.Name})
	}
	return s.Index(name)
}

func integerAt(arr arrow.Array, i int) int64 {
	switch a := arr.(type) {
	case *array.Int64:
		return a.Value(i)
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Uint32:
		return int64(a.Value(i))
	case *array.Uint16:
		return int64(a.Value(i))
	case *array.Uint8:
		return int64(a.Value(i))
	}
	return 0
}

func floatAt(arr arrow.Array, i int) float64 {
	switch a := arr.(type) {
	case *array.Float64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float16:
		return float64(a.Value(i).Float32())
	}
	return math.NaN()
}

func microsAt(a *array.Timestamp, i int) (arrow.Timestamp, error) {
	v := int64(a.Value(i))
	factor := int64(1)
	switch a.DataType().(*arrow.TimestampType).Unit {
	case arrow.Second:
		factor = 1_000_000
	case arrow.Millisecond:
		factor = 1000
	case arrow.Nanosecond:
		q, r := floorDivMod(v, 1000)
		if r != 0 {
			return 0, fmt.Errorf("%d ns is not a whole microsecond", v)
		}
		return arrow.Timestamp(q), nil
	}
	if v > math.MaxInt64/factor || v < math.MinInt64/factor {
		return 0, fmt.Errorf("timestamp %d is out of range", v)
	}
	return arrow.Timestamp(v * factor), nil
}

func appendDecimalAt(b *array.Decimal128Builder, arr arrow.Array, i int) error {
	var n decimal128.Num
	scale := int32(0)
	switch a := arr.(type) {
	case *array.Decimal128:
		n, scale = a.Value(i), a.DataType().(*arrow.Decimal128Type).Scale
	case *array.Decimal64:
		n, scale = decimal128.FromI64(int64(a.Value(i))), a.DataType().(*arrow.Decimal64Type).Scale
	case *array.Decimal32:
		n, scale = decimal128.FromI64(int64(a.Value(i))), a.DataType().(*arrow.Decimal32Type).Scale
	case *array.Uint64:
		n = decimal128.FromU64(a.Value(i))
	default:
		n = decimal128.FromI64(integerAt(arr, i))
	}
	t := b.Type().(*arrow.Decimal128Type)
	n = n.IncreaseScaleBy(t.Scale - scale)
	if !n.FitsInPrecision(t.Precision) {
		return fmt.Errorf("value does not fit DECIMAL(%d,%d)", t.Precision, t.Scale)
	}
	b.Append(n)
	return nil
}
