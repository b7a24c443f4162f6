package keycode

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

var primitives = []arrow.DataType{
	arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32,
	arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Date32,
	&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, &arrow.Decimal128Type{Precision: 20, Scale: 3},
	arrow.BinaryTypes.String, arrow.BinaryTypes.Binary,
}

func drawType(t *rapid.T, depth int) arrow.DataType {
	k := rapid.IntRange(0, len(primitives)+2*depth).Draw(t, "type")
	switch {
	case k < len(primitives):
		return primitives[k]
	case k%2 == 0:
		return arrow.ListOf(drawType(t, depth-1))
	}
	n := rapid.IntRange(1, 3).Draw(t, "fields")
	fields := make([]arrow.Field, n)
	for i := range fields {
		fields[i] = arrow.Field{Name: string(rune('a' + i)), Type: drawType(t, max(depth-1, 0)), Nullable: true}
	}
	return arrow.StructOf(fields...)
}

// drawValue appends a value from a small, nasty domain, so that ties are common.
func drawValue(t *rapid.T, b array.Builder) {
	if rapid.IntRange(0, 6).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	ints := rapid.SampledFrom([]int64{0, 1, -1, 2, 127, -128, 255, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64})
	floats := rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, 1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0xFFF8000000000001), 5e-324, math.MaxFloat64})
	texts := rapid.SampledFrom([]string{"", "a", "ab", "b", "a\x00", "a\x00b", "\x00", "\x00\xff", "\x00\x01", "\x01", "é", "\U0010FFFF", "zz"})
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "bool"))
	case *array.Int8Builder:
		b.Append(int8(ints.Draw(t, "v")))
	case *array.Int16Builder:
		b.Append(int16(ints.Draw(t, "v")))
	case *array.Int32Builder:
		b.Append(int32(ints.Draw(t, "v")))
	case *array.Int64Builder:
		b.Append(ints.Draw(t, "v"))
	case *array.Date32Builder:
		b.Append(arrow.Date32(ints.Draw(t, "v")))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(ints.Draw(t, "v")))
	case *array.Float32Builder:
		b.Append(float32(floats.Draw(t, "v")))
	case *array.Float64Builder:
		b.Append(floats.Draw(t, "v"))
	case *array.Decimal128Builder:
		b.Append(decimal128.New(rapid.SampledFrom([]int64{0, -1, 1, math.MinInt64 / 4}).Draw(t, "hi"), uint64(ints.Draw(t, "lo"))))
	case *array.StringBuilder:
		b.Append(texts.Draw(t, "v"))
	case *array.BinaryBuilder:
		b.AppendString(texts.Draw(t, "v"))
	case *array.StructBuilder:
		b.Append(true)
		for f := range b.NumField() {
			drawValue(t, b.FieldBuilder(f))
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			drawValue(t, b.ValueBuilder())
		}
	}
}

func drawColumns(t *rapid.T, types []arrow.DataType, rows int) []arrow.Array {
	cols := make([]arrow.Array, len(types))
	for i, typ := range types {
		b := array.NewBuilder(memory.DefaultAllocator, typ)
		// Rows before the slice make every offset non-zero.
		pad := rapid.IntRange(0, 2).Draw(t, "pad")
		for range rows + pad {
			drawValue(t, b)
		}
		cols[i] = array.NewSlice(b.NewArray(), int64(pad), int64(rows+pad))
	}
	return cols
}

func drawTypes(t *rapid.T) []arrow.DataType {
	return rapid.Custom(func(t *rapid.T) []arrow.DataType {
		types := make([]arrow.DataType, rapid.IntRange(1, 3).Draw(t, "columns"))
		for i := range types {
			types[i] = drawType(t, 2)
		}
		return types
	}).Draw(t, "types")
}

func compareTuples(cols []arrow.Array, i, j int) int {
	for _, c := range cols {
		if r := Compare(c, i, c, j); r != 0 {
			return r
		}
	}
	return 0
}

func TestEncoder_OrderIsTheTotalOrder(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		e, err := NewEncoder(types)
		if err != nil {
			t.Fatal(err)
		}
		const rows = 4
		cols := drawColumns(t, types, rows)
		for i := range rows {
			for j := range rows {
				a, b := e.Append(nil, cols, i), e.Append(nil, cols, j)
				want := compareTuples(cols, i, j)
				if got := bytes.Compare(a, b); got != want {
					t.Fatalf("%v: rows %d, %d: bytes compare %d, values %d\n%v\n%x\n%x", types, i, j, got, want, cols, a, b)
				}
				equal := true
				for _, c := range cols {
					equal = equal && Equal(c, i, c, j)
				}
				if equal != (want == 0) {
					t.Fatalf("%v: rows %d, %d: Equal %v, Compare %d", types, i, j, equal, want)
				}
			}
		}
	})
}

func TestEncoder_DecodeIsTheInverse(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		e, _ := NewEncoder(types)
		const rows = 3
		cols := drawColumns(t, types, rows)
		builders := make([]array.Builder, len(types))
		for i, typ := range types {
			builders[i] = array.NewBuilder(memory.DefaultAllocator, typ)
		}
		var all []byte
		for i := range rows {
			all = e.Append(all, cols, i) // tuples delimit themselves
		}
		rest := all
		for range rows {
			var err error
			if rest, err = e.Decode(rest, builders); err != nil {
				t.Fatal(err)
			}
		}
		if len(rest) != 0 {
			t.Fatalf("%d bytes left", len(rest))
		}
		var again []byte
		out := make([]arrow.Array, len(types))
		for k, b := range builders {
			out[k] = b.NewArray()
		}
		for i := range rows {
			for k := range cols {
				if !Equal(cols[k], i, out[k], i) {
					t.Fatalf("%v: row %d: %v became %v", types, i, cols[k], out[k])
				}
			}
			again = e.Append(again, out, i)
		}
		if !bytes.Equal(all, again) {
			t.Fatalf("%x encodes again as %x", all, again)
		}
	})
}

