package delta_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// rowIDs maps the column id to row id and row commit version.
func rowIDs(t testing.TB, tb *delta.Table) map[string][2]int64 {
	t.Helper()
	s, err := tb.Scan(ctx, delta.ScanOptions{Columns: []string{"id"}, RowIDs: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]int64{}
	seen := map[int64]bool{}
	for _, l := range testtable.Lines(t, s.Batches(ctx)) {
		var row struct {
			ID      json.Number `json:"id"`
			RowID   *int64      `json:"_row_id"`
			Version *int64      `json:"_row_commit_version"`
		}
		if err := json.Unmarshal([]byte(l), &row); err != nil || row.RowID == nil || row.Version == nil {
			t.Fatalf("row without ids: %s (%v)", l, err)
		}
		if seen[*row.RowID] {
			t.Fatalf("row id %d occurs twice", *row.RowID)
		}
		seen[*row.RowID] = true
		out[row.ID.String()] = [2]int64{*row.RowID, *row.Version}
	}
	return out
}

func TestTable_RowTracking(t *testing.T) {
	for _, name := range []string{"rowtrack", "rowtrack_later"} {
		t.Run("R-801 W-803 W-802 "+name, func(t *testing.T) {
			tb := goldenSpark(t, name)
			data, err := os.ReadFile(filepath.Join(testenv.SharedDir(t, "golden", "spark"), name+".expected.json"))
			must(t, err)
			var want struct {
				RowIDs []map[string]any `json:"row_ids"`
			}
			must(t, json.Unmarshal(data, &want))
			s, err := tb.Scan(ctx, delta.ScanOptions{RowIDs: true})
			must(t, err)
			if d := testtable.Diff(zoneless(testtable.Lines(t, s.Batches(ctx))), canonicalRows(want.RowIDs)); d != "" {
				t.Fatal(d)
			}
			ids := rowIDs(t, tb)
			check := func(what string, changed func(id string) bool) {
				t.Helper()
				snap, err := tb.Snapshot(ctx)
				must(t, err)
				now := rowIDs(t, tb)
				for id, pair := range now {
					old, ok := ids[id]
					if !ok {
						continue
					}
					if changed(id) {
						old[1] = snap.Version
					}
					if pair != old {
						t.Errorf("%s: row %s: row id and version %v, want %v", what, id, pair, old)
					}
				}
				ids = now
				info := actionsOf(t, tb).Info
				if info.Tags["delta.rowTracking.preserved"] != "true" {
					t.Errorf("%s: tags %v", what, info.Tags)
				}
			}
			some := slices.Sorted(mapKeys(ids))[:3]
			in := "id IN (" + strings.Join(some, ", ") + ")"
			none := func(string) bool { return false }
			_, err = tb.Update(ctx, "qty = coalesce(qty, 0) + 1", in, delta.DMLOptions{})
			must(t, err)
			check("update", func(id string) bool { return slices.Contains(some, id) })
			_, err = tb.Delete(ctx, "id = "+some[0], delta.DMLOptions{})
			must(t, err)
			check("delete", none)
			must(t, appendRows(t, tb, "id BIGINT, name STRING", `{"id":9001,"name":"x"}{"id":9002,"name":"y"}`))
			check("append", none)
			_, err = tb.Optimize(ctx, delta.OptimizeOptions{ZOrder: []string{"id"}})
			must(t, err)
			check("optimize", none)
			_, err = tb.Overwrite(ctx, testtable.Rows(t, "id BIGINT, name STRING", `{"id":9003,"name":"x"}`), delta.OverwriteOptions{Where: "id = 9003 OR id = " + some[1]})
			must(t, err)
			check("replace where", none)
		})
	}
	t.Run("W-804 enabled on a table with files", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Rows: []string{`{"id":1}{"id":2}`, `{"id":3}`}})
		if _, err := tb.Scan(ctx, delta.ScanOptions{RowIDs: true}); errCode(err) != "DELTA_ROW_TRACKING_NOT_ENABLED" {
			t.Errorf("got %v", err)
		}
		_, err := tb.SetProperties(ctx, map[string]string{"delta.enableRowTracking": "true"}, delta.PropertyOptions{})
		must(t, err)
		ids := rowIDs(t, tb)
		if len(ids) != 3 {
			t.Errorf("ids %v", ids)
		}
		h, err := tb.History(ctx, 3)
		must(t, err)
		if got := fmt.Sprint(h[0].Info.Operation, ", ", h[1].Info.Operation, ", ", h[2].Info.Operation); got != "SET TBLPROPERTIES, ROW TRACKING BACKFILL, UPGRADE PROTOCOL" {
			t.Errorf("commits %s", got)
		}
		if c, err := tb.Log().ReadCommit(ctx, h[1].Version); err != nil || len(c.Adds) != 2 || c.Adds[0].DataChange {
			t.Errorf("back-fill %v %v", c, err)
		}
		snap, err := tb.Snapshot(ctx)
		must(t, err)
		if _, _, ok := snap.MaterializedRowIDColumns(); !ok || !snap.RowTracking() {
			t.Errorf("properties %v", snap.Metadata.Configuration)
		}
		_, err = tb.Update(ctx, "v = 5", "id = 2", delta.DMLOptions{})
		must(t, err)
		after := rowIDs(t, tb)
		if after["1"] != ids["1"] || after["2"][0] != ids["2"][0] || after["2"][1] == ids["2"][1] {
			t.Errorf("before %v, after %v", ids, after)
		}
		if n := len(testtable.Read(t, tb, delta.ScanOptions{})); n != 3 {
			t.Errorf("%d rows", n)
		}
	})
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func errCode(err error) string {
	if c, ok := err.(interface{ Code() string }); ok {
		return c.Code()
	}
	return ""
}

