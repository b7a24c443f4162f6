package delta_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// appendAs appends rows of a schema of their own.
func appendAs(t *testing.T, tb *delta.Table, merge bool, ddl, rows string) (delta.Result, error) {
	t.Helper()
	return tb.Append(ctx, testtable.Rows(t, ddl, rows), delta.WriteOptions{MergeSchema: merge})
}

func schemaText(t *testing.T, tb *delta.Table) string {
	t.Helper()
	s, err := tb.Schema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s.String()
}

func keys(t *testing.T, tb *delta.Table) int { return len(testtable.Files(t, tb.Store())) }

func TestTable_AppendMergeSchema(t *testing.T) {
	t.Run("W-407 nothing changes unasked", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, s STRUCT<a: INT>"})
		before := keys(t, tb)
		for _, c := range []struct{ ddl, row, want string }{
			{"id INT, x STRING", `{"id":1,"x":"a"}`, "column x: not a column of the table"},
			{"id INT, s STRUCT<b: INT>", `{"id":1,"s":{"b":1}}`, "column s.b: not a column of the table"},
			{"id BIGINT", `{"id":1}`, "column id:"},
		} {
			_, err := appendAs(t, tb, false, c.ddl, c.row)
			if codeOf(err) != "SCHEMA_MISMATCH" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(c.want, "not a column") && !strings.Contains(err.Error(), "--merge-schema") {
				t.Errorf("no remedy: %v", err)
			}
		}
		_, err := appendAs(t, tb, true, "id BIGINT", `{"id":1}`)
		if codeOf(err) != "SCHEMA_MISMATCH" || !strings.Contains(err.Error(), "delta.enableTypeWidening=true") {
			t.Errorf("B83: %v", err)
		}
		if keys(t, tb) != before {
			t.Error("files are left")
		}
	})
	for _, mode := range []string{"none", "name", "id"} {
		t.Run("W-407 W-503 columns and nested fields, mapping "+mode, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT NOT NULL, s STRUCT<a: INT>, p STRING", Partition: []string{"p"},
				Properties: map[string]string{"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"}, Rows: []string{`{"id":1,"s":{"a":1},"p":"x"}`}})
			if _, err := appendAs(t, tb, true, "ID BIGINT, l ARRAY<STRUCT<q: INT>>, s STRUCT<b: STRING, a: INT>", `{"ID":2,"l":[{"q":1}],"s":{"b":"x","a":2}}`); err != nil {
				t.Fatal(err)
			}
			c := actionsOf(t, tb)
			if c.Metadata == nil || len(c.Adds) != 1 || c.Info.Operation != "WRITE" || string(c.Info.OperationParameters["canMergeSchema"]) == "" {
				t.Errorf("B21: one commit: %+v", c)
			}
			if _, err := appendAs(t, tb, true, "id BIGINT, l ARRAY<STRUCT<r: DATE>>", `{"id":3,"l":[{"r":"2024-01-01"}]}`); err != nil {
				t.Fatal(err)
			}
			const want = "STRUCT<id: BIGINT NOT NULL, s: STRUCT<a: INT, b: STRING>, p: STRING, l: ARRAY<STRUCT<q: INT, r: DATE>>>"
			if got := schemaText(t, tb); got != want {
				t.Errorf("got %s", got)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"l":null,"p":"x","s":{"a":1,"b":null}}`,
				`{"id":2,"l":[{"q":1,"r":null}],"p":null,"s":{"a":2,"b":"x"}}`, `{"id":3,"l":[{"q":null,"r":"2024-01-01"}],"p":null,"s":null}`)
			snap, _ := tb.Snapshot(ctx)
			if mode != "none" {
				if err := schema.CheckMapping(snap.Schema, 8); err != nil || snap.Metadata.Configuration["delta.columnMapping.maxColumnId"] != "8" {
					t.Errorf("W-502: %v %v", err, snap.Metadata.Configuration)
				}
			}
			if snap.Protocol.MinReaderVersion > 2 {
				t.Errorf("protocol grew: %+v", snap.Protocol)
			}
			from := int64(0)
			feed, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from}})
			if err != nil {
				t.Fatal(err)
			}
			if got := testtable.Lines(t, feed.Rows(ctx)); len(got) != 3 {
				t.Errorf("R-910 feed %q", got)
			}
		})
	}
	t.Run("B83 types widen where the table allows it", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, c FLOAT, l ARRAY<INT>", Properties: map[string]string{"delta.enableTypeWidening": "true"}, Rows: []string{`{"id":1,"c":0.5,"l":[1]}`}})
		if _, err := appendAs(t, tb, true, "id BIGINT, c DOUBLE, l ARRAY<BIGINT>", `{"id":5000000000,"c":0.1,"l":[5000000000]}`); err != nil {
			t.Fatal(err)
		}
		if _, err := appendAs(t, tb, true, "id DOUBLE", `{"id":1}`); codeOf(err) != "SCHEMA_MISMATCH" {
			t.Errorf("W-831: got %v", err)
		}
		wantRows(t, tb, delta.ScanOptions{Where: "id >= 1"}, `{"c":0.5,"id":1,"l":[1]}`, `{"c":0.1,"id":5000000000,"l":[5000000000]}`)
		snap, _ := tb.Snapshot(ctx)
		if s := snap.Metadata.SchemaString; strings.Count(s, `"delta.typeChanges":`) != 3 || !strings.Contains(s, `{"toType":"long","fromType":"integer","fieldPath":"element"}`) {
			t.Errorf("W-831: %s", s)
		}
	})
	t.Run("W-305 a type with a feature of its own is not added unasked", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT"})
		if _, err := appendAs(t, tb, true, "id INT, x TIMESTAMP_NTZ", `{"id":1}`); codeOf(err) != "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("W-905 W-401 names that may not be columns", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT", Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
		before := keys(t, tb)
		if _, err := appendAs(t, tb, true, "id INT, _change_type STRING", `{"id":1}`); codeOf(err) != "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS" {
			t.Errorf("got %v", err)
		}
		if _, err := appendAs(t, tb, true, "id INT, `a b` STRING", `{"id":1}`); codeOf(err) != "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES" {
			t.Errorf("got %v", err)
		}
		if keys(t, tb) != before {
			t.Error("files are left")
		}
	})
	t.Run("one stream with several schemas", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT", Properties: map[string]string{"delta.columnMapping.mode": "id"}})
		rows := testtable.Stream(testtable.Batch(t, "id INT", `{"id":1}`), testtable.Batch(t, "id INT, x INT", `{"id":2,"x":2}`), testtable.Batch(t, "y INT", `{"y":3}`))
		if _, err := tb.Append(ctx, rows, delta.WriteOptions{MergeSchema: true}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"x":null,"y":null}`, `{"id":2,"x":2,"y":null}`, `{"id":null,"x":null,"y":3}`)
		before := keys(t, tb)
		rows = testtable.Stream(testtable.Batch(t, "id INT, z INT", `{"id":1,"z":1}`), testtable.Batch(t, "id STRUCT<a: INT>", `{"id":{"a":1}}`))
		if _, err := tb.Append(ctx, rows, delta.WriteOptions{MergeSchema: true}); codeOf(err) != "SCHEMA_MISMATCH" {
			t.Errorf("got %v", err)
		}
		if keys(t, tb) != before {
			t.Error("files are left")
		}
	})
}