func TestEncoder_DecodeHostile(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		types := drawTypes(t)
		e, _ := NewEncoder(types)
		key := e.Append(nil, drawColumns(t, types, 1), 0)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			key = key[:rapid.IntRange(0, len(key)-1).Draw(t, "cut")]
		case 1:
			key[rapid.IntRange(0, len(key)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		default:
			key = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		}
		builders := make([]array.Builder, len(types))
		for i, typ := range types {
			builders[i] = array.NewBuilder(memory.DefaultAllocator, typ)
		}
		_, err := e.Decode(key, builders)
		want := 1
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error without class: %v", err)
			}
			want = 0
		}
		for _, b := range builders {
			if b.Len() != want {
				t.Fatalf("%d values appended, error %v", b.Len(), err)
			}
		}
	})
}

func TestNewEncoder_RefusesTypesWithoutOrder(t *testing.T) {
	m := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)
	for _, typ := range []arrow.DataType{m, arrow.Null, arrow.ListOf(m), arrow.StructOf(arrow.Field{Name: "m", Type: m})} {
		var te *TypeError
		if _, err := NewEncoder([]arrow.DataType{typ}); !errors.Is(err, ErrUnsupported) || !errors.As(err, &te) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	for _, typ := range []schema.Type{schema.Variant, schema.Void, &schema.Map{Key: schema.String, Value: schema.Long}, schema.Unknown{Raw: "geometry"},
		&schema.Array{Elem: schema.Variant}, &schema.Struct{Fields: []schema.Field{{Name: "v", Type: schema.Variant}}}} {
		if err := CheckType(typ); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if err := CheckType(&schema.Struct{Fields: []schema.Field{{Name: "a", Type: &schema.Array{Elem: schema.Decimal{Precision: 3}}}}}); err != nil {
		t.Error(err)
	}
}

func TestEqual_MapsAreEntrySets(t *testing.T) {
	b := array.NewBuilder(memory.DefaultAllocator, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64)).(*array.MapBuilder)
	add := func(entries ...any) {
		b.Append(true)
		for i := 0; i < len(entries); i += 2 {
			b.KeyBuilder().(*array.StringBuilder).Append(entries[i].(string))
			b.ItemBuilder().(*array.Float64Builder).Append(entries[i+1].(float64))
		}
	}
	add("a", 1.0, "b", 0.0)
	add("b", math.Copysign(0, -1), "a", 1.0)
	add("a", 1.0)
	add("a", 1.0, "b", 2.0)
	add("a", 1.0, "c", 0.0)
	b.AppendNull()
	a := b.NewArray()
	for i := range a.Len() {
		for j := range a.Len() {
			want := i == j || i < 2 && j < 2
			if got := Equal(a, i, a, j); got != want {
				t.Errorf("Equal(%d, %d) = %v", i, j, got)
			}
		}
	}
}

func TestHasNullNaNAllNull(t *testing.T) {
	typ := arrow.StructOf(arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, arrow.Field{Name: "i", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	b := array.NewStructBuilder(memory.DefaultAllocator, typ)
	b.AppendNull()
	for _, v := range []struct {
		f, i bool
		x    float64
	}{{false, false, 0}, {true, false, 1}, {true, true, math.NaN()}} {
		b.Append(true)
		if v.f {
			b.FieldBuilder(0).(*array.Float64Builder).Append(v.x)
		} else {
			b.FieldBuilder(0).AppendNull()
		}
		if v.i {
			b.FieldBuilder(1).(*array.Int64Builder).Append(3)
		} else {
			b.FieldBuilder(1).AppendNull()
		}
	}
	a := b.NewArray()
	for i, want := range []struct{ null, all, nan bool }{{true, true, false}, {false, true, false}, {false, false, false}, {false, false, true}} {
		if got := HasNull([]arrow.Array{a}, i); got != want.null {
			t.Errorf("HasNull(%d) = %v", i, got)
		}
		if got := AllNull(a, i); got != want.all {
			t.Errorf("AllNull(%d) = %v", i, got)
		}
		if got := HasNaN(a, i); got != want.nan {
			t.Errorf("HasNaN(%d) = %v", i, got)
		}
	}
}

// The bytes are written to files: they may not change (invariant 5).
func TestEncoder_FormatIsStable(t *testing.T) {
	ib := array.NewInt64Builder(memory.DefaultAllocator)
	ib.Append(-2)
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	sb.Append("a\x00")
	cols := []arrow.Array{ib.NewArray(), sb.NewArray()}
	key := (&Encoder{}).Append(nil, cols, 0)
	if want := "\x01\x7f\xff\xff\xff\xff\xff\xff\xfe\x01a\x00\xff\x00\x01"; string(key) != want {
		t.Errorf("key %q", key)
	}
	if h := Hash64(key); h != 0x21f95dd259531313 {
		t.Errorf("hash %#x", h)
	}
}

func BenchmarkEncoder_Append(b *testing.B) {
	ib := array.NewInt64Builder(memory.DefaultAllocator)
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	const rows = 4096
	for i := range rows {
		ib.Append(int64(i))
		sb.Append("customer-000123")
	}
	cols := []arrow.Array{ib.NewArray(), sb.NewArray()}
	e, _ := NewEncoder([]arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String})
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			buf = e.Append(buf[:0], cols, i)
		}
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
}
