package delta_test

import (
	"context"
	"fmt"
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
)

// vectored is a table that writes deletion vectors, rows of one append being one file.
func vectored(t *testing.T, feed bool, more map[string]string, rows ...string) *delta.Table {
	t.Helper()
	props := map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": fmt.Sprint(feed)}
	for k, v := range more {
		props[k] = v
	}
	return testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Properties: props, Rows: rows})
}

// lastCommit is the newest commit.
func lastCommit(t *testing.T, tb *delta.Table) *deltalog.Commit {
	t.Helper()
	c, err := tb.Log().ReadCommit(ctx, mustSnapshot(t, tb).Version)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// feedOf is the change rows of the newest version.
func feedOf(t *testing.T, tb *delta.Table) []string {
	t.Helper()
	return feedAt(t, tb, mustSnapshot(t, tb).Version)
}

func feedAt(t *testing.T, tb *delta.Table, v int64) []string {
	t.Helper()
	f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &v, ToVersion: &v}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for b, err := range f.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		kinds := b.Column(b.Schema().FieldIndices(cdf.ChangeTypeColumn)[0])
		for i, line := range testtable.BatchLines(sliceColumns(b, int(b.NumCols())-3)) {
			out = append(out, kinds.ValueStr(i)+" "+line)
		}
	}
	return out
}

