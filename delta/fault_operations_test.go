package delta_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// TestOperations_Faults fails every store operation of optimize, vacuum, restore and
// convert in every way: afterwards the table is as before or as after, every version of
// the retention time can be read, nothing that no commit names is left of an optimize,
// and the operation can be done again.
func TestOperations_Faults(t *testing.T) {
	retain := time.Hour
	v1 := int64(1)
	vacuum := func(lite bool) func(tb *delta.Table) error {
		return func(tb *delta.Table) error {
			_, err := tb.Vacuum(ctx, delta.VacuumOptions{Retain: &retain, AllowShortRetention: true, Lite: lite, Workers: 1})
			return err
		}
	}
	for _, op := range []struct {
		name string
		run  func(tb *delta.Table) error
		// changes: the rows are those of version 1 afterwards.
		changes bool
	}{
		{"optimize", func(tb *delta.Table) error { _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); return err }, false},
		{"purge", func(tb *delta.Table) error {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{Purge: true})
			return err
		}, false},
		{"z-order", func(tb *delta.Table) error {
			_, err := tb.Optimize(ctx, delta.OptimizeOptions{ZOrder: []string{"k"}})
			return err
		}, false},
		{"vacuum", vacuum(false), false},
		{"vacuum lite", vacuum(true), false},
		{"restore", func(tb *delta.Table) error {
			_, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v1})
			return err
		}, true},
		{"drop column mapping", func(tb *delta.Table) error {
			_, err := tb.DropFeature(ctx, deltalog.ColumnMapping, deltalog.DropFeatureOptions{})
			if codeOf(err) == "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT" {
				return nil // the run before did it
			}
			return err
		}, false},
	} {
		c := newHandClock()
		props := map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
		if op.name == "drop column mapping" {
			props["delta.columnMapping.mode"] = "name"
		}
		tb, base := aged(t, c, testtable.Spec{Partition: []string{"p"}, Properties: props,
			Rows: []string{faultRows, testtable.Numbers(10, 14, `,"k":%,"p":1`), testtable.Numbers(20, 24, `,"k":%,"p":2`)}})
		for _, where := range []string{"id = 11", "id >= 22"} {
			if _, err := tb.Delete(ctx, where, delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tb.Update(ctx, "k = 0", "id = 12", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(op.name, "vacuum") {
			put(t, base, "orphan.parquet")
			c.advance(2 * time.Hour)
			if _, err := tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":30}`), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Delete(ctx, "id = 12 OR id = 30", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		last := mustSnapshot(t, tb).Version
		before := testtable.Read(t, tb, delta.ScanOptions{})
		after := before
		if op.changes {
			after = testtable.Read(t, tb, delta.ScanOptions{Version: &v1})
		}
		retained := map[int64][]string{}
		for v := last - 1; v <= last; v++ {
			retained[v] = testtable.Read(t, tb, delta.ScanOptions{Version: &v})
		}
		for _, mode := range []faultstore.Mode{faultstore.FailBefore, faultstore.FailAfter, faultstore.CrashBefore, faultstore.CrashAfter} {
			t.Run(fmt.Sprintf("%s, mode %d", op.name, mode), func(t *testing.T) {
				t.Parallel()
				// These take many operations: each mode takes its turn at every fourth operation.
				first, step := 0, 1
				if many := strings.HasPrefix(op.name, "vacuum") || strings.HasPrefix(op.name, "drop"); many && os.Getenv("SLUICE_LONG") != "1" {
					first, step = int(mode), 4
				}
				for n := first; ; n += step {
					inner := base.Crash()
					fs := faultstore.New(inner)
					o := delta.Options{Clock: c.now, Sleep: func(context.Context, time.Duration) error { return nil }, Workers: 1}
					tb, err := delta.Open(ctx, fs, o)
					if err != nil {
						t.Fatal(err)
					}
					fs.Reset()
					fs.Add(faultstore.Rule{Match: faultstore.Nth(n), Mode: mode})
					err = op.run(tb)
					trace := fs.Trace()
					if len(trace) <= n && err != nil {
						t.Fatalf("without a fault: %v", err)
					}
					checkAfterFault(t, inner, o, trace, n, mode, err, before, after, retained, !strings.HasPrefix(op.name, "vacuum"))
					again, err := delta.Open(ctx, inner, o)
					if err != nil {
						t.Fatal(err)
					}
					if err := op.run(again); err != nil {
						t.Fatalf("operation %d (%s): again: %v", n, at(trace, n), err)
					}
					if d := testtable.Diff(testtable.Read(t, again, delta.ScanOptions{}), after); d != "" {
						t.Fatalf("operation %d (%s): again: %s", n, at(trace, n), d)
					}
					if len(trace) <= n || t.Failed() {
						return
					}
				}
			})
		}
	}
}

func checkAfterFault(t *testing.T, inner storage.Store, o delta.Options, trace []faultstore.Call, n int, mode faultstore.Mode, err error, before, after []string, retained map[int64][]string, clean bool) {
	t.Helper()
	fresh, openErr := delta.Open(ctx, inner, o)
	if openErr != nil {
		t.Fatalf("operation %d (%s): %v", n, at(trace, n), openErr)
	}
	got := testtable.Read(t, fresh, delta.ScanOptions{})
	var unknown *deltalog.UnknownOutcomeError
	crash := mode == faultstore.CrashBefore || mode == faultstore.CrashAfter
	switch {
	case err == nil && !slices.Equal(got, after):
		t.Errorf("operation %d (%s): acknowledged, but not there", n, at(trace, n))
	case err != nil && !slices.Equal(got, before) && !(slices.Equal(got, after) && (crash || errors.As(err, &unknown))):
		t.Errorf("operation %d (%s): failed with %v, but the rows are others", n, at(trace, n), err)
	}
	for v, want := range retained {
		if d := testtable.Diff(testtable.Read(t, fresh, delta.ScanOptions{Version: &v}), want); d != "" {
			t.Errorf("operation %d (%s): version %d: %s", n, at(trace, n), v, d)
		}
	}
	if clean && !crash && err != nil && unknown == nil && n < len(trace) && trace[n].Op != faultstore.Delete {
		if left := orphansBut(t, fresh, ".bin"); len(left) > 0 {
			t.Errorf("W-127: operation %d (%s): left behind %v", n, at(trace, n), left)
		}
	}
}
