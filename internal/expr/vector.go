package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// vector is a column of values while an expression is evaluated.
//
//  1. Row i is at index i*step of every slice: step 0 is one value for all rows.
//  2. null and errs are nil where no row needs them; a row with an error is null.
//  3. The slice of the type's class holds the values; at null rows it holds
//     anything. Nested types stay in arr, whose own validity counts as well.
//  4. A vector may share memory with the batch; it is never changed once returned.
type vector struct {
	typ  schema.Type
	step int
	null []bool
	errs []error

	b   []bool
	i   []int64
	f   []float64
	d   []decimal128.Num
	s   []string
	arr arrow.Array
}

func (v *vector) isNull(i int) bool { return v.null != nil && v.null[i*v.step] }

func (v *vector) err(i int) error {
	if v.errs == nil {
		return nil
	}
	return v.errs[i*v.step]
}

// context is one evaluation: a batch of n rows and its columns by slot.
type context struct {
	n    int
	cols []*vector
}

// alloc makes a vector for the results of a strict function of args: it has one
// row if all args have, and is null or failed where one of them is.
func (c *context) alloc(t schema.Type, args ...*vector) *vector {
	v := c.blank(t, args...)
	n := v.rows(c)
	for _, a := range args {
		if a.null != nil {
			if v.null == nil {
				v.null = make([]bool, n)
			}
			for i := range v.null {
				v.null[i] = v.null[i] || a.null[i*a.step]
			}
		}
		v.takeErrs(a, n)
	}
	return v
}

func (v *vector) takeErrs(a *vector, n int) {
	if a.errs == nil {
		return
	}
	for i := range n {
		if err := a.errs[i*a.step]; err != nil && v.err1(i) == nil {
			v.fail(i, n, err)
		}
	}
}

func (v *vector) err1(i int) error {
	if v.errs == nil {
		return nil
	}
	return v.errs[i]
}

// blank is alloc without the nulls and errors of the args.
func (c *context) blank(t schema.Type, args ...*vector) *vector {
	v := &vector{typ: t}
	for _, a := range args {
		v.step |= a.step
	}
	n := v.rows(c)
	switch classOf(t) {
	case clsBool:
		v.b = make([]bool, n)
	case clsInt:
		v.i = make([]int64, n)
	case clsFloat:
		v.f = make([]float64, n)
	case clsDec:
		v.d = make([]decimal128.Num, n)
	case clsBytes:
		v.s = make([]string, n)
	}
	return v
}

// rows is the length of the slices of v.
func (v *vector) rows(c *context) int {
	if v.step == 0 {
		return 1
	}
	return c.n
}

// setNull and fail mark slot i of a vector with n slots.
func (v *vector) setNull(i, n int) {
	if v.null == nil {
		v.null = make([]bool, n)
	}
	v.null[i] = true
}

func (v *vector) fail(i, n int, err error) {
	v.setNull(i, n)
	if v.errs == nil {
		v.errs = make([]error, n)
	}
	v.errs[i] = err
}

// constant is a vector with one value for all rows.
func constant(t schema.Type, val Value) *vector {
	v := (&context{}).blank(t)
	switch {
	case val.Kind == KindNull:
		v.null = []bool{true}
		if classOf(t) == clsNested {
			v.arr = nullArray(t)
		}
	case val.Kind == KindBool:
		v.b[0] = val.Bool
	case val.Kind == KindInt:
		v.i[0] = val.Int
	case val.Kind == KindFloat:
		v.f[0] = val.Float
	case val.Kind == KindDecimal:
		v.d[0] = val.Dec
	case val.Kind == KindBytes:
		v.s[0] = val.Bytes
	}
	return v
}

func nullArray(t schema.Type) arrow.Array {
	at, err := schema.ArrowType(t)
	if err != nil {
		return array.NewNull(1)
	}
	return array.MakeArrayOfNull(memory.DefaultAllocator, at, 1)
}

// value is row i of a primitive vector.
func (v *vector) value(i int) Value {
	k := i * v.step
	if v.isNull(i) {
		return Value{}
	}
	switch classOf(v.typ) {
	case clsBool:
		return BoolValue(v.b[k])
	case clsInt:
		return IntValue(v.i[k])
	case clsFloat:
		return FloatValue(v.f[k])
	case clsDec:
		return DecimalValue(v.d[k], int32(v.typ.(schema.Decimal).Scale))
	case clsBytes:
		return BytesValue(v.s[k])
	}
	return Value{}
}

