package faultstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T, s storage.Store, want ...string) {
	t.Helper()
	if got := storagetest.Keys(t, s, "", ""); !slices.Equal(got, want) {
		t.Fatalf("store holds %q, want %q", got, want)
	}
}

func stream(ctx context.Context, s storage.Store, key string) error {
	w, err := s.NewWriter(ctx, key)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write([]byte("x")); err != nil {
		return err
	}
	return w.Close()
}

// TestStore_EveryOperation is the loop that tests of writers use: fail
// operation 0, 1, 2 ... until the work succeeds.
func TestStore_EveryOperation(t *testing.T) {
	ctx := t.Context()
	work := func(s storage.Store) error {
		if err := stream(ctx, s, "data"); err != nil {
			return err
		}
		return s.Create(ctx, "log", nil)
	}
	for mode, steps := range map[faultstore.Mode][][]string{
		// newwriter, write, close, create, and the run without a fault
		faultstore.FailBefore:  {{}, {}, {}, {"data"}, {"data", "log"}},
		faultstore.FailAfter:   {{}, {}, {"data"}, {"data", "log"}, {"data", "log"}},
		faultstore.CrashBefore: {{}, {}, {}, {"data"}, {"data", "log"}},
		faultstore.CrashAfter:  {{}, {}, {"data"}, {"data", "log"}, {"data", "log"}},
	} {
		for n, want := range steps {
			m := storage.NewMemory("t")
			s := faultstore.New(m, faultstore.Rule{Match: faultstore.Nth(n), Mode: mode})
			err := work(s)
			if last := n == len(steps)-1; (err == nil) != last {
				t.Fatalf("mode %d operation %d: %v", mode, n, err)
			}
			keys(t, m, want...)
			if err == nil {
				continue
			}
			crash := mode == faultstore.CrashBefore || mode == faultstore.CrashAfter
			if crash != errors.Is(err, faultstore.ErrCrashed) || crash != s.Crashed() {
				t.Fatalf("mode %d operation %d: %v", mode, n, err)
			}
			if (mode == faultstore.FailAfter) != errors.Is(err, storage.ErrAmbiguous) {
				t.Fatalf("mode %d operation %d: %v", mode, n, err)
			}
			if crash {
				if err := s.Put(ctx, "later", nil); !errors.Is(err, faultstore.ErrCrashed) {
					t.Fatalf("alive after the crash: %v", err)
				}
				must(t, work2(faultstore.New(m)))
			}
		}
	}
}

func work2(s storage.Store) error { return s.Put(context.Background(), "later", nil) }

func TestStore_CrashStopsOpenStreams(t *testing.T) {
	ctx := t.Context()
	m := storage.NewMemory("t")
	must(t, m.Create(ctx, "k", []byte("v")))
	s := faultstore.New(m)
	r, err := s.Open(ctx, "k")
	must(t, err)
	w, err := s.NewWriter(ctx, "w")
	must(t, err)
	s.Crash()
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, faultstore.ErrCrashed) {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, faultstore.ErrCrashed) {
		t.Fatal(err)
	}
	keys(t, m, "k")
}

func TestStore_Patterns(t *testing.T) {
	ctx := t.Context()
	s := faultstore.New(storage.NewMemory("t"),
		faultstore.Rule{Match: faultstore.On(faultstore.Create, "_delta_log/*.json"), Err: storage.ErrNoSpace},
		faultstore.Rule{Match: faultstore.After(1, faultstore.On(faultstore.Put, "d/**")), Times: -1})
	must(t, s.Create(ctx, "_delta_log/a/b.json", nil))
	must(t, s.Create(ctx, "x.json", nil))
	if err := s.Create(ctx, "_delta_log/0.json", nil); !errors.Is(err, storage.ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, s.Create(ctx, "_delta_log/0.json", nil)) // the rule is spent
	must(t, s.Put(ctx, "d/e/f", nil))
	for range 2 {
		if err := s.Put(ctx, "d/e/f", nil); !errors.Is(err, faultstore.ErrInjected) {
			t.Fatal(err)
		}
	}
	if n, m := s.Count(), s.Mutations(); n != 7 || m != 7 {
		t.Fatalf("%d operations, %d mutations", n, m)
	}
	if c := s.Trace()[2]; c.N != 2 || c.Op != faultstore.Create || c.Key != "_delta_log/0.json" || !errors.Is(c.Err, storage.ErrNoSpace) {
		t.Fatalf("trace: %v", c)
	}
	s.Reset()
	must(t, s.Put(ctx, "d/e/f", nil))
	if s.Count() != 1 {
		t.Fatal(s.Trace())
	}
}

// TestStore_Gate: a writer held before its commit finds that another was faster.
func TestStore_Gate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m := storage.NewMemory("t")
	zombie := faultstore.New(m)
	gate := zombie.Pause(faultstore.On(faultstore.Create, "_delta_log/*"))
	var wg sync.WaitGroup
	var late error
	wg.Go(func() { late = zombie.Create(ctx, "_delta_log/1", []byte("late")) })
	c, err := gate.Wait(ctx)
	must(t, err)
	if c.Key != "_delta_log/1" {
		t.Fatal(c)
	}
	must(t, m.Create(ctx, "_delta_log/1", []byte("fast")))
	gate.Release()
	wg.Wait()
	if !errors.Is(late, storage.ErrExists) {
		t.Fatalf("the late writer got %v", late)
	}

	gate = zombie.Pause(faultstore.On(faultstore.Put, ""))
	wg.Go(func() { late = zombie.Put(ctx, "k", nil) })
	_, err = gate.Wait(ctx)
	must(t, err)
	zombie.Crash()
	wg.Wait()
	if !errors.Is(late, faultstore.ErrCrashed) {
		t.Fatalf("paused, then crashed: %v", late)
	}
	keys(t, m, "_delta_log/1")
}
