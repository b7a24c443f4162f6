package delta_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// feedLines is the feed of a range as canonical text without commit times.
func feedLines(t *testing.T, tb *delta.Table, from int64) []string {
	t.Helper()
	f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for b, err := range f.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, testtable.BatchLines(sliceColumns(b, int(b.NumCols())-2))...)
	}
	return out
}

// briefly are change rows as their kind and some columns, sorted.
func briefly(t *testing.T, lines []string, columns ...string) (out []string) {
	t.Helper()
	for _, l := range lines {
		var row map[string]any
		if err := json.Unmarshal([]byte(l), &row); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(row["_change_type"])
		for _, c := range columns {
			text += fmt.Sprint(" ", row[c])
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// TestFieldReports are public bug reports about tables, each as a scenario with its
// right outcome.
func TestFieldReports(t *testing.T) {
	feed := map[string]string{"delta.enableChangeDataFeed": "true"}
	t.Run("B05 one file whole, one in part, and an insert in one commit", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Properties: feed, Rows: []string{`{"id":1,"p":1}{"id":2,"p":1}`, `{"id":3,"p":1}{"id":4,"p":2}`}})
		if _, err := tb.Overwrite(ctx, testtable.Rows(t, "id BIGINT, p INT", `{"id":9,"p":1}`), delta.OverwriteOptions{Where: "p = 1"}); err != nil {
			t.Fatal(err)
		}
		want := []string{`{"_change_type":"delete","id":1,"p":1}`, `{"_change_type":"delete","id":2,"p":1}`, `{"_change_type":"delete","id":3,"p":1}`, `{"_change_type":"insert","id":9,"p":1}`}
		if d := testtable.Diff(feedLines(t, tb, 3), want); d != "" {
			t.Error(d)
		}
		for _, c := range actionsOf(t, tb).CDC {
			if c.DataChange {
				t.Error("a cdc action with dataChange")
			}
		}
	})
	t.Run("B05 overwrite", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: feed, Rows: []string{`{"id":1}{"id":2}{"id":3}`}})
		if _, err := tb.Overwrite(ctx, testtable.Rows(t, "id BIGINT", `{"id":8}{"id":9}`), delta.OverwriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := briefly(t, feedLines(t, tb, 2), "id"); fmt.Sprint(got) != "[delete 1 delete 2 delete 3 insert 8 insert 9]" {
			t.Error(got)
		}
	})
	t.Run("B06 change rows of partitions, null among them", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, p INT", Partition: []string{"p"}, Properties: feed, Rows: []string{
			`{"id":1,"at":"2024-01-01T00:00:00Z","tags":["a"],"p":1}{"id":2,"tags":[],"p":1}{"id":3,"tags":["x",null],"p":2}{"id":4,"p":2}{"id":5,"p":null}{"id":6,"at":"1969-12-31T23:59:59Z","p":null}`}})
		if _, err := tb.Update(ctx, "at = TIMESTAMP '2020-02-02Z'", "id IN (1, 3, 5)", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range actionsOf(t, tb).CDC {
			if _, ok := c.PartitionValues["p"]; !ok || len(c.PartitionValues) != 1 {
				t.Errorf("partitionValues %v", c.PartitionValues)
			}
		}
		if _, err := tb.Delete(ctx, "id IN (2, 4, 6)", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		got := briefly(t, feedLines(t, tb, 2), "id", "p", "at")
		const was, is = "2024-01-01T00:00:00.000000Z", "2020-02-02T00:00:00.000000Z"
		want := []string{"delete 2 1 <nil>", "delete 4 2 <nil>", "delete 6 <nil> 1969-12-31T23:59:59.000000Z",
			"update_postimage 1 1 " + is, "update_postimage 3 2 " + is, "update_postimage 5 <nil> " + is,
			"update_preimage 1 1 " + was, "update_preimage 3 2 <nil>", "update_preimage 5 <nil> <nil>"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("B10 the feed of one table into another", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: feed, Rows: []string{`{"id":1}`}})
		f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = delta.Create(ctx, storage.NewMemory("second"), delta.CreateOptions{Schema: f.Schema, Properties: feed}, delta.Options{})
		if codeOf(err) != "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS" || !strings.Contains(err.Error(), "_change_type") {
			t.Errorf("got %v", err)
		}
		other := testtable.New(t, testtable.Spec{DDL: "id BIGINT, _COMMIT_version BIGINT"})
		if _, err := other.SetProperties(ctx, feed, delta.PropertyOptions{}); codeOf(err) != "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS" || !strings.Contains(strings.ToLower(err.Error()), "_commit_version") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("B35 microseconds in statistics", func(t *testing.T) {
		for _, typ := range []string{"TIMESTAMP", "TIMESTAMP_NTZ"} {
			zone := map[string]string{"TIMESTAMP": "Z"}[typ]
			tb := testtable.New(t, testtable.Spec{DDL: "ts " + typ, Rows: []string{`{"ts":"2024-03-10T06:30:00.123456` + zone + `"}`, `{"ts":"1850-01-01T00:00:00.000001` + zone + `"}`}})
			for _, where := range []string{"ts = %s '2024-03-10T06:30:00.123456%s'", "ts >= %s '2024-03-10T06:30:00.123400%s'", "ts = %s '1850-01-01T00:00:00.000001%s'"} {
				s, err := tb.Scan(ctx, delta.ScanOptions{Where: fmt.Sprintf(where, typ, zone)})
				if err != nil {
					t.Fatal(err)
				}
				if n, err := s.Count(ctx); err != nil || n != 1 {
					t.Errorf("%s: %d %v", fmt.Sprintf(where, typ, zone), n, err)
				}
			}
		}
	})
	t.Run("B40 B41 every partition text comes back", func(t *testing.T) {
		texts := []string{"A/A", "B B", "100%", "x:y", "a=b", "?q#", "é", "日本", "/x/", "..", "abc", "__HIVE_DEFAULT_PARTITION__"}
		rows := `{"id":100,"p":""}{"id":101,"p":null}`
		want := []string{`{"id":100,"p":null}`, `{"id":101,"p":null}`}
		for i, x := range texts {
			b, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			rows += fmt.Sprintf(`{"id":%d,"p":%s}`, i, b)
			want = append(want, testtable.CanonicalJSON(map[string]any{"id": json.Number(fmt.Sprint(i)), "p": x}))
		}
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p STRING", Partition: []string{"p"}, Store: local(t, t.TempDir()), Rows: []string{rows}})
		wantRows(t, tb, delta.ScanOptions{}, want...)
		wantRows(t, tb, delta.ScanOptions{Where: "p = '__HIVE_DEFAULT_PARTITION__'", Columns: []string{"id"}}, `{"id":11}`)
	})
	t.Run("B43 partition columns in another order than the schema", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, first STRING, second STRING", Partition: []string{"second", "first"}})
		if _, err := tb.Append(ctx, testtable.Rows(t, "second STRING, id BIGINT, first STRING", `{"second":"B","id":1,"first":"A"}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"first":"A","id":1,"second":"B"}`)
	})
}