// TestTable_RowTrackingRandom: whatever happens to a table, a row keeps its id until
// it is deleted, its version changes when it does, and no id is given twice.
func TestTable_RowTrackingRandom(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		props := map[string]string{"delta.enableRowTracking": "true"}
		if rapid.Bool().Draw(rt, "vectors") {
			props["delta.enableDeletionVectors"] = "true"
		}
		if rapid.Bool().Draw(rt, "feed") {
			props["delta.enableChangeDataFeed"] = "true"
		}
		switch rapid.IntRange(0, 2).Draw(rt, "mapping") {
		case 1:
			props["delta.columnMapping.mode"] = "name"
		case 2:
			props["delta.columnMapping.mode"] = "id"
		}
		var part []string
		if rapid.Bool().Draw(rt, "partitioned") {
			part = []string{"p"}
		}
		const ddl = "id BIGINT, p INT, v INT"
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Partition: part, Properties: props, Store: storage.NewMemory("t")})
		next, used := 0, map[int64]bool{}
		ids := map[string][2]int64{}
		for range rapid.IntRange(2, 8).Draw(rt, "steps") {
			k := rapid.IntRange(0, 6).Draw(rt, "k")
			changed := func(string) bool { return false }
			mod := func(id string) bool {
				var n int
				fmt.Sscan(id, &n)
				return n%7 == k
			}
			var err error
			switch op := rapid.SampledFrom([]string{"append", "append", "update", "delete", "optimize", "move"}).Draw(rt, "op"); op {
			case "append":
				var rows strings.Builder
				for range rapid.IntRange(1, 12).Draw(rt, "rows") {
					fmt.Fprintf(&rows, `{"id":%d,"p":%d,"v":0}`, next, next%3)
					next++
				}
				_, err = tb.Append(ctx, testtable.Rows(t, ddl, rows.String()), delta.WriteOptions{})
			case "update":
				_, err = tb.Update(ctx, "v = v + 1", fmt.Sprintf("id %% 7 = %d", k), delta.DMLOptions{})
				changed = mod
			case "move":
				_, err = tb.Update(ctx, "p = p + 1", fmt.Sprintf("id %% 7 = %d", k), delta.DMLOptions{})
				changed = mod
			case "delete":
				_, err = tb.Delete(ctx, fmt.Sprintf("id %% 7 = %d AND v < 2", k), delta.DMLOptions{})
			case "optimize":
				_, err = tb.Optimize(ctx, delta.OptimizeOptions{})
			}
			if err != nil {
				rt.Fatal(err)
			}
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				rt.Fatal(err)
			}
			now := rowIDs(t, tb)
			for id, pair := range now {
				old, ok := ids[id]
				if !ok {
					if used[pair[0]] {
						rt.Fatalf("row id %d of row %s was that of another row", pair[0], id)
					}
					used[pair[0]] = true
					continue
				}
				if changed(id) {
					old[1] = snap.Version
				}
				if pair != old {
					rt.Fatalf("version %d: row %s has %v, want %v", snap.Version, id, pair, old)
				}
			}
			ids = now
			if mark, err := snap.RowIDHighWaterMark(); err != nil || slices.ContainsFunc(slices.Collect(mapValues(now)), func(p [2]int64) bool { return p[0] > mark }) {
				rt.Fatalf("high-water mark %d %v", mark, err)
			}
		}
	})
}

func mapValues(m map[string][2]int64) func(func([2]int64) bool) {
	return func(yield func([2]int64) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}
