package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// operations are the ways to change a table, each with the rows it leaves.
func operations(t *testing.T) []struct {
	name string
	run  func(*delta.Table) error
	want []string
} {
	rows := func(text string) []string {
		return testtable.Lines(t, testtable.Rows(t, modelDDL, text))
	}
	errOf := func(_ delta.Result, err error) error { return err }
	return []struct {
		name string
		run  func(*delta.Table) error
		want []string
	}{
		{"append", func(tb *delta.Table) error {
			return errOf(tb.Append(ctx, testtable.Rows(t, modelDDL, `{"id":9,"p":1}{"id":10,"p":5}`), delta.WriteOptions{}))
		}, rows(faultRows + `{"id":9,"p":1}{"id":10,"p":5}`)},
		{"overwrite", func(tb *delta.Table) error {
			return errOf(tb.Overwrite(ctx, testtable.Rows(t, modelDDL, `{"id":9,"p":1}`), delta.OverwriteOptions{}))
		}, rows(`{"id":9,"p":1}`)},
		{"replace where", func(tb *delta.Table) error {
			return errOf(tb.Overwrite(ctx, testtable.Rows(t, modelDDL, `{"id":9,"p":1}`), delta.OverwriteOptions{Where: "p = 1 AND id > 1"}))
		}, rows(`{"id":1,"k":1,"p":1}{"id":3,"k":3,"p":2}{"id":9,"p":1}`)},
		{"delete", func(tb *delta.Table) error {
			return errOf(tb.Delete(ctx, "id = 2", delta.DMLOptions{}))
		}, rows(`{"id":1,"k":1,"p":1}{"id":3,"k":3,"p":2}`)},
		{"update", func(tb *delta.Table) error {
			return errOf(tb.Update(ctx, "k = 0, p = 7", "id >= 2", delta.DMLOptions{}))
		}, rows(`{"id":1,"k":1,"p":1}{"id":2,"k":0,"p":7}{"id":3,"k":0,"p":7}`)},
	}
}

const faultRows = `{"id":1,"k":1,"p":1}{"id":2,"k":2,"p":1}{"id":3,"k":3,"p":2}`

// TestTable_Faults fails every store operation of every change, one after the other,
// in every way a store can fail.
func TestTable_Faults(t *testing.T) {
	modes := []struct {
		name string
		mode faultstore.Mode
		err  error
	}{
		{"refused", faultstore.FailBefore, nil},
		{"no space", faultstore.FailBefore, storage.ErrNoSpace},
		{"applied but reported failed", faultstore.FailAfter, nil},
		{"crash before", faultstore.CrashBefore, nil},
		{"crash after", faultstore.CrashAfter, nil},
	}
	list := operations(t)
	for _, op := range operations(t) {
		if op.name == "delete" || op.name == "update" || op.name == "replace where" {
			op.name += " with deletion vectors"
			list = append(list, op)
		}
	}
	for _, op := range list {
		base := storage.NewMemory("t")
		interval := "100"
		if op.name == "append" {
			interval = "2" // the change is followed by a checkpoint, whose failure must not matter (W-705)
		}
		testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Store: base, Properties: map[string]string{"delta.enableChangeDataFeed": "true",
			"delta.checkpointInterval": interval, "delta.enableDeletionVectors": fmt.Sprint(strings.HasSuffix(op.name, "vectors"))}, Rows: []string{faultRows}})
		for _, mode := range modes {
			t.Run(op.name+", "+mode.name, func(t *testing.T) {
				t.Parallel()
				for n := 0; ; n++ {
					if n > 500 {
						t.Fatal("no end of operations")
					}
					if faultOnce(t, base.Crash(), op.run, op.want, n, mode.mode, mode.err) {
						break
					}
				}
			})
		}
	}
}

// faultOnce runs one change with operation n failing and checks the table; true when
// the change has no operation n.
func faultOnce(t *testing.T, inner *storage.Memory, run func(*delta.Table) error, want []string, n int, mode faultstore.Mode, fault error) bool {
	t.Helper()
	fs := faultstore.New(inner)
	o := delta.Options{Sleep: func(context.Context, time.Duration) error { return nil }, Workers: 1}
	tb, err := delta.Open(ctx, fs, o)
	if err != nil {
		t.Fatal(err)
	}
	fs.Reset()
	fs.Add(faultstore.Rule{Match: faultstore.Nth(n), Mode: mode, Err: fault})
	err = run(tb)
	trace := fs.Trace()
	if len(trace) <= n {
		if err != nil {
			t.Fatalf("without a fault: %v", err)
		}
	}
	again, openErr := delta.Open(ctx, inner, delta.Options{})
	if openErr != nil {
		t.Fatalf("operation %d (%s): table does not open: %v", n, at(trace, n), openErr)
	}
	got := testtable.Read(t, again, delta.ScanOptions{})
	before := testtable.Lines(t, testtable.Rows(t, modelDDL, faultRows))
	var unknown *deltalog.UnknownOutcomeError
	crash := mode == faultstore.CrashBefore || mode == faultstore.CrashAfter
	switch {
	case err == nil:
		if d := testtable.Diff(got, want); d != "" {
			t.Errorf("operation %d (%s): acknowledged, but %s", n, at(trace, n), d)
		}
	case crash || errors.As(err, &unknown):
		if !slices.Equal(got, before) && !slices.Equal(got, want) {
			t.Errorf("operation %d (%s): neither before nor after: %v", n, at(trace, n), got)
		}
	default:
		if d := testtable.Diff(got, before); d != "" {
			t.Errorf("operation %d (%s): failed with %v, but %s", n, at(trace, n), err, d)
		}
		if fault != nil && !errors.Is(err, fault) {
			t.Errorf("operation %d (%s): got %v, want %v", n, at(trace, n), err, fault)
		}
		// Everything that no commit names is gone, unless the fault hit the deletion itself.
		if trace[n].Op != faultstore.Delete {
			if left := orphans(t, again); len(left) > 0 {
				t.Errorf("W-127: operation %d (%s): left behind %v", n, at(trace, n), left)
			}
		}
	}
	if len(trace) > n && !crash && err == nil {
		// The next change must work on what is there.
		if _, err := again.Append(ctx, testtable.Rows(t, modelDDL, `{"id":99}`), delta.WriteOptions{}); err != nil {
			t.Errorf("operation %d: next change: %v", n, err)
		}
	}
	return len(trace) <= n
}

