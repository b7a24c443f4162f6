package delta_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// optimize runs OPTIMIZE and checks that no row changed, nothing is left behind, and
// the commit changes no data.
func optimize(t *testing.T, tb *delta.Table, o delta.OptimizeOptions) delta.OptimizeResult {
	t.Helper()
	before := testtable.Read(t, tb, delta.ScanOptions{})
	res, err := tb.Optimize(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), before); d != "" {
		t.Fatal(d)
	}
	if res.Committed {
		c := commitAt(t, tb, res.Version)
		for _, a := range c.Adds {
			if a.DataChange {
				t.Errorf("add %s changes data", a.Path)
			}
		}
		for _, r := range c.Removes {
			if r.DataChange {
				t.Errorf("remove %s changes data", r.Path)
			}
		}
		if len(c.CDC) > 0 {
			t.Error("2.1: an optimize has change files")
		}
	}
	if left := orphans(t, tb); len(left) > 0 {
		t.Errorf("left behind %v", left)
	}
	return res
}

func commitAt(t *testing.T, tb *delta.Table, version int64) *deltalog.Commit {
	t.Helper()
	c, err := tb.Log().ReadCommit(ctx, version)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func liveFiles(t *testing.T, tb *delta.Table) []*deltalog.Add {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// small is a table of n appends of ten rows each.
func small(t *testing.T, n int, s testtable.Spec) *delta.Table {
	t.Helper()
	if s.DDL == "" {
		s.DDL = modelDDL
	}
	for i := range n {
		s.Rows = append(s.Rows, testtable.Numbers(i*10, i*10+10, `,"k":%,"p":`+fmt.Sprint(i%2)))
	}
	return testtable.New(t, s)
}

func TestTable_OptimizePacks(t *testing.T) {
	t.Run("2.1 small files become one and a second run commits nothing", func(t *testing.T) {
		tb := small(t, 5, testtable.Spec{Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
		res := optimize(t, tb, delta.OptimizeOptions{})
		if !res.Committed || res.Metrics.FilesRemoved != 5 || res.Metrics.FilesAdded != 1 || res.Metrics.RowsCopied != 50 || res.Partitions != 1 {
			t.Errorf("got %+v", res)
		}
		info := commitAt(t, tb, res.Version).Info
		if info.Operation != "OPTIMIZE" || info.IsolationLevel != "SnapshotIsolation" || info.OperationMetrics["numRemovedFiles"] != "5" ||
			info.OperationMetrics["p50FileSize"] != info.OperationMetrics["numAddedBytes"] || string(info.OperationParameters["zOrderBy"]) != `"[]"` {
			t.Errorf("commitInfo %s", info.Raw)
		}
		if again := optimize(t, tb, delta.OptimizeOptions{}); again.Committed {
			t.Errorf("a second run committed %+v", again)
		}
		from := res.Version
		feed, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from}})
		if err != nil {
			t.Fatal(err)
		}
		if got := testtable.Lines(t, feed.Rows(ctx)); len(got) > 0 {
			t.Errorf("R-901: an optimize shows in the feed: %v", got)
		}
	})
	t.Run("partitions are chosen by --where and packed apart", func(t *testing.T) {
		tb := small(t, 6, testtable.Spec{Partition: []string{"p"}})
		res := optimize(t, tb, delta.OptimizeOptions{Where: "p = 1"})
		if res.Metrics.FilesRemoved != 3 || res.Metrics.FilesAdded != 1 || res.Partitions != 1 {
			t.Errorf("got %+v", res)
		}
		if got := string(commitAt(t, tb, res.Version).Info.OperationParameters["predicate"]); !strings.Contains(got, "p") {
			t.Errorf("predicate %s", got)
		}
		if res := optimize(t, tb, delta.OptimizeOptions{}); res.Metrics.FilesRemoved != 3 {
			t.Errorf("got %+v", res)
		}
		if _, err := tb.Optimize(ctx, delta.OptimizeOptions{Where: "k = 1"}); !errors.Is(err, delta.ErrInvalid) {
			t.Errorf("a condition on data columns: got %v", err)
		}
	})
	t.Run("files of the target size are left alone", func(t *testing.T) {
		tb := small(t, 4, testtable.Spec{})
		size := liveFiles(t, tb)[0].Size
		if res := optimize(t, tb, delta.OptimizeOptions{TargetSize: size}); res.Committed {
			t.Errorf("got %+v", res)
		}
		if res := optimize(t, tb, delta.OptimizeOptions{MinSize: 1}); res.Committed {
			t.Errorf("min size: got %+v", res)
		}
		res := optimize(t, tb, delta.OptimizeOptions{TargetSize: size * 5 / 2})
		if !res.Committed || len(liveFiles(t, tb)) > 2 {
			t.Errorf("got %+v, %d files", res, len(liveFiles(t, tb)))
		}
		if res := optimize(t, tb, delta.OptimizeOptions{TargetSize: size * 5 / 2}); res.Committed {
			t.Errorf("a second run: got %+v", res)
		}
	})
	t.Run("W-426 an append-only table may be optimized", func(t *testing.T) {
		tb := small(t, 2, testtable.Spec{Properties: map[string]string{"delta.appendOnly": "true"}})
		if res := optimize(t, tb, delta.OptimizeOptions{}); !res.Committed {
			t.Error("nothing committed")
		}
	})
	t.Run("an unknown format of row versions is refused", func(t *testing.T) {
		tb := small(t, 2, testtable.Spec{Properties: map[string]string{"sluice.apply.format": "2"}})
		if _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); !errors.Is(err, delta.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an empty table has nothing to pack", func(t *testing.T) {
		for _, o := range []delta.OptimizeOptions{{}, {Purge: true}, {ZOrder: []string{"k"}}} {
			if res := optimize(t, testtable.New(t, testtable.Spec{DDL: modelDDL}), o); res.Committed {
				t.Errorf("%+v: got %+v", o, res)
			}
		}
	})
}

func TestTable_OptimizePurges(t *testing.T) {
	withVectors := func(t *testing.T) *delta.Table {
		tb := small(t, 4, testtable.Spec{Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
		if _, err := tb.Delete(ctx, "id % 10 = 3 AND id < 20", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range liveFiles(t, tb) {
			if a.DeletionVector != nil {
				n++
			}
		}
		if n != 2 {
			t.Fatalf("%d files with deletion vectors", n)
		}
		return tb
	}
	t.Run("W-655 purge rewrites the files with vectors, each for itself", func(t *testing.T) {
		tb := withVectors(t)
		res := optimize(t, tb, delta.OptimizeOptions{Purge: true})
		if res.Metrics.FilesRemoved != 2 || res.Metrics.FilesAdded != 2 || res.VectorsRemoved != 2 {
			t.Errorf("got %+v", res)
		}
		info := commitAt(t, tb, res.Version).Info
		if info.Operation != "REORG" || info.OperationMetrics["numDeletionVectorsRemoved"] != "2" {
			t.Errorf("commitInfo %s", info.Raw)
		}
		if again := optimize(t, tb, delta.OptimizeOptions{Purge: true}); again.Committed {
			t.Errorf("a second purge: %+v", again)
		}
	})
	t.Run("a large file with many deleted rows is rewritten alone", func(t *testing.T) {
		tb := withVectors(t)
		if res := optimize(t, tb, delta.OptimizeOptions{MinSize: 1, MaxDeleted: 0.5}); res.Committed {
			t.Errorf("below the share: %+v", res)
		}
		res := optimize(t, tb, delta.OptimizeOptions{MinSize: 1, TargetSize: 2})
		if res.Metrics.FilesRemoved != 2 || res.VectorsRemoved != 2 {
			t.Errorf("got %+v", res)
		}
	})
}

// spanOf measures how far the values of a column reach in the files, summed.
func spanOf(t *testing.T, tb *delta.Table, column string) (sum int) {
	t.Helper()
	for _, a := range liveFiles(t, tb) {
		var lo, hi int
		for key, out := range map[string]*int{"minValues": &lo, "maxValues": &hi} {
			_, rest, ok := strings.Cut(a.Stats, `"`+key+`":{`)
			if !ok {
				t.Fatalf("stats %s", a.Stats)
			}
			_, rest, _ = strings.Cut(rest, `"`+column+`":`)
			if _, err := fmt.Sscanf(rest, "%d", out); err != nil {
				t.Fatalf("stats %s: %v", a.Stats, err)
			}
		}
		sum += hi - lo
	}
	return sum
}

func TestTable_OptimizeZOrder(t *testing.T) {
	random := func(t *testing.T, n int, s testtable.Spec) *delta.Table {
		r := rand.New(rand.NewPCG(7, 7))
		s.DDL = "id BIGINT, a INT, b INT, s STRING, st STRUCT<x: INT>"
		for i := range 4 {
			var b strings.Builder
			for j := range n / 4 {
				text := fmt.Sprintf(`"text %d"`, r.IntN(50))
				if r.IntN(5) == 0 {
					text = "null"
				}
				fmt.Fprintf(&b, `{"id":%d,"a":%d,"b":%d,"s":%s,"st":{"x":%d}}`, i*n+j, r.IntN(1000), r.IntN(1000), text, r.IntN(9))
			}
			s.Rows = append(s.Rows, b.String())
		}
		return testtable.New(t, s)
	}
	t.Run("files cover little of each column", func(t *testing.T) {
		tb := random(t, 4000, testtable.Spec{})
		var total int64
		for _, a := range liveFiles(t, tb) {
			total += a.Size
		}
		a, b := spanOf(t, tb, "a"), spanOf(t, tb, "b")
		res := optimize(t, tb, delta.OptimizeOptions{ZOrder: []string{"a", "b"}, TargetSize: total / 16})
		n := len(liveFiles(t, tb))
		if n < 2 {
			t.Fatalf("%d files", n)
		}
		// Before, every file covers all; after, n files of a grid cover about the square root.
		if na, nb := spanOf(t, tb, "a"), spanOf(t, tb, "b"); na*10 > a*n*9/4 || nb*10 > b*n*9/4 {
			t.Errorf("%d files: a %d -> %d, b %d -> %d", n, a, na, b, nb)
		}
		if got := string(commitAt(t, tb, res.Version).Info.OperationParameters["zOrderBy"]); got != `"[\"a\",\"b\"]"` {
			t.Errorf("zOrderBy %s", got)
		}
	})
	t.Run("strings, nulls, structs and fields of structs have an order", func(t *testing.T) {
		tb := random(t, 400, testtable.Spec{})
		for _, by := range [][]string{{"s"}, {"s", "a"}, {"st.x", "s", "b"}, {"st"}} {
			optimize(t, tb, delta.OptimizeOptions{ZOrder: by})
		}
	})
	t.Run("memory is bounded by spilling and order and rows are the same", func(t *testing.T) {
		inMemory, spilled := random(t, 4000, testtable.Spec{Options: numbered()}), random(t, 4000, testtable.Spec{Options: numbered()})
		dir := t.TempDir()
		for _, c := range []struct {
			tb *delta.Table
			o  delta.OptimizeOptions
		}{{inMemory, delta.OptimizeOptions{}}, {spilled, delta.OptimizeOptions{MaxMemory: 60 << 10, TempDir: dir}}} {
			c.o.ZOrder = []string{"a", "s"}
			optimize(t, c.tb, c.o)
		}
		a, b := rowsInOrder(t, inMemory), rowsInOrder(t, spilled)
		if !slices.Equal(a, b) {
			t.Error("the order differs")
		}
		if left := dirNames(t, dir); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
	})
	t.Run("wrong columns are refused", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT, m MAP<STRING, INT>", Partition: []string{"p"}, Rows: []string{`{"id":1,"p":1}`}})
		for name, code := range map[string]string{"no": "UNRESOLVED", "p": "DELTA_ZORDERING_ON_PARTITION_COLUMN", "m": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", "id.x": "UNRESOLVED"} {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{ZOrder: []string{name}})
			var coded deltalog.Coder
			if !errors.As(err, &coded) || !strings.Contains(coded.Code(), code) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		for _, o := range []delta.OptimizeOptions{{Full: true}, {Purge: true, ZOrder: []string{"id"}}, {ZOrder: []string{"id", "ID"}}} {
			if _, err := tb.Optimize(ctx, o); !errors.Is(err, delta.ErrInvalid) {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	})
}

// TestTable_OptimizeConflicts are the rows of OPTIMIZE in 3.4, with the winner coming
// in while the files are written.
func TestTable_OptimizeConflicts(t *testing.T) {
	run := func(t *testing.T, props map[string]string, winner func(tb *delta.Table) error) (*delta.Table, delta.OptimizeResult, error) {
		inner := storage.NewMemory("t")
		small(t, 4, testtable.Spec{Store: inner, Partition: []string{"p"}, Properties: props})
		fs := faultstore.New(inner)
		tb, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gate := fs.Pause(faultstore.On(faultstore.Create, "_delta_log/*"))
		type answer struct {
			res delta.OptimizeResult
			err error
		}
		done := make(chan answer)
		go func() {
			res, err := tb.Optimize(ctx, delta.OptimizeOptions{})
			done <- answer{res, err}
		}()
		if _, err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		other, err := delta.Open(ctx, inner, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := winner(other); err != nil {
			t.Fatal(err)
		}
		want := testtable.Read(t, other, delta.ScanOptions{})
		gate.Release()
		got := <-done
		if d := testtable.Diff(testtable.Read(t, other, delta.ScanOptions{}), want); d != "" {
			t.Error(d)
		}
		if left := orphans(t, other); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
		return other, got.res, got.err
	}
	t.Run("3.4 a blind append does not disturb", func(t *testing.T) {
		_, res, err := run(t, nil, func(tb *delta.Table) error {
			_, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":100,"p":1}`), delta.WriteOptions{})
			return err
		})
		if err != nil || res.Skipped != 0 || res.Metrics.FilesRemoved != 4 || res.Version != 6 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("C-42 a delete in one partition leaves the other's files to commit", func(t *testing.T) {
		_, res, err := run(t, nil, func(tb *delta.Table) error {
			_, err := tb.Delete(ctx, "p = 1 AND id > 30", delta.DMLOptions{})
			return err
		})
		if err != nil || res.Skipped != 2 || res.Metrics.FilesRemoved != 2 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("C-35 a deletion vector on a file of ours loses that file only", func(t *testing.T) {
		_, res, err := run(t, map[string]string{"delta.enableDeletionVectors": "true"}, func(tb *delta.Table) error {
			_, err := tb.Delete(ctx, "id = 3", delta.DMLOptions{})
			return err
		})
		if err != nil || res.Skipped != 2 || res.Metrics.FilesRemoved != 2 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("C-24 when every file is gone it starts anew", func(t *testing.T) {
		_, res, err := run(t, nil, func(tb *delta.Table) error {
			_, err := tb.Update(ctx, "k = k + 1", "", delta.DMLOptions{})
			return err
		})
		if err != nil || res.Attempts != 2 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("C-19 a property change makes it start anew", func(t *testing.T) {
		_, res, err := run(t, nil, func(tb *delta.Table) error {
			_, err := tb.SetProperties(ctx, map[string]string{"x": "y"}, delta.PropertyOptions{})
			return err
		})
		if err != nil || res.Attempts != 2 || res.Metrics.FilesRemoved != 4 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("C-26 two of them: the second finds nothing left", func(t *testing.T) {
		_, res, err := run(t, nil, func(tb *delta.Table) error {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{})
			return err
		})
		if err != nil || res.Committed {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

// TestTable_OptimizeCarries: hidden columns follow their rows (invariant 6), tags that
// all files share stay.
func TestTable_OptimizeCarries(t *testing.T) {
	for _, o := range []delta.OptimizeOptions{{}, {ZOrder: []string{"id"}}, {ZOrder: []string{"id"}, MaxMemory: 1}} {
		tb := carried(t)
		before := testtable.Read(t, tb, delta.ScanOptions{Hidden: true})
		if res := optimize(t, tb, o); !res.Committed {
			t.Fatal("nothing committed")
		}
		after := testtable.Read(t, tb, delta.ScanOptions{Hidden: true})
		if d := testtable.Diff(after, before); d != "" {
			t.Error(d)
		}
	}
}

// carried is a table of several files whose rows have hidden versions.
func carried(t *testing.T) *delta.Table {
	t.Helper()
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, k INT", Properties: map[string]string{datafile.PropCarry: carryText}})
	for i := range 4 {
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		rows := testtable.Batch(t, "id BIGINT, k INT, __sluice STRUCT<v: BIGINT>", testtable.Numbers(i*5, i*5+5, fmt.Sprintf(`,"k":%d,"__sluice":{"v":%%}`, 9-i)))
		s, err := tb.Stage(ctx, snap, delta.Edits{Insert: []arrow.RecordBatch{rows}}, delta.StageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tx := tb.Log().Begin(snap)
		s.Apply(tx)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE"}); err != nil {
			t.Fatal(err)
		}
	}
	return tb
}

func rowsInOrder(t *testing.T, tb *delta.Table) (out []string) {
	t.Helper()
	s, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range s.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, testtable.BatchLines(b)...)
	}
	return out
}

func dirNames(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// numbered are options that name files the same way in every run.
func numbered() delta.Options {
	var n atomic.Int64
	return delta.Options{NewID: func() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n.Add(1)) }, Clock: testtable.Clock()}
}

// TestTable_OptimizeClusters: W-823.
func TestTable_OptimizeClusters(t *testing.T) {
	create := func(t *testing.T, props map[string]string) *delta.Table {
		t.Helper()
		tb, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: testtable.Struct(t, "id BIGINT, a INT, s STRUCT<n: STRING>"), ClusterBy: []string{"a", "s.n"}, Properties: props}, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return tb
	}
	grow := func(t *testing.T, tb *delta.Table, from, n int) {
		t.Helper()
		r := rand.New(rand.NewPCG(uint64(from), 1))
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"id":%d,"a":%d,"s":{"n":"v%d"}}`, from+i, r.IntN(1000), r.IntN(30))
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT, a INT, s STRUCT<n: STRING>", b.String()), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, props := range map[string]map[string]string{"plain": nil, "with column mapping": {"delta.columnMapping.mode": "name"}} {
		t.Run("only what is not clustered yet is rewritten, "+name, func(t *testing.T) {
			tb := create(t, props)
			for i := range 4 {
				grow(t, tb, i*500, 500)
			}
			var size int64
			for _, a := range liveFiles(t, tb) {
				size += a.Size
			}
			o := delta.OptimizeOptions{TargetSize: size / 8}
			res := optimize(t, tb, o)
			n := len(liveFiles(t, tb))
			if res.Metrics.FilesRemoved != 4 || n < 3 {
				t.Fatalf("got %+v, %d files", res, n)
			}
			for _, a := range liveFiles(t, tb) {
				if a.ClusteringProvider == nil || *a.ClusteringProvider != "sluice" || a.Tags["sluice.cluster"] == nil {
					t.Errorf("add %s: provider %v, tags %v", a.Path, a.ClusteringProvider, a.Tags)
				}
			}
			info := commitAt(t, tb, res.Version).Info
			if string(info.OperationParameters["clusterBy"]) != `"[\"a\",\"s.n\"]"` || string(info.OperationParameters["isFull"]) != `"false"` {
				t.Errorf("commitInfo %s", info.Raw)
			}
			if again := optimize(t, tb, o); again.Committed {
				t.Errorf("a second run: %+v", again)
			}
			grow(t, tb, 5000, 100)
			for _, a := range liveFiles(t, tb) {
				if a.Tags["sluice.cluster"] == nil && a.ClusteringProvider != nil {
					t.Errorf("an append claims to be clustered: %+v", a)
				}
			}
			if res := optimize(t, tb, o); res.Metrics.FilesRemoved != 1 {
				t.Errorf("got %+v", res)
			}
			optimize(t, tb, delta.OptimizeOptions{Full: true})
		})
	}
	t.Run("files of another provider are left alone", func(t *testing.T) {
		tb := create(t, nil)
		grow(t, tb, 0, 10)
		snap := mustSnapshot(t, tb)
		liquid := "liquid"
		again := *liveFiles(t, tb)[0]
		again.ClusteringProvider, again.DataChange = &liquid, false
		tx := tb.Log().Begin(snap)
		tx.Add(&again)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "OPTIMIZE"}); err != nil {
			t.Fatal(err)
		}
		for _, full := range []bool{false, true} {
			if res := optimize(t, tb, delta.OptimizeOptions{Full: full}); res.Committed {
				t.Errorf("got %+v", res)
			}
		}
	})
	t.Run("Z-order of a clustered table is refused", func(t *testing.T) {
		if _, err := create(t, nil).Optimize(ctx, delta.OptimizeOptions{ZOrder: []string{"a"}}); !errors.Is(err, delta.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}