// slow yields rows and waits for go before it ends.
func slow(rows iter.Seq2[arrow.RecordBatch, error], read chan<- struct{}, end <-chan struct{}) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for b, err := range rows {
			if !yield(b, err) {
				return
			}
		}
		close(read)
		<-end
	}
}

func TestTable_EvolveRace(t *testing.T) {
	for _, mode := range []string{"none", "name", "id"} {
		t.Run("B21 two writers add columns at once, mapping "+mode, func(t *testing.T) {
			store := storage.NewMemory("t")
			tb := testtable.New(t, testtable.Spec{DDL: "id INT COMMENT 'key'", Store: store, Properties: map[string]string{"delta.columnMapping.mode": mode}, Rows: []string{`{"id":0}`}})
			other, err := delta.Open(ctx, store, delta.Options{Clock: testtable.Clock()})
			if err != nil {
				t.Fatal(err)
			}
			read, end := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Add(1)
			var res delta.Result
			go func() {
				defer wg.Done()
				res, err = other.Append(ctx, slow(testtable.Rows(t, "id INT, y INT", `{"id":2,"y":2}`), read, end), delta.WriteOptions{MergeSchema: true})
			}()
			<-read
			if _, err := appendAs(t, tb, true, "id INT, x STRING", `{"id":1,"x":"a"}`); err != nil {
				t.Fatal(err)
			}
			close(end)
			wg.Wait()
			if err != nil || res.Version != 3 || res.Attempts != 2 {
				t.Fatalf("%+v %v", res, err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":0,"x":null,"y":null}`, `{"id":1,"x":"a","y":null}`, `{"id":2,"x":null,"y":2}`)
			snap, _ := tb.Snapshot(ctx)
			if !strings.Contains(snap.Metadata.SchemaString, `"comment":"key"`) {
				t.Errorf("comment is lost: %s", snap.Metadata.SchemaString)
			}
			live := map[string]bool{}
			for a := range snap.Files(ctx) {
				live[a.Path] = true
			}
			for _, k := range testtable.Files(t, store) {
				if strings.HasSuffix(k, ".parquet") && !live[k] {
					t.Errorf("file %s is left", k)
				}
			}
		})
	}
	t.Run("B21 a write that dies adds no column", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT"})
		c, cancel := context.WithCancel(ctx)
		rows := func(yield func(arrow.RecordBatch, error) bool) {
			yield(testtable.Batch(t, "id INT, z INT", `{"id":1,"z":1}`), nil)
			cancel()
		}
		if _, err := tb.Append(c, rows, delta.WriteOptions{MergeSchema: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if got := schemaText(t, tb); got != "STRUCT<id: INT>" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("C-16 types that do not meet", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: "id INT", Store: store})
		other, err := delta.Open(ctx, store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		read, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			_, err := other.Append(ctx, slow(testtable.Rows(t, "x STRUCT<a: INT>", `{"x":{"a":1}}`), read, end), delta.WriteOptions{MergeSchema: true})
			done <- err
		}()
		<-read
		if _, err := appendAs(t, tb, true, "x INT", `{"x":1}`); err != nil {
			t.Fatal(err)
		}
		close(end)
		if err := <-done; codeOf(err) != "SCHEMA_MISMATCH" {
			t.Errorf("got %v", err)
		}
		data := 0
		for _, k := range testtable.Files(t, store) {
			if strings.HasSuffix(k, ".parquet") {
				data++
			}
		}
		if data != 1 {
			t.Errorf("%d data files: one of the winner, none of the loser", data)
		}
	})
}

func TestTable_OverwriteSchema(t *testing.T) {
	over := func(t *testing.T, tb *delta.Table, o delta.OverwriteOptions, ddl, rows string) error {
		_, err := tb.Overwrite(ctx, testtable.Rows(t, ddl, rows), o)
		return err
	}
	t.Run("W-407 W-408 columns and partitions are replaced", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT COMMENT 'key', a STRING, p INT", Partition: []string{"p"}, Rows: []string{`{"id":1,"a":"x","p":1}`}})
		before, _ := tb.Snapshot(ctx)
		if err := over(t, tb, delta.OverwriteOptions{OverwriteSchema: true, PartitionBy: []string{"Q"}}, "q STRING, id BIGINT, a INT NOT NULL", `{"q":"k","id":7,"a":8}`); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"a":8,"id":7,"q":"k"}`)
		snap, _ := tb.Snapshot(ctx)
		if got := snap.Schema.String(); got != "STRUCT<q: STRING, id: BIGINT, a: INT>" || snap.Metadata.ID != before.Metadata.ID || fmt.Sprint(snap.PartitionColumns()) != "[q]" {
			t.Errorf("got %s by %v", got, snap.PartitionColumns())
		}
		if !strings.Contains(snap.Metadata.SchemaString, `"comment":"key"`) {
			t.Error("comment is lost")
		}
		one := int64(1)
		wantRows(t, tb, delta.ScanOptions{Version: &one}, `{"a":"x","id":1,"p":1}`)
		if err := over(t, tb, delta.OverwriteOptions{OverwriteSchema: true, PartitionBy: []string{}}, "id BIGINT", `{"id":1}`); err != nil {
			t.Fatal(err)
		}
		if snap, _ := tb.Snapshot(ctx); len(snap.PartitionColumns()) != 0 {
			t.Errorf("partitions %v", snap.PartitionColumns())
		}
	})
	t.Run("W-408 refusals", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Rows: []string{`{"id":1,"p":1}`}})
		n := keys(t, tb)
		for _, c := range []struct {
			o         delta.OverwriteOptions
			ddl, code string
		}{
			{delta.OverwriteOptions{}, "id INT, x INT", "SCHEMA_MISMATCH"},
			{delta.OverwriteOptions{OverwriteSchema: true, Where: "p = 1"}, "id BIGINT, p INT", "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"},
			{delta.OverwriteOptions{OverwriteSchema: true, Dynamic: true}, "id BIGINT, p INT", "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"},
			{delta.OverwriteOptions{PartitionBy: []string{"id"}}, "id BIGINT, p INT", "DELTA_PARTITION_COLUMNS_CHANGED"},
			{delta.OverwriteOptions{OverwriteSchema: true}, "id BIGINT", "DELTA_INVALID_PARTITION_COLUMN"},
			{delta.OverwriteOptions{OverwriteSchema: true, PartitionBy: []string{"id"}}, "id BIGINT", "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"},
		} {
			if err := over(t, tb, c.o, c.ddl, `{"id":1}`); codeOf(err) != c.code {
				t.Errorf("%+v: got %v", c.o, err)
			}
		}
		if keys(t, tb) != n {
			t.Error("files are left")
		}
	})
	t.Run("W-503 a mapped table gets new physical columns", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a STRING", Properties: map[string]string{"delta.columnMapping.mode": "name"}, Rows: []string{`{"id":1,"a":"x"}`}})
		before, _ := tb.Snapshot(ctx)
		if err := over(t, tb, delta.OverwriteOptions{OverwriteSchema: true}, "a INT, id BIGINT", `{"a":1,"id":2}`); err != nil {
			t.Fatal(err)
		}
		after, _ := tb.Snapshot(ctx)
		if schema.PhysicalName(before.Schema.Fields[0]) != schema.PhysicalName(after.Schema.Fields[1]) || schema.PhysicalName(before.Schema.Fields[1]) == schema.PhysicalName(after.Schema.Fields[0]) {
			t.Errorf("schema %s", after.Metadata.SchemaString)
		}
		if id, _ := schema.FieldID(after.Schema.Fields[0]); id != 3 {
			t.Errorf("W-502: id %d", id)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"a":1,"id":2}`)
	})
	t.Run("W-506 not on a mapped table with a feed", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a STRING", Properties: map[string]string{"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}})
		n := keys(t, tb)
		if err := over(t, tb, delta.OverwriteOptions{OverwriteSchema: true}, "id BIGINT", `{"id":2}`); codeOf(err) != "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION" || keys(t, tb) != n {
			t.Errorf("got %v", err)
		}
		if err := over(t, tb, delta.OverwriteOptions{WriteOptions: delta.WriteOptions{MergeSchema: true}}, "id BIGINT, b INT", `{"id":2,"b":1}`); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("W-407 replaceWhere and dynamic with new columns", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}, Rows: []string{`{"id":1,"p":1}{"id":2,"p":1}{"id":3,"p":2}`}})
		merge := delta.WriteOptions{MergeSchema: true}
		if err := over(t, tb, delta.OverwriteOptions{WriteOptions: merge, Where: "id = 1"}, "id BIGINT, p INT, x INT", `{"id":1,"p":1,"x":5}`); err != nil {
			t.Fatal(err)
		}
		if err := over(t, tb, delta.OverwriteOptions{WriteOptions: merge, Dynamic: true}, "id BIGINT, p INT, y INT", `{"id":4,"p":2,"y":6}`); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"p":1,"x":5,"y":null}`, `{"id":2,"p":1,"x":null,"y":null}`, `{"id":4,"p":2,"x":null,"y":6}`)
		if got := changesOf(t, tb, 2); len(got) != 2 {
			t.Errorf("changes %q", got)
		}
	})
}
