package parquetio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// orders is the table of the workloads in docs/benchmarks.md.
var orders = &schema.Struct{Fields: []schema.Field{
	{Name: "id", Type: schema.Long, Nullable: true}, {Name: "customer_id", Type: schema.Long, Nullable: true},
	{Name: "status", Type: schema.String, Nullable: true}, {Name: "city", Type: schema.String, Nullable: true},
	{Name: "amount", Type: schema.Double, Nullable: true}, {Name: "quantity", Type: schema.Integer, Nullable: true},
	{Name: "note", Type: schema.String, Nullable: true}, {Name: "discount", Type: schema.Double, Nullable: true},
	{Name: "updated_at", Type: schema.Timestamp, Nullable: true}, {Name: "seq", Type: schema.Long, Nullable: true},
}}

func ordersBatch(n int) arrow.RecordBatch {
	as, _ := schema.ArrowSchema(orders)
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	r := rng(1)
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(2 * i))
		b.Field(1).(*array.Int64Builder).Append(int64(r.next(1_000_000)))
		b.Field(2).(*array.StringBuilder).Append([]string{"new", "paid", "packed", "sent", "done", "back"}[r.next(6)])
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("city-%d", r.next(2000)))
		b.Field(4).(*array.Float64Builder).Append(float64(r.next(1_000_000)) / 100)
		b.Field(5).(*array.Int32Builder).Append(int32(r.next(20)))
		b.Field(6).(*array.StringBuilder).Append(fmt.Sprintf("note-%d", r.next(1<<30)))
		b.Field(7).(*array.Float64Builder).Append(float64(r.next(100)) / 100)
		b.Field(8).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + int64(i)*1000))
		b.Field(9).(*array.Int64Builder).Append(0)
	}
	return b.NewRecordBatch()
}

func rowsPerSecond(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

const benchRows = 500_000

func BenchmarkWriter_Write(b *testing.B) {
	batch := ordersBatch(benchRows)
	b.ReportAllocs()
	for b.Loop() {
		w, err := NewWriter(io.Discard, orders, WriterOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Write(batch); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b, benchRows)
}

func BenchmarkFile_Read(b *testing.B) {
	data := writeFile(b, orders, WriterOptions{}, ordersBatch(benchRows))
	b.Logf("%d bytes", len(data))
	read := func(b *testing.B, want *schema.Struct, o ReadOptions) {
		b.ReportAllocs()
		for b.Loop() {
			f, err := Open(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range f.Read(context.Background(), want, o) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		rowsPerSecond(b, benchRows)
	}
	b.Run("all", func(b *testing.B) { read(b, orders, ReadOptions{}) })
	for _, f := range orders.Fields {
		b.Run(f.Name, func(b *testing.B) { read(b, &schema.Struct{Fields: []schema.Field{f}}, ReadOptions{}) })
	}
	for _, step := range []int{100, 10000} {
		rows := []int64{}
		for i := 0; i < benchRows; i += step {
			rows = append(rows, int64(i))
		}
		b.Run(fmt.Sprintf("one row in %d", step), func(b *testing.B) { read(b, orders, ReadOptions{Rows: rows}) })
	}
}

// adds has the shape of a checkpoint's rows.
var adds = &schema.Struct{Fields: []schema.Field{
	{Name: "txn", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{{Name: "appId", Type: schema.String, Nullable: true}, {Name: "version", Type: schema.Long, Nullable: true}}}},
	{Name: "add", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{
		{Name: "path", Type: schema.String, Nullable: true}, {Name: "size", Type: schema.Long, Nullable: true},
		{Name: "partitionValues", Nullable: true, Type: &schema.Map{Key: schema.String, Value: schema.String, ValueContainsNull: true}},
		{Name: "stats", Type: schema.String, Nullable: true},
	}}},
}}

func addsBatch(n int) arrow.RecordBatch {
	as, _ := schema.ArrowSchema(adds)
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	for i := range n {
		b.Field(0).AppendNull()
		add := b.Field(1).(*array.StructBuilder)
		add.Append(true)
		add.FieldBuilder(0).(*array.StringBuilder).Append(fmt.Sprintf("p=%d/part-00000-%08x-c000.snappy.parquet", i%9, i*7919))
		add.FieldBuilder(1).(*array.Int64Builder).Append(int64(i))
		pv := add.FieldBuilder(2).(*array.MapBuilder)
		pv.Append(true)
		pv.KeyBuilder().(*array.StringBuilder).Append("p")
		pv.ItemBuilder().(*array.StringBuilder).Append(fmt.Sprint(i % 9))
		add.FieldBuilder(3).(*array.StringBuilder).Append(fmt.Sprintf(`{"numRecords":%d,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}`, i, i, i+9))
	}
	return b.NewRecordBatch()
}

func BenchmarkNested(b *testing.B) {
	const rows = 100_000
	batch := addsBatch(rows)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w, err := NewWriter(io.Discard, adds, WriterOptions{AllOptional: true})
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Write(batch); err != nil {
				b.Fatal(err)
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		}
		rowsPerSecond(b, rows)
	})
	data := writeFile(b, adds, WriterOptions{AllOptional: true}, batch)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, err := range openBytes(b, data).Read(context.Background(), adds, ReadOptions{}) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		rowsPerSecond(b, rows)
	})
}
