package apply

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// story is a run of three batches that meets inserts, updates, deletes, hidden
// changes, a key change and a truncate.
var story = []string{
	"U 1@1 (Ann, Rome)", "U 2@2 (Bob, Oslo)", "U 3@3 (Cy, Lima)", "D 4@4",
	"U 1@5 (Ann, Rome)", "U 2@6 (Bob, Bonn)", "D 3@7 new=5", "U 5@7 (Cy, ?) old=3",
	"T@2", "U 6@8 (Di, Kyiv)", "U 4@3 (Ed, Bern)", "U 2@9 (Bob, Zug)",
}

var storyTable = []string{"1, Ann, Rome", "2, Bob, Zug", "5, Cy, Lima", "6, Di, Kyiv"}

func storyBench(t testing.TB, store storage.Store) *bench {
	b := newBench(t, "")
	b.store, b.flow.BatchRows = store, 4
	return b
}

// replay folds the feed from version 0 into a table; it fails where the feed
// contradicts itself.
func replay(t testing.TB, b *bench) []string {
	t.Helper()
	b.seen = -1
	rows := map[string]bool{}
	for _, c := range b.feed(t) {
		kind, row, _ := strings.Cut(c, " ")
		switch kind {
		case "insert", "update_postimage":
			if rows[row] {
				t.Fatalf("feed: %s is there already", c)
			}
			rows[row] = true
		default:
			if !rows[row] {
				t.Fatalf("feed: %s is not there", c)
			}
			delete(rows, row)
		}
	}
	var out []string
	for r := range rows {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

func (b *bench) check(t testing.TB, when string, want []string) {
	t.Helper()
	if got := b.table(t); !slices.Equal(got, want) {
		t.Fatalf("%s: table %q, want %q", when, got, want)
	}
	if got := replay(t, b); !slices.Equal(got, want) {
		t.Fatalf("%s: feed sums to %q, want %q", when, got, want)
	}
}

// Law 8: a run that is killed at any store operation, before or after it took
// effect, and then started again ends in the same table with the same feed sum;
// so does one that goes on after any operation was lost or answered wrongly.
func TestRun_CrashAtEveryOperation(t *testing.T) {
	for _, mode := range []struct {
		name   string
		mode   faultstore.Mode
		stride int // of a short run; SIGKILL after an operation is SIGKILL before the next
	}{{"killed after", faultstore.CrashAfter, 1}, {"killed before", faultstore.CrashBefore, 11},
		{"operation fails", faultstore.FailBefore, 5}, {"answer lost", faultstore.FailAfter, 3},
		{"killed after, with deletion vectors", faultstore.CrashAfter, 5}, {"operation fails, with deletion vectors", faultstore.FailBefore, 11}} {
		vectors := strings.HasSuffix(mode.name, "vectors")
		t.Run("law 8 "+mode.name, func(t *testing.T) {
			t.Parallel()
			stride := mode.stride
			if os.Getenv("SLUICE_LONG") != "" {
				stride = 1
			}
			for n := 0; ; n += stride {
				mem := storage.NewMemory("t")
				fs := faultstore.New(mem, faultstore.Rule{Match: faultstore.Nth(n), Mode: mode.mode})
				b := storyBench(t, fs)
				b.flow.DeletionVectors = &vectors
				b.source.lines = story
				_, err := Run(context.Background(), b.spec(), b.opts)
				if fs.Count() <= n {
					if err != nil {
						t.Fatal(err)
					}
					if n < 50 {
						t.Fatalf("only %d operations", n)
					}
					t.Logf("%d operations", n)
					return
				}
				when := fmt.Sprintf("operation %v", fs.Trace()[n])
				b.store = mem.Crash()
				if _, err := Run(context.Background(), b.spec(), b.opts); err != nil {
					t.Fatalf("%s: second run: %v (first: %v)", when, err, err)
				}
				b.check(t, when, storyTable)
				again, err := Run(context.Background(), b.spec(), b.opts)
				if err != nil || again.Batches != 0 {
					t.Fatalf("%s: third run: %d batches, %v", when, again.Batches, err)
				}
			}
		})
	}
}

// A zombie stops at some operation, a successor does the whole work, the zombie
// wakes up: nothing changes and nothing is committed twice.
func TestRun_ZombieAtEveryOperation(t *testing.T) {
	count := 0
	{
		fs := faultstore.New(storage.NewMemory("t"))
		b := storyBench(t, fs)
		b.source.lines = story
		if _, err := Run(context.Background(), b.spec(), b.opts); err != nil {
			t.Fatal(err)
		}
		count = fs.Count()
	}
	stride := 2
	if os.Getenv("SLUICE_LONG") != "" {
		stride = 1
	}
	for n := 0; n < count; n += stride {
		mem := storage.NewMemory("t")
		fs := faultstore.New(mem)
		gate := fs.Pause(faultstore.Nth(n))
		zombie := storyBench(t, fs)
		zombie.source.lines = story
		done := make(chan error, 1)
		go func() {
			_, err := Run(context.Background(), zombie.spec(), zombie.opts)
			done <- err
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		call, err := gate.Wait(ctx)
		cancel()
		if err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		b := storyBench(t, mem)
		b.source.lines = story
		if _, err := Run(context.Background(), b.spec(), b.opts); err != nil {
			t.Fatalf("%v: successor: %v", call, err)
		}
		b.check(t, fmt.Sprintf("%v: before the zombie wakes", call), storyTable)
		b.feed(t)
		gate.Release()
		if err := <-done; err != nil {
			t.Fatalf("%v: zombie: %v", call, err)
		}
		b.check(t, fmt.Sprintf("%v: after the zombie", call), storyTable)
	}
}
