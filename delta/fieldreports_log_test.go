package delta_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// checkpointFile opens the checkpoint of a version as plain Parquet.
func checkpointFile(t *testing.T, tb *delta.Table, version int64) *parquetio.File {
	t.Helper()
	data, err := storage.ReadAll(ctx, tb.Store(), deltalog.CheckpointKey(version))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquetio.Open(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFieldReports_Log are the reports about checkpoints and the log.
func TestFieldReports_Log(t *testing.T) {
	t.Run("B25 forty NOT NULL columns, statistics on some", func(t *testing.T) {
		for _, asStruct := range []string{"true", "false"} {
			var ddl, row []string
			for i := range 40 {
				ddl = append(ddl, fmt.Sprintf("c%d INT NOT NULL", i))
				row = append(row, fmt.Sprintf(`"c%d":%d`, i, i))
			}
			tb := testtable.New(t, testtable.Spec{DDL: strings.Join(ddl, ", "), Partition: []string{"c5"},
				Properties: map[string]string{"delta.checkpoint.writeStatsAsStruct": asStruct, "delta.checkpointInterval": "1000"},
				Rows:       []string{"{" + strings.Join(row, ",") + "}", "{" + strings.Replace(strings.Join(row, ","), `"c5":5`, `"c5":6`, 1) + "}"}})
			version, err := tb.Checkpoint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var walk func(s *schema.Struct, path string)
			walk = func(s *schema.Struct, path string) {
				for _, f := range s.Fields {
					if !f.Nullable {
						t.Errorf("%s.%s is required", path, f.Name)
					}
					if st, ok := f.Type.(*schema.Struct); ok {
						walk(st, path+"."+f.Name)
					}
				}
			}
			f := checkpointFile(t, tb, version)
			walk(f.Schema(), "")
			if got := f.HasColumn("add", "stats_parsed", "minValues", "c0"); got != (asStruct == "true") {
				t.Errorf("struct statistics: %v", got)
			}
			again, err := delta.Open(ctx, tb.Store(), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for where, n := range map[string]int{"c5 = 6": 1, "c0 = 0": 2, "c39 = 39 AND c5 < 6": 1, "c7 > 7": 0} {
				if got := testtable.Read(t, again, delta.ScanOptions{Where: where}); len(got) != n {
					t.Errorf("where %s: %d rows, want %d", where, len(got), n)
				}
			}
		}
	})
	t.Run("B26 a mapped partition column after a checkpoint and a compaction", func(t *testing.T) {
		const ddl = "id BIGINT, day DATE"
		tb := testtable.New(t, testtable.Spec{DDL: ddl, Partition: []string{"day"}, Properties: map[string]string{"delta.columnMapping.mode": "name", "delta.checkpoint.writeStatsAsStruct": "true"},
			Rows: []string{`{"id":1,"day":"2024-05-01"}`, `{"id":2,"day":"2024-05-02"}`, `{"id":3,"day":"2024-05-03"}`}})
		check := func() {
			t.Helper()
			version, err := tb.Checkpoint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			again, err := delta.Open(ctx, tb.Store(), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantRows(t, again, delta.ScanOptions{Where: "day = DATE '2024-05-02'"}, `{"day":"2024-05-02","id":2}`)
			snap, err := again.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			physical := snap.PhysicalPartitionColumns()[0]
			f := checkpointFile(t, tb, version)
			if fmt.Sprint(snap.Metadata.PartitionColumns) != "[day]" || physical == "day" || !f.HasColumn("add", "partitionValues_parsed", physical) || f.HasColumn("add", "partitionValues_parsed", "day") || f.HasColumn("add", "stats_parsed", "minValues", "id") {
				t.Errorf("partitioned by %v, in files %s, checkpoint %s", snap.Metadata.PartitionColumns, physical, f.Schema())
			}
			for _, a := range liveFiles(t, tb) {
				if _, ok := a.PartitionValues[physical]; !ok || len(a.PartitionValues) != 1 {
					t.Errorf("partitionValues %v", a.PartitionValues)
				}
			}
		}
		check()
		if _, err := tb.Append(ctx, testtable.Rows(t, ddl, `{"id":4,"day":"2024-05-01"}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
			t.Fatal(err)
		}
		check()
	})
	t.Run("B30 parts of a checkpoint are missing or mixed", func(t *testing.T) {
		dir := filepath.Join(testtable.Unpack(t, filepath.Join(testenv.SharedDir(t, "golden", "spark"), "ckpt_multipart.tar.zst")), "ckpt_multipart")
		open := func() *delta.Table {
			t.Helper()
			tb, err := delta.Open(ctx, local(t, dir), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return tb
		}
		base := func(tb *delta.Table) int64 {
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return snap.CheckpointVersion()
		}
		part := func(version, i, of int) string {
			return filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.checkpoint.%010d.%010d.parquet", version, i, of))
		}
		want := testtable.Read(t, open(), delta.ScanOptions{})
		if v := base(open()); v != 8 {
			t.Fatalf("checkpoint %d", v)
		}
		// A zombie's part of a set of 2, and a part of the set of 7 that is gone: 4 is used.
		raw, err := os.ReadFile(part(8, 3, 7))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(part(8, 1, 2), raw, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(part(8, 3, 7)); err != nil {
			t.Fatal(err)
		}
		if tb := open(); base(tb) != 4 || testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want) != "" {
			t.Errorf("checkpoint %d, or other rows", base(tb))
		}
		if err := os.Remove(part(4, 5, 5)); err != nil {
			t.Fatal(err)
		}
		if tb := open(); base(tb) != -1 || testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want) != "" {
			t.Errorf("checkpoint %d, or other rows", base(tb))
		}
		// With a whole single file beside the incomplete sets, that one form is used.
		tb := open()
		eight, err := tb.SnapshotAt(ctx, 8)
		if err != nil {
			t.Fatal(err)
		}
		if err := tb.Log().WriteCheckpoint(ctx, eight); err != nil {
			t.Fatal(err)
		}
		for v := range 8 {
			if err := os.Remove(filepath.Join(dir, deltalog.CommitKey(int64(v)))); err != nil {
				t.Fatal(err)
			}
		}
		if tb := open(); base(tb) != 8 || testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want) != "" {
			t.Errorf("checkpoint %d, or other rows", base(tb))
		}
	})
	t.Run("B31 log clean-up with one checkpoint", func(t *testing.T) {
		start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, c := range []struct {
			name      string
			retention time.Duration
			kept      []int64
		}{
			{"everything expired", time.Nanosecond, []int64{10, 11, 12}},
			{"cut-off between 6 and 7, no checkpoint at or before it", 6*24*time.Hour - 12*time.Hour, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		} {
			day := 0
			clock := func() time.Time { return start.Add(time.Duration(day) * 24 * time.Hour) }
			store := storage.NewMemoryWith("t", storage.MemoryOptions{Clock: clock})
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: store, Options: delta.Options{Clock: clock, NoCheckpoints: true}})
			for day = 1; day <= 12; day++ {
				if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", fmt.Sprintf(`{"id":%d}`, day)), delta.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				if day == 10 {
					if _, err := tb.Checkpoint(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			if day = 12; c.retention == time.Nanosecond {
				day = 40
			}
			want := testtable.Read(t, tb, delta.ScanOptions{})
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Log().CleanUp(ctx, snap, deltalog.CleanUpOptions{Retention: c.retention}); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, k := range testtable.Files(t, store) {
				if strings.HasPrefix(k, deltalog.LogDir) && !strings.HasSuffix(k, ".crc") && !strings.HasSuffix(k, "_last_checkpoint") {
					left = append(left, k)
				}
			}
			keys := []string{deltalog.CheckpointKey(10)}
			for _, v := range c.kept {
				keys = append(keys, deltalog.CommitKey(v))
			}
			slices.Sort(keys)
			if fmt.Sprint(left) != fmt.Sprint(keys) {
				t.Errorf("%s: left %v", c.name, left)
			}
			cold, err := delta.Open(ctx, store, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantRows(t, cold, delta.ScanOptions{}, want...)
		}
	})
	t.Run("B33 statistics of a file are computed again", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Rows: []string{`{"id":1}{"id":2}`}})
		old := *fileOf(t, tb)
		fresh := old
		fresh.DataChange, fresh.Stats = false, `{"numRecords":2}`
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx := tb.Log().Begin(snap)
		tx.Remove(old.Remove(tb.Options().Clock(), false))
		tx.Add(&fresh)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "COMPUTE STATS"}); codeOf(err) != "DELTA_DUPLICATE_ACTIONS_FOUND" {
			t.Errorf("remove and add of one path: %v", err)
		}
		commitOf(t, tb, "COMPUTE STATS", func(tx *deltalog.Transaction) { tx.Add(&fresh) })
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`)
		if got := fileOf(t, tb).Stats; got != fresh.Stats {
			t.Errorf("statistics %s", got)
		}
		// Another writer did it the wrong way: the file is still there.
		again := old
		again.DataChange = false
		raw := ""
		for _, a := range []map[string]any{{"remove": old.Remove(tb.Options().Clock(), false)}, {"add": &again}} {
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			raw += string(text) + "\n"
		}
		if err := tb.Store().Create(ctx, deltalog.CommitKey(3), []byte(raw)); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`)
		after, err := delta.Open(ctx, tb.Store(), delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantRows(t, after, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`)
	})
	t.Run("B58 many one-row commits", func(t *testing.T) {
		commits := 150
		if os.Getenv("SLUICE_LONG") != "" {
			commits = 10_000
		}
		fs := faultstore.New(storage.NewMemory("t"))
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: fs})
		var heap []uint64
		for i := range commits {
			fs.Reset()
			if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", fmt.Sprintf(`{"id":%d}`, i)), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			opened := 0
			for _, c := range fs.Trace() {
				if c.Op == faultstore.Open && strings.HasPrefix(c.Key, deltalog.LogDir) {
					opened++
				}
			}
			// The last commit, the checksum before, and around a checkpoint the hint twice.
			if opened > 4 {
				t.Fatalf("commit %d read %d files of the log", i, opened)
			}
			if i%50 == 49 && commits > 1000 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				heap = append(heap, m.HeapAlloc)
			}
		}
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if age := snap.Version - snap.CheckpointVersion(); age > 10 {
			t.Errorf("the newest checkpoint is %d versions old", age)
		}
		fs.Reset()
		cold, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(fs.Trace()); n > 60 {
			t.Errorf("%d operations to open a table of %d commits", n, commits)
		}
		if s, err := cold.Scan(ctx, delta.ScanOptions{}); err != nil {
			t.Error(err)
		} else if n, err := s.Count(ctx); err != nil || n != int64(commits) {
			t.Errorf("%d rows, %v", n, err)
		}
		res, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", ""), delta.WriteOptions{})
		if err != nil || res.Committed {
			t.Errorf("an empty batch: %+v, %v", res, err)
		}
		for _, h := range heap {
			t.Logf("heap %d KiB", h>>10)
		}
	})
	t.Run("B58 a table of 2000 columns has statistics on 32", func(t *testing.T) {
		var ddl, row []string
		for i := range 2000 {
			ddl = append(ddl, fmt.Sprintf("c%d INT", i))
			row = append(row, fmt.Sprintf(`"c%d":%d`, i, i))
		}
		tb := testtable.New(t, testtable.Spec{DDL: strings.Join(ddl, ", "), Rows: []string{"{" + strings.Join(row, ",") + "}"}})
		var stats struct{ MinValues, NullCount map[string]int }
		if err := json.Unmarshal([]byte(fileOf(t, tb).Stats), &stats); err != nil || len(stats.MinValues) != 32 || len(stats.NullCount) != 32 {
			t.Errorf("statistics of %d columns, %v", len(stats.MinValues), err)
		}
	})
}

// TestFieldReports_Rules are the reports about logic and table rules.
func TestFieldReports_Rules(t *testing.T) {
	for _, dvs := range []string{"true", "false"} {
		t.Run("B01 the pre-image of an update, vectors "+dvs, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Properties: map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": dvs},
				Rows: []string{`{"id":1,"v":10}{"id":2,"v":20}{"id":3,"v":30}`}})
			if _, err := tb.Update(ctx, "v = 300", "id = 3", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			want := []string{`{"_change_type":"update_postimage","id":3,"v":300}`, `{"_change_type":"update_preimage","id":3,"v":30}`}
			if d := testtable.Diff(feedLines(t, tb, 2), want); d != "" {
				t.Error(d)
			}
			if _, err := tb.Update(ctx, "v = 301", "id = 3", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			want = []string{`{"_change_type":"update_postimage","id":3,"v":301}`, `{"_change_type":"update_preimage","id":3,"v":300}`}
			if d := testtable.Diff(feedLines(t, tb, 3), want); d != "" {
				t.Error(d)
			}
			if vectors := dvs == "true"; vectors != hasVector(t, tb) {
				t.Errorf("vectors were used: %v", !vectors)
			}
		})
		t.Run("B61 NULL in the condition of a delete, vectors "+dvs, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "c INT, op STRING", Properties: map[string]string{"delta.enableDeletionVectors": dvs},
				Rows: []string{`{"c":1,"op":"x"}{"c":2,"op":"D"}{"c":null,"op":null}`}})
			if _, err := tb.Delete(ctx, "c = 1", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"c":2,"op":"D"}`, `{"c":null,"op":null}`)
			if _, err := tb.Delete(ctx, "op = 'D'", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"c":null,"op":null}`)
			if res, err := tb.Delete(ctx, "NOT (op = 'D')", delta.DMLOptions{}); err != nil || res.Committed {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	for _, c := range []struct {
		name, code string
		properties map[string]string
		run        func(tb *delta.Table) error
	}{
		{"append only", "DELTA_CANNOT_MODIFY_APPEND_ONLY", map[string]string{"delta.appendOnly": "true"}, func(tb *delta.Table) error {
			_, err := tb.Update(ctx, "v = 2", "", delta.DMLOptions{})
			return err
		}},
		{"a CHECK that is false", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", map[string]string{"delta.constraints.positive": "v > 0"}, func(tb *delta.Table) error {
			_, err := tb.Update(ctx, "v = -1", "", delta.DMLOptions{})
			return err
		}},
		{"a CHECK that is NULL", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", map[string]string{"delta.constraints.positive": "v > 0"}, func(tb *delta.Table) error {
			_, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT, v INT", `{"id":2,"v":null}`), delta.WriteOptions{})
			return err
		}},
		{"NOT NULL", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", nil, func(tb *delta.Table) error {
			_, err := tb.Update(ctx, "id = NULL", "", delta.DMLOptions{})
			return err
		}},
		{"an unknown writer feature", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", nil, func(tb *delta.Table) error {
			p := `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","fromTheFuture"]}}` + "\n"
			if err := tb.Store().Create(ctx, deltalog.CommitKey(2), []byte(p)); err != nil {
				return err
			}
			_, err := tb.Update(ctx, "v = 2", "", delta.DMLOptions{})
			return err
		}},
	} {
		t.Run("B61 "+c.name, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT NOT NULL, v INT", Properties: withoutConstraints(c.properties), Rows: []string{`{"id":1,"v":1}`}})
			for name, text := range c.properties {
				if name, ok := strings.CutPrefix(name, "delta.constraints."); ok {
					if _, err := tb.AddConstraint(ctx, name, text, delta.ConstraintOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := len(testtable.Files(t, tb.Store()))
			err := c.run(tb)
			if codeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if n := len(testtable.Files(t, tb.Store())); n > before+1 || c.name != "an unknown writer feature" && n != before {
				t.Errorf("%d files, before %d", n, before)
			}
			if c.name != "an unknown writer feature" {
				wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"v":1}`)
			}
		})
	}
	for _, name := range []string{"identity", "generated", "rowtrack", "clustered"} {
		t.Run("B61 one row into a table of Spark's: "+name, func(t *testing.T) {
			tb := goldenSpark(t, name)
			before := testtable.Read(t, tb, delta.ScanOptions{})
			s, err := tb.Scan(ctx, delta.ScanOptions{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			files := len(testtable.Files(t, tb.Store()))
			_, err = tb.Append(ctx, s.Batches(ctx), delta.WriteOptions{})
			after := testtable.Read(t, tb, delta.ScanOptions{})
			switch {
			case err == nil && len(after) != len(before)+1:
				t.Errorf("%d rows after %d", len(after), len(before))
			case err != nil && (len(testtable.Files(t, tb.Store())) != files || codeOf(err) == ""):
				t.Errorf("refused after a file was written, or without a code: %v", err)
			}
			if name == "rowtrack" && err == nil {
				for _, a := range actionsOf(t, tb).Adds {
					if a.BaseRowID == nil || a.DefaultRowCommitVersion == nil {
						t.Error("an add without row ids")
					}
				}
			}
		})
	}
}

// hasVector reports whether a live file has a deletion vector.
func hasVector(t *testing.T, tb *delta.Table) bool {
	for _, a := range liveFiles(t, tb) {
		if a.DeletionVector != nil {
			return true
		}
	}
	return false
}

func withoutConstraints(props map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range props {
		if !strings.HasPrefix(k, "delta.constraints.") {
			out[k] = v
		}
	}
	return out
}
