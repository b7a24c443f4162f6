package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

// turnClock is a clock that a test turns on.
type turnClock struct{ at atomic.Int64 }

func newTurnClock() *turnClock {
	c := &turnClock{}
	c.at.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *turnClock) now() time.Time       { return time.UnixMicro(c.at.Add(1000)) }
func (c *turnClock) turn(d time.Duration) { c.at.Add(d.Microseconds()) }

func kindsOf(t testing.TB, b *bench) map[string]int64 {
	t.Helper()
	r, err := Inspect(context.Background(), b.operator(), b.opts)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, k := range r.Kinds {
		out[k.Kind] = k.Rows
	}
	return out
}

func TestUpkeep_Collection(t *testing.T) {
	for name, budget := range map[string]int64{"whole": 0, "by keys": -1} {
		t.Run("state held "+name, func(t *testing.T) { testCollection(t, budget) })
	}
}

func testCollection(t *testing.T, budget int64) {
	newBench := func(t testing.TB, config string) *bench {
		b := newBench(t, config)
		b.opts.stateBudget = budget
		return b
	}
	week := 8 * 24 * time.Hour
	t.Run("E70 a tombstone collected too early", func(t *testing.T) {
		b, c := newBench(t, ""), newTurnClock()
		b.opts.Clock = c.now
		b.must(t, "U 1@5 (Ann, Rome)", "D 1@9")
		if n := kindsOf(t, b)[kindTombstone]; n != 1 {
			t.Fatalf("%d tombstones", n)
		}
		c.turn(week)
		b.must(t, "U 2@1 (Bob, Oslo)")
		if n := kindsOf(t, b)[kindTombstone]; n != 0 {
			t.Fatalf("%d tombstones after the retention", n)
		}
		res := b.must(t, "U 1@7 (Ann, Oslo)")
		b.wantTable(t, "1, Ann, Oslo", "2, Bob, Oslo")
		if res.Events.LateBeyondRetention != 1 {
			t.Errorf("num_late_beyond_retention %d", res.Events.LateBeyondRetention)
		}
		// Events at or below the highest collected sequence, 9, count; those above do not.
		if res = b.must(t, "U 3@9 (Cy, Lima)", "U 4@10 (Di, Kyiv)"); res.Events.LateBeyondRetention != 1 {
			t.Errorf("at the bound and above: num_late_beyond_retention %d", res.Events.LateBeyondRetention)
		}
	})
	t.Run("a flow that was down meets its tombstones, unless it is forgotten", func(t *testing.T) {
		b, c := newBench(t, ""), newTurnClock()
		b.opts.Clock = c.now
		b.must(t, "D 1@9")
		b.flow.Name, b.source = "g", &textSource{name: "file:g"}
		b.must(t, "U 3@1 (Cy, Lima)")
		c.turn(week)
		b.must(t, "U 2@1 (Bob, Oslo)")
		if n := kindsOf(t, b)[kindTombstone]; n != 1 {
			t.Fatalf("%d tombstones while flow f is down", n)
		}
		if _, err := Reset(context.Background(), b.operator(), "f", true, b.opts); err != nil {
			t.Fatal(err)
		}
		b.must(t, "U 2@2 (Bob, Zug)")
		if n := kindsOf(t, b)[kindTombstone]; n != 0 {
			t.Fatalf("%d tombstones after flow f was forgotten", n)
		}
	})
	t.Run("retention and frequency are properties of the table", func(t *testing.T) {
		b, c := newBench(t, ""), newTurnClock()
		b.opts.Clock = c.now
		b.flow.Properties = map[string]string{"pipelines.applyChanges.tombstoneGCThresholdInSeconds": "60s", "pipelines.cdc.tombstoneGCFrequencyInSeconds": "7200"}
		b.must(t, "D 1@9")
		c.turn(2 * time.Hour)
		b.must(t, "D 2@1")
		c.turn(90 * time.Minute)
		b.must(t, "U 3@1 (Cy, Lima)") // too soon after the last collection
		if n := kindsOf(t, b)[kindTombstone]; n != 1 {
			t.Fatalf("%d tombstones", n)
		}
	})
	t.Run("a clock that went back makes no fact older", func(t *testing.T) {
		b, c := newBench(t, ""), newTurnClock()
		b.opts.Clock = c.now
		b.must(t, "U 1@5 (Ann, Rome)")
		c.turn(-week)
		b.must(t, "D 1@9")
		c.turn(week)
		b.must(t, "U 2@1 (Bob, Oslo)")
		if n := kindsOf(t, b)[kindTombstone]; n != 1 {
			t.Fatalf("%d tombstones, want the one of a moment ago", n)
		}
	})
	t.Run("a truncate is never collected", func(t *testing.T) {
		b, c := newBench(t, ""), newTurnClock()
		b.opts.Clock = c.now
		b.must(t, "T@9")
		c.turn(week)
		b.must(t, "U 1@10 (Ann, Rome)")
		c.turn(week)
		b.must(t, "U 2@5 (Bob, Oslo)", "U 1@11 (Ann, Zug)")
		b.wantTable(t, "1, Ann, Zug")
	})
}

