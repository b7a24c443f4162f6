package apply

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
)

// decided is what a batch of lines would do to the target, decided and not written.
func (b *bench) decided(t *testing.T, lines ...string) *attempt {
	t.Helper()
	d := &textDecoder{n: b.n}
	for i, l := range lines {
		if err := d.Add(context.Background(), &event.Record{Source: "file:other", Value: []byte(l), End: int64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := d.Flush()
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{t: b.pinned(t), in: &input{batches: out.Batches}, hi: len(lines)}
	if err := a.decide(context.Background()); err != nil {
		t.Fatal(err)
	}
	return a
}

// Beyond the look-up of its key a late event costs what the history of its key costs:
// rows decoded and facts fetched grow with the versions of the key and not with those
// of other keys, and an event in order reads the open row alone.
func TestRun_HistoryCost(t *testing.T) {
	const versions = 30
	for _, keys := range []int{2, 40} {
		t.Run(fmt.Sprintf("B63 among %d keys", keys), func(t *testing.T) {
			b := newBench(t, "data: name STRING, city STRING\nstored-as: 2\ntrack: name")
			on := true
			b.flow.DeletionVectors, b.opts.stateBudget = &on, -1
			var lines []string
			for v := range versions {
				for k := range keys {
					// Each version has a hidden member.
					lines = append(lines, fmt.Sprintf("U %d@%d (n%d, a)", k, 100*v, v), fmt.Sprintf("U %d@%d (n%d, b)", k, 100*v+10, v))
				}
			}
			b.must(t, lines...)
			rows := func(a *attempt) (n int) {
				for _, g := range a.groups {
					n += len(g.Rows)
				}
				return n
			}
			late := b.decided(t, "U 1@1550 (late, c)")
			if n := rows(late); n != versions {
				t.Errorf("a late event decoded %d rows, its key has %d", n, versions)
			}
			if n := len(late.t.state.hidden); n != 1 {
				t.Errorf("the facts of %d keys were fetched for one", n)
			}
			if d := late.decision; d.rows != (Rows{Inserted: 1, Updated: 1}) {
				t.Errorf("a late event changes %+v", d.rows)
			}
			if n := rows(b.decided(t, "U 1@99999 (next, c)")); n != 1 {
				t.Errorf("an event in order decoded %d rows, want the open one", n)
			}
		})
	}
}
