package parquetio

import (
	"bytes"
	"context"
	"fmt"
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

var primitives = []schema.Type{
	schema.String, schema.Long, schema.Integer, schema.Short, schema.Byte, schema.Float, schema.Double,
	schema.Boolean, schema.Binary, schema.Date, schema.Timestamp, schema.TimestampNTZ,
	schema.Decimal{Precision: 5, Scale: 2}, schema.Decimal{Precision: 18, Scale: 18}, schema.Decimal{Precision: 19, Scale: 3}, schema.Decimal{Precision: 38, Scale: 10},
}

func drawType(t *rapid.T, depth int) schema.Type {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind = 0
	}
	switch kind {
	case 3:
		return drawStruct(t, depth-1)
	case 4:
		return &schema.Array{Elem: drawType(t, depth-1), ContainsNull: rapid.Bool().Draw(t, "containsNull")}
	case 5:
		return &schema.Map{Key: rapid.SampledFrom([]schema.Type{schema.String, schema.Integer, schema.Date}).Draw(t, "key"),
			Value: drawType(t, depth-1), ValueContainsNull: rapid.Bool().Draw(t, "valueContainsNull")}
	}
	return rapid.SampledFrom(primitives).Draw(t, "type")
}

func drawStruct(t *rapid.T, depth int) *schema.Struct {
	s := &schema.Struct{}
	for i := range rapid.IntRange(1, 3).Draw(t, "fields") {
		s.Fields = append(s.Fields, schema.Field{Name: fmt.Sprintf("f%d", i), Type: drawType(t, depth), Nullable: rapid.Bool().Draw(t, "nullable")})
	}
	return s
}

// rng is a fast deterministic source; rapid draws its seed only.
type rng uint64

func (r *rng) next(n int) int {
	*r = *r*6364136223846793005 + 1442695040888963407
	return int(uint64(*r>>33) % uint64(n))
}

// fill appends one value of t to b, nulls only where allowed.
func fill(r *rng, b array.Builder, t schema.Type, nullable bool) {
	if nullable && r.next(4) == 0 {
		b.AppendNull()
		return
	}
	small := r.next(3) > 0
	n := int64(r.next(1 << 30))
	if small {
		n = int64(r.next(5)) - 2
	}
	switch t := t.(type) {
	case *schema.Struct:
		sb := b.(*array.StructBuilder)
		sb.Append(true)
		for i, f := range t.Fields {
			fill(r, sb.FieldBuilder(i), f.Type, f.Nullable)
		}
	case *schema.Array:
		lb := b.(*array.ListBuilder)
		lb.Append(true)
		for range r.next(4) {
			fill(r, lb.ValueBuilder(), t.Elem, t.ContainsNull)
		}
	case *schema.Map:
		mb := b.(*array.MapBuilder)
		mb.Append(true)
		for range r.next(4) {
			fill(r, mb.KeyBuilder(), t.Key, false)
			fill(r, mb.ItemBuilder(), t.Value, t.ValueContainsNull)
		}
	case schema.Decimal:
		v := decimal128.FromI64(n % 99999)
		if t.Precision > 18 && !small {
			v = v.Mul(decimal128.FromI64(1_000_000_007))
		}
		b.(*array.Decimal128Builder).Append(v)
	case schema.Primitive:
		switch b := b.(type) {
		case *array.StringBuilder:
			b.Append(fmt.Sprintf("s%0*d", r.next(90)*r.next(2), n))
		case *array.BinaryBuilder:
			b.Append([]byte{byte(n), byte(n >> 8), 0xff})
		case *array.Int64Builder:
			b.Append(n<<20 + int64(r.next(3)))
		case *array.Int32Builder:
			b.Append(int32(n))
		case *array.Int16Builder:
			b.Append(int16(n))
		case *array.Int8Builder:
			b.Append(int8(n))
		case *array.Float32Builder:
			b.Append(float32(n) / 7)
		case *array.Float64Builder:
			b.Append([]float64{float64(n) / 3, math.NaN(), math.Copysign(0, -1), math.Inf(1)}[r.next(4)])
		case *array.BooleanBuilder:
			b.Append(n&1 == 0)
		case *array.Date32Builder:
			b.Append(arrow.Date32(n % 2_000_000))
		case *array.TimestampBuilder:
			b.Append(arrow.Timestamp(n * 1_000_003))
		}
	}
}

func randomBatch(tb rapid.TB, r *rng, s *schema.Struct, rows int) arrow.RecordBatch {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		tb.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	for i, f := range s.Fields {
		for range rows {
			fill(r, b.Field(i), f.Type, f.Nullable)
		}
	}
	return b.NewRecordBatch()
}

func writeFile(tb rapid.TB, s *schema.Struct, o WriterOptions, batches ...arrow.RecordBatch) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out, s, o)
	if err != nil {
		tb.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if w.Written() != int64(out.Len()) {
		tb.Fatalf("Written() = %d, file has %d bytes", w.Written(), out.Len())
	}
	return out.Bytes()
}

