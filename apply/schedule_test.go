package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/model"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// actor is one writer under a deterministic scheduler: it stops before every commit
// of a log, of the target's or of the state's, and goes on when it is its turn. Only
// one actor runs at any time.
type actor struct {
	storage.Store
	name string
	turn chan struct{}
	at   chan bool // true: waits before a commit; false: is done
	err  error
}

func (a *actor) Create(ctx context.Context, key string, data []byte) error {
	if strings.Contains(key, "_delta_log/") && strings.HasSuffix(key, ".json") {
		a.at <- true
		<-a.turn
	}
	return a.Store.Create(ctx, key, data)
}

func start(name string, store storage.Store, work func(storage.Store) error) *actor {
	a := &actor{Store: store, name: name, turn: make(chan struct{}), at: make(chan bool)}
	go func() {
		<-a.turn
		a.err = work(a)
		a.at <- false
	}()
	return a
}

// play runs actors to their end, one commit at a time, in the order that next says.
func play(actors []*actor, next func(n int) int) (order []string) {
	actors = slices.Clone(actors)
	for len(actors) > 0 {
		i := next(len(actors))
		a := actors[i]
		order = append(order, a.name)
		a.turn <- struct{}{}
		if !<-a.at {
			actors = slices.Delete(actors, i, i+1)
		}
	}
	return order
}

// Two flows, a zombie of the first and a foreign writer, in every kind of interleaving
// of their commits: the table is that of the union of the events, the feed sums up to
// it, and nothing is left to do (apply-state 3 and 8).
func TestRun_Interleavings(t *testing.T) {
	for _, c := range []struct {
		config string
		first  []string
		other  []string
	}{
		{"", story, []string{"U 7@1 (Flo, Nice)", "U 1@6 (Anna, Rome)", "D 6@9", "U 2@9 (Bob, Aix)", "U 8@1 (Gus, Graz)"}},
		{"stored-as: 2", []string{"U 1@1 (Ann, Rome)", "U 2@2 (Bob, Oslo)", "U 1@9 (Ann, Rome)", "D 2@6", "U 1@5 (Ann, Bonn)", "U 2@7 (Bob, Zug)", "D 4@4", "U 4@3 (Ed, Bern)"},
			[]string{"U 1@7 (Anna, Rome)", "U 7@1 (Flo, Nice)", "D 1@8", "U 2@4 (Bob, Aix)", "U 4@2 (Ed, Brig)"}},
		{"ignore-null: *", []string{"U 1@1 (Ann, Rome)", "U 2@2 (null, Oslo)", "U 1@9 (null, Zug)", "D 2@1", "U 1@5 (Abe, null)", "U 2@7 (Bob, null)"},
			[]string{"U 1@7 (Anna, null)", "D 1@6", "U 2@4 (Bea, Aix)", "T@3"}},
	} {
		t.Run("law 8 "+c.config, func(t *testing.T) {
			script, err := model.NewScript(c.config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := script.Batch(slices.Concat(c.first, c.other)); err != nil {
				t.Fatal(err)
			}
			want := script.Table()
			if c.config == "" {
				want = append(slices.Clone(want), "99, x, y")
				slices.Sort(want)
			}
			rounds := 12
			if os.Getenv("SLUICE_LONG") != "" {
				rounds = 400
			}
			for seed := range rounds {
				random, rt := rand.New(rand.NewSource(int64(seed))), t
				mem := storage.NewMemory("t")
				flow := func(name, source string, lines []string, rows int) func(storage.Store) error {
					return func(s storage.Store) error {
						b := newBench(t, c.config)
						b.store, b.flow.Name, b.flow.BatchRows = s, name, rows
						b.source = &textSource{name: source, lines: lines}
						_, err := Run(context.Background(), b.spec(), b.opts)
						return err
					}
				}
				// The foreign writer comes when the target is there.
				foreign := func(s storage.Store) error {
					ctx := context.Background()
					tab, err := delta.Open(ctx, s, delta.Options{})
					if errors.Is(err, deltalog.ErrNotFound) {
						return nil
					}
					if err == nil {
						_, err = tab.Optimize(ctx, delta.OptimizeOptions{})
					}
					if errors.Is(err, deltalog.ErrConflict) {
						return nil
					}
					return err
				}
				actors := []*actor{start("f", mem, flow("f", "file:f", c.first, 4)), start("zombie", mem, flow("f", "file:f", c.first, 3)),
					start("g", mem, flow("g", "file:g", c.other, 2)), start("foreign", mem, foreign)}
				order := play(actors, random.Intn)
				for _, a := range actors {
					if a.err != nil {
						rt.Fatalf("%v: %s: %v", order, a.name, a.err)
					}
				}
				if c.config == "" {
					if err := appendRow(mem, 99, "x", "y"); err != nil {
						rt.Fatal(err)
					}
				}
				b := newBench(t, c.config)
				b.store = mem
				if got := b.table(t); !slices.Equal(got, want) {
					rt.Fatalf("%v: got %q, want %q", order, got, want)
				}
				if got := replay(t, b); !slices.Equal(got, want) {
					rt.Fatalf("%v: feed sums to %q, want %q", order, got, want)
				}
				b.source = &textSource{name: "file:f", lines: c.first}
				if res, err := b.run(); err != nil || res.Events.Read != 0 {
					rt.Fatalf("%v: once more: %+v, %v", order, res, err)
				}
			}
		})
	}
}

// appendRow appends a row as a writer that knows nothing of apply.
func appendRow(s storage.Store, id int64, name, city string) error {
	ctx := context.Background()
	tab, err := delta.Open(ctx, s, delta.Options{})
	if err != nil {
		return err
	}
	st, err := tab.Schema(ctx)
	if err != nil {
		return err
	}
	as, err := schema.ArrowSchema(st)
	if err != nil {
		return err
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, as)
	rb.Field(0).(*array.Int64Builder).Append(id)
	rb.Field(1).(*array.StringBuilder).Append(name)
	rb.Field(2).(*array.StringBuilder).Append(city)
	_, err = tab.Append(ctx, delta.Batches([]arrow.RecordBatch{rb.NewRecordBatch()}...), delta.WriteOptions{})
	return err
}

// What another writer does to a history between two batches, then a late, a tied and
// a newer event of a rewritten key (apply-state 5 and 8).
func TestRun_ForeignWritersOfHistory(t *testing.T) {
	before := []string{"U 1@10 (Ann, Rome)", "U 1@20 (Ann, Oslo)", "U 2@10 (Bob, Bonn)", "D 2@30"}
	after := []string{"U 1@15 (Ann, Lima)", "U 1@20 (Ann, Oslo)", "U 1@30 (Ann, Zug)", "U 2@5 (Bob, Aix)", "D 1@12"}
	for _, config := range []string{"", "stored-as: 2", "stored-as: 2\ntrack: name"} {
		for _, vectors := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s vectors %v", config, vectors), func(t *testing.T) {
				script, err := model.NewScript(config)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := script.Batch(slices.Concat(before, after)); err != nil {
					t.Fatal(err)
				}
				b := newBench(t, config)
				b.flow.DeletionVectors = &vectors
				for _, l := range before {
					b.must(t, l)
				}
				if _, err := b.open(t).Optimize(context.Background(), delta.OptimizeOptions{MaxDeleted: 0.0001}); err != nil {
					t.Fatal(err)
				}
				b.foreignRewrite(t, "OPTIMIZE", nil, false, func(row []string) []string { return row })
				for _, l := range after {
					b.must(t, l)
				}
				b.wantTable(t, script.Table()...)
			})
		}
	}
}
