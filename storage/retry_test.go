package storage_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func noSleep(context.Context, time.Duration) error { return nil }

func TestWithRetry_Calls(t *testing.T) {
	transient := fmt.Errorf("%w: 503", storage.ErrTransient)
	ctx := t.Context()
	for _, c := range []struct {
		name  string
		op    faultstore.Op
		mode  faultstore.Mode
		err   error
		times int
		call  func(storage.Store) error
		want  error // nil: the call succeeds
		calls int
	}{
		{"HeadOnce", faultstore.Head, faultstore.FailBefore, transient, 2, head, nil, 3},
		{"HeadForEver", faultstore.Head, faultstore.FailBefore, transient, -1, head, storage.ErrTransient, 4},
		{"HeadOtherFault", faultstore.Head, faultstore.FailBefore, storage.ErrPermission, -1, head, storage.ErrPermission, 1},
		{"CreateNotApplied", faultstore.Create, faultstore.FailBefore, transient, 1, create, nil, 2},
		{"CreateAmbiguous", faultstore.Create, faultstore.FailAfter, transient, 1, create, storage.ErrAmbiguous, 1},
		{"CreateAmbiguousNotApplied", faultstore.Create, faultstore.FailBefore, errors.Join(storage.ErrAmbiguous, storage.ErrTransient), 1, create, storage.ErrAmbiguous, 1},
		{"PutAmbiguous", faultstore.Put, faultstore.FailAfter, transient, 1, put, storage.ErrAmbiguous, 1},
		{"CloseNever", faultstore.Close, faultstore.FailBefore, transient, 1, stream, storage.ErrTransient, 1},
		{"WriteNever", faultstore.Write, faultstore.FailBefore, transient, 1, stream, storage.ErrTransient, 1},
		{"NewWriter", faultstore.NewWriter, faultstore.FailBefore, transient, 3, stream, nil, 4},
		{"Delete", faultstore.Delete, faultstore.FailBefore, transient, 3, func(s storage.Store) error { return s.Delete(ctx, "k") }, nil, 4},
		{"Read", faultstore.Read, faultstore.FailBefore, transient, 3, func(s storage.Store) error { _, err := storage.ReadAll(ctx, s, "k"); return err }, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := storage.NewMemory("t")
			must(t, m.Create(ctx, "k", []byte("v")))
			f := faultstore.New(m, faultstore.Rule{Match: faultstore.On(c.op, ""), Mode: c.mode, Err: c.err, Times: c.times})
			var pauses []time.Duration
			s := storage.WithRetry(f, storage.RetryOptions{Attempts: 4, Base: time.Second, Max: 3 * time.Second,
				Rand:  func() float64 { return 1 },
				Sleep: func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }})
			err := c.call(s)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			n := 0
			for _, call := range f.Trace() {
				if call.Op == c.op {
					n++
				}
			}
			if n != c.calls {
				t.Fatalf("%d calls, want %d: %v", n, c.calls, f.Trace())
			}
			if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}[:c.calls-1]; !slices.Equal(pauses, want) {
				t.Fatalf("pauses %v, want %v", pauses, want)
			}
			if c.name == "HeadForEver" && !strings.Contains(err.Error(), "gave up after 4 attempts") {
				t.Fatalf("message %v", err)
			}
		})
	}
}

func head(s storage.Store) error { _, err := s.Head(context.Background(), "k"); return err }
func create(s storage.Store) error {
	return s.Create(context.Background(), "new", nil)
}
func put(s storage.Store) error { return s.Put(context.Background(), "k", nil) }
func stream(s storage.Store) error {
	w, err := s.NewWriter(context.Background(), "stream")
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write([]byte("x")); err != nil {
		return err
	}
	return w.Close()
}

func TestWithRetry_ListGoesOn(t *testing.T) {
	ctx := t.Context()
	m := storage.NewMemory("t")
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprintf("k%d", i))
		must(t, m.Create(ctx, want[i], nil))
	}
	// Each listing shows three objects and then breaks off.
	s := storage.WithRetry(brokenList{m}, storage.RetryOptions{Attempts: 2, Sleep: noSleep})
	if got := storagetest.Keys(t, s, "k", ""); !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}
}

type brokenList struct{ storage.Store }

func (b brokenList) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		n := 0
		for o, err := range b.Store.List(ctx, prefix, after) {
			if n++; n > 3 {
				yield(storage.Object{}, storage.ErrTransient)
				return
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

func TestWithRetry_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := faultstore.New(storage.NewMemory("t"), faultstore.Rule{Match: faultstore.On(faultstore.Head, ""), Err: storage.ErrTransient, Times: -1,
		Hook: func(context.Context, faultstore.Call) error { cancel(); return nil }})
	s := storage.WithRetry(f, storage.RetryOptions{Base: time.Hour, Max: time.Hour})
	_, err := s.Head(ctx, "k")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrTransient) {
		t.Fatalf("got %v", err)
	}
}
