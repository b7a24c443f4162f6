package rowio_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

var primitives = []schema.Type{schema.String, schema.Long, schema.Integer, schema.Short, schema.Byte, schema.Float,
	schema.Double, schema.Boolean, schema.Binary, schema.Date, schema.Timestamp, schema.TimestampNTZ}

func drawType(t *rapid.T, depth int) schema.Type {
	kind := rapid.IntRange(0, 15).Draw(t, "kind")
	switch {
	case kind < len(primitives):
		return primitives[kind]
	case kind == 12 || depth == 0:
		p := rapid.IntRange(1, 38).Draw(t, "precision")
		return schema.Decimal{Precision: p, Scale: rapid.IntRange(0, p).Draw(t, "scale")}
	case kind == 13:
		return drawStruct(t, depth-1)
	case kind == 14:
		return &schema.Array{Elem: drawType(t, depth-1), ContainsNull: true}
	}
	key := schema.Type(schema.String)
	if rapid.Bool().Draw(t, "otherKey") {
		key = schema.Long
	}
	return &schema.Map{Key: key, Value: drawType(t, depth-1), ValueContainsNull: true}
}

func drawStruct(t *rapid.T, depth int) *schema.Struct {
	s := &schema.Struct{}
	for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
		name := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"c", "naïve, \"", "a b", "x.y"}).Draw(t, "name"), i)
		s.Fields = append(s.Fields, schema.Field{Name: name, Type: drawType(t, depth), Nullable: true})
	}
	return s
}

func drawValue(t *rapid.T, b array.Builder) {
	if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "NULL", "a,b", "\"", "x\r\ny", " ", "\x00", "<&>\u2028"})).Draw(t, "s"))
	case *array.Int64Builder:
		b.Append(rapid.Int64().Draw(t, "i64"))
	case *array.Int32Builder:
		b.Append(rapid.Int32().Draw(t, "i32"))
	case *array.Int16Builder:
		b.Append(rapid.Int16().Draw(t, "i16"))
	case *array.Int8Builder:
		b.Append(rapid.Int8().Draw(t, "i8"))
	case *array.Float64Builder:
		b.Append(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 5e-324, 1e21})).Draw(t, "f64"))
	case *array.Float32Builder:
		b.Append(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(1)), math.SmallestNonzeroFloat32})).Draw(t, "f32"))
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "b"))
	case *array.BinaryBuilder:
		b.Append(rapid.SliceOf(rapid.Byte()).Draw(t, "bin"))
	case *array.Date32Builder:
		b.Append(arrow.Date32(rapid.Int32Range(-366*9999, 366*90000).Draw(t, "date")))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rapid.Int64Range(-9e18, 9e18).Draw(t, "ts")))
	case *array.Decimal128Builder:
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(b.Type().(*arrow.Decimal128Type).Precision)), nil)
		v := new(big.Int).SetUint64(rapid.Uint64().Draw(t, "hi"))
		v.Lsh(v, 63).Add(v, new(big.Int).SetUint64(rapid.Uint64().Draw(t, "lo"))).Mod(v, limit)
		if rapid.Bool().Draw(t, "neg") {
			v.Neg(v)
		}
		b.Append(decimal128.FromBigInt(v))
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			drawValue(t, b.FieldBuilder(i))
		}
	case *array.MapBuilder:
		b.Append(true)
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			if k, ok := b.KeyBuilder().(*array.StringBuilder); ok {
				k.Append(fmt.Sprintf("k%d", i))
			} else {
				b.KeyBuilder().(*array.Int64Builder).Append(int64(i))
			}
			drawValue(t, b.ItemBuilder())
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			drawValue(t, b.ValueBuilder())
		}
	default:
		t.Fatalf("no generator for %T", b)
	}
}

func drawBatch(t *rapid.T) (*schema.Struct, arrow.RecordBatch) {
	s := drawStruct(t, 2)
	as, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, as)
	defer rb.Release()
	for range rapid.IntRange(0, 8).Draw(t, "rows") {
		for i := range s.Fields {
			drawValue(t, rb.Field(i))
		}
	}
	return s, rb.NewRecordBatch()
}

func TestWriter_RoundTrip(t *testing.T) {
	for _, form := range []rowio.Form{rowio.JSONL, rowio.CSV, rowio.Arrow, rowio.Parquet} {
		t.Run(string(form), func(t *testing.T) {
			testenv.Check(t, func(t *rapid.T) {
				s, want := drawBatch(t)
				var out bytes.Buffer
				w, err := rowio.NewWriter(&out, form, s, rowio.WriteOptions{})
				if err != nil {
					t.Fatal(err)
				}
				half := want.NumRows() / 2
				for _, part := range []arrow.RecordBatch{want.NewSlice(0, half), want.NewSlice(half, want.NumRows())} {
					if err := w.Write(part); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				o := rowio.ReadOptions{Schema: s, BatchRows: rapid.IntRange(1, 5).Draw(t, "batch")}
				var parts []arrow.RecordBatch
				for b, err := range rowio.Read(context.Background(), bytes.NewReader(out.Bytes()), form, o) {
					if err != nil {
						t.Fatalf("%v\nof %q", err, out.String())
					}
					b.Retain()
					parts = append(parts, b)
				}
				requireEqual(t, want, parts, out.Bytes())
			})
		})
	}
}

func requireEqual(t *rapid.T, want arrow.RecordBatch, parts []arrow.RecordBatch, out []byte) {
	rows := int64(0)
	for _, p := range parts {
		n := p.NumRows()
		if rows+n > want.NumRows() {
			t.Fatalf("more rows than %d", want.NumRows())
		}
		for c := range int(want.NumCols()) {
			a := array.NewSlice(want.Column(c), rows, rows+n)
			if !array.ApproxEqual(a, p.Column(c), array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
				t.Fatalf("column %d: got %s, want %s\nof %q", c, p.Column(c), a, out)
			}
		}
		rows += n
	}
	if rows != want.NumRows() {
		t.Fatalf("got %d rows, want %d\nof %q", rows, want.NumRows(), out)
	}
}
