package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// long says that every case is wanted, not a share of them.
func long() bool { return os.Getenv("SLUICE_LONG") != "" }

// modes are the ways in which a call of a store fails.
var modes = []struct {
	name string
	mode faultstore.Mode
	err  error
	died bool
}{
	{"call refused", faultstore.FailBefore, nil, false},
	{"no space", faultstore.FailBefore, storage.ErrNoSpace, false},
	{"answer lost", faultstore.FailAfter, nil, false},
	{"crash before a call", faultstore.CrashBefore, nil, true},
	{"crash after a call", faultstore.CrashAfter, nil, true},
}

// TestOperations_FaultAtEveryCall fails the first call of an operation on its store, then
// the second, and so on, in every way (invariant 2). A short run takes each call in one
// way, a long one in all.
func TestOperations_FaultAtEveryCall(t *testing.T) {
	for _, op := range operations() {
		base := storage.NewMemory("m")
		at := newBench(base, t.TempDir())
		at.workers, at.sleep = 1, func(context.Context, time.Duration) error { return nil }
		if err := op.prepare(at); err != nil {
			t.Fatalf("%s: prepare: %v", op.name, err)
		}
		want := refer(t, op, at.on(base.Crash()))
		for m, mode := range modes {
			t.Run("W-127 law 8 "+op.name+", "+mode.name, func(t *testing.T) {
				t.Parallel()
				first, step := 0, 1
				if !long() {
					first, step = m, len(modes)
				}
				b := *at
				b.files = t.TempDir()
				for n := first; ; n += step {
					inner := base.Crash()
					fs := faultstore.New(inner, faultstore.Rule{Match: faultstore.Nth(n), Mode: mode.mode, Err: mode.err})
					err := op.run(b.on(fs))
					trace := fs.Trace()
					if len(trace) <= n {
						if err != nil {
							t.Fatalf("without a fault: %v", err)
						}
						if n < 3 {
							t.Fatalf("only %d calls", n)
						}
						return
					}
					when := fmt.Sprintf("call %v", trace[n])
					if mode.died && err != nil && !errors.Is(err, faultstore.ErrCrashed) {
						t.Errorf("%s: %v", when, err)
					}
					if err := op.survived(b.on(inner), want, err, mode.died); err != nil {
						t.Fatalf("%s: %v", when, err)
					}
					survived("store: "+mode.name, op.name, 1)
				}
			})
		}
	}
}
