package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/testenv"
)

// A share that is written down is allowed to the row, and one row more is refused,
// however the share is rounded in binary.
func TestTarget_GuardAtTheShare(t *testing.T) {
	for _, live := range []int64{3, 7, 100, 1000} {
		for p := int64(1); p <= live; p++ {
			share, err := strconv.ParseFloat(strconv.FormatFloat(float64(p)/float64(live), 'g', -1, 64), 64)
			if err != nil {
				t.Fatal(err)
			}
			x := &target{run: &run{}}
			x.run.flow.MaxDeleteFraction = share
			if err := x.guard(&event.Snapshot{Name: "s"}, &difference{rows: 1, live: live, deleted: p}); err != nil {
				t.Errorf("%d of %d at a share of %g: %v", p, live, share, err)
			}
			if err := x.guard(&event.Snapshot{Name: "s"}, &difference{rows: 1, live: live, deleted: p + 1}); codeText(err) != CodeSnapshotDeletes {
				t.Errorf("%d of %d at a share of %g: got %v", p+1, live, share, err)
			}
		}
	}
}

// Grace over restarts: each snapshot is a run of its own. A key counts as deleted at
// the version of the snapshot that is the last of so many in a row without it; a
// refused snapshot counts for nothing.
func TestRun_SnapshotGraceModel(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		stored := rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "stored")
		grace := rapid.IntRange(0, 3).Draw(rt, "grace")
		b := newBench(t, "stored-as: "+stored)
		b.opts.stateBudget = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget")
		const keys = 4
		var open, missed [keys + 1]int // the version that a key is there from, 0: it is not; snapshots without it
		var closed []string
		story := ""
		for v := 1; v <= 7; v++ {
			var rows []string
			for k := 1; k <= keys; k++ {
				if v == 1 || rapid.Bool().Draw(rt, "there") {
					rows = append(rows, fmt.Sprintf("(%d, n, c)", k))
				}
			}
			spec := b.snapshotSpec(textSnapshot{version: fmt.Sprint(v), rows: rows})
			spec.Flow.MissingGrace = grace
			if rapid.IntRange(0, 3).Draw(rt, "guarded") == 0 {
				spec.Flow.MaxDeleteFraction = rapid.SampledFrom([]float64{0.25, 0.5, 1}).Draw(rt, "share")
			}
			story += fmt.Sprintf("%d (share %g): %v\n", v, spec.Flow.MaxDeleteFraction, rows)
			gone, live := []int{}, 0
			for k := 1; k <= keys; k++ {
				if open[k] == 0 {
					continue
				}
				live++
				if !slices.Contains(rows, fmt.Sprintf("(%d, n, c)", k)) && missed[k]+1 >= grace {
					gone = append(gone, k)
				}
			}
			_, err := Run(context.Background(), spec, b.opts)
			if s := spec.Flow.MaxDeleteFraction; s > 0 && float64(len(gone)) > s*float64(live) {
				if codeText(err) != CodeSnapshotDeletes {
					rt.Fatalf("grace %d: got %v\n%s", grace, err, story)
				}
				continue
			}
			if err != nil {
				rt.Fatalf("grace %d: %v\n%s", grace, err, story)
			}
			var want []string
			for k := 1; k <= keys; k++ {
				there := slices.Contains(rows, fmt.Sprintf("(%d, n, c)", k))
				switch {
				case there && open[k] == 0:
					open[k], missed[k] = v, 0
				case there:
					missed[k] = 0
				case slices.Contains(gone, k):
					closed = append(closed, fmt.Sprintf("%d, n, c, %d→%d", k, open[k], v))
					open[k], missed[k] = 0, 0
				case open[k] > 0:
					missed[k]++
				}
				if open[k] > 0 && stored == "1" {
					want = append(want, fmt.Sprintf("%d, n, c", k))
				} else if open[k] > 0 {
					want = append(want, fmt.Sprintf("%d, n, c, %d→∞", k, open[k]))
				}
			}
			if stored == "2" {
				want = append(want, closed...)
			}
			slices.Sort(want)
			if got := b.table(t); !slices.Equal(got, want) {
				rt.Fatalf("grace %d: got %q, want %q\n%s", grace, got, want, story)
			}
		}
	})
}

func codeText(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
