package delta_test

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// changesOf is the feed of one version in the order of its files.
func changesOf(t *testing.T, tb *delta.Table, version int64) []string {
	t.Helper()
	feed, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &version, ToVersion: &version}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for b, err := range feed.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, testtable.BatchLines(sliceColumns(b, int(b.NumCols())-2))...)
	}
	return out
}

func commitOf(t *testing.T, tb *delta.Table, operation string, stage func(tx *deltalog.Transaction)) {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tx := tb.Log().Begin(snap)
	stage(tx)
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: operation}); err != nil {
		t.Fatal(err)
	}
}

func onlyFile(t *testing.T, tb *delta.Table) *deltalog.Add {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files[0]
}

func TestTable_FileNames(t *testing.T) {
	data := regexp.MustCompile(`^part-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-c000\.snappy\.parquet$`)
	change := regexp.MustCompile(`^cdc-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.c000\.snappy\.parquet$`)
	t.Run("W-208 W-903 every file has a fresh name", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
			Rows: []string{`{"id":1,"p":1}{"id":2,"p":2}`, `{"id":1,"p":1}{"id":2,"p":2}`}})
		for range 2 {
			if _, err := tb.Update(ctx, "id = id + 1", "p = 1", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Overwrite(ctx, testtable.Rows(t, "id BIGINT, p INT", `{"id":1,"p":1}`), delta.OverwriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		use := func(p string, want *regexp.Regexp) {
			if seen[path.Base(p)] || !want.MatchString(path.Base(p)) {
				t.Errorf("file name %s, used before %t", p, seen[path.Base(p)])
			}
			seen[path.Base(p)] = true
		}
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range tb.Log().Commits(ctx, 0, snap.Version) {
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range c.Adds {
				use(a.Path, data)
			}
			for _, f := range c.CDC {
				use(f.Path, change)
			}
		}
		if len(seen) < 8 {
			t.Errorf("only %d files", len(seen))
		}
	})
	t.Run("W-505 partitions of a mapped table", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, `p q` STRING", Partition: []string{"p q"}, Properties: map[string]string{"delta.columnMapping.mode": "name"},
			Rows: []string{`{"id":1,"p q":"a/b"}{"id":2,"p q":null}`}})
		wantRows(t, tb, delta.ScanOptions{Where: "`p q` = 'a/b'"}, `{"id":1,"p q":"a/b"}`)
		wantRows(t, tb, delta.ScanOptions{Where: "`p q` IS NULL"}, `{"id":2,"p q":null}`)
		snap, _ := tb.Snapshot(ctx)
		for a, err := range snap.Files(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(a.Path, "p%20q") || strings.Contains(a.Path, "p q") || !data.MatchString(path.Base(a.Path)) {
				t.Errorf("path %s", a.Path)
			}
			for k := range a.PartitionValues {
				if !strings.HasPrefix(k, "col-") {
					t.Errorf("R-502: partition value of %q", k)
				}
			}
		}
	})
}

func TestTable_MappedChangeFeed(t *testing.T) {
	t.Run("R-504 W-501 _change_type has its plain name beside physical ones", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, `a b` STRING", Properties: map[string]string{"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
			Rows: []string{`{"id":1,"a b":"x"}{"id":2,"a b":"y"}`}})
		if _, err := tb.Update(ctx, "`a b` = 'z'", "id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		want := []string{`{"_change_type":"update_preimage","a b":"x","id":1}`, `{"_change_type":"update_postimage","a b":"z","id":1}`}
		if got := changesOf(t, tb, 2); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		c := actionsOf(t, tb)
		data, err := storage.ReadAll(ctx, tb.Store(), c.CDC[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("a b")) || !bytes.Contains(data, []byte("_change_type")) || !bytes.Contains(data, []byte("col-")) {
			t.Error("the change file has logical names")
		}
	})
}