func at(trace []faultstore.Call, n int) string {
	if n < len(trace) {
		return trace[n].String()
	}
	return "none"
}

// orphans are the files in the store that no commit of the table names.
func orphans(t *testing.T, tb *delta.Table) []string {
	t.Helper()
	named := map[string]bool{}
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range tb.Log().Commits(ctx, 0, snap.Version) {
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Adds {
			p, _ := a.Decoded()
			named[p] = true
			if v := a.DeletionVector; v != nil {
				key, err := dv.Descriptor{StorageType: v.StorageType, PathOrInlineDv: v.PathOrInlineDv}.Location()
				if err != nil {
					t.Fatal(err)
				}
				named[key] = true
			}
		}
		for _, a := range c.CDC {
			p, _ := a.Decoded()
			named[p] = true
		}
	}
	var out []string
	for _, key := range testtable.Files(t, tb.Store()) {
		if !strings.HasPrefix(key, "_delta_log/") && !named[key] {
			out = append(out, key)
		}
	}
	return out
}

// TestTable_FullDisk: a store without space refuses with its class and an untouched
// table; afterwards the same change works.
func TestTable_FullDisk(t *testing.T) {
	inner := storage.NewMemory("t")
	testtable.New(t, testtable.Spec{DDL: modelDDL, Store: inner, Rows: []string{faultRows}})
	for _, class := range []error{storage.ErrNoSpace, storage.ErrPermission} {
		fs := faultstore.New(inner, faultstore.Rule{Match: func(c faultstore.Call) bool { return c.Op.Mutates() && c.Op != faultstore.Delete }, Err: class, Times: -1})
		tb, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range operations(t) {
			if err := op.run(tb); !errors.Is(err, class) {
				t.Errorf("%s: got %v, want %v", op.name, err, class)
			}
		}
		fresh, err := delta.Open(ctx, inner, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := testtable.Diff(testtable.Read(t, fresh, delta.ScanOptions{}), testtable.Lines(t, testtable.Rows(t, modelDDL, faultRows))); d != "" {
			t.Error(d)
		}
		if left := orphans(t, fresh); len(left) > 0 {
			t.Errorf("left behind %v", left)
		}
	}
}

// TestTable_Cancelled: a context that ends in the middle leaves the table untouched.
func TestTable_Cancelled(t *testing.T) {
	for n := 0; n < 400; n++ {
		inner := storage.NewMemory("t")
		testtable.New(t, testtable.Spec{DDL: modelDDL, Partition: []string{"p"}, Store: inner, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}, Rows: []string{faultRows}})
		c, cancel := context.WithCancel(ctx)
		fs := faultstore.New(inner)
		tb, err := delta.Open(ctx, fs, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fs.Reset()
		fs.Add(faultstore.Rule{Match: faultstore.Nth(n), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error { cancel(); return nil }})
		_, err = tb.Update(c, "k = 0, p = 7", "id >= 2", delta.DMLOptions{})
		done := len(fs.Trace()) <= n
		cancel()
		fresh, openErr := delta.Open(ctx, inner, delta.Options{})
		if openErr != nil {
			t.Fatal(openErr)
		}
		got := fmt.Sprint(testtable.Read(t, fresh, delta.ScanOptions{Where: "k = 0"}))
		switch {
		case err == nil && got == "[]":
			t.Errorf("operation %d: acknowledged, but not there", n)
		case err != nil && got != "[]":
			var unknown *deltalog.UnknownOutcomeError
			if !errors.As(err, &unknown) {
				t.Errorf("operation %d: failed with %v, but is there", n, err)
			}
		case err != nil:
			if left := orphans(t, fresh); len(left) > 0 {
				t.Errorf("operation %d: left behind %v", n, left)
			}
		}
		if done {
			return
		}
	}
}
