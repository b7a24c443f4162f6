package apply

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

// collectAll drops what keepHidden lets go of everything learned so far.
func (b *bench) collectAll(t testing.TB) (dropped int) {
	t.Helper()
	tg := b.pinned(t)
	if tg.snap == nil {
		return 0
	}
	st := tg.state
	for key, facts := range st.hidden {
		keep, _ := keepHidden(facts, math.MaxInt64, st.inheritsNothing(), st.authorsAll)
		dropped += len(facts) - len(keep)
		st.hidden[key] = keep
	}
	tg.files = nil
	p := &proposal{t: tg, began: b.opts.Clock(), facts: st.keyed(), operation: "AUTO CDC"}
	if done, err := p.commit(context.Background()); err != nil || !done {
		t.Fatalf("collect: %v, %v", done, err)
	}
	return dropped
}

// What collection drops does not show as long as nothing arrives that is older than
// what was collected (auto-cdc 2.12: one anchor below W suffices).
func TestKeepHidden_Model(t *testing.T) {
	total := 0
	testenv.Check(t, func(rt *rapid.T) {
		f, g := model.Generator{Columns: []string{"a", "b"}, Keys: 2, Seqs: 8}.Flow(rt, model.StoredSCD2)
		config := flowText(f)
		script, err := model.NewScript(config)
		if err != nil {
			rt.Fatal(err)
		}
		b := newBench(t, config)
		feed := func(e []model.Event) {
			for len(e) > 0 {
				n := rapid.IntRange(1, len(e)).Draw(rt, "cut")
				var lines []string
				for _, x := range e[:n] {
					lines = append(lines, eventText(x))
				}
				e = e[n:]
				if _, err := script.Batch(lines); err != nil {
					rt.Fatal(err)
				}
				b.must(t, lines...)
				if got := b.table(t); !slices.Equal(got, script.Table()) {
					rt.Fatalf("after %q: got %q, want %q", lines, got, script.Table())
				}
			}
		}
		feed([]model.Event{{Kind: model.Delete, Key: int64(9), Seq: int64(1)}})
		feed(g.Events(rt, 12))
		total += b.collectAll(t)
		later := g.Events(rt, 8)
		for i := range later {
			later[i].Seq = later[i].Seq.(int64) + 100
		}
		feed(later)
	})
	if total == 0 {
		t.Error("nothing was ever collected")
	}
}