func openBytes(tb rapid.TB, b []byte) *File {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// readAll concatenates what Read returns, and checks the positions it reports.
func readAll(tb rapid.TB, f *File, want *schema.Struct, o ReadOptions) arrow.RecordBatch {
	as, err := schema.ArrowSchema(want)
	if err != nil {
		tb.Fatal(err)
	}
	cols := make([][]arrow.Array, len(want.Fields))
	rows, next := int64(0), 0
	for b, err := range f.Read(context.Background(), want, o) {
		if err != nil {
			tb.Fatal(err)
		}
		if !b.Schema().Equal(as) {
			tb.Fatalf("schema %s, want %s", b.Schema(), as)
		}
		if o.Rows != nil {
			for i, r := range b.Rows {
				if r != o.Rows[next+i] {
					tb.Fatalf("row %d, want %d", r, o.Rows[next+i])
				}
			}
			if len(b.Rows) != int(b.NumRows()) {
				tb.Fatalf("%d rows, %d positions", b.NumRows(), len(b.Rows))
			}
			next += len(b.Rows)
		} else if o.RowGroups == nil && o.Ranges == nil && b.FirstRow != rows {
			tb.Fatalf("FirstRow %d, want %d", b.FirstRow, rows)
		}
		rows += b.NumRows()
		for i, c := range b.Columns() {
			c.Retain()
			cols[i] = append(cols[i], c)
		}
	}
	out := make([]arrow.Array, len(cols))
	for i, c := range cols {
		if len(c) == 0 {
			out[i] = array.MakeArrayOfNull(memory.DefaultAllocator, as.Field(i).Type, 0)
			continue
		}
		if out[i], err = array.Concatenate(c, memory.DefaultAllocator); err != nil {
			tb.Fatal(err)
		}
	}
	return array.NewRecordBatch(as, out, rows)
}

func take(tb rapid.TB, b arrow.RecordBatch, rows []int64) arrow.RecordBatch {
	cols := make([]arrow.Array, b.NumCols())
	for i, c := range b.Columns() {
		var parts []arrow.Array
		for _, r := range rows {
			parts = append(parts, array.NewSlice(c, r, r+1))
		}
		if len(parts) == 0 {
			cols[i] = array.NewSlice(c, 0, 0)
			continue
		}
		var err error
		if cols[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			tb.Fatal(err)
		}
	}
	return array.NewRecordBatch(b.Schema(), cols, int64(len(rows)))
}

func sameBatch(tb rapid.TB, got, want arrow.RecordBatch) {
	if got.NumRows() != want.NumRows() {
		tb.Fatalf("%d rows, want %d", got.NumRows(), want.NumRows())
	}
	for i := range int(want.NumCols()) {
		g, w := got.Column(i), want.Column(i)
		if !array.ApproxEqual(g, w, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
			tb.Fatalf("column %d %s:\n got %s\nwant %s", i, got.ColumnName(i), g, w)
		}
	}
}

func TestWriter_RoundTripRandom(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		s := drawStruct(t, 3)
		r := rng(rapid.Uint64().Draw(t, "seed"))
		o := WriterOptions{
			Codec:        rapid.SampledFrom([]string{"snappy", "uncompressed", "gzip", "zstd", "lz4_raw"}).Draw(t, "codec"),
			RowGroupRows: int64(rapid.SampledFrom([]int{0, 50, 500}).Draw(t, "groupRows")),
			PageRows:     rapid.SampledFrom([]int{0, 1}).Draw(t, "pageRows"),
			DictBytes:    rapid.SampledFrom([]int{0, 100, -1}).Draw(t, "dict"),
			AllOptional:  rapid.Bool().Draw(t, "allOptional"),
		}
		// Small batches make small pages with PageRows 1.
		var batches []arrow.RecordBatch
		total := 0
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			n := rapid.IntRange(0, 60).Draw(t, "rows")
			batches = append(batches, randomBatch(t, &r, s, n))
			total += n
		}
		want := concat(t, batches)
		f := openBytes(t, writeFile(t, s, o, batches...))
		if f.NumRows() != int64(total) {
			t.Fatalf("%d rows, want %d", f.NumRows(), total)
		}
		if !o.AllOptional {
			if got := f.Schema(); !schema.Equal(got, s) {
				t.Fatalf("schema %s, want %s", got, s)
			}
		}
		size := rapid.SampledFrom([]int{0, 7, 64}).Draw(t, "batchRows")
		sameBatch(t, readAll(t, f, s, ReadOptions{BatchRows: size}), want)

		var ranges []RowRange
		var inside []int64
		for at := int64(r.next(5)); at < int64(total); {
			to := min(at+1+int64(r.next(40)), int64(total))
			ranges = append(ranges, RowRange{at, to})
			for ; at < to; at++ {
				inside = append(inside, at)
			}
			at += int64(r.next(90))
		}
		if ranges != nil {
			sameBatch(t, readAll(t, f, s, ReadOptions{BatchRows: size, Ranges: ranges}), take(t, want, inside))
		}

		rows := []int64{}
		density := rapid.IntRange(1, 40).Draw(t, "density")
		for i := range total {
			if r.next(density) == 0 {
				rows = append(rows, int64(i))
			}
		}
		sameBatch(t, readAll(t, f, s, ReadOptions{BatchRows: size, Rows: rows}), take(t, want, rows))
	})
}

func concat(tb rapid.TB, batches []arrow.RecordBatch) arrow.RecordBatch {
	cols := make([]arrow.Array, batches[0].NumCols())
	rows := int64(0)
	for _, b := range batches {
		rows += b.NumRows()
	}
	for i := range cols {
		var parts []arrow.Array
		for _, b := range batches {
			parts = append(parts, b.Column(i))
		}
		var err error
		if cols[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			tb.Fatal(err)
		}
	}
	return array.NewRecordBatch(batches[0].Schema(), cols, rows)
}
