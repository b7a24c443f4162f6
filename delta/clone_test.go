package delta_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

func cloned(t *testing.T, from *delta.Table, to storage.Store, o delta.CloneOptions) (*delta.Table, delta.CloneResult) {
	t.Helper()
	tb, r, err := delta.Clone(ctx, from, to, o, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), testtable.Read(t, from, delta.ScanOptions{Version: &r.Source})); d != "" {
		t.Fatal(d)
	}
	return tb, r
}

// odd is a table with vectors, partitions of odd names and a feed.
func odd(t *testing.T, store storage.Store) *delta.Table {
	t.Helper()
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, k INT, p STRING", Partition: []string{"p"}, Store: store,
		Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"},
		Rows:       []string{testtable.Numbers(0, 6, `,"k":%,"p":"a/b %25"`), testtable.Numbers(6, 9, `,"k":%,"p":null`), testtable.Numbers(9, 12, `,"k":%,"p":"ü=#"`)}})
	if _, err := tb.Delete(ctx, "id % 4 = 1", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	return tb
}

func TestClone_Deep(t *testing.T) {
	source := odd(t, storage.NewMemory("s"))
	t.Run("a copy has the rows and a history of its own", func(t *testing.T) {
		store := local(t, t.TempDir())
		tb, r := cloned(t, source, store, delta.CloneOptions{})
		s := mustSnapshot(t, tb)
		if s.Version != 0 || s.Metadata.ID == mustSnapshot(t, source).Metadata.ID || r.FilesCopied < 4 || !s.Supports(deltalog.DeletionVectors) {
			t.Errorf("got %+v, metadata %+v", r, s.Metadata)
		}
		info := commitAt(t, tb, 0).Info
		if info.Operation != "CLONE" || string(info.OperationParameters["isShallow"]) != `"false"` || info.OperationMetrics["numCopiedFiles"] != fmt.Sprint(r.FilesCopied) {
			t.Errorf("commitInfo %s", info.Raw)
		}
		if left := orphansBut(t, tb, ".bin"); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
		want := len(testtable.Read(t, source, delta.ScanOptions{}))
		if _, err := tb.Update(ctx, "k = 0", "id > 2", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		optimize(t, tb, delta.OptimizeOptions{Purge: true})
		if n := len(testtable.Read(t, source, delta.ScanOptions{Where: "k = 0"})); n > 1 || len(testtable.Read(t, source, delta.ScanOptions{})) != want {
			t.Error("the source changed")
		}
	})
	t.Run("an older version", func(t *testing.T) {
		v := int64(2)
		if tb, _ := cloned(t, source, storage.NewMemory("d"), delta.CloneOptions{Version: &v}); len(testtable.Read(t, tb, delta.ScanOptions{})) != 9 {
			t.Error("not the rows of version 2")
		}
	})
	t.Run("it refuses a table that is there and a missing file", func(t *testing.T) {
		var exists *delta.ExistsError
		if _, _, err := delta.Clone(ctx, source, source.Store(), delta.CloneOptions{}, delta.Options{}); !errors.As(err, &exists) {
			t.Errorf("got %v", err)
		}
		broken := testtable.New(t, testtable.Spec{DDL: modelDDL, Rows: []string{`{"id":1}`, `{"id":2}`}})
		if err := broken.Store().Delete(ctx, liveFiles(t, broken)[1].Path); err != nil {
			t.Fatal(err)
		}
		to := storage.NewMemory("d")
		if _, _, err := delta.Clone(ctx, broken, to, delta.CloneOptions{}, delta.Options{}); !errors.Is(err, delta.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if left := testtable.Files(t, to); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
		if _, _, err := delta.Clone(ctx, source, to, delta.CloneOptions{Shallow: true}, delta.Options{}); !errors.Is(err, delta.ErrInvalid) {
			t.Errorf("shallow in memory: got %v", err)
		}
	})
	t.Run("R-202 a log cannot make it copy any file", func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("not for you"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"file://" + secret, secret, "../secret"} {
			tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Store: local(t, filepath.Join(filepath.Dir(secret), "t"+fmt.Sprint(len(path)))), Rows: []string{`{"id":1}`}})
			tx := tb.Log().Begin(mustSnapshot(t, tb))
			tx.Add(&deltalog.Add{Path: path, PartitionValues: map[string]*string{}, Size: 11, DataChange: true})
			if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE"}); err != nil {
				t.Fatal(err)
			}
			to := storage.NewMemory("d")
			if _, _, err := delta.Clone(ctx, tb, to, delta.CloneOptions{}, delta.Options{}); !errors.Is(err, delta.ErrCorrupt) && !errors.Is(err, delta.ErrUnsupported) {
				t.Errorf("%s: got %v", path, err)
			}
			if left := testtable.Files(t, to); len(left) > 0 {
				t.Errorf("left behind %v", left)
			}
		}
	})
	t.Run("any fault leaves nothing or a whole table", func(t *testing.T) {
		for _, mode := range []faultstore.Mode{faultstore.FailBefore, faultstore.FailAfter} {
			for n := 0; ; n++ {
				inner := storage.NewMemory("d")
				fs := faultstore.New(inner, faultstore.Rule{Match: faultstore.NthMutation(n), Mode: mode, Times: 1})
				tb, _, err := delta.Clone(ctx, source, fs, delta.CloneOptions{Workers: 1}, delta.Options{NoCheckpoints: true})
				if err == nil {
					if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), testtable.Read(t, source, delta.ScanOptions{})); d != "" {
						t.Errorf("mutation %d: %s", n, d)
					}
				} else if left := testtable.Files(t, inner); len(left) > 0 {
					t.Errorf("mode %v, mutation %d: %v: left behind %v", mode, n, err, left)
				}
				if mutations(fs) <= n {
					break
				}
			}
		}
	})
}

