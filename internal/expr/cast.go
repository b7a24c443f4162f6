package expr

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

type castOptions struct {
	pos  Pos
	try  bool // a failure is null
	zone *time.Location
	// byName: fields of structs find their places by name, as where rows are stored.
	byName bool
}

func (o castOptions) invalid(text string, to schema.Type) error {
	return &EvalError{CodeName: CodeInvalidCast, Pos: o.pos, Msg: fmt.Sprintf("'%s' is not a %s", clip(text), to)}
}

func (o castOptions) overflow(text string, to schema.Type) error {
	return &EvalError{CodeName: CodeCastOverflow, Pos: o.pos, Msg: fmt.Sprintf("%s does not fit %s", clip(text), to)}
}

// monotone reports whether a conversion keeps order (of the values it accepts).
func monotone(from, to schema.Type) bool {
	switch {
	case from == schema.Void:
		return true
	case isNumeric(from):
		return isNumeric(to)
	case isTime(from):
		return isTime(to)
	}
	return false
}

// castFunc converts vectors, row by row; each failure is the row's error, or null.
func castFunc(from, to schema.Type, o castOptions) func(*context, []*vector) *vector {
	switch {
	case from == schema.Void:
		return func(c *context, a []*vector) *vector {
			v := constant(to, Value{})
			if a[0].errs != nil {
				v.errs, v.step = a[0].errs, a[0].step
				return c.stretch(v)
			}
			return v
		}
	case classOf(from) == clsNested:
		return castNested(from, to, o)
	}
	one := castOne(from, to, o)
	return func(c *context, a []*vector) *vector {
		out := c.alloc(to, a[0])
		n := out.rows(c)
		for i := range n {
			if out.null != nil && out.null[i] {
				continue
			}
			if err := one(out, i, a[0], i*a[0].step); err != nil {
				if o.try {
					out.setNull(i, n)
				} else {
					out.fail(i, n, err)
				}
			}
		}
		return out
	}
}

// stretch repeats the single null of v for every row that its errors cover.
func (c *context) stretch(v *vector) *vector {
	out := c.blank(v.typ, v)
	n := out.rows(c)
	out.errs = v.errs
	out.null = make([]bool, n)
	for i := range out.null {
		out.null[i] = true
	}
	if classOf(v.typ) == clsNested {
		if at, err := schema.ArrowType(v.typ); err == nil {
			out.arr = array.MakeArrayOfNull(memory.DefaultAllocator, at, n)
		}
	}
	return out
}

// castOne returns the conversion of slot k of in to slot i of out.
func castOne(from, to schema.Type, o castOptions) func(out *vector, i int, in *vector, k int) error {
	if to == schema.String {
		text := textOf(from, o)
		return func(out *vector, i int, in *vector, k int) error {
			s, err := text(in, k)
			out.s[i] = s
			return err
		}
	}
	switch from {
	case schema.String:
		return func(out *vector, i int, in *vector, k int) error { return castText(out, i, in.s[k], to, o) }
	case schema.Boolean:
		return func(out *vector, i int, in *vector, k int) error {
			v := int64(0)
			if in.b[k] {
				v = 1
			}
			return storeInt(out, i, v, to, o)
		}
	case schema.Date, schema.Timestamp, schema.TimestampNTZ:
		return func(out *vector, i int, in *vector, k int) error { return castTime(out, i, in.i[k], from, to, o) }
	}
	switch classOf(from) {
	case clsInt:
		return func(out *vector, i int, in *vector, k int) error { return storeInt(out, i, in.i[k], to, o) }
	case clsFloat:
		bits := 64
		if from == schema.Float {
			bits = 32
		}
		return func(out *vector, i int, in *vector, k int) error { return castFloat(out, i, in.f[k], bits, to, o) }
	}
	scale := from.(schema.Decimal).Scale
	return func(out *vector, i int, in *vector, k int) error { return castDecimal(out, i, in, k, scale, to, o) }
}

// textOf is the conversion to STRING.
func textOf(from schema.Type, o castOptions) func(in *vector, k int) (string, error) {
	switch from {
	case schema.Boolean:
		return func(in *vector, k int) (string, error) { return strconv.FormatBool(in.b[k]), nil }
	case schema.Float:
		return func(in *vector, k int) (string, error) { return formatFloat(in.f[k], 32), nil }
	case schema.Double:
		return func(in *vector, k int) (string, error) { return formatFloat(in.f[k], 64), nil }
	case schema.Date:
		return func(in *vector, k int) (string, error) { return formatDate(in.i[k]), nil }
	case schema.Timestamp:
		return func(in *vector, k int) (string, error) { return formatTimestamp(toLocal(in.i[k], o.zone)), nil }
	case schema.TimestampNTZ:
		return func(in *vector, k int) (string, error) { return formatTimestamp(in.i[k]), nil }
	case schema.Binary:
		return func(in *vector, k int) (string, error) {
			if !utf8.ValidString(in.s[k]) {
				return "", o.invalid("binary value", schema.String)
			}
			return in.s[k], nil
		}
	}
	if d, ok := from.(schema.Decimal); ok {
		return func(in *vector, k int) (string, error) { return in.d[k].ToString(int32(d.Scale)), nil }
	}
	return func(in *vector, k int) (string, error) { return strconv.FormatInt(in.i[k], 10), nil }
}

