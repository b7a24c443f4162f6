package delta_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// A process that was killed in a write leaves a temporary file that no listing shows: a
// vacuum takes it where it is older than the retention time, in the log and in what apply
// keeps as well, and leaves those of tables below.
func TestVacuum_UnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	store, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	tb := testtable.New(t, testtable.Spec{DDL: modelDDL, Store: store, Options: delta.Options{Clock: time.Now}, Rows: []string{faultRows}})
	inner, err := storage.NewLocal(filepath.Join(dir, "below"), storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	testtable.New(t, testtable.Spec{DDL: modelDDL, Store: inner})
	const id = ".0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp"
	leave := func(key string, age time.Duration) string {
		file := filepath.Join(dir, filepath.FromSlash(key))
		at := time.Now().Add(-age)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("half"), 0o644), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	week := 8 * 24 * time.Hour
	gone := []string{leave(".part-1.parquet"+id, week), leave("_delta_log/.00000000000000000009.json"+id, week), leave("_change_data/.cdc"+id, week),
		leave("_apply/state/_delta_log/.00000000000000000009.json"+id, week)}
	stay := []string{leave(".part-2.parquet"+id, time.Hour), leave("below/.part-3.parquet"+id, week)}
	r := vacuumed(t, tb, delta.VacuumOptions{DryRun: true})
	if len(r.Files) != len(gone) {
		t.Errorf("a dry run names %v", keysOf(r.Files))
	}
	if r = vacuumed(t, tb, delta.VacuumOptions{}); r.Deleted != int64(len(gone)) {
		t.Errorf("deleted %d of %v", r.Deleted, keysOf(r.Files))
	}
	for _, file := range gone {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", file, err)
		}
	}
	for _, file := range stay {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s is gone: %v", file, err)
		}
	}
}

// byBytes is a store that makes the tag of an object of its bytes, as S3 does.
type byBytes struct{ storage.Store }

func (s byBytes) URL() string { return "s3://b/t/" }

func (s byBytes) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for o, err := range s.Store.List(ctx, prefix, after) {
			if err == nil {
				var b []byte
				b, err = storage.ReadAll(ctx, s.Store, o.Key)
				o.ETag = string(b)
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// W-882: on an object store a dead file with the bytes of a live one goes like any other:
// tags are made of the bytes there, and are no sign of one file under two names.
func TestVacuum_DeadFileWithTheBytesOfALiveOne(t *testing.T) {
	c := newHandClock()
	tb, base := aged(t, c, testtable.Spec{Rows: []string{faultRows}})
	files, err := mustSnapshot(t, tb).FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, err := storage.ReadAll(ctx, base, files[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := base.Put(ctx, "part-orphan.parquet", b); err != nil {
		t.Fatal(err)
	}
	c.advance(8 * day)
	on, err := delta.Open(ctx, byBytes{base}, delta.Options{Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	if r := vacuumed(t, on, delta.VacuumOptions{}); len(r.Files) != 1 || r.Files[0].Key != "part-orphan.parquet" {
		t.Errorf("the vacuum finds %v", keysOf(r.Files))
	}
}