func mutations(fs *faultstore.Store) (n int) {
	for _, c := range fs.Trace() {
		if c.Op.Mutates() {
			n++
		}
	}
	return n
}

// orphansBut are orphans whose key does not end in suffix.
func orphansBut(t *testing.T, tb *delta.Table, suffix string) []string {
	return slices.DeleteFunc(orphans(t, tb), func(k string) bool { return strings.HasSuffix(k, suffix) })
}

func TestClone_Shallow(t *testing.T) {
	dir := t.TempDir()
	sourceDir := filepath.Join(dir, "the source ü")
	source := odd(t, local(t, sourceDir))
	before := testtable.Read(t, source, delta.ScanOptions{})
	files := testtable.Files(t, source.Store())
	tb, r := cloned(t, source, local(t, filepath.Join(dir, "clone")), delta.CloneOptions{Shallow: true})
	if r.FilesCopied != 0 || string(commitAt(t, tb, 0).Info.OperationParameters["isShallow"]) != `"true"` {
		t.Errorf("got %+v", r)
	}
	t.Run("R-202 it refers to the files of the source", func(t *testing.T) {
		for _, a := range liveFiles(t, tb) {
			if !strings.HasPrefix(a.Path, "file:/") || a.DeletionVector != nil && a.DeletionVector.StorageType != "p" {
				t.Errorf("add %s, vector %+v", a.Path, a.DeletionVector)
			}
		}
	})
	t.Run("W-203 it is written like any table and the source stays as it is", func(t *testing.T) {
		for _, step := range []func() error{
			func() error { _, err := tb.Delete(ctx, "id = 2", delta.DMLOptions{}); return err },
			func() error { _, err := tb.Update(ctx, "k = k + 100", "id >= 9", delta.DMLOptions{}); return err },
			func() error { _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); return err },
			func() error {
				_, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true})
				return err
			},
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(testtable.Read(t, tb, delta.ScanOptions{Where: "k >= 100"})); n != 2 {
			t.Errorf("%d rows changed", n)
		}
		if d := testtable.Diff(testtable.Read(t, source, delta.ScanOptions{}), before); d != "" {
			t.Error(d)
		}
		if !slices.Equal(testtable.Files(t, source.Store()), files) {
			t.Error("W-886: files of the source changed")
		}
	})
	t.Run("a deep copy of it stands alone", func(t *testing.T) {
		restoreTo(t, tb, 0)
		alone, _ := cloned(t, tb, storage.NewMemory("d"), delta.CloneOptions{})
		for _, a := range liveFiles(t, alone) {
			if strings.Contains(a.Path, ":") || a.DeletionVector != nil && a.DeletionVector.StorageType != "u" {
				t.Errorf("add %s, vector %+v", a.Path, a.DeletionVector)
			}
		}
	})
	t.Run("a clone of a clone refers to the first", func(t *testing.T) {
		again, _ := cloned(t, tb, local(t, filepath.Join(dir, "again")), delta.CloneOptions{Shallow: true})
		for _, a := range liveFiles(t, again) {
			if strings.Contains(a.Path, "/clone/") {
				t.Errorf("add %s", a.Path)
			}
		}
	})
	t.Run("W-886 B08 a vacuum of the source takes rows away, by name", func(t *testing.T) {
		if _, err := source.Delete(ctx, "", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		timed, err := delta.Open(ctx, source.Store(), delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		vacuumed(t, timed, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true})
		s, err := tb.Scan(ctx, delta.ScanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got error
		for _, err := range s.Batches(ctx) {
			got = err
		}
		if !errors.Is(got, delta.ErrNotFound) {
			t.Errorf("got %v", got)
		}
	})
}

// TestGoldenOperations runs optimize, restore, clone and vacuum on every table of
// golden/spark that this version can write: rows stay what Spark reads.
func TestGoldenOperations(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.zst"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives in %s: %v", dir, err)
	}
	for _, a := range archives {
		name := strings.TrimSuffix(filepath.Base(a), ".tar.zst")
		t.Run(name, func(t *testing.T) {
			at := testtable.Unpack(t, a)
			source, err := delta.Open(ctx, local(t, filepath.Join(at, name)), delta.Options{})
			if errors.Is(err, delta.ErrUnsupported) {
				t.Fatalf("refused: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := testtable.Read(t, source, delta.ScanOptions{})
			if err := mustSnapshot(t, source).Require(deltalog.OpWrite); err != nil {
				if _, _, err := delta.Clone(ctx, source, storage.NewMemory("d"), delta.CloneOptions{}, delta.Options{}); !errors.Is(err, delta.ErrUnsupported) {
					t.Errorf("clone: got %v", err)
				}
				if _, err := source.Optimize(ctx, delta.OptimizeOptions{}); !errors.Is(err, delta.ErrUnsupported) {
					t.Errorf("optimize: got %v", err)
				}
				t.Skipf("no write of it is allowed, and clone and optimize refused it above: %v", err)
			}
			deep, _ := cloned(t, source, storage.NewMemory("d"), delta.CloneOptions{})
			shallow, _ := cloned(t, source, local(t, filepath.Join(at, "shallow")), delta.CloneOptions{Shallow: true})
			for _, tb := range []*delta.Table{deep, shallow} {
				for _, o := range []delta.OptimizeOptions{{}, {Purge: true}, {}} {
					if _, err := tb.Optimize(ctx, o); err != nil {
						t.Fatal(err)
					}
					if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), before); d != "" {
						t.Fatal(d)
					}
				}
				if _, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: zero(), AllowShortRetention: true}); err != nil {
					t.Fatal(err)
				}
				if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), before); d != "" {
					t.Fatal(d)
				}
			}
			if d := testtable.Diff(testtable.Read(t, source, delta.ScanOptions{}), before); d != "" {
				t.Fatal(d)
			}
			restoreGolden(t, source)
		})
	}
}

// restoreGolden goes back through the versions of a table as far as files are there
// and rules allow, and forth again.
func restoreGolden(t *testing.T, tb *delta.Table) {
	last := mustSnapshot(t, tb).Version
	versions := []int64{last, last / 2, 0, last}
	if os.Getenv("SLUICE_LONG") == "1" {
		versions = versions[:0]
		for v := last; v >= 0; v-- {
			versions = append(versions, v)
		}
		versions = append(versions, last)
	}
	for _, v := range versions {
		snap, err := tb.SnapshotAt(ctx, v)
		if errors.Is(err, delta.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = tb.Restore(ctx, delta.RestoreOptions{Version: &v})
		if errors.Is(err, delta.ErrNotFound) || errors.Is(err, delta.ErrInvalid) || errors.Is(err, delta.ErrUnsupported) {
			t.Logf("version %d: %v", v, err)
			continue
		}
		if err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
		if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), testtable.Read(t, tb, delta.ScanOptions{Version: &v})); d != "" {
			t.Errorf("version %d: %s", v, d)
		}
		if got := mustSnapshot(t, tb); got.Schema.String() != snap.Schema.String() {
			t.Errorf("version %d: schema %s, want %s", v, got.Schema, snap.Schema)
		}
	}
}
