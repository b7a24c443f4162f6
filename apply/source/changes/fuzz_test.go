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
	"github.com/sluice-data/sluice/internal/corpora"
)

// fuzz feeds one decoder a record of the fuzzer between two of the matrix's. No bytes
// make it panic, lose a row it does not report, give a null key, or a state that a
// fresh decoder does not take. recorded are the corpora of the format.
func fuzz(f *testing.F, format, cells string, recorded ...string) {
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
	for _, pattern := range recorded {
		for _, s := range corpora.Seeds(f, 40, strings.Split(pattern, "/")...) {
			f.Add(s.Key, s.Value)
		}
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

func FuzzDecoder_Maxwell(f *testing.F) {
	fuzz(f, "maxwell", "F4.", "foreign/maxwell/*/events.jsonl", "producers/maxwell-*/events.jsonl*")
}
func FuzzDecoder_Canal(f *testing.F) {
	fuzz(f, "canal", "F5.", "foreign/canal/*/events.jsonl", "producers/canal-*/events.jsonl*")
}
func FuzzDecoder_TiCDC(f *testing.F) { fuzz(f, "ticdc", "F5.") }
func FuzzDecoder_Aliyun(f *testing.F) {
	fuzz(f, "aliyun", "F5.A_aliyun", "foreign/aliyun-json/*/events.jsonl")
}
func FuzzDecoder_DMS(f *testing.F)        { fuzz(f, "dms", "F6.", "foreign/dms-json/*/events.jsonl") }
func FuzzDecoder_GoldenGate(f *testing.F) { fuzz(f, "goldengate", "F7.", "foreign/ogg/*/events.jsonl") }
func FuzzDecoder_Qlik(f *testing.F)       { fuzz(f, "qlik", "F8.", "foreign/qlik/*/events.jsonl") }
func FuzzDecoder_Airbyte(f *testing.F)    { fuzz(f, "airbyte", "F9.", "foreign/airbyte/*/events.jsonl") }
func FuzzDecoder_Fivetran(f *testing.F) {
	fuzz(f, "fivetran", "F9.", "foreign/fivetran/*/events.jsonl")
}
func FuzzDecoder_Singer(f *testing.F) { fuzz(f, "singer", "F9.", "foreign/singer/*/events.jsonl") }
func FuzzDecoder_SQLServer(f *testing.F) {
	fuzz(f, "sqlserver-cdc", "F10.", "foreign/sqlserver-cdc/*/events.jsonl")
}
func FuzzDecoder_Wal2JSON(f *testing.F) {
	fuzz(f, "wal2json", "F11.", "foreign/wal2json/*/events.jsonl", "debezium/pg-wal2json/wal2json-v*")
}
func FuzzDecoder_MongoDB(f *testing.F) {
	fuzz(f, "mongodb", "F12.", "foreign/mongodb-changestream/*/events.jsonl")
}
func FuzzDecoder_DynamoDB(f *testing.F) {
	fuzz(f, "dynamodb", "F13.", "foreign/dynamodb-streams/*/events.jsonl")
}
func FuzzDecoder_Flink(f *testing.F) {
	fuzz(f, "flink", "F14.", "foreign/flink-changelog-json/*/events.jsonl")
}
