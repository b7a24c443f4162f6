package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// liar is a store whose first Create of a commit is applied and then answered with
// an error, as when a connection breaks or a client retries by itself.
type liar struct {
	storage.Store
	answer error
	lies   int
}

func (s *liar) Create(ctx context.Context, key string, data []byte) error {
	err := s.Store.Create(ctx, key, data)
	if err == nil && s.lies > 0 && strings.HasPrefix(key, deltalog.LogDir) {
		s.lies--
		return &storage.Error{Op: "create", Root: s.URL(), Key: key, Class: s.answer}
	}
	return err
}

func versionOf(t *testing.T, tb *delta.Table) int64 {
	t.Helper()
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return snap.Version
}

// TestFieldReports_Races are the reports about commits that race or whose answer is
// lost.
func TestFieldReports_Races(t *testing.T) {
	for _, answer := range []error{storage.ErrAmbiguous, storage.ErrExists} {
		t.Run(fmt.Sprintf("B13 the commit landed, the answer says %v", answer), func(t *testing.T) {
			store := &liar{Store: storage.NewMemory("t"), answer: answer}
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: store})
			for i, op := range []struct {
				run  func() (delta.Result, error)
				rows int64
			}{
				{func() (delta.Result, error) {
					return tb.Append(ctx, testtable.Rows(t, "id BIGINT", testtable.Numbers(0, 10, "")), delta.WriteOptions{})
				}, 10},
				{func() (delta.Result, error) { return tb.Update(ctx, "id = id + 100", "id < 3", delta.DMLOptions{}) }, 10},
				{func() (delta.Result, error) { return tb.Delete(ctx, "id > 100", delta.DMLOptions{}) }, 8},
			} {
				store.lies = 1
				res, err := op.run()
				if err != nil || res.Version != int64(i+1) || !res.Committed {
					t.Fatalf("%+v, %v", res, err)
				}
				s, err := tb.Scan(ctx, delta.ScanOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if n, err := s.Count(ctx); err != nil || n != op.rows || versionOf(t, tb) != int64(i+1) {
					t.Errorf("operation %d: %d rows, version %d, %v", i, n, versionOf(t, tb), err)
				}
			}
		})
	}
	t.Run("B15 a commit is absent or whole", func(t *testing.T) {
		dir := t.TempDir()
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, p STRING", Partition: []string{"p"}, Store: local(t, dir), Options: delta.Options{NoCheckpoints: true}})
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			seen := map[string]int{}
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				names, err := filepath.Glob(filepath.Join(dir, "_delta_log", "*.json"))
				if err != nil {
					done <- err
					return
				}
				for _, n := range names {
					raw, err := os.ReadFile(n)
					if was, ok := seen[n]; err == nil && (len(raw) == 0 || raw[len(raw)-1] != '\n' || ok && was != len(raw)) {
						err = fmt.Errorf("%s has %d bytes, %d before, and ends in %q", n, len(raw), was, raw[max(0, len(raw)-20):])
					}
					if err == nil {
						_, err = deltalog.ParseCommit(0, n, raw, tb.Options().Clock())
					}
					if err != nil {
						done <- err
						return
					}
					seen[n] = len(raw)
				}
			}
		}()
		var rows strings.Builder
		for i := range 60 { // many files make a commit of many kilobytes
			fmt.Fprintf(&rows, `{"id":%d,"p":"%s%d"}`, i, strings.Repeat("x", 60), i)
		}
		for range 5 {
			if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT, p STRING", rows.String()), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("B15 a writer that dies leaves no part of a commit", func(t *testing.T) {
		for _, mode := range []faultstore.Mode{faultstore.CrashBefore, faultstore.CrashAfter} {
			dir := t.TempDir()
			testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: local(t, dir), Rows: []string{`{"id":1}`}})
			dying := faultstore.New(local(t, dir), faultstore.Rule{Match: faultstore.On(faultstore.Create, "_delta_log/*"), Mode: mode})
			tb, err := delta.Open(ctx, dying, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":2}`), delta.WriteOptions{}); err == nil {
				t.Fatal("it lives")
			}
			after, err := delta.Open(ctx, local(t, dir), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{`{"id":1}`}
			if mode == faultstore.CrashAfter {
				want = append(want, `{"id":2}`)
			}
			wantRows(t, after, delta.ScanOptions{}, want...)
		}
	})
	t.Run("B16 a commit that is there is never written again", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: store, Rows: []string{`{"id":1}`}})
		fs := faultstore.New(store)
		slow, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gate := fs.Pause(faultstore.On(faultstore.Create, deltalog.CommitKey(2)))
		done := make(chan error, 1)
		go func() {
			_, err := slow.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":3}`), delta.WriteOptions{})
			done <- err
		}()
		if _, err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":2}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		before, err := storage.ReadAll(ctx, store, deltalog.CommitKey(2))
		if err != nil {
			t.Fatal(err)
		}
		gate.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		after, err := storage.ReadAll(ctx, store, deltalog.CommitKey(2))
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("version 2 was written twice: %v", err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`, `{"id":3}`)
		if err := store.Create(ctx, deltalog.CommitKey(3), []byte("{}")); !errors.Is(err, storage.ErrExists) {
			t.Errorf("the store took version 3 twice: %v", err)
		}
	})
	t.Run("B18 two overwrites of one region", func(t *testing.T) {
		const ddl = "id BIGINT, region STRING"
		store := storage.NewMemory("t")
		a := testtable.New(t, testtable.Spec{DDL: ddl, Partition: []string{"region"}, Store: store, Rows: []string{`{"id":1,"region":"north"}{"id":2,"region":"south"}`}})
		fs := faultstore.New(store)
		b, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gate := fs.Pause(faultstore.On(faultstore.Create, "_delta_log/*"))
		done := make(chan error, 1)
		go func() {
			_, err := b.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":20,"region":"north"}`), delta.OverwriteOptions{Where: "region = 'north'"})
			done <- err
		}()
		if _, err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":10,"region":"north"}{"id":11,"region":"north"}`), delta.OverwriteOptions{Where: "region = 'north'"}); err != nil {
			t.Fatal(err)
		}
		gate.Release()
		err = <-done
		switch {
		case err == nil: // it ran again as a whole, on the newer version
			wantRows(t, a, delta.ScanOptions{}, `{"id":2,"region":"south"}`, `{"id":20,"region":"north"}`)
		case errors.Is(err, delta.ErrConflict):
			wantRows(t, a, delta.ScanOptions{}, `{"id":10,"region":"north"}`, `{"id":11,"region":"north"}`, `{"id":2,"region":"south"}`)
		default:
			t.Error(err)
		}
	})
	t.Run("B18 a compaction and an append", func(t *testing.T) {
		store := storage.NewMemory("t")
		a := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Store: store, Rows: []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}})
		fs := faultstore.New(store)
		b, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gate := fs.Pause(faultstore.On(faultstore.Create, "_delta_log/*"))
		done := make(chan error, 1)
		go func() { _, err := b.Optimize(ctx, delta.OptimizeOptions{}); done <- err }()
		if _, err := gate.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Append(ctx, testtable.Rows(t, "id BIGINT", `{"id":4}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		appended := actionsOf(t, a).Adds[0].Path
		gate.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantRows(t, a, delta.ScanOptions{}, `{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`)
		files := liveFiles(t, a)
		if len(files) != 2 || files[0].Path != appended && files[1].Path != appended {
			t.Errorf("%d files, the appended one among them?", len(files))
		}
	})
	t.Run("B20 the number of rows, inserted by three writers", func(t *testing.T) {
		store := storage.NewMemory("t")
		testtable.New(t, testtable.Spec{DDL: "n BIGINT", Store: store, Options: delta.Options{NoCheckpoints: true}})
		const each = 40
		var mu sync.Mutex
		conflicts := 0
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				tb, err := delta.Open(ctx, store, delta.Options{NoCheckpoints: true})
				if err != nil {
					t.Error(err)
					return
				}
				for done := 0; done < each; {
					err := insertCount(t, tb)
					switch {
					case err == nil:
						done++
					case errors.Is(err, delta.ErrConflict):
						mu.Lock()
						conflicts++
						mu.Unlock()
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		tb, err := delta.Open(ctx, store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for n := range 3 * each {
			want = append(want, fmt.Sprintf(`{"n":%d}`, n))
		}
		wantRows(t, tb, delta.ScanOptions{}, want...)
		t.Logf("%d lost races", conflicts)
	})
}

// insertCount appends the number of rows that the table has.
func insertCount(t *testing.T, tb *delta.Table) error {
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		return err
	}
	s, err := tb.Scan(ctx, delta.ScanOptions{Snapshot: snap})
	if err != nil {
		return err
	}
	n, err := s.Count(ctx)
	if err != nil {
		return err
	}
	e := delta.Edits{}
	for b, err := range testtable.Rows(t, "n BIGINT", fmt.Sprintf(`{"n":%d}`, n)) {
		if err != nil {
			return err
		}
		e.Insert = append(e.Insert, b)
	}
	staged, err := tb.Stage(ctx, snap, e, delta.StageOptions{})
	if err != nil {
		return err
	}
	tx := tb.Log().Begin(snap)
	tx.ReadWholeTable()
	staged.Apply(tx)
	if _, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "WRITE", NotBlind: true}); err != nil {
		return errors.Join(err, staged.Discard(ctx))
	}
	return nil
}
