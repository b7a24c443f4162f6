package deltalog

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// agedTable has so many live files, and a history of commits each of which replaced ten
// files whose tombstones have expired; its last checkpoint is 99 commits back.
func agedTable(t *testing.T, files, commits int) *faultstore.Store {
	t.Helper()
	ctx := context.Background()
	m := storage.NewMemory("w6")
	l := Open(m, Options{Sleep: noSleep})
	newTable(t, l, []string{"p"}, nil)
	const perCommit = 10
	stats := `{"numRecords":1000,"minValues":{"id":123456,"name":"aaaaaaaaaaaaaaaaaaaaaaaa"},"maxValues":{"id":999999,"name":"zzzzzzzzzzzzzzzzzzz"},"nullCount":{"id":0,"name":3}}`
	fileOf := func(v, j int) *Add {
		f := file(fmt.Sprintf("p=%d/part-%05d-6a92d155-a59b-4f2e-8ecb-%012d-c000.snappy.parquet", j%perCommit, j, v), fmt.Sprint(j%perCommit))
		f.Stats = stats
		return f
	}
	for v := 1; v < commits; v++ {
		a := &Actions{}
		n := perCommit
		if v == 1 {
			n = files - perCommit
		}
		for j := range n {
			a.Adds = append(a.Adds, fileOf(v, j))
			if v > 2 {
				r := fileOf(v-1, j).Remove(newTestClock().now, true)
				r.DeletionTimestamp = 1
				a.Removes = append(a.Removes, r)
			}
		}
		data, err := encodeCommit(&commitInfoWire{Operation: "WRITE"}, a)
		if err != nil {
			t.Fatal(err)
		}
		put(t, m, CommitKey(int64(v)), string(data))
	}
	at, err := l.At(ctx, int64(commits-1-99))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WriteCheckpoint(ctx, at); err != nil {
		t.Fatal(err)
	}
	return faultstore.New(m)
}

// openCost is what a cold open and the list of files take: bytes allocated, bytes kept,
// calls to the store and keys of the log that were opened.
func openCost(t *testing.T, s *faultstore.Store, files int) (allocated, kept uint64, calls, opened int) {
	t.Helper()
	ctx := context.Background()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s.Reset()
	snap, err := Open(s, Options{Sleep: noSleep}).Latest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := snap.FileList(ctx)
	if err != nil || len(list) != files {
		t.Fatalf("%d files, %v; want %d", len(list), err, files)
	}
	runtime.ReadMemStats(&after)
	allocated = after.TotalAlloc - before.TotalAlloc
	for _, c := range s.Trace() {
		calls++
		if c.Op == faultstore.Open && strings.HasPrefix(c.Key, LogDir) {
			opened++
		}
	}
	s.Reset()
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept = after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
	runtime.KeepAlive(snap)
	return allocated, kept, calls, opened
}

// TestLog_W6 holds the growth rule of W6 (performance.md): opening grows with the active
// files, not with the history. SLUICE_LONG has the full size.
func TestLog_W6(t *testing.T) {
	type size struct{ files, commits int }
	short, aged, large := size{2000, 120}, size{2000, 1500}, size{20_000, 120}
	if os.Getenv("SLUICE_LONG") != "" {
		short, aged, large = size{10_000, 1000}, size{10_000, 10_000}, size{100_000, 10_000}
	}
	cost := map[size][4]uint64{}
	for _, s := range []size{short, aged, large} {
		store := agedTable(t, s.files, s.commits)
		openCost(t, store, s.files) // what is only allocated once
		allocated, kept, calls, opened := openCost(t, store, s.files)
		cost[s] = [4]uint64{allocated, kept, uint64(calls), uint64(opened)}
		t.Logf("%d files, %d commits: %d KiB allocated (%d a file), %d KiB kept (%d a file), %d calls, %d files of the log opened",
			s.files, s.commits, allocated>>10, int(allocated)/s.files, kept>>10, int(kept)/s.files, calls, opened)
	}
	a, b, c := cost[short], cost[aged], cost[large]
	t.Run("not with the history", func(t *testing.T) {
		if b[0] > a[0]+a[0]/5 || b[1] > a[1]+a[1]/5 {
			t.Errorf("%d bytes allocated and %d kept, with a short history %d and %d", b[0], b[1], a[0], a[1])
		}
		if b[2] > a[2]+5 || b[3] != a[3] || a[3] > 99+3 {
			t.Errorf("%d calls and %d files of the log opened, with a short history %d and %d", b[2], b[3], a[2], a[3])
		}
	})
	t.Run("with the files", func(t *testing.T) {
		if c[0] > 11*a[0] || c[1] > 11*a[1] || c[3] != a[3] {
			t.Errorf("ten times the files: %d bytes allocated, %d kept, %d files of the log opened; was %d, %d, %d", c[0], c[1], c[3], a[0], a[1], a[3])
		}
		if perFile := c[0] / uint64(large.files); perFile > 4<<10 {
			t.Errorf("%d bytes allocated for each file", perFile)
		}
		if perFile := c[1] / uint64(large.files); perFile > 1200 {
			t.Errorf("%d bytes kept for each file", perFile)
		}
	})
}
