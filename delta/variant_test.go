package delta_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

func variantRows(t *testing.T, ddl, lines string) func(func(arrow.RecordBatch, error) bool) {
	t.Helper()
	return rowio.Read(context.Background(), strings.NewReader(lines), rowio.JSONL, rowio.ReadOptions{Schema: testtable.Struct(t, ddl)})
}

func TestTable_Variant(t *testing.T) {
	for _, name := range []string{"variant", "variant_shredded"} {
		t.Run("R-841 every write to "+name, func(t *testing.T) {
			tb := goldenSpark(t, name)
			before := testtable.Read(t, tb, delta.ScanOptions{Where: "id < 150"})
			const ddl = "id BIGINT, v VARIANT, s STRUCT<w: VARIANT, x: INT>"
			_, err := tb.Append(ctx, variantRows(t, ddl, `{"id":9001,"v":"{\"a\": \"1\", \"b\": [1.50, null]}","s":{"w":{"k":1},"x":1}}`+"\n"+`{"id":9002,"v":"null"}`), delta.WriteOptions{})
			must(t, err)
			_, err = tb.Update(ctx, `v = parse_json('{"z": 1e3}')`, "id = 9002 AND is_variant_null(v)", delta.DMLOptions{})
			must(t, err)
			_, err = tb.Update(ctx, "s = NULL", "try_variant_get(v, '$.a', 'int') = 1 AND id > 9000", delta.DMLOptions{})
			must(t, err)
			_, err = tb.Optimize(ctx, delta.OptimizeOptions{})
			must(t, err)
			whereRows(t, tb, "id > 9000", `{"id":9001,"s":null,"v":"{\"a\":\"1\",\"b\":[1.5,null]}"}`, `{"id":9002,"s":null,"v":"{\"z\":1000.0}"}`)
			whereRows(t, tb, "id < 150", before...)
			snap, err := tb.Snapshot(ctx)
			must(t, err)
			files, err := snap.FileList(ctx)
			must(t, err)
			for _, f := range files {
				if strings.Contains(f.Stats, `"v":{`) || !strings.Contains(f.Stats, `"v":`) {
					t.Errorf("W-602 R-841 statistics %s", f.Stats)
				}
			}
			for _, where := range []string{"v = 1", "v < parse_json('1')"} {
				if _, err := tb.Scan(ctx, delta.ScanOptions{Where: where}); err == nil {
					t.Errorf("R-841 %s: a variant has no order", where)
				}
			}
		})
	}
	t.Run("W-306 R-841 a new table", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, v VARIANT", Store: store, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if !snap.Supports("variantType") || snap.Protocol.MinReaderVersion != 3 {
			t.Errorf("protocol %v", snap.Protocol)
		}
		_, err = tb.Append(ctx, variantRows(t, "id INT, v VARIANT", `{"id":1,"v":true}`+"\n"+`{"id":2}`), delta.WriteOptions{})
		must(t, err)
		_, err = tb.Delete(ctx, "v IS NULL", delta.DMLOptions{})
		must(t, err)
		whereRows(t, tb, "", `{"id":1,"v":"true"}`)
		if got := strings.Join(changesOf(t, tb, 2), " "); !strings.Contains(got, `"delete"`) || !strings.Contains(got, `"id":2`) {
			t.Errorf("feed %s", got)
		}
		for _, bad := range []delta.CreateOptions{
			{Schema: testtable.Struct(t, "id INT, v VARIANT"), PartitionBy: []string{"v"}},
		} {
			if _, err := delta.Create(ctx, storage.NewMemory("x"), bad, delta.Options{}); !errors.Is(err, delta.ErrInvalid) {
				t.Errorf("W-406: %v", err)
			}
		}
	})
}

// TestTable_VariantFile: R-841, a file of ours has plain variants, marked as such.
func TestTable_VariantFile(t *testing.T) {
	dir := t.TempDir()
	tb := testtable.New(t, testtable.Spec{DDL: "id INT, v VARIANT", Store: local(t, dir)})
	_, err := tb.Append(ctx, variantRows(t, "id INT, v VARIANT", `{"id":1,"v":{"a":1}}`), delta.WriteOptions{})
	must(t, err)
	data, err := os.ReadFile(filepath.Join(dir, onlyFile(t, tb).Path))
	must(t, err)
	f, err := parquetio.Open(bytes.NewReader(data), int64(len(data)))
	must(t, err)
	if got := f.Schema().String(); got != "STRUCT<id: INT, v: STRUCT<metadata: BINARY NOT NULL, value: BINARY NOT NULL>>" {
		t.Errorf("schema %s", got)
	}
}
