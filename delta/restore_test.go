package delta_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

func restoreTo(t *testing.T, tb *delta.Table, v int64) delta.RestoreResult {
	t.Helper()
	want := testtable.Read(t, tb, delta.ScanOptions{Version: &v})
	r, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v})
	if err != nil {
		t.Fatal(err)
	}
	if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), want); d != "" {
		t.Fatalf("version %d: %s", v, d)
	}
	return r
}

// restoredFeed are the change rows of one version without version and time.
func restoredFeed(t *testing.T, tb *delta.Table, v int64) []string {
	t.Helper()
	f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &v, ToVersion: &v}})
	if err != nil {
		t.Fatal(err)
	}
	lines := testtable.Lines(t, f.Rows(ctx))
	for i, l := range lines {
		kind, rest, _ := strings.Cut(strings.TrimPrefix(l, `{"_change_type":"`), `"`)
		_, rest, _ = strings.Cut(rest, `,"id"`)
		lines[i] = kind + ` {"id"` + rest
	}
	return lines
}

func TestTable_Restore(t *testing.T) {
	for _, vectors := range []string{"false", "true"} {
		t.Run("2.1 every version can be gone back to, deletion vectors "+vectors, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Properties: map[string]string{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"},
				Rows: []string{testtable.Numbers(0, 10, `,"k":%,"p":1`), testtable.Numbers(10, 14, `,"k":%,"p":2`)}})
			for _, step := range []func() error{
				func() error { _, err := tb.Delete(ctx, "id % 3 = 0", delta.DMLOptions{}); return err },
				func() error { _, err := tb.Update(ctx, "k = k + 1", "id < 5", delta.DMLOptions{}); return err },
				func() error { _, err := tb.Delete(ctx, "p = 2", delta.DMLOptions{}); return err },
				func() error { _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); return err },
				func() error { _, err := tb.Delete(ctx, "", delta.DMLOptions{}); return err },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			last := mustSnapshot(t, tb).Version
			for v := last; v >= 0; v-- {
				restoreTo(t, tb, v)
			}
			for v := range last {
				r := restoreTo(t, tb, v)
				if r.Committed {
					var came, went int64
					for _, l := range restoredFeed(t, tb, r.Version) {
						if strings.HasPrefix(l, "insert ") {
							came++
						} else if strings.HasPrefix(l, "delete ") {
							went++
						}
					}
					if m := r.Metrics; m.RowsInserted != came || m.RowsDeleted != went {
						t.Errorf("version %d: %d rows inserted, %d deleted; the feed has %d and %d", v, m.RowsInserted, m.RowsDeleted, came, went)
					}
				}
				if again := restoreTo(t, tb, v); again.Committed {
					t.Errorf("W-907: a second restore to %d committed", v)
				}
				if r.To != v {
					t.Errorf("got %+v", r)
				}
			}
			if n := len(orphans(t, tb)); n > 0 && vectors == "false" {
				t.Errorf("%d files left behind", n)
			}
		})
	}
	t.Run("R-902 the feed shows the difference, deletion vectors by rows", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}, Rows: []string{testtable.Numbers(0, 5, "")}})
		if _, err := tb.Delete(ctx, "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":9}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		r := restoreTo(t, tb, 1)
		if got := fmt.Sprint(restoredFeed(t, tb, r.Version)); got != `[delete {"id":9} insert {"id":3}]` {
			t.Errorf("feed %s", got)
		}
		c := commitAt(t, tb, r.Version)
		if len(c.CDC) > 0 || c.Info.Operation != "RESTORE" || string(c.Info.OperationParameters["version"]) != `"1"` ||
			c.Info.OperationMetrics["numRestoredFiles"] != "1" || c.Info.OperationMetrics["numRemovedFiles"] != "2" || c.Info.OperationMetrics["numOfFilesAfterRestore"] != "1" {
			t.Errorf("commitInfo %s", c.Info.Raw)
		}
	})
	t.Run("R-907 files that are gone are named and nothing is written", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Store: store, Rows: []string{`{"id":1}`, `{"id":2}`}})
		files := liveFiles(t, tb)
		if _, err := tb.Delete(ctx, "", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(ctx, files[0].Path); err != nil {
			t.Fatal(err)
		}
		v := int64(2)
		var gone *delta.MissingFilesError
		if _, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v}); !errors.As(err, &gone) || len(gone.Files) != 1 || gone.Files[0] != files[0].Path || !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if mustSnapshot(t, tb).Version != 3 {
			t.Error("something was committed")
		}
		r, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v, IgnoreMissing: true})
		if err != nil || len(r.Missing) != 1 || r.Metrics.FilesAdded != 1 {
			t.Errorf("got %+v, %v", r, err)
		}
		if n := len(testtable.Read(t, tb, delta.ScanOptions{})); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("W-303 metadata goes back, the protocol does not", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Rows: []string{`{"id":1}`}})
		id := mustSnapshot(t, tb).Metadata.ID
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", "a": "b"}, delta.PropertyOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		restoreTo(t, tb, 1)
		s := mustSnapshot(t, tb)
		if s.Metadata.ID != id || s.Metadata.Configuration["a"] != "" || s.WritesDeletionVectors() || !s.Supports(deltalog.DeletionVectors) || !s.Supports(deltalog.ChangeDataFeed) {
			t.Errorf("metadata %+v, protocol %+v", s.Metadata, s.Protocol)
		}
		restoreTo(t, tb, 2)
		if s := mustSnapshot(t, tb); s.Metadata.Configuration["a"] != "b" || !s.WritesDeletionVectors() {
			t.Errorf("metadata %+v", s.Metadata)
		}
	})
	t.Run("W-502 W-503 column mapping stays on", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Rows: []string{`{"id":1,"k":2,"p":3}`}})
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, delta.PropertyOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		before := mustSnapshot(t, tb).Props.ColumnMappingMaxID
		if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":2,"p":3}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		restoreTo(t, tb, 1)
		if s := mustSnapshot(t, tb); s.Mode() != "name" || s.Props.ColumnMappingMaxID < before {
			t.Errorf("mode %s, max id %d", s.Mode(), s.Props.ColumnMappingMaxID)
		}
		if _, err := tb.Update(ctx, "k = k + 1", "", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"k":3,"p":3}`)
	})
	t.Run("W-426 an append-only table is not taken back", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Properties: map[string]string{"delta.appendOnly": "true"}, Rows: []string{`{"id":1}`}})
		v := int64(0)
		if _, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v}); !errors.Is(err, delta.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("R-753 by time", func(t *testing.T) {
		c := newHandClock()
		tb, _ := aged(t, c, testtable.Spec{})
		var times []time.Time
		for i := range 3 {
			if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, fmt.Sprintf(`{"id":%d}`, i)), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			times = append(times, c.now())
			c.advance(time.Hour)
		}
		r, err := tb.Restore(ctx, delta.RestoreOptions{Timestamp: &times[1]})
		if err != nil || r.To != 2 || len(testtable.Read(t, tb, delta.ScanOptions{})) != 2 {
			t.Errorf("got %+v, %v", r, err)
		}
		early := times[0].Add(-24 * time.Hour)
		if _, err := tb.Restore(ctx, delta.RestoreOptions{Timestamp: &early}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("before the first: got %v", err)
		}
		v := int64(99)
		if _, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("no such version: got %v", err)
		}
		for _, o := range []delta.RestoreOptions{{}, {Version: &v, Timestamp: &early}} {
			if _, err := tb.Restore(ctx, o); !errors.Is(err, delta.ErrInvalid) {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	})
	t.Run("C-27 any winner is a conflict", func(t *testing.T) {
		inner := storage.NewMemory("t")
		testtable.New(t, testtable.Spec{DDL: modelDDL, Store: inner, Rows: []string{`{"id":1}`, `{"id":2}`}})
		fs := faultstore.New(inner)
		tb, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gate := fs.Pause(faultstore.On(faultstore.Create, "_delta_log/*"))
		done := make(chan error)
		go func() {
			v := int64(1)
			_, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v})
			done <- err
		}()
		if _, err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		other, err := delta.Open(ctx, inner, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Append(ctx, testtable.Rows(t, modelDDL, `{"id":3}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		gate.Release()
		var c *deltalog.ConflictError
		if err := <-done; !errors.As(err, &c) || c.Kind != deltalog.ConcurrentWrite {
			t.Errorf("got %v", err)
		}
		if n := len(testtable.Read(t, other, delta.ScanOptions{})); n != 3 {
			t.Errorf("%d rows", n)
		}
	})
}
