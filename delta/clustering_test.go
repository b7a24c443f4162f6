package delta_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

func TestTable_Clustering(t *testing.T) {
	t.Run("W-823 R-821 the golden table stays valid", func(t *testing.T) {
		tb := goldenSpark(t, "clustered")
		const ddl = "id BIGINT, name STRING, qty INT"
		must(t, appendRows(t, tb, ddl, `{"id":9001,"name":"a","qty":1}`))
		if a := actionsOf(t, tb).Adds[0]; a.ClusteringProvider != nil {
			t.Errorf("provider %s of an unclustered file", *a.ClusteringProvider)
		}
		_, err := tb.Update(ctx, "qty = qty + 1", "id < 20", delta.DMLOptions{})
		must(t, err)
		_, err = tb.Delete(ctx, "id = 9001", delta.DMLOptions{})
		must(t, err)
		_, err = tb.Optimize(ctx, delta.OptimizeOptions{})
		must(t, err)
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if by, err := snap.ClusteringColumns(); err != nil || fmt.Sprint(by) != "[[at]]" {
			t.Errorf("clustering columns %v %v", by, err)
		}
	})
	for _, mapped := range []string{"none", "name", "id"} {
		t.Run("W-823 W-603 a new table, mapping "+mapped, func(t *testing.T) {
			store := storage.NewMemory("t")
			tb, err := delta.Create(ctx, store, delta.CreateOptions{Schema: testtable.Struct(t, "id BIGINT, s STRUCT<x: INT, y: STRING>, k STRING"),
				ClusterBy: []string{"K", "s.x"}, Properties: map[string]string{"delta.columnMapping.mode": mapped}}, delta.Options{Clock: testtable.Clock()})
			must(t, err)
			_, err = tb.SetProperties(ctx, map[string]string{"delta.dataSkippingNumIndexedCols": "0"}, delta.PropertyOptions{})
			must(t, err)
			must(t, appendRows(t, tb, "id BIGINT, s STRUCT<x: INT, y: STRING>, k STRING", `{"id":1,"k":"b","s":{"x":7,"y":"z"}}{"id":2}`))
			_, err = tb.Update(ctx, "id = id + 1", "id = 1", delta.DMLOptions{})
			must(t, err)
			stats := onlyFile(t, tb).Stats
			if !strings.Contains(stats, `"b"`) || !strings.Contains(stats, "7") || strings.Contains(stats, `"z"`) {
				t.Errorf("statistics %s", stats)
			}
			r, err := tb.Optimize(ctx, delta.OptimizeOptions{Full: true})
			must(t, err)
			if !r.Committed {
				t.Error("nothing was clustered")
			}
			_, err = tb.ClusterBy(ctx, nil, "")
			must(t, err)
			snap, err := tb.Snapshot(ctx)
			must(t, err)
			if by, err := snap.ClusteringColumns(); err != nil || len(by) != 0 {
				t.Errorf("clustering columns %v %v", by, err)
			}
		})
	}
	for code, o := range map[string]delta.CreateOptions{
		"DELTA_CLUSTER_BY_WITH_PARTITIONED_BY":            {PartitionBy: []string{"p"}, ClusterBy: []string{"a"}},
		"DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS":            {ClusterBy: []string{"a", "b", "p", "c", "d"}},
		"DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED": {ClusterBy: []string{"flag"}},
		"DELTA_CLUSTERING_COLUMN_MISSING_STATS":           {ClusterBy: []string{"a"}, Properties: map[string]string{"delta.dataSkippingStatsColumns": "b"}},
		"DELTA_DUPLICATE_COLUMNS_FOUND":                   {ClusterBy: []string{"a", "A"}},
		"UNRESOLVED_COLUMN":                               {ClusterBy: []string{"nix"}},
	} {
		t.Run("W-823 refused "+code, func(t *testing.T) {
			store := storage.NewMemory("t")
			o.Schema = testtable.Struct(t, "a INT, b INT, p INT, c INT, d INT, flag BOOLEAN")
			_, err := delta.Create(ctx, store, o, delta.Options{})
			if !errors.Is(err, delta.ErrInvalid) || errCode(err) != code {
				t.Errorf("got %v", err)
			}
			if f := testtable.Files(t, store); len(f) > 0 {
				t.Errorf("files %v", f)
			}
		})
	}
}

func TestTable_MaterializePartitions(t *testing.T) {
	t.Run("W-852 R-405 partition columns are in the files", func(t *testing.T) {
		dir := t.TempDir()
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p STRING, v INT", Partition: []string{"p"}, Store: local(t, dir),
			Properties: map[string]string{"delta.enableMaterializePartitionColumnsFeature": "true"},
			Rows:       []string{`{"id":1,"p":"x y","v":1}{"id":2,"p":"x y","v":2}`}})
		_, err := tb.Update(ctx, "p = 'z', v = 3", "id = 1", delta.DMLOptions{})
		must(t, err)
		whereRows(t, tb, "", `{"id":1,"p":"z","v":3}`, `{"id":2,"p":"x y","v":2}`)
		files, err := filepath.Glob(filepath.Join(dir, "p=*", "*.parquet"))
		if err != nil || len(files) != 3 {
			t.Fatalf("files %v %v", files, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			must(t, err)
			f, err := parquetio.Open(bytes.NewReader(data), int64(len(data)))
			must(t, err)
			if got := f.Schema().String(); got != "STRUCT<id: BIGINT, p: STRING, v: INT>" {
				t.Errorf("schema %s", got)
			}
		}
	})
	t.Run("W-852 the golden table", func(t *testing.T) {
		tb := goldenSpark(t, "part_materialized")
		must(t, appendRows(t, tb, "id BIGINT, p STRING, d DATE", `{"id":500,"p":"q","d":"2020-01-01"}`))
		_, err := tb.Update(ctx, "v = 5", "id = 500", delta.DMLOptions{})
		must(t, err)
		whereRows(t, tb, "p = 'q'", `{"d":"2020-01-01","id":500,"p":"q","v":5}`)
	})
}