// set copies row i of a vector of the same primitive type to slot k.
func (v *vector) set(k int, from *vector, i int) {
	j := i * from.step
	switch {
	case v.b != nil:
		v.b[k] = from.b[j]
	case v.i != nil:
		v.i[k] = from.i[j]
	case v.f != nil:
		v.f[k] = from.f[j]
	case v.d != nil:
		v.d[k] = from.d[j]
	case v.s != nil:
		v.s[k] = from.s[j]
	}
}

func nullsOf(a arrow.Array) []bool {
	if a.NullN() == 0 {
		return nil
	}
	out := make([]bool, a.Len())
	for i := range out {
		out[i] = a.IsNull(i)
	}
	return out
}

// load reads an Arrow array as a vector; ok is false if the array is not of the
// Arrow type of t.
func load(t schema.Type, a arrow.Array) (v *vector, ok bool) {
	v = &vector{typ: t, step: 1, null: nullsOf(a)}
	switch classOf(t) {
	case clsNull:
		v.null = make([]bool, a.Len())
		for i := range v.null {
			v.null[i] = true
		}
		return v, true
	case clsBool:
		x, ok := a.(*array.Boolean)
		if !ok {
			return nil, false
		}
		v.b = make([]bool, x.Len())
		for i := range v.b {
			v.b[i] = x.Value(i)
		}
	case clsInt:
		v.i, ok = loadInts(t, a)
		return v, ok
	case clsFloat:
		switch x := a.(type) {
		case *array.Float64:
			v.f = x.Float64Values()
			return v, t == schema.Double
		case *array.Float32:
			v.f = make([]float64, x.Len())
			for i, f := range x.Float32Values() {
				v.f[i] = float64(f)
			}
			return v, t == schema.Float
		}
		return nil, false
	case clsDec:
		x, ok := a.(*array.Decimal128)
		if !ok {
			return nil, false
		}
		d := t.(schema.Decimal)
		at := x.DataType().(*arrow.Decimal128Type)
		v.d = x.Values()
		return v, int(at.Scale) == d.Scale && int(at.Precision) <= d.Precision
	case clsBytes:
		v.s = make([]string, a.Len())
		switch x := a.(type) {
		case *array.String:
			for i := range v.s {
				v.s[i] = x.Value(i)
			}
			return v, t == schema.String
		case *array.Binary:
			for i := range v.s {
				v.s[i] = x.ValueString(i)
			}
			return v, t == schema.Binary
		}
		return nil, false
	case clsNested:
		v.arr = a
		return v, nestedMatches(t, a.DataType())
	}
	return v, true
}

func loadInts(t schema.Type, a arrow.Array) ([]int64, bool) {
	switch x := a.(type) {
	case *array.Int64:
		return x.Int64Values(), t == schema.Long
	case *array.Int32:
		return widen(x.Int32Values()), t == schema.Integer
	case *array.Int16:
		return widen(x.Int16Values()), t == schema.Short
	case *array.Int8:
		return widen(x.Int8Values()), t == schema.Byte
	case *array.Date32:
		return widen(x.Date32Values()), t == schema.Date
	case *array.Timestamp:
		out := make([]int64, x.Len())
		for i, u := range x.TimestampValues() {
			out[i] = int64(u)
		}
		return out, (t == schema.Timestamp || t == schema.TimestampNTZ) && x.DataType().(*arrow.TimestampType).Unit == arrow.Microsecond
	}
	return nil, false
}

func widen[T ~int8 | ~int16 | ~int32](in []T) []int64 {
	out := make([]int64, len(in))
	for i, v := range in {
		out[i] = int64(v)
	}
	return out
}

