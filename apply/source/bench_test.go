package source_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/testenv"
)

// bareEvent is an envelope of about 600 bytes without schema, as W7 has them.
func bareEvent(buf *bytes.Buffer, i int) {
	fmt.Fprintf(buf, `{"before":null,"after":{"id":%d,"customer_id":%d,"status":"shipped","city":"Zürich","amount":%d.25,"quantity":%d,"note":"note-%d","updated_at":%d},`+
		`"source":{"version":"3.6.1.Final","connector":"postgresql","name":"shop","ts_ms":1796048089369,"snapshot":"false","db":"shop","sequence":"[\"%d\",\"%d\"]","ts_us":1796048089369490,"ts_ns":1796048089369490000,"schema":"public","table":"orders","txId":8211,"lsn":%d,"xmin":null},`+
		`"transaction":null,"op":"u","ts_ms":1796048089575,"ts_us":1796048089575754,"ts_ns":1796048089575754990}`+"\n",
		i%500_000, i*7, i%1000, i%50, i*31, 1796048089369490+i, 178497976+i, 178497980+i, 178497980+i)
}

func benchFile(b *testing.B, path string, format source.Format) {
	b.Helper()
	benchSpec(b, source.Spec{Format: format, From: []string{path}}, path)
}

// benchSpec decodes a file in batches of 100 000 rows; no record may be poison.
func benchSpec(b *testing.B, spec source.Spec, path string) {
	b.Helper()
	flush := func(d event.Decoder) {
		out, err := d.Flush()
		if err != nil {
			b.Fatal(err)
		}
		if len(out.Poison) > 0 {
			b.Fatalf("poison: %s %s", out.Poison[0].Code, out.Poison[0].Reason)
		}
	}
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(st.Size())
	b.ReportAllocs()
	b.ResetTimer()
	n, before := 0, cpuTime()
	for range b.N {
		o, err := source.Open(context.Background(), spec)
		if err != nil {
			b.Fatal(err)
		}
		d := o.NewDecoder()
		for rec, err := range o.Source.Records(context.Background(), nil) {
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Add(context.Background(), rec); err != nil {
				b.Fatal(err)
			}
			if rows, _ := d.Pending(); rows >= 100_000 {
				flush(d)
			}
			n++
		}
		flush(d)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	if cpu := cpuTime() - before; cpu > 0 {
		b.ReportMetric(float64(n)/cpu.Seconds(), "events/cpu-s")
	}
}

// BenchmarkDecoder_Bare reads 200 000 bare envelopes of 600 bytes.
func BenchmarkDecoder_Bare(b *testing.B) {
	path := filepath.Join(b.TempDir(), "events.jsonl")
	var buf bytes.Buffer
	for i := range 200_000 {
		bareEvent(&buf, i)
	}
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	benchFile(b, path, source.Debezium)
}

// BenchmarkDecoder_Large reads the recorded corpus of 201 798 topic records.
func BenchmarkDecoder_Large(b *testing.B) {
	benchFile(b, testenv.SharedDir(b, "corpora", "debezium", "pg-large", "events.jsonl.zst"), source.Debezium)
}
