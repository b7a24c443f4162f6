package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
)

// storedOrder is the rows of each file of the table in their order, with their hidden versions.
func storedOrder(t *testing.T, b *bench) []string {
	t.Helper()
	ctx := context.Background()
	tab, err := delta.Open(ctx, b.store, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tab.Layout(snap)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for f, err := range snap.Files(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for batch, err := range datafile.Read(ctx, b.store, l, f, datafile.ReadOptions{Hidden: true}) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range int(batch.NumRows()) {
				var cells []string
				for c := range int(batch.NumCols()) {
					cells = append(cells, cellText(batch.Column(c), r))
				}
				out = append(out, strings.Join(cells, ", "))
			}
		}
		files = append(files, strings.Join(out, "; "))
	}
	slices.Sort(files) // their names are random
	return files
}

// A batch that is decided in lots leaves what one that is decided in one piece does: the
// rows in their order and with their hidden versions, the feed, the counts, and what a
// late event meets afterwards.
func TestRun_Lots(t *testing.T) {
	for _, c := range []struct{ name, config string }{
		{"SCD1", "data: name STRING, city STRING"},
		{"SCD1 with ignored nulls", "data: name STRING, city STRING\nignore-null: on city"},
		{"SCD1 with DROP ROW", "data: name STRING, city STRING\nexpect: c (city IS NOT NULL) DROP ROW"},
		{"SCD2", "data: name STRING, city STRING\nstored-as: 2\ntrack: name"},
		{"bitemporal", "data: name STRING, city STRING\nstored-as: bitemporal"},
	} {
		for _, vectors := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, vectors %t", c.name, vectors), func(t *testing.T) {
				var want [][]string
				for _, lot := range []int64{0, 2000} {
					b := newBench(t, c.config)
					b.flow.DeletionVectors, b.opts.lotBytes = &vectors, lot
					var got [][]string
					note := func(r Result, err error) {
						if err != nil {
							t.Fatal(err)
						}
						if lot > 0 && r.Bytes.Spilled == 0 {
							t.Fatal("nothing went to a temporary file")
						}
						rows := storedOrder(t, b)
						if len(got) > 0 { // files that are changed are worked on side by side
							rows = strings.Split(strings.Join(rows, "; "), "; ")
							slices.Sort(rows)
						}
						got = append(got, rows, b.table(t), b.feed(t), []string{fmt.Sprint(r.Events, r.Rows)})
					}
					sys := ""
					if b.n.sys != nil {
						sys = " sys 1"
					}
					var first, second, late []string
					for k := range 40 {
						first = append(first, fmt.Sprintf("U %d@10%s (n%d, c%d)", (k*7)%40, sys, k, k%3))
					}
					for k := range 30 {
						switch {
						case k%5 == 0:
							second = append(second, fmt.Sprintf("D %d@20%s", k, sys))
						case k%7 == 0:
							second = append(second, fmt.Sprintf("U %d@15%s (n%d, null)", k, sys, k))
						default:
							second = append(second, fmt.Sprintf("U %d@20%s (m%d, d)", k, sys, k), fmt.Sprintf("U %d@19%s (l, d)", k, sys))
						}
					}
					for k := range 45 {
						late = append(late, fmt.Sprintf("U %d@18%s (late, e)", k, sys))
					}
					note(b.run(first...))
					note(b.run(second...))
					note(b.run(late...))
					if b.n.sys == nil && b.flow.StoredAsSCDType == "" {
						note(b.run(append([]string{"T @19"}, late[:20]...)...))
					}
					if want == nil {
						want = got
						continue
					}
					for i := range want {
						if !slices.Equal(got[i], want[i]) {
							t.Errorf("step %d:\nin lots  %q\nin one   %q", i, got[i], want[i])
						}
					}
				}
			})
		}
	}
}

// Keys that name each other are decided in one lot, whatever their hashes.
func TestRun_LotsOfKeyChanges(t *testing.T) {
	var want []string
	for _, lot := range []int64{0, 2000} {
		b := newBench(t, "data: name STRING, city STRING")
		b.opts.lotBytes = lot
		var lines []string
		for k := range 20 {
			lines = append(lines, fmt.Sprintf("U %d@10 (n%d, c%d)", k, k, k))
		}
		b.must(t, lines...)
		lines = nil
		for k := range 20 { // each key becomes the next hundred's, with the city of the old one
			lines = append(lines, fmt.Sprintf("D %d@20 new=%d", k, 100+k), fmt.Sprintf("U %d@20 (m%d, ?) old=%d", 100+k, k, k))
		}
		b.must(t, lines...)
		if rows := b.table(t); len(rows) != 20 || !strings.Contains(strings.Join(rows, "\n"), "c19") {
			t.Fatalf("rows %q", rows)
		}
		b.must(t, "U 3@15 (late, far)", "U 7@15 (late, near)", "U 8@15 (late, x)", "U 9@15 (late, y)") // what left is not what it was
		if got := b.table(t); want == nil {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("in lots  %q\nin one   %q", got, want)
		}
	}
}

// Without room for temporary files a batch is refused by name and nothing is written.
func TestRun_LotsWithoutDisk(t *testing.T) {
	b := newBench(t, "")
	b.opts.lotBytes, b.opts.SpillDir = 2000, filepath.Join(t.TempDir(), "missing")
	_, err := b.run("U 1@1 (a, b)", "U 2@1 (a, b)", "U 3@1 (a, b)", "U 4@1 (a, b)")
	if codeOf(err, "") != "SPILL_FAILED" || !strings.Contains(err.Error(), b.opts.SpillDir) {
		t.Errorf("error %v", err)
	}
	if ok, err := delta.Exists(context.Background(), b.store); ok || err != nil {
		t.Errorf("a table was made: %v", err)
	}
	b.opts.SpillDir = t.TempDir()
	b.must(t, "U 1@1 (a, b)", "U 2@1 (a, b)", "U 3@1 (a, b)", "U 4@1 (a, b)")
	if left, err := os.ReadDir(b.opts.SpillDir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A batch that does not fit however it is parted says what to change.
func TestRun_BatchExceedsMemory(t *testing.T) {
	in := &input{spool: &spool{rows: 10}, cost: maxLots * int64(LeastMemory)}
	err := newBudget(Options{Memory: LeastMemory}).check(in, maxLots+1)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeMemory || !strings.Contains(e.Message, "--memory") {
		t.Errorf("error %v", err)
	}
	if _, err := Run(context.Background(), newBench(t, "").spec(), Options{Memory: LeastMemory - 1}); !errors.As(err, &e) || e.Code != "INVALID_OPTION" {
		t.Errorf("too little memory: %v", err)
	}
}