// nestedMatches reports whether data has the shape that t asks for. Struct fields
// are found by position, so they must agree in number and kind.
func nestedMatches(t schema.Type, data arrow.DataType) bool {
	switch t := t.(type) {
	case *schema.Struct:
		s, ok := data.(*arrow.StructType)
		if !ok || s.NumFields() != len(t.Fields) {
			return false
		}
		for i, f := range t.Fields {
			if !nestedMatches(f.Type, s.Field(i).Type) {
				return false
			}
		}
		return true
	case *schema.Array:
		l, ok := data.(*arrow.ListType)
		return ok && nestedMatches(t.Elem, l.Elem())
	case *schema.Map:
		m, ok := data.(*arrow.MapType)
		return ok && nestedMatches(t.Key, m.KeyType()) && nestedMatches(t.Value, m.ItemType())
	}
	want, err := schema.ArrowType(t)
	return err == nil && (t == schema.Void || want.ID() == data.ID())
}

// export is v as an Arrow array of n rows; the caller releases it.
func (v *vector) export(n int) (arrow.Array, error) {
	at, err := schema.ArrowType(v.typ)
	if err != nil {
		return nil, err
	}
	if classOf(v.typ) == clsNested && v.step == 1 && v.null == nil {
		v.arr.Retain()
		return v.arr, nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, at)
	defer b.Release()
	b.Reserve(n)
	for i := range n {
		v.appendTo(b, i)
	}
	return b.NewArray(), nil
}

// appendTo appends row i to a builder of the Arrow type of v.
func (v *vector) appendTo(b array.Builder, i int) {
	k := i * v.step
	if v.isNull(i) {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v.b[k])
	case *array.Int8Builder:
		b.Append(int8(v.i[k]))
	case *array.Int16Builder:
		b.Append(int16(v.i[k]))
	case *array.Int32Builder:
		b.Append(int32(v.i[k]))
	case *array.Int64Builder:
		b.Append(v.i[k])
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.i[k]))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.i[k]))
	case *array.Float32Builder:
		b.Append(float32(v.f[k]))
	case *array.Float64Builder:
		b.Append(v.f[k])
	case *array.Decimal128Builder:
		b.Append(v.d[k])
	case *array.StringBuilder:
		b.Append(v.s[k])
	case *array.BinaryBuilder:
		b.AppendString(v.s[k])
	case *array.NullBuilder:
		b.AppendNull()
	default:
		appendNested(b, v.arr, k)
	}
}

// appendNested copies one value between arrays of the same type.
func appendNested(b array.Builder, a arrow.Array, i int) {
	if a.IsNull(i) {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.StructBuilder:
		b.Append(true)
		s := a.(*array.Struct)
		for f := range b.NumField() {
			appendNested(b.FieldBuilder(f), s.Field(f), i)
		}
	case *array.MapBuilder:
		b.Append(true)
		m := a.(*array.Map)
		from, to := m.ValueOffsets(i)
		for j := from; j < to; j++ {
			appendNested(b.KeyBuilder(), m.Keys(), int(j))
			appendNested(b.ItemBuilder(), m.Items(), int(j))
		}
	case *array.ListBuilder:
		b.Append(true)
		l := a.(*array.List)
		from, to := l.ValueOffsets(i)
		for j := from; j < to; j++ {
			appendNested(b.ValueBuilder(), l.ListValues(), int(j))
		}
	case *array.BooleanBuilder:
		b.Append(a.(*array.Boolean).Value(i))
	case *array.Int8Builder:
		b.Append(a.(*array.Int8).Value(i))
	case *array.Int16Builder:
		b.Append(a.(*array.Int16).Value(i))
	case *array.Int32Builder:
		b.Append(a.(*array.Int32).Value(i))
	case *array.Int64Builder:
		b.Append(a.(*array.Int64).Value(i))
	case *array.Date32Builder:
		b.Append(a.(*array.Date32).Value(i))
	case *array.TimestampBuilder:
		b.Append(a.(*array.Timestamp).Value(i))
	case *array.Float32Builder:
		b.Append(a.(*array.Float32).Value(i))
	case *array.Float64Builder:
		b.Append(a.(*array.Float64).Value(i))
	case *array.Decimal128Builder:
		b.Append(a.(*array.Decimal128).Value(i))
	case *array.StringBuilder:
		b.Append(a.(*array.String).Value(i))
	case *array.BinaryBuilder:
		b.Append(a.(*array.Binary).Value(i))
	default:
		b.AppendNull()
	}
}
