package changes

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
)

// fuzz feeds one decoder a record of the fuzzer between two of the matrix's. No bytes
// make it panic, lose a row it does not report, give a null key, or a state that a
// fresh decoder does not take.
func fuzz(f *testing.F, format, cells string) {
	var good []string
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "matrix", cells+"*"))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no cells %s: %v", cells, err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
				f.Add([]byte(nil), []byte(line))
				good = append(good, line)
			}
		}
	}
	if len(good) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		d, err := New(Options{Format: format, Keys: []string{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		add := func(key, value []byte) {
			err := d.Add(context.Background(), &event.Record{Source: "s", Topic: "a.b", Transport: int64(seen), End: int64(seen) + 1, Line: int64(seen) + 1, Key: key, Value: value, Raw: value})
			var c *ConfigError
			if err != nil && !errors.As(err, &c) {
				t.Fatal(err)
			}
			seen++
		}
		add(nil, []byte(good[0]))
		add(key, value)
		add(nil, []byte(good[len(good)-1]))
		out, err := d.Flush()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range out.Batches {
			if n := int(b.Rows.NumRows()); n != len(b.Ops) || n != len(b.Offsets) || n != len(b.Lines) || b.Seq != nil && b.Seq.Len() != n {
				t.Fatalf("a batch of %d rows, %d ops, %d offsets", n, len(b.Ops), len(b.Offsets))
			}
			for _, k := range b.Keys {
				col := b.Rows.Column(b.Columns.Index(k))
				for i, op := range b.Ops {
					if op != event.Truncate && col.IsNull(i) {
						t.Fatalf("key %s of row %d is null", k, i)
					}
				}
			}
		}
		for _, p := range out.Poison {
			if p.Code == "" || p.Class == "" || p.Record.Raw != nil && !bytes.Equal(p.Record.Raw, p.Record.Value) {
				t.Fatalf("poison %+v", p)
			}
		}
		fresh, err := New(Options{Format: format, Keys: []string{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.Restore(d.State()); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecoder_Maxwell(f *testing.F)    { fuzz(f, "maxwell", "F4.") }
func FuzzDecoder_Canal(f *testing.F)      { fuzz(f, "canal", "F5.") }
func FuzzDecoder_TiCDC(f *testing.F)      { fuzz(f, "ticdc", "F5.") }
func FuzzDecoder_Aliyun(f *testing.F)     { fuzz(f, "aliyun", "F5.A_aliyun") }
func FuzzDecoder_DMS(f *testing.F)        { fuzz(f, "dms", "F6.") }
func FuzzDecoder_GoldenGate(f *testing.F) { fuzz(f, "goldengate", "F7.") }
func FuzzDecoder_Qlik(f *testing.F)       { fuzz(f, "qlik", "F8.") }
func FuzzDecoder_Airbyte(f *testing.F)    { fuzz(f, "airbyte", "F9.") }
func FuzzDecoder_Fivetran(f *testing.F)   { fuzz(f, "fivetran", "F9.") }
func FuzzDecoder_Singer(f *testing.F)     { fuzz(f, "singer", "F9.") }
func FuzzDecoder_SQLServer(f *testing.F)  { fuzz(f, "sqlserver-cdc", "F10.") }
func FuzzDecoder_Wal2JSON(f *testing.F)   { fuzz(f, "wal2json", "F11.") }
func FuzzDecoder_MongoDB(f *testing.F)    { fuzz(f, "mongodb", "F12.") }
func FuzzDecoder_DynamoDB(f *testing.F)   { fuzz(f, "dynamodb", "F13.") }
func FuzzDecoder_Flink(f *testing.F)      { fuzz(f, "flink", "F14.") }