func dml(t *testing.T, f func() (delta.Result, error)) delta.Result {
	t.Helper()
	r, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const tenRows = `{"id":0,"v":0}{"id":1,"v":10}{"id":2,"v":20}{"id":3,"v":30}{"id":4,"v":40}{"id":5,"v":50}{"id":6,"v":60}{"id":7,"v":70}{"id":8,"v":80}{"id":9,"v":90}`

// TestTable_Vectors: DELETE and UPDATE of a table with deletion vectors.
func TestTable_Vectors(t *testing.T) {
	where := func(tb *delta.Table, w string) func() (delta.Result, error) {
		return func() (delta.Result, error) { return tb.Delete(ctx, w, delta.DMLOptions{}) }
	}
	set := func(tb *delta.Table, s, w string) func() (delta.Result, error) {
		return func() (delta.Result, error) { return tb.Update(ctx, s, w, delta.DMLOptions{}) }
	}

	t.Run("B01 W-902 the pre-image is in the feed with deletion vectors and without", func(t *testing.T) {
		for _, on := range []string{"false", "true"} {
			tb := vectored(t, true, map[string]string{"delta.enableDeletionVectors": on}, `{"id":1,"v":10}{"id":2,"v":20}{"id":3,"v":30}`)
			dml(t, set(tb, "v = 300", "id = 3"))
			if d := testtable.Diff(feedOf(t, tb), []string{`update_preimage {"id":3,"v":30}`, `update_postimage {"id":3,"v":300}`}); d != "" {
				t.Errorf("vectors %s: %s", on, d)
			}
		}
	})

	t.Run("W-652 W-608 a vector is the union, in one pair of remove and add, with wide bounds", func(t *testing.T) {
		tb := vectored(t, true, nil, tenRows)
		before := fileOf(t, tb)
		r := dml(t, where(tb, "id = 2 OR id = 5"))
		if r.Metrics.RowsDeleted != 2 || r.Metrics.VectorsAdded != 1 || r.Metrics.VectorsUpdated != 0 || r.Metrics.FilesAdded+r.Metrics.FilesRemoved+r.Metrics.ChangeFiles != 0 {
			t.Errorf("metrics %+v", r.Metrics)
		}
		first := lastCommit(t, tb)
		if len(first.Adds) != 1 || len(first.Removes) != 1 || len(first.CDC) != 0 {
			t.Fatalf("W-902: a delete by vectors needs no change files: %+v", first.Actions)
		}
		add := first.Adds[0]
		if add.Path != before.Path || add.Size != before.Size || add.DeletionVector.Cardinality != 2 || first.Removes[0].DeletionVector != nil || !add.DataChange {
			t.Errorf("add %+v", add)
		}
		if v := add.DeletionVector; v.StorageType != "u" || *v.Offset != 1 || len(v.PathOrInlineDv) != 20 {
			t.Errorf("W-653 W-654: %+v", v)
		}
		for _, want := range []string{`"numRecords":10`, `"tightBounds":false`, `"maxValues":{"id":9,"v":90}`, `"nullCount":{"id":0,"v":0}`} {
			if !strings.Contains(add.Stats, want) {
				t.Errorf("statistics %s lack %s", add.Stats, want)
			}
		}
		if d := testtable.Diff(feedOf(t, tb), []string{`delete {"id":2,"v":20}`, `delete {"id":5,"v":50}`}); d != "" {
			t.Error(d)
		}
		r = dml(t, set(tb, "v = v + 1", "id >= 2 AND id < 4"))
		second := lastCommit(t, tb)
		if r.Metrics.RowsUpdated != 1 || r.Metrics.VectorsUpdated != 1 || r.Metrics.VectorsRemoved != 1 || len(second.Adds) != 2 || len(second.CDC) != 1 {
			t.Fatalf("metrics %+v, %d adds", r.Metrics, len(second.Adds))
		}
		if second.Removes[0].DeletionVector.ID() != add.DeletionVector.ID() {
			t.Error("the remove does not carry the old vector")
		}
		for _, a := range second.Adds {
			if a.Path == add.Path && (a.DeletionVector.Cardinality != 3 || a.Stats != add.Stats) {
				t.Errorf("R-224: %+v", a)
			}
			if a.Path != add.Path && !strings.Contains(a.Stats, `"tightBounds":true`) {
				t.Errorf("statistics of the new file: %s", a.Stats)
			}
		}
		wantRows(t, tb, delta.ScanOptions{Where: "id < 5"}, `{"id":0,"v":0}`, `{"id":1,"v":10}`, `{"id":3,"v":31}`, `{"id":4,"v":40}`)
		if m := second.Info.OperationMetrics; m["numDeletionVectorsAdded"] != "1" || m["numDeletionVectorsUpdated"] != "1" || m["numDeletionVectorsRemoved"] != "1" {
			t.Errorf("W-204: metrics %v", m)
		}
	})

	t.Run("W-221 W-652 the last rows of a file take the file along", func(t *testing.T) {
		tb := vectored(t, true, nil, `{"id":1,"v":1}{"id":2,"v":2}{"id":3,"v":3}`, `{"id":4,"v":4}{"id":5,"v":5}`)
		dml(t, where(tb, "id IN (1, 4)"))
		dml(t, where(tb, "id <= 3"))
		c := lastCommit(t, tb)
		if len(c.Adds) != 0 || len(c.Removes) != 1 || len(c.CDC) != 0 || c.Removes[0].DeletionVector.Cardinality != 1 {
			t.Errorf("%+v", c.Actions)
		}
		if d := testtable.Diff(feedOf(t, tb), []string{`delete {"id":2,"v":2}`, `delete {"id":3,"v":3}`}); d != "" {
			t.Errorf("R-903: %s", d)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":5,"v":5}`)
		if left := orphans(t, tb); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
	})

	t.Run("W-653 all vectors of a commit share one file", func(t *testing.T) {
		tb := vectored(t, false, nil, `{"id":1}{"id":2}`, `{"id":3}{"id":4}`, `{"id":5}{"id":6}`)
		dml(t, where(tb, "id % 2 = 0"))
		paths, offsets := map[string]bool{}, map[int32]bool{}
		for _, a := range lastCommit(t, tb).Adds {
			paths[a.DeletionVector.PathOrInlineDv], offsets[*a.DeletionVector.Offset] = true, true
		}
		if len(paths) != 1 || len(offsets) != 3 || !offsets[1] {
			t.Errorf("files %v, offsets %v", paths, offsets)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"v":null}`, `{"id":3,"v":null}`, `{"id":5,"v":null}`)
	})

	t.Run("W-653 R-651 under a random prefix", func(t *testing.T) {
		tb := vectored(t, false, map[string]string{"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "3"}, tenRows)
		dml(t, where(tb, "id = 1"))
		if v := lastCommit(t, tb).Adds[0].DeletionVector; len(v.PathOrInlineDv) != 23 {
			t.Errorf("%+v", v)
		}
		if n := countRows(t, tb); n != 9 {
			t.Errorf("%d rows", n)
		}
	})

	t.Run("R-652 W-654 inline only when asked for, and only small ones", func(t *testing.T) {
		rows := testtable.Numbers(0, 3000, `,"v":1`)
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v INT", Rows: []string{tenRows, rows}, Options: delta.Options{InlineVectorBytes: 48},
			Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
		dml(t, where(tb, "id % 7 = 3"))
		kinds := map[string]bool{}
		for _, a := range lastCommit(t, tb).Adds {
			kinds[a.DeletionVector.StorageType] = true
			if (a.DeletionVector.StorageType == "i") != (a.DeletionVector.Offset == nil) {
				t.Errorf("%+v", a.DeletionVector)
			}
		}
		if !kinds["i"] || !kinds["u"] {
			t.Errorf("kinds %v", kinds)
		}
		if n := countRows(t, tb); n != 3010-1-429 {
			t.Errorf("%d rows", n)
		}
	})

	t.Run("W-651 W-655 without the property files are rewritten and lose their vector", func(t *testing.T) {
		tb := vectored(t, false, nil, tenRows, `{"id":20}{"id":21}`)
		dml(t, where(tb, "id IN (1, 20)"))
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "false"}, delta.PropertyOptions{}); err != nil {
			t.Fatal(err)
		}
		dml(t, where(tb, "id = 2"))
		c := lastCommit(t, tb)
		if len(c.Adds) != 1 || c.Adds[0].DeletionVector != nil || c.Removes[0].DeletionVector == nil {
			t.Errorf("%+v", c.Actions)
		}
		if n := countRows(t, tb); n != 9 {
			t.Errorf("%d rows", n)
		}
		kept := 0
		files, _ := mustSnapshot(t, tb).FileList(ctx)
		for _, a := range files {
			if a.DeletionVector != nil {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("%d files have a vector, want the one that was not touched", kept)
		}
	})

	t.Run("next to nothing left: the file is rewritten unless that takes change files", func(t *testing.T) {
		for _, feed := range []bool{false, true} {
			tb := vectored(t, feed, nil, tenRows)
			r := dml(t, where(tb, "id > 1"))
			if rewritten := r.Metrics.RowsCopied == 2; rewritten == feed {
				t.Errorf("feed %v: metrics %+v", feed, r.Metrics)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":0,"v":0}`, `{"id":1,"v":10}`)
		}
	})

	t.Run("an update to the current time", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, at TIMESTAMP", Rows: []string{`{"id":1}{"id":2}{"id":3}`, `{"id":4}`}})
		dml(t, set(tb, "at = current_timestamp()", "id > 1"))
		times := map[string]bool{}
		for _, line := range testtable.Read(t, tb, delta.ScanOptions{Columns: []string{"at"}, Where: "id > 1"}) {
			times[line] = true
		}
		if len(times) != 1 || times[`{"at":null}`] {
			t.Errorf("times %v, want one", times)
		}
	})

	t.Run("statistics without a row count get one", func(t *testing.T) {
		tb := vectored(t, true, nil)
		snap := mustSnapshot(t, tb)
		s, err := tb.Stage(ctx, snap, delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, "id BIGINT, v INT", tenRows)}}, delta.StageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Adds[0].Stats = "no statistics"
		tx := tb.Log().Begin(snap)
		s.Apply(tx)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE"}); err != nil {
			t.Fatal(err)
		}
		dml(t, where(tb, "id = 4"))
		if a := lastCommit(t, tb).Adds[0]; a.Stats != `{"numRecords":10,"tightBounds":false}` {
			t.Errorf("W-601: %s", a.Stats)
		}
	})

	t.Run("R-906 rows of a file without statistics are counted when the file goes", func(t *testing.T) {
		tb := vectored(t, true, nil)
		snap := mustSnapshot(t, tb)
		s, err := tb.Stage(ctx, snap, delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, "id BIGINT, v INT", `{"id":1,"v":1}{"id":2,"v":2}`)}}, delta.StageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Adds[0].Stats = ""
		tx := tb.Log().Begin(snap)
		s.Apply(tx)
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE"}); err != nil {
			t.Fatal(err)
		}
		last := commitStaged(t, tb, delta.Edits{Files: []delta.FileEdit{{File: fileOf(t, tb), Delete: []int64{0, 1}}}}, delta.StageOptions{})
		if len(last.Adds) != 0 || last.Metrics.RowsDeleted != 2 {
			t.Errorf("%d adds, metrics %+v", len(last.Adds), last.Metrics)
		}
	})
}

