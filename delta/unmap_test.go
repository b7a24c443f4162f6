package delta_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

const unmappedDDL = "id BIGINT, title STRING, s STRUCT<y: INT, l ARRAY<STRUCT<d: DOUBLE>>>, p STRING, m DATE"

const unmapDDL = "id BIGINT, name STRING, s STRUCT<x: INT, l ARRAY<STRUCT<d: DOUBLE>>>, m MAP<STRING, STRUCT<q: INT>>, p STRING"

// unmapTable is a mapped table with a renamed, a dropped and a re-added column, changed
// rows and files of several schemas.
func unmapTable(t *testing.T, mode string, more map[string]string, store storage.Store) *delta.Table {
	t.Helper()
	props := map[string]string{"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"}
	maps.Copy(props, more)
	tb := testtable.New(t, testtable.Spec{DDL: unmapDDL, Partition: []string{"p"}, Properties: props, Store: store,
		Rows: []string{testtable.Numbers(0, 6, `,"name":"n%","s":{"x":%,"l":[{"d":%.5}]},"m":[{"key":"k","value":{"q":%}}],"p":"p/1"`)}})
	alter(t, tb, delta.RenameColumn{Column: "name", To: "title"})
	alter(t, tb, delta.RenameColumn{Column: "s.x", To: "y"})
	alter(t, tb, delta.DropColumns{Columns: []string{"m"}})
	alter(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: field("m", schema.Date)}}})
	putRows(t, tb, testtable.Numbers(6, 9, `,"title":"n%","s":{"y":%,"l":null},"p":null,"m":"2024-01-02"`))
	if _, err := tb.Delete(ctx, "id IN (1, 7)", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	return tb
}

func putRows(t *testing.T, tb *delta.Table, rows string) {
	t.Helper()
	if err := appendRows(t, tb, unmappedDDL, rows); err != nil {
		t.Fatal(err)
	}
}

func dropMapping(tb *delta.Table) (*deltalog.Snapshot, error) {
	if _, err := tb.DropFeature(ctx, deltalog.ColumnMapping, deltalog.DropFeatureOptions{}); err != nil {
		return nil, err
	}
	return tb.Snapshot(ctx)
}