func TestTable_ForeignLayout(t *testing.T) {
	t.Run("R-552 a file in the directory of another partition", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p INT", Partition: []string{"p"}, Rows: []string{`{"id":1,"p":1}`}})
		a := onlyFile(t, tb)
		bytes, err := storage.ReadAll(ctx, tb.Store(), a.Path)
		if err != nil {
			t.Fatal(err)
		}
		moved := *a
		moved.Path = "p=9/other.parquet"
		if err := tb.Store().Put(ctx, moved.Path, bytes); err != nil {
			t.Fatal(err)
		}
		commitOf(t, tb, "WRITE", func(tx *deltalog.Transaction) {
			tx.Remove(a.Remove(tb.Log().Now(), true))
			tx.Add(&moved)
		})
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"p":1}`)
		wantRows(t, tb, delta.ScanOptions{Where: "p = 1"}, `{"id":1,"p":1}`)
		wantRows(t, tb, delta.ScanOptions{Where: "p = 9"})
		if res, err := tb.Delete(ctx, "p = 9", delta.DMLOptions{}); err != nil || res.Committed {
			t.Errorf("delete: %+v %v", res, err)
		}
	})
}

func TestTable_DeletionVectors(t *testing.T) {
	spec := testtable.Spec{DDL: "id BIGINT, s STRING", Properties: map[string]string{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
		Rows: []string{testtable.Numbers(0, 6, `,"s":"x"`)}}
	tb := testtable.New(t, spec)
	old := onlyFile(t, tb)
	bm := roaring64.New()
	bm.AddMany([]uint64{1, 4})
	d := dv.EncodeInline(bm)
	commitOf(t, tb, "DELETE", func(tx *deltalog.Transaction) {
		with := *old
		with.DeletionVector = &deltalog.DeletionVectorDescriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv, SizeInBytes: d.SizeInBytes, Cardinality: d.Cardinality}
		tx.Remove(old.Remove(tb.Log().Now(), true))
		tx.Add(&with)
	})
	if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "false"}, delta.PropertyOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("R-656 vectors count whatever the property says", func(t *testing.T) {
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"id"}}, `{"id":0}`, `{"id":2}`, `{"id":3}`, `{"id":5}`)
		s, err := tb.Scan(ctx, delta.ScanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.Count(ctx); err != nil || n != 4 {
			t.Errorf("count %d, %v", n, err)
		}
	})
	t.Run("W-655 W-652 a rewrite applies the vector and drops it", func(t *testing.T) {
		res, err := tb.Update(ctx, "s = 'y'", "id = 2", delta.DMLOptions{})
		if err != nil || res.Metrics.RowsCopied != 3 {
			t.Fatalf("%+v %v", res, err)
		}
		c := actionsOf(t, tb)
		if len(c.Adds) != 1 || c.Adds[0].DeletionVector != nil || len(c.Removes) != 1 || c.Removes[0].DeletionVector.ID() != "i"+d.PathOrInlineDv {
			t.Errorf("adds %+v removes %+v", c.Adds, c.Removes)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":0,"s":"x"}`, `{"id":2,"s":"y"}`, `{"id":3,"s":"x"}`, `{"id":5,"s":"x"}`)
	})
	t.Run("R-656 change files have no vectors", func(t *testing.T) {
		snap, _ := tb.Snapshot(ctx)
		want := []string{`{"_change_type":"update_preimage","id":2,"s":"x"}`, `{"_change_type":"update_postimage","id":2,"s":"y"}`}
		if got := changesOf(t, tb, snap.Version); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestTable_ChangeFiles(t *testing.T) {
	spec := testtable.Spec{DDL: "id BIGINT, s STRING, p INT", Partition: []string{"p"}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"},
		Rows: []string{`{"id":1,"s":"a","p":1}{"id":2,"s":"b","p":1}{"id":3,"s":"c","p":2}`}}
	t.Run("W-901 W-902 all row changes of a version, those of files that go as a whole too", func(t *testing.T) {
		tb := testtable.New(t, spec)
		if _, err := tb.Delete(ctx, "id >= 2", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if c := actionsOf(t, tb); len(c.CDC) == 0 || len(c.Removes) != 2 || len(c.Adds) != 1 {
			t.Errorf("%d change files, %d removes, %d adds", len(c.CDC), len(c.Removes), len(c.Adds))
		}
		got := changesOf(t, tb, 2)
		slices.Sort(got)
		want := []string{`{"_change_type":"delete","id":2,"p":1,"s":"b"}`, `{"_change_type":"delete","id":3,"p":2,"s":"c"}`}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("W-906 W-909 both images of every matched row, pre before post, no copied row", func(t *testing.T) {
		tb := testtable.New(t, spec)
		if _, err := tb.Update(ctx, "s = s", "id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		want := []string{`{"_change_type":"update_preimage","id":1,"p":1,"s":"a"}`, `{"_change_type":"update_postimage","id":1,"p":1,"s":"a"}`}
		if got := changesOf(t, tb, 2); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("W-904 the change type is in change files only", func(t *testing.T) {
		tb := testtable.New(t, spec)
		if _, err := tb.Update(ctx, "s = 'z'", "", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range testtable.Files(t, tb.Store()) {
			if !strings.HasSuffix(name, ".parquet") {
				continue
			}
			data, err := storage.ReadAll(ctx, tb.Store(), name)
			if err != nil {
				t.Fatal(err)
			}
			if has, want := bytes.Contains(data, []byte("_change_type")), strings.Contains(name, "_change_data/"); has != want {
				t.Errorf("%s: _change_type %t", name, has)
			}
		}
	})
}

func TestConform_Integers(t *testing.T) {
	t.Run("W-402 values of another width are written in the column's type or refused", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "b TINYINT, s SMALLINT, i INT, l BIGINT"})
		before := len(testtable.Files(t, tb.Store()))
		for _, column := range []string{"b", "s", "i"} {
			_, err := tb.Append(ctx, testtable.Rows(t, column+" BIGINT", fmt.Sprintf(`{%q:5000000000}`, column)), delta.WriteOptions{})
			if codeOf(err) != "SCHEMA_MISMATCH" {
				t.Errorf("column %s: %v", column, err)
			}
		}
		if after := testtable.Files(t, tb.Store()); len(after) != before {
			t.Errorf("left behind: %v", after)
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, "b TINYINT, s TINYINT, i SMALLINT, l INT", `{"b":-128,"s":127,"i":-32768,"l":2147483647}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"b":-128,"i":-32768,"l":2147483647,"s":127}`)
	})
}