func countRows(t *testing.T, tb *delta.Table) int64 {
	t.Helper()
	s, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// openCounter counts the data files that are opened.
type openCounter struct {
	storage.Store
	parquet atomic.Int64 // a scan opens several files at once
}

func (c *openCounter) Open(ctx context.Context, key string) (storage.Reader, error) {
	if strings.HasSuffix(key, ".parquet") && !strings.HasPrefix(key, "_delta_log/") {
		c.parquet.Add(1)
	}
	return c.Store.Open(ctx, key)
}

// TestTable_StageVectors: row edits behind deletion vectors.
func TestTable_StageVectors(t *testing.T) {
	build := func(t *testing.T, feed bool) (*delta.Table, *openCounter) {
		c := &openCounter{Store: storage.NewMemory("t")}
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, k INT", Store: c, Properties: map[string]string{datafile.PropCarry: carryText,
			"delta.enableChangeDataFeed": fmt.Sprint(feed), "delta.enableDeletionVectors": "true"}})
		commitStaged(t, tb, delta.Edits{Insert: []arrow.RecordBatch{testtable.Batch(t, hiddenDDL,
			`{"id":1,"k":1,"__sluice":{"v":10}}{"id":2,"k":2,"__sluice":{"v":20}}{"id":3,"k":3,"__sluice":null}{"id":4,"k":4,"__sluice":{"v":40}}`)}}, delta.StageOptions{})
		c.parquet.Store(0)
		return tb, c
	}
	edit := func(t *testing.T, tb *delta.Table) delta.FileEdit {
		return delta.FileEdit{File: fileOf(t, tb), Delete: []int64{0}, Update: []int64{1},
			After: testtable.Batch(t, hiddenDDL, `{"id":2,"k":22,"__sluice":{"v":21}}`)}
	}
	hidden := []string{`{"__sluice":null,"id":3,"k":3}`, `{"__sluice":{"v":21},"id":2,"k":22}`, `{"__sluice":{"v":40},"id":4,"k":4}`}
	changes := []string{`delete {"id":1,"k":1}`, `update_preimage {"id":2,"k":2}`, `update_postimage {"id":2,"k":22}`}

	t.Run("hidden columns follow their rows", func(t *testing.T) {
		tb, c := build(t, true)
		s := commitStaged(t, tb, delta.Edits{Files: []delta.FileEdit{edit(t, tb)}}, delta.StageOptions{})
		if m := s.Metrics; m.RowsCopied != 0 || m.RowsDeleted != 1 || m.RowsUpdated != 1 || m.FilesAdded != 1 || m.ChangeFiles != 1 || c.parquet.Load() != 1 {
			t.Errorf("metrics %+v, %d files opened", m, c.parquet.Load())
		}
		wantRows(t, tb, delta.ScanOptions{Hidden: true}, hidden...)
		if d := testtable.Diff(feedOf(t, tb), changes); d != "" {
			t.Error(d)
		}
		if _, err := tb.Update(ctx, "k = k + 1", "id = 4", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Hidden: true, Where: "id = 4"}, `{"__sluice":{"v":40},"id":4,"k":5}`)
	})
	t.Run("nothing is read when the feed is off", func(t *testing.T) {
		tb, c := build(t, false)
		commitStaged(t, tb, delta.Edits{Files: []delta.FileEdit{edit(t, tb)}}, delta.StageOptions{})
		if c.parquet.Load() != 0 {
			t.Errorf("%d files opened", c.parquet.Load())
		}
		wantRows(t, tb, delta.ScanOptions{Hidden: true}, hidden...)
	})
	t.Run("nothing is read when the caller has the old rows", func(t *testing.T) {
		tb, c := build(t, true)
		e := edit(t, tb)
		e.Deleted = testtable.Batch(t, hiddenDDL, `{"id":1,"k":1,"__sluice":{"v":10}}`)
		e.Before = testtable.Batch(t, hiddenDDL, `{"id":2,"k":2,"__sluice":{"v":20}}`)
		commitStaged(t, tb, delta.Edits{Files: []delta.FileEdit{e}}, delta.StageOptions{})
		if c.parquet.Load() != 0 {
			t.Errorf("%d files opened", c.parquet.Load())
		}
		wantRows(t, tb, delta.ScanOptions{Hidden: true}, hidden...)
		if d := testtable.Diff(feedOf(t, tb), changes); d != "" {
			t.Error(d)
		}
	})
	t.Run("B05 one file by vector, one whole, and an insert: all in change files or none", func(t *testing.T) {
		tb := vectored(t, true, nil, `{"id":1}{"id":2}{"id":3}`, `{"id":4}{"id":5}`)
		files, err := mustSnapshot(t, tb).FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		byRows := map[int64]*deltalog.Add{}
		for _, a := range files {
			byRows[datafile.ParseStats(a.Stats).NumRecords] = a
		}
		s := commitStaged(t, tb, delta.Edits{Files: []delta.FileEdit{{File: byRows[3], Delete: []int64{1}}, {File: byRows[2], Delete: []int64{0, 1}}},
			Insert: []arrow.RecordBatch{testtable.Batch(t, "id BIGINT, v INT", `{"id":9}`)}}, delta.StageOptions{})
		if len(s.CDC) != 0 || len(s.Removes) != 2 || len(s.Adds) != 2 {
			t.Errorf("staged %+v", s)
		}
		want := []string{`delete {"id":2,"v":null}`, `delete {"id":4,"v":null}`, `delete {"id":5,"v":null}`, `insert {"id":9,"v":null}`}
		if d := testtable.Diff(feedOf(t, tb), want); d != "" {
			t.Error(d)
		}
	})
	t.Run("W-652 rows that are not live are refused and nothing is left", func(t *testing.T) {
		tb := vectored(t, true, nil, tenRows)
		if _, err := tb.Delete(ctx, "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		before := testtable.Files(t, tb.Store())
		for _, rows := range [][]int64{{3}, {10}, {-1}, {5, 5}, {6, 5}} {
			if _, err := tb.Stage(ctx, mustSnapshot(t, tb), delta.Edits{Files: []delta.FileEdit{{File: fileOf(t, tb), Delete: rows}}}, delta.StageOptions{}); err == nil {
				t.Errorf("rows %v: no error", rows)
			}
		}
		if after := testtable.Files(t, tb.Store()); len(after) != len(before) {
			t.Errorf("left behind %v", after)
		}
	})
	t.Run("R-653 a damaged vector ends the change", func(t *testing.T) {
		tb := vectored(t, true, nil, tenRows)
		if _, err := tb.Delete(ctx, "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, key := range testtable.Files(t, tb.Store()) {
			if strings.HasSuffix(key, ".bin") {
				if err := tb.Store().Put(ctx, key, []byte("\x01\x00\x00\x00\x22 no vector at all, but long enough")); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := tb.Stage(ctx, mustSnapshot(t, tb), delta.Edits{Files: []delta.FileEdit{{File: fileOf(t, tb), Delete: []int64{5}}}}, delta.StageOptions{})
		if err == nil {
			t.Errorf("staged %+v", s)
		}
	})
}
