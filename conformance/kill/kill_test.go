//go:build linux

package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/demodata"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/storage"
)

// batchRows cuts the customers of the bundled corpus into three batches.
const batchRows = 7

// start starts a child that signals itself at operation n.
func start(t *testing.T, when string, n int, table, events string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "-test.run=^$")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %s", childEnv, when, n, table, events))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, &out
}

// killed tells a child that SIGKILL ended from one that came to its end.
func killed(t *testing.T, c *exec.Cmd, out *bytes.Buffer) bool {
	t.Helper()
	err := c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return true
		}
	}
	if err != nil {
		t.Fatalf("child: %v: %s", err, out)
	}
	return false
}

// state is what a table shows of itself.
type state struct {
	version int64
	rows    []string // sorted
	feed    []string // change rows in the order of versions, without version and time
}

func read(t *testing.T, dir string) state {
	t.Helper()
	ctx := context.Background()
	tab, err := delta.Open(ctx, local(t, dir), delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := tab.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows bytes.Buffer
	w, err := rowio.NewWriter(&rows, rowio.JSONL, scan.Schema(), rowio.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range scan.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := state{version: scan.Snapshot().Version, rows: slices.Sorted(strings.Lines(rows.String()))}
	feed, err := tab.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
	if err != nil {
		t.Fatal(err)
	}
	var changes bytes.Buffer
	if w, err = rowio.NewWriter(&changes, rowio.JSONL, feed.Schema, rowio.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for b, err := range feed.Rows(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.feed = withoutTime(t, changes.String())
	return s
}

// withoutTime sorts the changes of each version and drops the version's time.
func withoutTime(t *testing.T, lines string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(lines) {
		var row map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		version := row[cdf.CommitVersionColumn]
		delete(row, cdf.CommitTimestampColumn)
		delete(row, cdf.CommitVersionColumn)
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%6v %s", version, text))
	}
	slices.Sort(out)
	for i := range out {
		out[i] = out[i][7:]
	}
	return out
}

// sum replays a feed from nothing; it fails where the feed contradicts itself.
func (s state) sum(t *testing.T) []string {
	t.Helper()
	rows := map[string]int{}
	for _, kind := range []string{"insert", "update_postimage", "delete", "update_preimage"} {
		for _, c := range s.feed {
			row := strings.Replace(c, `"_change_type":"`+kind+`",`, "", 1)
			switch {
			case row == c:
			case kind == "insert" || kind == "update_postimage":
				rows[row]++
			default:
				rows[row]--
			}
		}
	}
	var out []string
	for r, n := range rows {
		if n < 0 {
			t.Fatalf("feed takes away %s more often than it brings it", r)
		}
		for range n {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// sorted is the rows with their fields in the order of sum.
func (s state) sorted(t *testing.T) []string {
	t.Helper()
	return withoutTime(t, strings.Join(s.rows, ""))
}

func local(t *testing.T, dir string) storage.Store {
	t.Helper()
	s, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// same holds a table against that of the undisturbed run.
func (s state) same(t *testing.T, when string, want state) {
	t.Helper()
	if !slices.Equal(s.rows, want.rows) {
		t.Fatalf("%s: rows\n%swant\n%s", when, strings.Join(s.rows, ""), strings.Join(want.rows, ""))
	}
	if got := s.sum(t); !slices.Equal(got, want.sorted(t)) {
		t.Fatalf("%s: feed sums to\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want.sorted(t), "\n"))
	}
	if !slices.Equal(s.feed, want.feed) {
		t.Fatalf("%s: feed\n%s\nwant\n%s", when, strings.Join(s.feed, "\n"), strings.Join(want.feed, "\n"))
	}
}

// undisturbedRun is what nobody disturbed, and how many operations it took.
func undisturbedRun(t *testing.T, events string) (state, int) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t")
	c, out := start(t, undisturbed, -1, dir, events)
	if killed(t, c, out) {
		t.Fatal("killed")
	}
	var operations, batches, poison int
	if _, err := fmt.Sscanf(out.String(), "%d operations, %d batches, %d quarantined", &operations, &batches, &poison); err != nil {
		t.Fatal(err)
	}
	s := read(t, dir)
	if batches != 3 || poison != 0 || operations < 50 || len(s.rows) == 0 {
		t.Fatalf("undisturbed run: %s, %d rows", out, len(s.rows))
	}
	s.same(t, "undisturbed", s)
	return s, operations
}

func corpus(t *testing.T) string {
	t.Helper()
	all, err := demodata.Events()
	if err != nil {
		t.Fatal(err)
	}
	return customers(t, all)
}

// parts is how many children work at once: most of their time they wait for fsync.
const parts = 4

// Proof 2 of the main job and law 8: a process that is killed at any operation on
// its store and started again ends in the same table with the same feed.
func TestApply_KilledAtEveryOperation(t *testing.T) {
	events := corpus(t)
	want, operations := undisturbedRun(t, events)
	stride := 1
	if testing.Short() {
		stride = 29
	}
	for _, when := range []string{before, after} {
		for part := range parts {
			t.Run(fmt.Sprintf("law 8 killed %s, part %d", when, part), func(t *testing.T) {
				t.Parallel()
				kills := 0
				for n := part * stride; n < operations; n += parts * stride {
					if killAndGoOn(t, when, n, operations, events, want) {
						kills++
					}
				}
				t.Logf("%d kills at %d operations", kills, operations)
			})
		}
	}
}

// killAndGoOn kills one run at operation n and lets another one finish the work. It
// is false if the first run had not so many operations.
func killAndGoOn(t *testing.T, when string, n, operations int, events string, want state) bool {
	t.Helper()
	at := fmt.Sprintf("killed %s operation %d of %d", when, n, operations)
	dir := filepath.Join(t.TempDir(), "t")
	c, out := start(t, when, n, dir, events)
	if !killed(t, c, out) {
		// Pages of a file may be written in one call more or less.
		if n < operations-operations/20 {
			t.Fatalf("%s: came to its end: %s", at, out)
		}
		return false
	}
	r, err := run(local(t, dir), events)
	if err != nil {
		t.Fatalf("%s: second run: %v", at, err)
	}
	if r.Events.Poison != 0 {
		t.Fatalf("%s: second run quarantined %d events", at, r.Events.Poison)
	}
	got := read(t, dir)
	got.same(t, at, want)
	if r, err = run(local(t, dir), events); err != nil || r.Events.Read != 0 || r.Batches != 0 || r.Version != got.version {
		t.Fatalf("%s: third run: %+v, %v: the positions are not at the end of the input", at, r, err)
	}
	if q, err := filepath.Glob(filepath.Join(dir, "_apply", "quarantine", "*")); err != nil || len(q) != 0 {
		t.Fatalf("%s: quarantine holds %v (%v)", at, q, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return true
}

// A run that sleeps at some operation while its successor does the whole work
// changes nothing when it wakes up.
func TestApply_ZombieWakesUp(t *testing.T) {
	events := corpus(t)
	want, operations := undisturbedRun(t, events)
	stride := 3
	if testing.Short() {
		stride = 41
	}
	for part := range parts {
		t.Run(fmt.Sprintf("part %d", part), func(t *testing.T) {
			t.Parallel()
			for n := part * stride; n < operations-operations/20; n += parts * stride {
				sleepAndWake(t, n, operations, events, want)
			}
		})
	}
}

func sleepAndWake(t *testing.T, n, operations int, events string, want state) {
	t.Helper()
	at := fmt.Sprintf("asleep before operation %d of %d", n, operations)
	dir := filepath.Join(t.TempDir(), "t")
	c, out := start(t, sleep, n, dir, events)
	awaitStop(t, c.Process.Pid)
	if _, err := run(local(t, dir), events); err != nil {
		t.Errorf("%s: successor: %v", at, err)
	}
	done := read(t, dir)
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if killed(t, c, out) {
		t.Fatalf("%s: killed", at)
	}
	done.same(t, at, want)
	woken := read(t, dir)
	woken.same(t, at+", woken", want)
	if woken.version != done.version {
		t.Fatalf("%s: the zombie committed version %d after %d", at, woken.version, done.version)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// awaitStop waits until a process has stopped.
func awaitStop(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		// pid (name) state ..., and the name may hold anything
		if i := bytes.LastIndexByte(text, ')'); i >= 0 && i+2 < len(text) && (text[i+2] == 'T' || text[i+2] == 'Z') {
			return
		}
	}
	t.Fatal("the child does not stop")
}
