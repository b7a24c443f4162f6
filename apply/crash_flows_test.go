package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// crashCase is a run of three batches (or snapshots) that is killed, and a second flow
// on its target that goes on meanwhile.
type crashCase struct {
	name, config string
	first        []string // lines, or the rows of a snapshot, by batch
	second       []string
	snapshots    bool
}

var crashCases = []crashCase{
	{name: "SCD1", first: []string{strings.Join(story[:4], "\n"), strings.Join(story[4:8], "\n"), strings.Join(story[8:], "\n")},
		second: []string{"U 7@1 (Flo, Nice)", "U 1@6 (Anna, Rome)", "D 6@9"}},
	{name: "SCD1 by fields", config: "ignore-null: *",
		first:  []string{"U 1@1 (Ann, Rome)\nU 2@2 (Bob, null)\nD 3@3", "U 1@5 (null, Oslo)\nU 3@4 (Cy, null)\nU 2@1 (Bo, Kiel)", "D 1@4\nU 1@3 (Abe, Lima)\nU 3@2 (null, Zug)"},
		second: []string{"U 1@6 (Anna, null)", "U 3@5 (null, Bonn)", "D 2@3"}},
	{name: "SCD2", config: "stored-as: 2\ntrack: name",
		first:  []string{"U 1@1 (Ann, Rome)\nU 2@2 (Bob, Oslo)\nU 1@9 (Ann, Rome)\nD 2@4", "U 1@5 (Ann, Bonn)\nU 2@3 (Bo, Zug)\nD 3@3\nU 1@7 (Anna, Bonn)", "D 1@6\nU 2@8 (Bob, Kiel)\nU 3@2 (Cy, Lima)\nU 2@9 (Bob, Reno)"},
		second: []string{"U 1@8 (Ann, Nice)", "D 2@5", "U 3@1 (Cyd, Bern)", "U 4@1 (Ed, Graz)"}},
	{name: "BITEMPORAL", config: "stored-as: bitemporal",
		first:  []string{"U 1@1 sys 1 (Ann, Rome)\nU 2@2 sys 3 (Bob, Oslo)", "U 1@5 sys 4 (Ann, Bonn)\nD 2@4 sys 2", "U 1@3 sys 6 (Abe, Rome)\nU 2@2 sys 5 (Bo, Oslo)"},
		second: []string{"U 1@5 sys 5 (Anna, Bonn)", "D 1@7 sys 7", "U 3@1 sys 1 (Cy, Lima)"}},
	{name: "snapshots beside changes", snapshots: true,
		first:  []string{"(1, Ann, Rome)\n(2, Bob, Oslo)", "(1, Ann, Bonn)\n(3, Cy, Lima)", "(2, Bob, Kiel)\n(3, Cy, Lima)"},
		second: []string{"U 1@3 (Ann, Zug)", "D 3@6", "U 4@2 (Di, Bern)", "U 2@1 (Bo, Graz)"}},
	{name: "snapshots as history", config: "stored-as: 2", snapshots: true,
		first: []string{"(1, Ann, Rome)\n(2, Bob, Oslo)", "(1, Ann, Bonn)\n(3, Cy, Lima)", "(2, Bob, Kiel)\n(3, Cy, Lima)"}},
}

// spec is the flow that is killed.
func (c crashCase) spec(t *testing.T, store storage.Store, vectors bool) (*bench, Spec) {
	b := newBench(t, c.config)
	b.store, b.flow.DeletionVectors = store, &vectors
	if !c.snapshots {
		b.source.lines = strings.Split(strings.Join(c.first, "\n"), "\n")
		b.flow.BatchRows = (len(b.source.lines) + 2) / 3
		return b, b.spec()
	}
	// The source lists what is above the version that the target knows, as folders do.
	last := -1
	if r, err := Inspect(context.Background(), Operator{Store: b.store, Name: "t"}, b.opts); err == nil {
		for _, f := range r.Flows {
			if _, err := fmt.Sscan(f.Snapshot, &last); f.Snapshot != "" && err != nil {
				t.Fatal(err)
			}
		}
	}
	var list []textSnapshot
	for i, rows := range c.first {
		if v := 2 * (i + 1); v > last {
			list = append(list, textSnapshot{version: fmt.Sprint(v), rows: strings.Split(rows, "\n")})
		}
	}
	return b, b.snapshotSpec(list...)
}

func (c crashCase) other(t *testing.T, store storage.Store, vectors bool) {
	t.Helper()
	if c.second == nil {
		return
	}
	b := newBench(t, c.config)
	b.store, b.flow.DeletionVectors, b.flow.Name, b.flow.BatchRows = store, &vectors, "g", 2
	b.source.name, b.source.lines = "file:other", c.second
	if _, err := Run(context.Background(), b.spec(), b.opts); err != nil {
		t.Fatal(err)
	}
}

// Law 8 for every storage type with two flows on one target, with and without deletion
// vectors: one flow is killed at an operation of its three batches, the other goes on,
// the first is started again; rows and feed are those of a run that nothing disturbed
// (apply-state 8).
func TestRun_CrashWithTwoFlows(t *testing.T) {
	for i, c := range crashCases {
		for _, vectors := range []bool{false, true} {
			t.Run(fmt.Sprintf("law 8 %s, deletion vectors %v", c.name, vectors), func(t *testing.T) {
				t.Parallel()
				calm := storage.NewMemory("t")
				c.other(t, calm, vectors)
				b, spec := c.spec(t, calm, vectors)
				if _, err := Run(context.Background(), spec, b.opts); err != nil {
					t.Fatal(err)
				}
				want := b.table(t)
				stride, start := 29, i%5
				if os.Getenv("SLUICE_LONG") != "" {
					stride, start = 1, 0
				}
				for n := start; ; n += stride {
					mem := storage.NewMemory("t")
					if n%2 == 1 { // the other flow was there before
						c.other(t, mem, vectors)
					}
					fs := faultstore.New(mem, faultstore.Rule{Match: faultstore.Nth(n), Mode: faultstore.CrashAfter})
					b, spec := c.spec(t, fs, vectors)
					_, err := Run(context.Background(), spec, b.opts)
					if fs.Count() <= n {
						if err != nil || n < 40 {
							t.Fatalf("%d operations, %v", n, err)
						}
						return
					}
					when := fmt.Sprintf("operation %v", fs.Trace()[n])
					if !errors.Is(err, faultstore.ErrCrashed) {
						t.Fatalf("%s: %v", when, err)
					}
					store := mem.Crash()
					if n%2 == 0 {
						c.other(t, store, vectors)
					}
					b, spec = c.spec(t, store, vectors)
					if _, err := Run(context.Background(), spec, b.opts); err != nil {
						t.Fatalf("%s: second run: %v", when, err)
					}
					b.check(t, when, want)
					b, spec = c.spec(t, store, vectors)
					if again, err := Run(context.Background(), spec, b.opts); err != nil || again.Batches != 0 {
						t.Fatalf("%s: third run: %d batches, %v", when, again.Batches, err)
					}
				}
			})
		}
	}
}
