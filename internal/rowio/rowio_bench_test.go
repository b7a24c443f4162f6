package rowio_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/log/schema"
)

// benchRows is 20000 rows of ten columns of the usual types.
func benchRows(b *testing.B) (*schema.Struct, []byte, arrow.RecordBatch) {
	b.Helper()
	s, err := schema.ParseDDL("id BIGINT, n INT, price DECIMAL(12,2), ratio DOUBLE, name STRING, city STRING, ok BOOLEAN, day DATE, at TIMESTAMP, tags ARRAY<STRING>")
	if err != nil {
		b.Fatal(err)
	}
	var text bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&text, `{"id":%d,"n":%d,"price":%d.%02d,"ratio":%g,"name":"name %d","city":"Oslo","ok":%v,"day":"2024-05-01","at":"2024-05-01T10:00:00.123456Z","tags":["a","b"]}`+"\n",
			i, i%1000, i, i%100, float64(i)/7, i, i%2 == 0)
	}
	for batch, err := range rowio.Read(context.Background(), bytes.NewReader(text.Bytes()), rowio.JSONL, rowio.ReadOptions{Schema: s, BatchRows: 20000}) {
		if err != nil {
			b.Fatal(err)
		}
		batch.Retain()
		return s, text.Bytes(), batch
	}
	b.Fatal("no batch")
	return nil, nil, nil
}

func BenchmarkWrite(b *testing.B) {
	s, _, batch := benchRows(b)
	for _, form := range []rowio.Form{rowio.JSONL, rowio.CSV, rowio.Table, rowio.Arrow, rowio.Parquet} {
		b.Run(string(form), func(b *testing.B) {
			for b.Loop() {
				w, err := rowio.NewWriter(io.Discard, form, s, rowio.WriteOptions{})
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
			b.ReportMetric(float64(batch.NumRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s, _, batch := benchRows(b)
	for _, form := range []rowio.Form{rowio.JSONL, rowio.CSV, rowio.Arrow, rowio.Parquet} {
		b.Run(string(form), func(b *testing.B) {
			var data bytes.Buffer
			w, err := rowio.NewWriter(&data, form, s, rowio.WriteOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Write(batch); err != nil {
				b.Fatal(err)
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(data.Len()))
			for b.Loop() {
				for _, err := range rowio.Read(context.Background(), bytes.NewReader(data.Bytes()), form, rowio.ReadOptions{Schema: s}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(batch.NumRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
