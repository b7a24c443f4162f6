//go:build linux

package kill

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two flows on one target (apply-state 8): a process that runs one of them is killed at
// any operation on its store while another process's flow goes on; started again, both
// come to the same rows, and the feed sums up to them (laws 6 and 8).
func TestApply_KilledBesideAnotherFlow(t *testing.T) {
	events := corpus(t)
	want, operations := undisturbedRun(t, events)
	stride := 11
	switch {
	case testing.Short():
		stride = 67
	case os.Getenv("SLUICE_LONG") != "":
		stride = 1
	}
	for part := range parts {
		t.Run(fmt.Sprintf("law 8 two flows, part %d", part), func(t *testing.T) {
			t.Parallel()
			kills := 0
			for n := part * stride; n < operations; n += parts * stride {
				at := fmt.Sprintf("killed after operation %d of %d", n, operations)
				dir := filepath.Join(t.TempDir(), "t")
				// A child that loses races does more operations; one that is told to die later
				// than it lives comes to its end.
				c, out := start(t, after, n, dir, events)
				other := make(chan error, 1)
				go func() {
					_, err := runAs(local(t, dir), events, "other", batchRows-2)
					other <- err
				}()
				if killed(t, c, out) {
					kills++
				}
				if err := <-other; err != nil {
					t.Fatalf("%s: the other flow: %v", at, err)
				}
				if _, err := run(local(t, dir), events); err != nil {
					t.Fatalf("%s: second run: %v", at, err)
				}
				got := read(t, dir)
				if !slices.Equal(got.rows, want.rows) {
					t.Fatalf("%s: rows\n%swant\n%s", at, strings.Join(got.rows, ""), strings.Join(want.rows, ""))
				}
				if sum := got.sum(t); !slices.Equal(sum, want.sorted(t)) {
					t.Fatalf("%s: feed sums to\n%s\nwant\n%s", at, strings.Join(sum, "\n"), strings.Join(want.sorted(t), "\n"))
				}
				for _, flow := range []string{"customers", "other"} {
					if r, err := runAs(local(t, dir), events, flow, batchRows); err != nil || r.Events.Read != 0 {
						t.Fatalf("%s: flow %q once more: %+v, %v", at, flow, r, err)
					}
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d kills", kills)
		})
	}
}