func castText(out *vector, i int, s string, to schema.Type, o castOptions) error {
	ok := false
	switch to {
	case schema.Boolean:
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "true", "t", "yes", "y", "1":
			out.b[i], ok = true, true
		case "false", "f", "no", "n", "0":
			ok = true
		}
	case schema.Float, schema.Double:
		bits := 64
		if to == schema.Float {
			bits = 32
		}
		out.f[i], ok = parseFloat(s, bits)
	case schema.Date:
		out.i[i], ok = parseDate(s)
	case schema.Timestamp, schema.TimestampNTZ:
		out.i[i], ok = parseTimestamp(s, o.zone, to == schema.TimestampNTZ)
	case schema.Binary:
		out.s[i], ok = s, true
	case schema.Byte, schema.Short, schema.Integer, schema.Long:
		v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		out.i[i], ok = v, err == nil && fitsInt(v, to) && !strings.Contains(s, "_")
	default:
		if d, isDec := to.(schema.Decimal); isDec {
			fits := false
			if out.d[i], fits, ok = toDecimal(s, d); ok && !fits {
				return o.overflow(s, to)
			}
		}
	}
	if !ok {
		return o.invalid(s, to)
	}
	return nil
}

// storeInt converts an integer to a number, boolean or (as seconds) timestamp.
func storeInt(out *vector, i int, v int64, to schema.Type, o castOptions) error {
	switch to {
	case schema.Boolean:
		out.b[i] = v != 0
		return nil
	case schema.Float:
		out.f[i] = float64(float32(v))
		return nil
	case schema.Double:
		out.f[i] = float64(v)
		return nil
	case schema.Timestamp:
		us := v * usPerSecond
		if us/usPerSecond != v {
			return o.overflow(strconv.FormatInt(v, 10), to)
		}
		out.i[i] = us
		return nil
	}
	ok := fitsInt(v, to)
	if d, isDec := to.(schema.Decimal); isDec {
		if r, small := scaleUp(v, d.Scale); small {
			out.d[i], ok = fitSmall(r, d.Precision)
		} else {
			out.d[i], ok = fitScaled(big.NewInt(v), 0, d)
		}
	} else {
		out.i[i] = v
	}
	if !ok {
		return o.overflow(strconv.FormatInt(v, 10), to)
	}
	return nil
}

func castFloat(out *vector, i int, f float64, bits int, to schema.Type, o castOptions) error {
	ok := true
	switch to {
	case schema.Boolean:
		out.b[i] = f != 0
	case schema.Float:
		out.f[i] = float64(float32(f))
	case schema.Double:
		out.f[i] = f
	case schema.Timestamp:
		us := f * float64(usPerSecond)
		if ok = us >= -(1<<63) && us < 1<<63; ok {
			out.i[i] = int64(us)
		}
	default:
		if d, isDec := to.(schema.Decimal); isDec {
			out.d[i], ok = floatDecimal(f, bits, d)
			break
		}
		t := math.Trunc(f)
		if ok = t >= -(1<<63) && t < 1<<63; ok {
			out.i[i] = int64(t)
			ok = fitsInt(out.i[i], to)
		}
	}
	if !ok {
		return o.overflow(formatFloat(f, bits), to)
	}
	return nil
}

func castDecimal(out *vector, i int, in *vector, k, scale int, to schema.Type, o castOptions) error {
	v := in.d[k]
	ok := true
	switch to {
	case schema.Boolean:
		out.b[i] = v.Sign() != 0
	case schema.Double:
		out.f[i] = decimalFloat(v, scale)
	case schema.Float:
		f, _ := strconv.ParseFloat(v.ToString(int32(scale)), 32)
		out.f[i] = f
	default:
		if d, isDec := to.(schema.Decimal); isDec {
			out.d[i], ok = rescale(v, scale, d)
			break
		}
		shift := scale
		if to == schema.Timestamp {
			shift -= 6
		}
		whole := v.BigInt()
		if shift >= 0 {
			whole = new(big.Int).Quo(whole, pow10[shift])
		} else {
			whole = new(big.Int).Mul(whole, pow10[-shift])
		}
		if ok = whole.IsInt64(); ok {
			out.i[i] = whole.Int64()
			ok = fitsInt(out.i[i], to)
		}
	}
	if !ok {
		return o.overflow(v.ToString(int32(scale)), to)
	}
	return nil
}