// Under the lateness contract a collected state gives what the whole one gives, in
// every mode: one anchor below W is enough (auto-cdc 2.12, 3).
func TestUpkeep_HistoryModel(t *testing.T) {
	for _, stored := range []string{model.StoredSCD1, model.StoredSCD2} {
		t.Run("stored as "+stored, func(t *testing.T) {
			testenv.Check(t, func(rt *rapid.T) {
				const perPhase = 6
				f, g := model.Generator{Columns: []string{"a", "b", "c"}, Keys: 2, Seqs: perPhase, Truncates: true}.Flow(rt, stored)
				config := flowText(f)
				b, c := newBench(t, config), newTurnClock()
				b.opts.Clock = c.now
				b.opts.stateBudget, b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2}).Draw(rt, "state files")
				script, err := model.NewScript(config)
				if err != nil {
					rt.Fatal(err)
				}
				replay := config
				for phase := range 4 {
					lines := []string{}
					if phase == 0 {
						lines = append(lines, "D 9@0") // shows every column
					}
					for _, e := range g.Events(rt, 8) {
						e.Seq = e.Seq.(int64) + int64(perPhase*phase)
						lines = append(lines, eventText(e))
					}
					want, err := script.Batch(lines)
					if err != nil {
						rt.Fatal(err)
					}
					replay += fmt.Sprintf("\nphase %d\n%s\n----\n%s", phase, strings.Join(lines, "\n"), want)
					if _, err := b.run(lines...); err != nil {
						rt.Fatalf("%v\n%s", err, replay)
					}
					if got := b.table(t); !slices.Equal(got, script.Table()) {
						rt.Fatalf("got %q\n%s", got, replay)
					}
					c.turn(8 * 24 * time.Hour)
				}
			})
		})
	}
}

// Under the lateness contract a target whose state was collected is what the whole set of
// events says, in every storage type and mode (auto-cdc 3): what may still arrive is at
// or above what was learned before the retention, by sequence, or with beliefs by system
// sequence.
func TestUpkeep_CollectionModel(t *testing.T) {
	for _, stored := range []string{model.StoredSCD1, model.StoredSCD2, model.StoredBitemporal} {
		t.Run("law "+stored, func(t *testing.T) {
			collected := 0
			testenv.Check(t, func(rt *rapid.T) {
				f, g := model.Generator{Columns: []string{"a", "b"}, Keys: 2, Seqs: 5, Truncates: true}.Flow(rt, stored)
				config := flowText(f)
				b, c := newBench(t, config), newTurnClock()
				b.opts.Clock = c.now
				b.opts.stateBudget, b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2}).Draw(rt, "state files")
				script, err := model.NewScript(config)
				if err != nil {
					rt.Fatal(err)
				}
				from := int64(0)
				for phase := range 4 {
					lines := []string{eventText(model.Event{Kind: model.Delete, Key: int64(9), Seq: int64(1), Sys: int64(1)})} // has every column
					if stored != model.StoredBitemporal {
						lines[0] = "D 9@1"
					}
					for _, e := range g.Events(rt, 8) {
						if stored == model.StoredBitemporal {
							e.Sys = e.Sys.(int64) + from*3 // of 4: W itself may come again
						} else {
							e.Seq = e.Seq.(int64) + from*4
						}
						lines = append(lines, eventText(e))
					}
					from++
					want, err := script.Batch(lines)
					if err != nil {
						rt.Fatal(err)
					}
					res, err := b.run(lines...)
					if err != nil {
						rt.Fatal(err)
					}
					if got := b.table(t); !slices.Equal(got, script.Table()) {
						rt.Fatalf("phase %d, %q: got %q, want\n%s\nlate %d", phase, lines, got, want, res.Events.LateBeyondRetention)
					}
					c.turn(8 * 24 * time.Hour)
				}
				if b.pinned(t).state.target.CollectedTo != nil {
					collected++
				}
			})
			if collected == 0 {
				t.Error("nothing was ever collected")
			}
		})
	}
}

// Small files are packed in the flow's own loop; rows keep their versions.
func TestUpkeep_SmallFiles(t *testing.T) {
	b, c := newBench(t, ""), newTurnClock()
	b.opts.Clock = func() time.Time { c.turn(time.Second); return c.now() }
	var lines []string
	for i := range smallFiles + 2 {
		lines = append(lines, fmt.Sprintf("U %d@5 (n, c)", i))
	}
	b.flow.BatchRows = 1
	b.must(t, lines...)
	snap, err := b.open(t).Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	list, err := snap.FileList(context.Background())
	if err != nil || len(list) >= smallFiles {
		t.Fatalf("%d files, %v", len(list), err)
	}
	b.must(t, "U 3@4 (late, c)", "U 4@6 (new, c)", "U 5@5 (a, c)")
	got := b.table(t)
	for _, want := range []string{"3, n, c", "4, new, c", "5, n, c"} {
		if !slices.Contains(got, want) {
			t.Errorf("no row %q in %q", want, got)
		}
	}
}
