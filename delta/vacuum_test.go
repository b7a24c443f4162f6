package delta_test

import (
	"context"
	"errors"
	"fmt"

	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// handClock is a clock that tests move by hand; store and table share it.
type handClock struct{ at atomic.Int64 }

func newHandClock() *handClock {
	c := &handClock{}
	c.at.Store(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *handClock) now() time.Time          { return time.UnixMilli(c.at.Add(1)).UTC() }
func (c *handClock) advance(d time.Duration) { c.at.Add(d.Milliseconds()) }

const day = 24 * time.Hour

// aged is a table on a store of one clock.
func aged(t *testing.T, c *handClock, s testtable.Spec) (*delta.Table, *storage.Memory) {
	t.Helper()
	store := storage.NewMemoryWith("t", storage.MemoryOptions{Clock: c.now})
	s.Store, s.Options.Clock = store, c.now
	if s.DDL == "" {
		s.DDL = modelDDL
	}
	return testtable.New(t, s), store
}

func vacuumed(t *testing.T, tb *delta.Table, o delta.VacuumOptions) delta.VacuumResult {
	t.Helper()
	r, err := tb.Vacuum(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keysOf(files []delta.VacuumFile) (out []string) {
	for _, f := range files {
		out = append(out, f.Key)
	}
	return out
}

func put(t *testing.T, s storage.Store, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := s.Put(ctx, k, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

func zero() *time.Duration { return new(time.Duration) }

func TestTable_VacuumKeeps(t *testing.T) {
	t.Run("W-882 every version of the retention time stays readable, older files go", func(t *testing.T) {
		for _, lite := range []bool{false, true} {
			c := newHandClock()
			tb, _ := aged(t, c, testtable.Spec{Partition: []string{"p"}, Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
			var rows []map[int64][]string // by day: what each version shows
			for d := range 20 {
				if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, testtable.Numbers(d*4, d*4+4, fmt.Sprintf(`,"k":%d,"p":%d`, d, d%2))), delta.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := tb.Delete(ctx, fmt.Sprintf("id %% 3 = 0 AND k <= %d", d), delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				if d%4 == 0 {
					if _, err := tb.Update(ctx, "k = k + 1", "p = 0", delta.DMLOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				snap, err := tb.Snapshot(ctx)
				if err != nil {
					t.Fatal(err)
				}
				v := snap.Version
				rows = append(rows, map[int64][]string{v: testtable.Read(t, tb, delta.ScanOptions{Version: &v})})
				c.advance(day)
				if d%5 != 4 {
					continue
				}
				r := vacuumed(t, tb, delta.VacuumOptions{Lite: lite})
				if d > 8 && r.Deleted == 0 {
					t.Errorf("lite %v, day %d: nothing deleted", lite, d)
				}
				// Day d is over: what was shown on the last seven days must be there.
				for back := 0; back < 7 && d-back >= 0; back++ {
					for v, want := range rows[d-back] {
						if diff := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{Version: &v}), want); diff != "" {
							t.Fatalf("lite %v, day %d: version %d: %s", lite, d, v, diff)
						}
					}
				}
				if again := vacuumed(t, tb, delta.VacuumOptions{Lite: lite}); len(again.Files) > 0 || again.Committed {
					t.Errorf("lite %v: a second run finds %v", lite, keysOf(again.Files))
				}
			}
		}
	})
	t.Run("W-884 change files go by age, the feed of retained versions stays", func(t *testing.T) {
		c := newHandClock()
		tb, store := aged(t, c, testtable.Spec{Rows: []string{testtable.Numbers(0, 9, `,"k":%`)}, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
		if _, err := tb.Update(ctx, "k = 0", "id = 1", delta.DMLOptions{}); err != nil { // version 2
			t.Fatal(err)
		}
		c.advance(5 * day)
		if _, err := tb.Update(ctx, "k = 0", "id = 2", delta.DMLOptions{}); err != nil { // version 3
			t.Fatal(err)
		}
		c.advance(3 * day)
		vacuumed(t, tb, delta.VacuumOptions{})
		feed := func(v int64) error {
			f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &v, ToVersion: &v}})
			if err != nil {
				return err
			}
			for _, err := range f.Rows(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		}
		if err := feed(3); err != nil {
			t.Errorf("version 3: %v", err)
		}
		if err := feed(2); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("R-907 B08: version 2: got %v", err)
		}
		if n := slices.IndexFunc(testtable.Files(t, store), func(k string) bool { return strings.HasPrefix(k, "_change_data/") }); n < 0 {
			t.Error("no change file is left")
		}
	})
	t.Run("W-885 files of running writers stay, old left-overs go", func(t *testing.T) {
		c := newHandClock()
		tb, store := aged(t, c, testtable.Spec{Rows: []string{`{"id":1}`}})
		put(t, store, "old.parquet", "deletion_vector_00000000-0000-4000-8000-000000000000.bin", "sub/dir/x.parquet")
		c.advance(8 * day)
		put(t, store, "new.parquet")
		r := vacuumed(t, tb, delta.VacuumOptions{DryRun: true})
		want := []string{"deletion_vector_00000000-0000-4000-8000-000000000000.bin", "old.parquet", "sub/dir/x.parquet"}
		if !slices.Equal(keysOf(r.Files), want) || r.Committed || len(testtable.Files(t, store)) < 5 {
			t.Errorf("dry run: got %v", keysOf(r.Files))
		}
		if r := vacuumed(t, tb, delta.VacuumOptions{}); r.Deleted != 3 {
			t.Errorf("deleted %d", r.Deleted)
		}
		if r := vacuumed(t, tb, delta.VacuumOptions{Lite: true}); r.Deleted != 0 {
			t.Errorf("lite deleted %d", r.Deleted)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"k":null,"p":null}`)
	})
	t.Run("W-883 hidden names, other tables and Iceberg metadata stay", func(t *testing.T) {
		c := newHandClock()
		tb, store := aged(t, c, testtable.Spec{DDL: "id BIGINT, _p INT", Partition: []string{"_p"}, Rows: []string{`{"id":1,"_p":1}`}})
		stay := []string{"_apply/state/_delta_log/00000000000000000000.json", "_apply/state/part.parquet", "_apply/quarantine/x", ".hidden", "a/.b/c.parquet", "_x/y.parquet",
			"clone/A.parquet", "clone/_delta_log/00000000000000000000.json", "clone/z.parquet", "metadata/v1.metadata.json", "metadata/snap.avro", "_delta_log/x.tmp", "sub/_y"}
		gone := []string{"_change_data/cdc-1.parquet", "_delta_index/i", "_p=2/part.parquet", "clones/a.parquet", "x.parquet"}
		put(t, store, append(slices.Clone(stay), gone...)...)
		c.advance(30 * day)
		if got := keysOf(vacuumed(t, tb, delta.VacuumOptions{}).Files); !slices.Equal(got, gone) {
			t.Errorf("deleted %v", got)
		}
		for _, k := range stay {
			if _, err := store.Head(ctx, k); err != nil {
				t.Errorf("%s: %v", k, err)
			}
		}
	})
	t.Run("W-886 names are compared decoded, absolute paths inside count, outside is never touched", func(t *testing.T) {
		c := newHandClock()
		tb, store := aged(t, c, testtable.Spec{DDL: "id BIGINT, p STRING", Partition: []string{"p"}, Rows: []string{`{"id":1,"p":"a/b"}{"id":2,"p":"x y%"}{"id":3,"p":"ü"}`}})
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		files := liveFiles(t, tb)
		// The same file by its absolute path, another outside, and one by dots.
		put(t, store, "abs.parquet", "gone.parquet", "CASE.parquet")
		tx := tb.Log().Begin(snap)
		for _, p := range []string{store.URL() + "abs.parquet", "mem://other/gone.parquet", "../gone.parquet", "case.parquet"} {
			tx.Add(&deltalog.Add{Path: p, PartitionValues: map[string]*string{"p": nil}, Size: 1, DataChange: true})
		}
		if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE"}); err != nil {
			t.Fatal(err)
		}
		c.advance(30 * day)
		if got := keysOf(vacuumed(t, tb, delta.VacuumOptions{}).Files); !slices.Equal(got, []string{"gone.parquet"}) {
			t.Errorf("deleted %v", got)
		}
		for _, a := range files {
			p, _ := a.Decoded()
			if _, err := store.Head(ctx, p); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	})
	t.Run("apply-state 5 files that others replaced since the last batch of apply stay", func(t *testing.T) {
		c := newHandClock()
		tb, _ := aged(t, c, testtable.Spec{Rows: []string{`{"id":1}`, `{"id":2}`}})
		if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":3}`), delta.WriteOptions{Txn: &delta.Txn{AppID: "sluice-state", Version: 1}}); err != nil {
			t.Fatal(err)
		}
		optimize(t, tb, delta.OptimizeOptions{})
		c.advance(30 * day)
		if r := vacuumed(t, tb, delta.VacuumOptions{}); r.Deleted != 0 {
			t.Errorf("deleted %v", keysOf(r.Files))
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":4}`), delta.WriteOptions{Txn: &delta.Txn{AppID: "sluice-state", Version: 2}}); err != nil {
			t.Fatal(err)
		}
		c.advance(30 * day)
		if r := vacuumed(t, tb, delta.VacuumOptions{}); r.Deleted != 3 {
			t.Errorf("deleted %v", keysOf(r.Files))
		}
	})
}

func TestTable_VacuumRefuses(t *testing.T) {
	c := newHandClock()
	tb, store := aged(t, c, testtable.Spec{Rows: []string{`{"id":1}`}})
	if _, err := tb.Delete(ctx, "", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	hour := time.Hour
	var short *delta.RetentionError
	if _, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: &hour}); !errors.As(err, &short) || short.Code() != "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT" {
		t.Errorf("W-885: got %v", err)
	}
	stop := errors.New("stop")
	_, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true, BeforeDelete: func(_ context.Context, _ *deltalog.Snapshot, files []delta.VacuumFile) error {
		if len(files) != 1 {
			t.Errorf("before: %v", files)
		}
		return stop
	}})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if snap, err := tb.Snapshot(ctx); err != nil || snap.Version != 2 {
		t.Errorf("something was committed: %v, %v", snap.Version, err)
	}
	r := vacuumed(t, tb, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true})
	if r.Deleted != 1 || r.Version != 4 {
		t.Errorf("got %+v", r)
	}
	start, end := commitAt(t, tb, 3).Info, commitAt(t, tb, 4).Info
	if start.Operation != "VACUUM START" || start.IsolationLevel != "SnapshotIsolation" || start.IsBlindAppend == nil || !*start.IsBlindAppend ||
		start.OperationMetrics["numFilesToDelete"] != "1" || string(start.OperationParameters["specifiedRetentionMillis"]) != `"0"` {
		t.Errorf("commitInfo %s", start.Raw)
	}
	if end.Operation != "VACUUM END" || string(end.OperationParameters["status"]) != `"COMPLETED"` || end.OperationMetrics["numDeletedFiles"] != "1" {
		t.Errorf("commitInfo %s", end.Raw)
	}
	if data, err := storage.ReadAll(ctx, store, "_delta_log/_last_vacuum_info"); err != nil || string(data) != `{"latestCommitVersionOutsideOfRetentionWindow":2}` {
		t.Errorf("_last_vacuum_info: %s, %v", data, err)
	}
	t.Run("W-881 what this version cannot write it does not vacuum", func(t *testing.T) {
		line := fmt.Sprintf(`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["appendOnly","invariants","fromTheFuture"]}}%s`, "\n")
		if err := store.Put(ctx, deltalog.CommitKey(5), []byte(line)); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Vacuum(ctx, delta.VacuumOptions{}); !errors.Is(err, delta.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

// TestTable_VacuumLite: it needs the log since the last vacuum.
func TestTable_VacuumLite(t *testing.T) {
	c := newHandClock()
	tb, store := aged(t, c, testtable.Spec{Rows: []string{`{"id":1}`, `{"id":2}`}})
	if _, err := tb.Delete(ctx, "", delta.DMLOptions{}); err != nil { // version 3
		t.Fatal(err)
	}
	if _, err := tb.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	c.advance(10 * day)
	if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":3}`), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for v := range int64(3) {
		if err := store.Delete(ctx, deltalog.CommitKey(v)); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := delta.Open(ctx, store, delta.Options{Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	var coded deltalog.Coder
	if _, err := fresh.Vacuum(ctx, delta.VacuumOptions{Lite: true}); !errors.As(err, &coded) || coded.Code() != "DELTA_CANNOT_VACUUM_LITE" {
		t.Errorf("got %v", err)
	}
	if err := store.Put(ctx, "_delta_log/_last_vacuum_info", []byte(`{"latestCommitVersionOutsideOfRetentionWindow":2}`)); err != nil {
		t.Fatal(err)
	}
	if r := vacuumed(t, fresh, delta.VacuumOptions{Lite: true}); r.Deleted != 2 {
		t.Errorf("deleted %v", keysOf(r.Files))
	}
}