func castTime(out *vector, i int, v int64, from, to schema.Type, o castOptions) error {
	if from == schema.Date {
		if v > math.MaxInt64/usPerDay || v < math.MinInt64/usPerDay {
			return o.overflow(formatDate(v), to)
		}
		v *= usPerDay
		if to == schema.Timestamp && o.zone != time.UTC {
			v = fromLocal(v, o.zone)
		}
		out.i[i] = v
		return nil
	}
	local := v
	if from == schema.Timestamp {
		local = toLocal(v, o.zone)
	}
	switch to {
	case schema.Date:
		out.i[i] = floorDiv(local, usPerDay)
	case schema.TimestampNTZ:
		out.i[i] = local
	case schema.Timestamp:
		out.i[i] = v
		if o.zone != time.UTC {
			out.i[i] = fromLocal(v, o.zone)
		}
	case schema.Float, schema.Double:
		out.f[i] = float64(v) / float64(usPerSecond)
		if to == schema.Float {
			out.f[i] = float64(float32(out.f[i]))
		}
	default:
		if d, ok := to.(schema.Decimal); ok {
			var fits bool
			if out.d[i], fits = fitScaled(big.NewInt(v), 6, d); !fits {
				return o.overflow(formatTimestamp(v), to)
			}
			return nil
		}
		sec := floorDiv(v, usPerSecond)
		out.i[i] = sec
		if !fitsInt(sec, to) {
			return o.overflow(formatTimestamp(v), to)
		}
	}
	return nil
}

// castNested converts structs by position or name, arrays by element, maps by entry.
func castNested(from, to schema.Type, o castOptions) func(*context, []*vector) *vector {
	return func(c *context, a []*vector) *vector {
		in := a[0]
		out := &vector{typ: to, step: in.step, null: in.null, errs: in.errs}
		at, err := schema.ArrowType(to)
		if err != nil {
			return constant(schema.Void, Value{})
		}
		n := out.rows(c)
		bld := array.NewBuilder(memory.DefaultAllocator, at)
		defer bld.Release()
		for i := range n {
			if in.isNull(i) {
				bld.AppendNull()
				continue
			}
			// A failure inside makes the whole value fail: build it apart first.
			one := array.NewBuilder(memory.DefaultAllocator, at)
			err := castInto(one, in.arr, i, from, to, o)
			if err != nil {
				one.Release()
				bld.AppendNull()
				out = out.own()
				if o.try {
					out.setNull(i, n)
				} else {
					out.fail(i, n, err)
				}
				continue
			}
			arr := one.NewArray()
			appendNested(bld, arr, 0)
			arr.Release()
			one.Release()
		}
		out.arr = bld.NewArray()
		return out
	}
}

// own makes the nulls and errors of a vector its own before they change.
func (v *vector) own() *vector {
	w := *v
	w.null = append([]bool(nil), v.null...)
	w.errs = append([]error(nil), v.errs...)
	return &w
}

func castInto(b array.Builder, a arrow.Array, i int, from, to schema.Type, o castOptions) error {
	if from == schema.Void || a.IsNull(i) {
		b.AppendNull()
		return nil
	}
	switch t := to.(type) {
	case *schema.Struct:
		s, sb, f := a.(*array.Struct), b.(*array.StructBuilder), from.(*schema.Struct)
		sb.Append(true)
		for k := range t.Fields {
			j := k
			if o.byName {
				j = f.Index(t.Fields[k].Name)
			}
			if err := castInto(sb.FieldBuilder(k), s.Field(j), i, f.Fields[j].Type, t.Fields[k].Type, o); err != nil {
				return err
			}
		}
		return nil
	case *schema.Array:
		l, lb := a.(*array.List), b.(*array.ListBuilder)
		lb.Append(true)
		for j, end := l.ValueOffsets(i); j < end; j++ {
			if err := castInto(lb.ValueBuilder(), l.ListValues(), int(j), from.(*schema.Array).Elem, t.Elem, o); err != nil {
				return err
			}
		}
		return nil
	case *schema.Map:
		m, mb, f := a.(*array.Map), b.(*array.MapBuilder), from.(*schema.Map)
		mb.Append(true)
		for j, end := m.ValueOffsets(i); j < end; j++ {
			if err := castInto(mb.KeyBuilder(), m.Keys(), int(j), f.Key, t.Key, o); err != nil {
				return err
			}
			if err := castInto(mb.ItemBuilder(), m.Items(), int(j), f.Value, t.Value, o); err != nil {
				return err
			}
		}
		return nil
	}
	if schema.EqualIgnoringNullability(from, to) {
		appendNested(b, a, i)
		return nil
	}
	in, ok := load(from, array.NewSlice(a, int64(i), int64(i+1)))
	if !ok {
		return o.invalid(a.ValueStr(i), to)
	}
	v := castFunc(from, to, o)(&context{n: 1}, []*vector{in})
	if v.errs != nil && v.errs[0] != nil {
		return v.errs[0]
	}
	v.appendTo(b, 0)
	return nil
}
