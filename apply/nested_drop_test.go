package apply

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-data/sluice/delta"
)

// A field inside a struct is dropped from a history (column mapping): what it held is
// gone, in rows and in hidden events that late events bring up; a source that still sends
// the field makes it anew, with the values of its events alone (auto-cdc 1.4 rule 6).
func TestTarget_NestedDrop(t *testing.T) {
	const tail = "\nstored-as: 2\ntrack: name"
	dropped := func(t *testing.T, budget int64) *bench {
		b := newBench(t, "data: name STRING, s STRUCT<a: STRING, b: STRING>"+tail)
		b.opts.stateBudget = budget
		b.flow.Properties = map[string]string{"delta.columnMapping.mode": "name"}
		b.must(t, "U 1@1 (Ann, {p,1})", "U 1@3 (Ann, {q,3})", "U 1@7 (Ann, {r,7})", "U 1@9 (Bob, {s,9})",
			"U 2@2 (Cy, {t,2})", "U 2@4 (Cy, {t,4})", "D 2@6", "U 3@1 (Fay, {k,1})", "U 3@5 (Fay, {l,5})", "U 3@9 (Fay, {m,9})")
		if _, err := b.open(t).Alter(context.Background(), delta.DropColumns{Columns: []string{"s.b"}}, delta.AlterOptions{}); err != nil {
			t.Fatal(err)
		}
		b.wantTable(t, "1, Ann, {r}, 1→9", "1, Bob, {s}, 9→∞", "2, Cy, {t}, 2→6", "3, Fay, {m}, 1→∞")
		return b
	}
	feed := func(t *testing.T, b *bench) {
		t.Helper()
		if got, want := replay(t, b), b.table(t); !slices.Equal(got, want) {
			t.Errorf("feed sums to %q, want %q", got, want)
		}
	}
	for name, budget := range map[string]int64{"whole": 0, "by keys": -1} {
		t.Run("late events without the field, state held "+name, func(t *testing.T) {
			b := dropped(t, budget)
			c := newBench(t, "data: name STRING, s STRUCT<a: STRING>"+tail)
			c.store, c.source, c.opts = b.store, b.source, b.opts
			c.must(t, "U 1@4 (Dee, {x})", "U 2@3 (Eve, {y})", "U 1@12 (Bob, {z})")
			c.must(t, "U 3@6 (Gus, {n})")
			c.wantTable(t, "1, Ann, {q}, 1→4", "1, Ann, {r}, 7→9", "1, Bob, {z}, 9→∞", "1, Dee, {x}, 4→7",
				"2, Cy, {t}, 2→3", "2, Cy, {t}, 4→6", "2, Eve, {y}, 3→4", "3, Fay, {l}, 1→6", "3, Fay, {m}, 9→∞", "3, Gus, {n}, 6→9")
			feed(t, c)
		})
		t.Run("late events with the field, state held "+name, func(t *testing.T) {
			b := dropped(t, budget)
			b.must(t, "U 1@4 (Dee, {x,4})", "U 2@3 (Eve, {y,3})", "U 1@12 (Bob, {z,12})")
			b.must(t, "U 3@6 (Gus, {n,6})") // its hidden events are from before, the field is there again
			b.wantTable(t, "1, Ann, {q,null}, 1→4", "1, Ann, {r,null}, 7→9", "1, Bob, {z,12}, 9→∞", "1, Dee, {x,4}, 4→7",
				"2, Cy, {t,null}, 2→3", "2, Cy, {t,null}, 4→6", "2, Eve, {y,3}, 3→4", "3, Fay, {l,null}, 1→6", "3, Fay, {m,null}, 9→∞", "3, Gus, {n,6}, 6→9")
			feed(t, b)
		})
	}
}