func TestTable_DropFeature_ColumnMapping(t *testing.T) {
	for _, mode := range []string{"name", "id"} {
		for what, more := range map[string]map[string]string{
			"rewritten": nil, "vectors and row ids": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
		} {
			t.Run("W-303 W-501 W-503 "+mode+" "+what, func(t *testing.T) {
				tb := unmapTable(t, mode, more, nil)
				scan := delta.ScanOptions{RowIDs: more != nil}
				before, was := testtable.Read(t, tb, scan), versionOf(t, tb)
				snap, err := dropMapping(tb)
				if err != nil {
					t.Fatal(err)
				}
				if snap.Supports(deltalog.ColumnMapping) || snap.Mode() != schema.ModeNone || strings.Contains(snap.Metadata.SchemaString, "columnMapping") {
					t.Errorf("protocol %+v, schema %s", snap.Protocol, snap.Metadata.SchemaString)
				}
				props := map[string]string{"delta.enableChangeDataFeed": "true"}
				maps.Copy(props, more)
				for k, v := range snap.Metadata.Configuration {
					if want, ok := props[k]; strings.Contains(k, "columnMapping") || ok && v != want {
						t.Errorf("property %s=%s", k, v)
					}
					delete(props, k)
				}
				if len(props) > 0 {
					t.Errorf("properties %v are gone", props)
				}
				wantRows(t, tb, scan, before...)
				for a, err := range snap.Files(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := a.PartitionValues["p"]; !ok || len(a.PartitionValues) != 1 || !strings.Contains(a.Stats, `"title"`) || strings.Contains(a.Stats, "col-") {
						t.Errorf("partition values %v, statistics %s", a.PartitionValues, a.Stats)
					}
					f := fileSchema(t, tb, a)
					if f.Index("title") < 0 || f.Index("id") < 0 {
						t.Errorf("file columns %v", f)
					}
					for _, c := range f.Fields {
						if _, ok := schema.FieldID(c); ok {
							t.Errorf("column %s has a field id", c.Name)
						}
					}
				}
				// The commits changed no row and the feed shows none.
				if got := changesOf(t, tb, was+1); len(got) > 0 {
					t.Errorf("feed of the rewrite: %v", got)
				}
				// Life goes on: writes, pruning, and older versions under their own names.
				putRows(t, tb, `{"id":50,"title":"after","p":"q"}`)
				if _, err := tb.Update(ctx, "title = upper(title)", "id = 3", delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				wantRows(t, tb, delta.ScanOptions{Where: "id IN (3, 50)", Columns: []string{"id", "title", "p"}}, `{"id":3,"p":"p/1","title":"N3"}`, `{"id":50,"p":"q","title":"after"}`)
				old, err := tb.SnapshotAt(ctx, was)
				if err != nil {
					t.Fatal(err)
				}
				wantRows(t, tb, delta.ScanOptions{Snapshot: old, RowIDs: scan.RowIDs}, before...)
				// A restore cannot bring the mapping back together with rows: change feed, mode id.
				_, err = tb.Restore(ctx, delta.RestoreOptions{Version: &was})
				want := map[string]string{"name": "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION", "id": "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"}[mode]
				if codeOf(err) != want {
					t.Errorf("restore: %v", err)
				}
			})
		}
	}
	t.Run("W-503 restored without a change feed", func(t *testing.T) {
		tb := unmapTable(t, "name", map[string]string{"delta.enableChangeDataFeed": "false"}, nil)
		before, was := testtable.Read(t, tb, delta.ScanOptions{}), versionOf(t, tb)
		snap, err := dropMapping(tb)
		if err != nil {
			t.Fatal(err)
		}
		plain := snap.Version
		for _, v := range []int64{was, plain} {
			if _, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, before...)
		}
		alter(t, tb, delta.RenameColumn{Column: "title", To: "a b"})
		wantRows(t, tb, delta.ScanOptions{Where: "id = 3", Columns: []string{"id", "a b"}}, `{"a b":"n3","id":3}`)
	})
	t.Run("W-503 and on again", func(t *testing.T) {
		tb := unmapTable(t, "name", nil, nil)
		first, err := dropMapping(tb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tb.SetProperties(ctx, mapped("name"), delta.PropertyOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		alter(t, tb, delta.RenameColumn{Column: "title", To: "a b"})
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"id", "p"}}, testtable.Read(t, tb, delta.ScanOptions{Snapshot: first, Columns: []string{"id", "p"}})...)
		wantRows(t, tb, delta.ScanOptions{Where: "id = 3", Columns: []string{"a b"}}, `{"a b":"n3"}`)
		_, err = dropMapping(tb)
		if codeOf(err) != "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING" || !strings.Contains(err.Error(), "a b") {
			t.Errorf("a name that only mapped tables may have: %v", err)
		}
	})
	t.Run("W-823 clustering columns go by their names", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a INT, s STRUCT<k: INT>", Properties: mapped("name"), Rows: []string{testtable.Numbers(0, 20, `,"a":%,"s":{"k":%}`), testtable.Numbers(20, 40, `,"a":%,"s":{"k":%}`)}})
		if _, err := tb.ClusterBy(ctx, []string{"s.k", "a"}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
			t.Fatal(err)
		}
		snap, err := dropMapping(tb)
		if err != nil {
			t.Fatal(err)
		}
		paths, err := snap.ClusteringColumns()
		if err != nil || !slices.EqualFunc(paths, [][]string{{"s", "k"}, {"a"}}, slices.Equal) {
			t.Errorf("clustered by %v, %v", paths, err)
		}
		if r, err := tb.Optimize(ctx, delta.OptimizeOptions{}); err != nil || r.Committed {
			t.Errorf("what was clustered is clustered again: %+v, %v", r.Result, err)
		}
	})
	t.Run("4 a target of apply keeps its mapping", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := unmapTable(t, "name", nil, store)
		if _, err := tb.SetProperties(ctx, map[string]string{"a": "b"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		putRows(t, tb, `{"id":70}`)
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx := tb.Log().Begin(snap)
		tx.SetTxn("sluice-state", 1)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "AUTO CDC"}); err != nil {
			t.Fatal(err)
		}
		files := testtable.Files(t, store)
		_, err = dropMapping(tb)
		if codeOf(err) != "APPLY_COLUMN_MAPPING_IN_USE" || !errors.Is(err, deltalog.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
		if got := testtable.Files(t, store); !slices.Equal(got, files) {
			t.Errorf("files written: %v", got)
		}
	})
}

// TestChanges_MappingRemoved: as in Spark, no range reads across the removal of column
// mapping, since files name columns otherwise; a stream stops there and goes on after it.
func TestChanges_MappingRemoved(t *testing.T) {
	tb := unmapTable(t, "name", nil, nil)
	was := versionOf(t, tb)
	if _, err := dropMapping(tb); err != nil {
		t.Fatal(err)
	}
	putRows(t, tb, `{"id":50,"title":"after","p":"q"}`)
	now := versionOf(t, tb)
	_, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &was, ToVersion: &now}})
	if codeOf(err) != "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA" || !strings.Contains(err.Error(), "column mapping was removed") {
		t.Errorf("R-911 range: %v", err)
	}
	if got := changesOf(t, tb, was); len(got) != 2 {
		t.Errorf("R-911 before: %v", got)
	}
	if got := changesOf(t, tb, now); len(got) != 1 || !strings.Contains(got[0], `"title":"after"`) {
		t.Errorf("R-911 after: %v", got)
	}
	var rows []string
	read := func(o cdf.StreamOptions) (cdf.Position, error) {
		s, err := tb.Stream(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := s.Next(ctx)
			if err != nil || b == nil {
				return s.Position(), err
			}
			for r, err := range b.Rows(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, testtable.BatchLines(sliceColumns(r, int(r.NumCols())-2))...)
			}
		}
	}
	pos, err := read(cdf.StreamOptions{FromVersion: &was})
	var stop *cdf.SchemaChangedError
	if !errors.As(err, &stop) || len(rows) != 2 {
		t.Fatalf("R-923 the stream ends with %v after %v", err, rows)
	}
	if _, err = read(cdf.StreamOptions{Position: &pos}); err != nil || len(rows) != 3 || !strings.Contains(rows[2], `"title":"after"`) {
		t.Errorf("R-923 and goes on with %v: %v", err, rows)
	}
}
