package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// TestOperations_ClockGoesBack sets the clock back an hour at each look of an operation at
// it, and it goes on from there.
func TestOperations_ClockGoesBack(t *testing.T) {
	step := int64(3)
	if long() {
		step = 1
	}
	for _, op := range operations() {
		base := storage.NewMemory("m")
		at := newBench(base, t.TempDir())
		if err := op.prepare(at); err != nil {
			t.Fatalf("%s: prepare: %v", op.name, err)
		}
		want := refer(t, op, at.on(base.Crash()))
		t.Run("law 8 "+op.name, func(t *testing.T) {
			for n := int64(0); ; n += step {
				b := at.on(base.Crash())
				b.files = t.TempDir()
				var looks atomic.Int64
				calm := b.now
				b.now = func() time.Time {
					if looks.Add(1) > n {
						return calm().Add(-time.Hour)
					}
					return calm()
				}
				err := op.run(b)
				if err != nil {
					t.Fatalf("look %d: %v", n, err)
				}
				done := looks.Load() <= n
				b.now = calm
				if err := op.survived(b, want, nil, false); err != nil {
					t.Fatalf("look %d: %v", n, err)
				}
				if done {
					return
				}
				survived("clock: goes back an hour", op.name, 1)
			}
		})
	}
}

// skewed are two writers of one table whose clocks differ by twice the skew.
func skewed(t *testing.T, skew time.Duration, props map[string]string) (store *storage.Memory, fast, slow *bench) {
	t.Helper()
	store = storage.NewMemory("m")
	fast, slow = newBench(store, t.TempDir()), newBench(store, t.TempDir())
	fast.now = func() time.Time { return time.Now().Add(skew) }
	slow.now = func() time.Time { return time.Now().Add(-skew) }
	if err := table(props)(fast); err != nil {
		t.Fatal(err)
	}
	return store, fast, slow
}

// In-commit timestamps grow by version whatever the clocks of the writers say, so that a
// time names one version and later times later versions.
func TestClock_SkewedWritersKeepTimesInOrder(t *testing.T) {
	_, fast, slow := skewed(t, 25*time.Minute, map[string]string{"delta.enableInCommitTimestamps": "true"})
	for n := range 6 {
		for _, b := range []*bench{slow, fast} {
			tab, err := b.open("t")
			if err != nil {
				t.Fatal(err)
			}
			if err := appendRows(b, tab, fmt.Sprintf(`{"id":%d,"k":0,"p":1}`, 100+n), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tab, err := slow.open("t")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := tab.Snapshot(slow.ctx)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for v := range snap.Version + 1 {
		of, err := tab.SnapshotAt(slow.ctx, v)
		if err != nil {
			t.Fatal(err)
		}
		when, err := of.Time(slow.ctx)
		if err != nil {
			t.Fatal(err)
		}
		at := when.UnixMilli()
		if at <= last {
			t.Errorf("version %d is of %d, the one before of %d", v, at, last)
		}
		found, err := tab.SnapshotAsOf(slow.ctx, time.UnixMilli(at))
		if err != nil || found.Version != v {
			t.Errorf("the time of version %d names version %v (%v)", v, found, err)
		}
		last = at
	}
}

// A vacuum by the clock that is ahead takes neither a file that a slow writer has not yet
// committed nor one that a version of the retention time needs, as long as the clocks
// differ by less than that time.
func TestClock_VacuumOfSkewedWriters(t *testing.T) {
	store, fast, slow := skewed(t, 25*time.Minute, map[string]string{"delta.enableChangeDataFeed": "true"})
	hour := time.Hour
	held := faultstore.New(store)
	gate := held.Pause(faultstore.On(faultstore.Create, "t/_delta_log/*.json"))
	late := slow.on(held)
	tab, err := late.open("t")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- appendRows(late, tab, `{"id":50,"k":0,"p":1}`, delta.WriteOptions{}) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := gate.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	other, err := slow.open("t")
	if err != nil {
		t.Fatal(err)
	}
	before, version, err := slow.rows("t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Delete(slow.ctx, "id <= 4", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	vac, err := fast.open("t")
	if err != nil {
		t.Fatal(err)
	}
	r, err := vac.Vacuum(fast.ctx, delta.VacuumOptions{Retain: &hour, AllowShortRetention: true})
	if err != nil || len(r.Files) != 0 {
		t.Errorf("the vacuum took %v (%v)", r.Files, err)
	}
	gate.Release()
	if err := <-done; err != nil {
		t.Fatalf("the slow writer: %v", err)
	}
	if got, _, err := fast.rows("t", &version); err != nil || fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("version %d: %v, %v", version, got, err)
	}
	if got, _, err := fast.rows("t", nil); err != nil || len(got) != 4 {
		t.Errorf("rows %v, %v", got, err)
	}
	if err := fast.fsck("t"); err != nil {
		t.Error(err)
	}
}
