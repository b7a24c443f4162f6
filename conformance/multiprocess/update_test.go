//go:build linux

package multiprocess

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
)

// updaterEnv holds the arguments of an updater process.
const updaterEnv = "SLUICE_TEST_UPDATER"

// updater changes its own row, a row of all, and deletes rows of its own, in turn:
// "table process rounds". It prints how many decisions were made, and how many
// operations committed.
func updater(args string) error {
	var table string
	var process, rounds int
	if _, err := fmt.Sscan(args, &table, &process, &rounds); err != nil {
		return fmt.Errorf("read %q: %w", args, err)
	}
	store, err := storage.NewLocal(table, storage.LocalOptions{NoSync: true})
	if err != nil {
		return err
	}
	ctx := context.Background()
	tab, err := delta.Open(ctx, store, delta.Options{Attempts: 1000})
	if err != nil {
		return err
	}
	decided, committed := 0, 0
	for n := range rounds {
		for _, op := range []func() (delta.Result, error){
			func() (delta.Result, error) {
				return tab.Update(ctx, "n = n + 1", fmt.Sprintf("id = %d", process), delta.DMLOptions{})
			},
			func() (delta.Result, error) {
				return tab.Delete(ctx, fmt.Sprintf("id = %d", 1000+process*100+n), delta.DMLOptions{})
			},
			func() (delta.Result, error) { return tab.Update(ctx, "n = n + 1", "id = 999", delta.DMLOptions{}) },
		} {
			r, err := op()
			if err != nil {
				return fmt.Errorf("process %d, round %d: %w", process, n, err)
			}
			if !r.Committed {
				return fmt.Errorf("process %d, round %d: nothing committed", process, n)
			}
			decided += r.Attempts
			committed++
		}
	}
	fmt.Println("done", decided, committed)
	return nil
}

// TestUpdates_RowLevel: processes that change rows of one file with deletion vectors
// lose nothing, and mostly need not decide again (3.5).
func TestUpdates_RowLevel(t *testing.T) {
	if testing.Short() {
		t.Skip("short run: a test of several processes")
	}
	const processes, rounds = 5, 5
	dir := filepath.Join(t.TempDir(), "t")
	store, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	rows := testtable.Numbers(0, processes, `,"process":0,"n":0`) + `{"id":999,"process":0,"n":0}`
	for p := range processes {
		rows += testtable.Numbers(1000+p*100, 1000+p*100+2*rounds, `,"process":1,"n":0`)
	}
	tab := testtable.New(t, testtable.Spec{DDL: columns, Store: store, Rows: []string{rows}, Options: delta.Options{Clock: time.Now},
		Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	decided, committed := 0, 0
	for p := range processes {
		wg.Go(func() {
			c := exec.CommandContext(t.Context(), exe, "-test.run=^$")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", updaterEnv, dir, p, rounds), "GOMAXPROCS=2")
			out, err := c.CombinedOutput()
			var d, n int
			if _, scan := fmt.Sscanf(string(out), "done %d %d", &d, &n); err != nil || scan != nil {
				t.Errorf("process %d: %v\n%s", p, err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			decided, committed = decided+d, committed+n
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	ctx := context.Background()
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if committed != processes*rounds*3 || snap.Version != int64(1+committed) {
		t.Errorf("%d operations committed, version %d", committed, snap.Version)
	}
	got := testtable.Read(t, tab, delta.ScanOptions{Where: "id < 1000"})
	want := []string{fmt.Sprintf(`{"id":999,"n":%d,"process":0}`, processes*rounds)}
	for p := range processes {
		want = append(want, fmt.Sprintf(`{"id":%d,"n":%d,"process":0}`, p, rounds))
	}
	slices.Sort(want)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("rows %v, want %v", got, want)
	}
	if left := len(testtable.Read(t, tab, delta.ScanOptions{Where: "id >= 1000"})); left != processes*rounds {
		t.Errorf("%d rows are left, want %d", left, processes*rounds)
	}
	t.Logf("%d operations, decided %d times", committed, decided)
}
