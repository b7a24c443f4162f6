package delta_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// filesOf copies the data files of tables into a store, as a folder of Parquet files.
func filesOf(t *testing.T, to storage.Store, tables ...*delta.Table) {
	t.Helper()
	for _, tb := range tables {
		for _, a := range liveFiles(t, tb) {
			key, err := a.Decoded()
			if err != nil {
				t.Fatal(err)
			}
			data, err := storage.ReadAll(ctx, tb.Store(), key)
			if err != nil {
				t.Fatal(err)
			}
			if err := to.Put(ctx, key, data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestConvert(t *testing.T) {
	t.Run("W-601 all types with statistics from footers", func(t *testing.T) {
		ddl := "b TINYINT, s SMALLINT, i INT, l BIGINT, d DECIMAL(12,3), dd DECIMAL(30,2), f FLOAT, x DOUBLE, t STRING, day DATE, at TIMESTAMP, bo BOOLEAN, bi BINARY, st STRUCT<a: INT, n: STRUCT<b: STRING>>, ar ARRAY<INT>, m MAP<STRING, INT>"
		row := func(n int) string {
			return fmt.Sprintf(`{"b":%d,"s":%d,"i":%d,"l":%d,"d":%d.125,"dd":%d.5,"f":%d.5,"x":%d.25,"t":"text %d","day":"2024-01-%02d","at":"1969-12-31T23:59:%02d.123456Z","bo":true,"bi":"AAE=","st":{"a":%d,"n":{"b":"y%d"}},"ar":[1,null],"m":[{"key":"k","value":%d}]}`,
				n, n, n, n, n, n, n, n, n, n+1, n, n, n, n)
		}
		source := testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{row(3) + row(7) + `{"i":null}`, `{"l":9007199254740993}`}})
		store := storage.NewMemory("c")
		filesOf(t, store, source)
		tb, r, err := delta.Convert(ctx, store, delta.ConvertOptions{}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rows != 4 || r.Version != 0 {
			t.Errorf("got %+v", r)
		}
		if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), testtable.Read(t, source, delta.ScanOptions{})); d != "" {
			t.Error(d)
		}
		want := map[string]string{}
		for _, a := range liveFiles(t, source) {
			want[a.Path] = a.Stats
		}
		for _, a := range liveFiles(t, tb) {
			got, ours := decodeStats(t, a.Stats), decodeStats(t, want[a.Path])
			for _, bound := range []string{"minValues", "maxValues"} {
				delete(ours[bound].(map[string]any), "f")
				delete(ours[bound].(map[string]any), "x")
			}
			delete(ours["nullCount"].(map[string]any), "ar")
			delete(ours["nullCount"].(map[string]any), "m")
			if g, w := fmt.Sprint(got), fmt.Sprint(ours); g != w {
				t.Errorf("stats\n%s, want\n%s", g, w)
			}
		}
		info := commitAt(t, tb, 0).Info
		if info.Operation != "CONVERT" || string(info.OperationParameters["collectStats"]) != `"true"` || info.OperationMetrics["numConvertedFiles"] != "2" {
			t.Errorf("commitInfo %s", info.Raw)
		}
		if _, err := tb.Update(ctx, "i = i + 1", "l > 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("R-405 R-551 partition types are inferred or given", func(t *testing.T) {
		source := testtable.New(t, testtable.Spec{DDL: "id BIGINT, y INT, day DATE, p STRING, n BIGINT", Partition: []string{"y", "day", "p", "n"},
			Rows: []string{`{"id":1,"y":7,"day":"2024-02-29","p":"a/b=c %","n":5000000000}{"id":2,"y":null,"day":null,"p":"ü","n":1}{"id":3,"y":-1,"day":"2024-01-01","p":null,"n":null}`}})
		store := storage.NewMemory("c")
		filesOf(t, store, source)
		put(t, store, "_SUCCESS", ".x/y.parquet", "_tmp/z.parquet")
		tb, _, err := delta.Convert(ctx, store, delta.ConvertOptions{}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := mustSnapshot(t, tb).Schema.String(); got != mustSnapshot(t, source).Schema.String() {
			t.Errorf("schema %s", got)
		}
		if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), testtable.Read(t, source, delta.ScanOptions{})); d != "" {
			t.Error(d)
		}
		given := storage.NewMemory("g")
		filesOf(t, given, source)
		tb, _, err = delta.Convert(ctx, given, delta.ConvertOptions{PartitionSchema: testtable.Struct(t, "y STRING, day STRING, p STRING, n DECIMAL(12,0)"), NoStats: true}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if a := liveFiles(t, tb)[0]; a.Stats != "" {
			t.Errorf("stats %s", a.Stats)
		}
		if n := len(testtable.Read(t, tb, delta.ScanOptions{Where: "y = '7' AND n = 5000000000"})); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("R-404 columns are joined over the files, nested ones too", func(t *testing.T) {
		store := storage.NewMemory("c")
		filesOf(t, store, testtable.New(t, testtable.Spec{DDL: "id BIGINT, st STRUCT<a: INT>", Rows: []string{`{"id":1,"st":{"a":1}}`}}),
			testtable.New(t, testtable.Spec{DDL: "st STRUCT<b: STRING, a: INT>, id BIGINT, more STRING", Rows: []string{`{"id":2,"st":{"a":2,"b":"x"},"more":"y"}`}}))
		tb, _, err := delta.Convert(ctx, store, delta.ConvertOptions{Properties: map[string]string{"delta.enableChangeDataFeed": "true"}}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := testtable.Read(t, tb, delta.ScanOptions{})
		if len(got) != 2 || !strings.Contains(strings.Join(got, ""), `"b":null`) || !mustSnapshot(t, tb).WritesChangeFeed() {
			t.Errorf("got %v", got)
		}
	})
	t.Run("folders that are no table are refused by file and nothing is written", func(t *testing.T) {
		one := func(ddl, row string) *delta.Table {
			return testtable.New(t, testtable.Spec{DDL: ddl, Rows: []string{row}})
		}
		for name, c := range map[string]struct {
			fill func(s storage.Store)
			code string
			o    delta.ConvertOptions
		}{
			"types":      {func(s storage.Store) { filesOf(t, s, one("id BIGINT", `{"id":1}`), one("id STRING", `{"id":"x"}`)) }, "DELTA_FAILED_TO_MERGE_FIELDS", delta.ConvertOptions{}},
			"widths":     {func(s storage.Store) { filesOf(t, s, one("id BIGINT", `{"id":1}`), one("id INT", `{"id":1}`)) }, "DELTA_FAILED_TO_MERGE_FIELDS", delta.ConvertOptions{}},
			"case":       {func(s storage.Store) { filesOf(t, s, one("id BIGINT", `{"id":1}`), one("ID BIGINT", `{"ID":1}`)) }, "DELTA_FAILED_TO_MERGE_FIELDS", delta.ConvertOptions{}},
			"empty":      {func(s storage.Store) {}, "DELTA_CONVERSION_NO_FILES", delta.ConvertOptions{}},
			"text":       {func(s storage.Store) { put(t, s, "a.parquet", "b.csv") }, "DELTA_CONVERSION_UNSUPPORTED_FILE", delta.ConvertOptions{}},
			"garbage":    {func(s storage.Store) { put(t, s, "a.parquet") }, "DATA_FILE_CORRUPT", delta.ConvertOptions{}},
			"zero bytes": {func(s storage.Store) { _ = s.Put(ctx, "a.parquet", nil) }, "DELTA_CONVERSION_UNSUPPORTED_FILE", delta.ConvertOptions{}},
			"folder":     {func(s storage.Store) { put(t, s, "x/a.parquet") }, "DELTA_CONVERSION_PARTITION_MISMATCH", delta.ConvertOptions{}},
			"depths":     {func(s storage.Store) { put(t, s, "p=1/a.parquet", "p=1/q=2/b.parquet") }, "DELTA_CONVERSION_PARTITION_MISMATCH", delta.ConvertOptions{}},
			"names":      {func(s storage.Store) { put(t, s, "p=1/a.parquet", "q=2/b.parquet") }, "DELTA_CONVERSION_PARTITION_MISMATCH", delta.ConvertOptions{}},
			"given":      {func(s storage.Store) { put(t, s, "p=1/a.parquet") }, "DELTA_CONVERSION_PARTITION_MISMATCH", delta.ConvertOptions{PartitionSchema: testtable.Struct(t, "q INT")}},
			"value":      {func(s storage.Store) { put(t, s, "p=x/a.parquet") }, "DELTA_CONVERSION_PARTITION_MISMATCH", delta.ConvertOptions{PartitionSchema: testtable.Struct(t, "p INT")}},
			"nested":     {func(s storage.Store) { put(t, s, "x/_delta_log/00000000000000000000.json") }, "DELTA_CONVERSION_UNSUPPORTED_FILE", delta.ConvertOptions{}},
			"mapping":    {func(s storage.Store) { filesOf(t, s, one("id BIGINT", `{"id":1}`)) }, "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", delta.ConvertOptions{Properties: map[string]string{"delta.columnMapping.mode": "name"}}},
		} {
			s := storage.NewMemory("c")
			c.fill(s)
			before := testtable.Files(t, s)
			_, _, err := delta.Convert(ctx, s, c.o, delta.Options{})
			var coded deltalog.Coder
			if !errors.As(err, &coded) || coded.Code() != c.code {
				t.Errorf("%s: got %v, want %s", name, err, c.code)
			}
			if after := testtable.Files(t, s); len(after) != len(before) {
				t.Errorf("%s: left behind %v", name, after)
			}
		}
		tb := one("id BIGINT", `{"id":1}`)
		if _, _, err := delta.Convert(ctx, tb.Store(), delta.ConvertOptions{}, delta.Options{}); !errors.Is(err, delta.ErrExists) {
			t.Errorf("a table: got %v", err)
		}
	})
}

func decodeStats(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	out := map[string]any{}
	if err := d.Decode(&out); err != nil {
		t.Fatalf("stats %q: %v", text, err)
	}
	return out
}
