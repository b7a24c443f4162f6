package datafile

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

const benchRows = 1 << 17

func benchBatch(w *Writer) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, w.Schema())
	for i := range benchRows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("name %d", i%5000))
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 3)
		b.Field(3).(*array.Int32Builder).Append(int32(i % 4))
	}
	return b.NewRecordBatch()
}

// BenchmarkWriter_Write: 128 Ki rows of four columns, with statistics.
func BenchmarkWriter_Write(b *testing.B) {
	for _, parts := range [][]string{nil, {"p"}} {
		b.Run(fmt.Sprintf("partitions %v", parts), func(b *testing.B) {
			l := mustLayout(b, "id BIGINT, s STRING, f DOUBLE, p INT", parts, nil)
			w, err := NewWriter(storage.NewMemory("b"), l, WriterOptions{})
			if err != nil {
				b.Fatal(err)
			}
			rows := benchBatch(w)
			for b.Loop() {
				benchWrite(b, storage.NewMemory("b"), l, rows)
			}
			b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func benchWrite(b *testing.B, s storage.Store, l *Layout, rows arrow.RecordBatch) []*deltalog.Add {
	w, err := NewWriter(s, l, WriterOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Write(context.Background(), rows); err != nil {
		b.Fatal(err)
	}
	files, err := w.Close(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	adds := make([]*deltalog.Add, len(files))
	for i, f := range files {
		adds[i] = f.Add(true)
	}
	return adds
}

// BenchmarkRead: the file of BenchmarkWriter_Write, whole, one column, and filtered.
func BenchmarkRead(b *testing.B) {
	l := mustLayout(b, "id BIGINT, s STRING, f DOUBLE, p INT", nil, nil)
	s := storage.NewMemory("b")
	w, err := NewWriter(s, l, WriterOptions{})
	if err != nil {
		b.Fatal(err)
	}
	add := benchWrite(b, s, l, benchBatch(w))[0]
	for _, c := range []struct {
		name string
		o    ReadOptions
	}{{"all columns", ReadOptions{}}, {"one column", ReadOptions{Columns: []string{"id"}}}, {"filter", ReadOptions{Columns: []string{"id"}, Filter: bind(b, l, "p = 1 AND f > 1000")}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range Read(context.Background(), s, l, add, c.o) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
