package apply

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// Law 8 for targets with history: a run that is killed at a store operation and then
// started again ends in the same table, and the feed leads to it.
func TestRun_HistoryCrash(t *testing.T) {
	lines := []string{
		"U 1@1 (Ann, Rome)", "U 2@2 (Bob, Oslo)", "U 1@9 (Ann, Rome)", "D 2@4",
		"U 1@5 (Ann, Bonn)", "U 2@3 (Bob, Zug)", "D 3@3", "U 1@7 (Ann, Bonn)",
		"D 1@6", "U 2@8 (Bob, Kiel)", "U 3@2 (Cy, Lima)", "U 2@9 (Bob, Kiel)",
	}
	for _, c := range []struct {
		name, stored string
		mode         faultstore.Mode
		vectors      bool
	}{{"killed after", "2", faultstore.CrashAfter, false}, {"killed before, with deletion vectors", "2", faultstore.CrashBefore, true},
		{"answer lost", "2", faultstore.FailAfter, false}, {"killed after", "bitemporal", faultstore.CrashAfter, false}} {
		t.Run("law 8 "+c.stored+" "+c.name, func(t *testing.T) {
			t.Parallel()
			story := slices.Clone(lines)
			if c.stored == "bitemporal" {
				for i, l := range story {
					at, rest, _ := strings.Cut(l, " (")
					if story[i] = fmt.Sprintf("%s sys %d", at, 1+i*7%11); rest != "" {
						story[i] += " (" + rest
					}
				}
			}
			start := func(store storage.Store) *bench {
				b := newBench(t, "stored-as: "+c.stored)
				b.store, b.flow.BatchRows, b.source.lines = store, 4, story
				b.flow.DeletionVectors = &c.vectors
				return b
			}
			whole := start(storage.NewMemory("t"))
			if _, err := Run(context.Background(), whole.spec(), whole.opts); err != nil {
				t.Fatal(err)
			}
			want := whole.table(t)
			stride := 9
			if os.Getenv("SLUICE_LONG") != "" {
				stride = 1
			}
			for n := 0; ; n += stride {
				mem := storage.NewMemory("t")
				fs := faultstore.New(mem, faultstore.Rule{Match: faultstore.Nth(n), Mode: c.mode})
				b := start(fs)
				_, first := Run(context.Background(), b.spec(), b.opts)
				if fs.Count() <= n {
					if n < 40 {
						t.Fatalf("only %d operations", n)
					}
					return
				}
				b.store = mem.Crash()
				if _, err := Run(context.Background(), b.spec(), b.opts); err != nil {
					t.Fatalf("operation %v: second run: %v (first: %v)", fs.Trace()[n], err, first)
				}
				b.check(t, fmt.Sprintf("operation %v", fs.Trace()[n]), want)
			}
		})
	}
}

// A type 2 table that another tool wrote is taken over: its rows stand for full
// events at their starts, and its ends for deletes where nothing follows.
func TestTarget_HistoryAdoption(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "stored-as: 2")
	s, err := schema.ParseDDL("id BIGINT, name STRING, city STRING, __START_AT BIGINT, __END_AT BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	tab, err := delta.Create(ctx, b.store, delta.CreateOptions{Schema: s, Properties: map[string]string{"delta.enableChangeDataFeed": "true"}}, delta.Options{Clock: b.opts.Clock})
	if err != nil {
		t.Fatal(err)
	}
	sch, err := schema.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	for _, row := range [][]string{{"1", "Ann", "Rome", "1", "5"}, {"1", "Ann", "Oslo", "5", "null"}, {"2", "Bob", "Reno", "2", "4"}} {
		for c, v := range row {
			if err := appendText(rb.Field(c), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tab.Append(ctx, delta.Batches(rb.NewRecordBatch()), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.must(t, "U 1@3 (Ann, Kiel)", "U 1@9 (Ann, Bonn)", "U 2@3 (Bob, Zug)")
	b.wantTable(t, "1, Ann, Bonn, 9→∞", "1, Ann, Kiel, 3→5", "1, Ann, Oslo, 5→9", "1, Ann, Rome, 1→3", "2, Bob, Reno, 2→3", "2, Bob, Zug, 3→4")
}

// The facts of many batches are gathered into one file now and then; nothing is lost.
func TestStateTable_HistoryCompaction(t *testing.T) {
	for _, config := range []string{"stored-as: 2\ntrack: name", "stored-as: 2\nignore-null: *", "expect: c (city IS NOT NULL) DROP ROW\nignore-null: *"} {
		t.Run(config, func(t *testing.T) {
			var lines []string
			for i := range 60 {
				city := []string{"Rome", "null", "Oslo"}[i%3]
				lines = append(lines, fmt.Sprintf("U %d@%d (Ann, %s)", i%3, i*37%61, city))
				if i%7 == 0 {
					lines = append(lines, fmt.Sprintf("D %d@%d", i%3, i*23%61))
				}
			}
			a, b := newBench(t, config), newBench(t, config)
			a.flow.BatchRows = 1
			a.must(t, lines...)
			b.must(t, lines...)
			if got, want := a.table(t), b.table(t); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A column of nothing but nulls has no type yet; ignored nulls do not author it.
func TestRun_IgnoredNullsOfAColumnWithoutType(t *testing.T) {
	b := newBench(t, "data: name STRING, city VOID\nignore-null: *")
	b.must(t, "U 1@5 (Ann, null)")
	c := newBench(t, "ignore-null: *")
	c.store, c.source, c.opts = b.store, b.source, b.opts
	c.must(t, "U 1@3 (Abe, Rome)")
	c.wantTable(t, "1, Ann, Rome")
}

// A tracked sequence column makes every version a new one; that is said once.
func TestRun_WarnsOfTrackedSequence(t *testing.T) {
	b := newBench(t, "stored-as: 2")
	b.flow.ExceptColumnList = nil
	res := b.must(t, "U 1@1 (Ann, Rome)", "U 1@2 (Ann, Rome)")
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], `"seq"`) {
		t.Errorf("E49: warnings %q", res.Warnings)
	}
	if n := len(b.table(t)); n != 2 {
		t.Errorf("E49: %d versions, want 2", n)
	}
	b = newBench(t, "stored-as: 2")
	b.flow.ExceptColumnList, b.flow.TrackHistoryExceptColumnList = nil, []string{"seq"}
	if res := b.must(t, "U 1@1 (Ann, Rome)", "U 1@2 (Ann, Rome)"); len(res.Warnings) != 0 || len(b.table(t)) != 1 {
		t.Errorf("E49: warnings %q, table %q", res.Warnings, b.table(t))
	}
}

// Flows that fight for the keys of one target with history end in the table of all
// their events (apply-state 3).
func TestRun_HistoryOfConcurrentFlows(t *testing.T) {
	for _, stored := range []string{"2", "bitemporal"} {
		t.Run(stored, func(t *testing.T) {
			config := "stored-as: " + stored + "\ntrack: name"
			store := storage.NewMemory("t")
			const flows = 3
			var wg sync.WaitGroup
			var all []string
			errs := make([]error, flows)
			r := rand.New(rand.NewSource(5))
			for f := range flows {
				b := newBench(t, config)
				b.opts.Clock = time.Now
				b.store, b.flow.Name, b.source.name, b.flow.BatchRows = store, fmt.Sprint("f", f), fmt.Sprint("file:", f), 4
				for i := range 24 {
					seq := 10*r.Intn(20) + f
					sys := ""
					if stored == "bitemporal" {
						sys = fmt.Sprintf(" sys %d", r.Intn(12))
					}
					line := fmt.Sprintf("U %d@%d%s (n%d, c%d)", i%4, seq, sys, r.Intn(2), seq)
					if i%6 == 5 {
						line = fmt.Sprintf("D %d@%d%s", i%4, seq, sys)
					}
					b.source.lines = append(b.source.lines, line)
				}
				all = append(all, b.source.lines...)
				wg.Go(func() { _, errs[f] = Run(context.Background(), b.spec(), b.opts) })
			}
			wg.Wait()
			for f, err := range errs {
				if err != nil {
					t.Fatalf("flow %d: %v", f, err)
				}
			}
			want := newBench(t, config)
			want.must(t, all...)
			b := newBench(t, config)
			b.store = store
			b.check(t, "all flows", want.table(t))
		})
	}
}
