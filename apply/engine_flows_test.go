package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

// flowText writes the settings of a model flow as an example file has them.
func flowText(f model.Flow) string {
	var s strings.Builder
	var data []string
	for _, c := range f.Columns {
		data = append(data, c.Name+" STRING")
	}
	fmt.Fprintf(&s, "data: %s\nstored-as: %s\n", strings.Join(data, ", "), f.Stored)
	if f.Covered != nil {
		fmt.Fprintf(&s, "ignore-null: on %s\n", strings.Join(f.Covered, ", "))
	}
	if f.ColumnsToUpdate {
		s.WriteString("columns-to-update: cols\n")
	}
	if f.Tracked != nil {
		fmt.Fprintf(&s, "track: %s\n", strings.Join(f.Tracked, ", "))
	}
	return s.String()
}

// The engine equals the model for random flows of every storage type and mode and
// random events in random cuts with redelivery (laws 1 to 6 of auto-cdc 2.12). A
// failure shrinks, and prints an example file that replays it.
func TestRun_ModelOfFlows(t *testing.T) {
	for _, stored := range []string{model.StoredSCD1, model.StoredSCD2, model.StoredBitemporal} {
		t.Run("laws "+stored, func(t *testing.T) {
			testenv.Check(t, func(rt *rapid.T) {
				f, g := model.Generator{Columns: []string{"a", "b", "c"}, Keys: 3, Seqs: 8, Truncates: true}.Flow(rt, stored)
				config := flowText(f)
				b := newBench(t, config)
				script, err := model.NewScript(config)
				if err != nil {
					rt.Fatal(err)
				}
				replay := "flow\n" + config + "----\nok\n"
				b.flow.BatchRows = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "batch rows")
				if rapid.IntRange(0, 3).Draw(rt, "partitioned") == 0 {
					b.flow.PartitionBy = []string{"a"}
				}
				if vectors := rapid.Bool().Draw(rt, "deletion vectors"); vectors {
					b.flow.DeletionVectors = &vectors
				}
				b.opts.stateBudget, b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2, 3}).Draw(rt, "state files")
				b.opts.lotBytes = rapid.SampledFrom([]int64{0, 0, 2000}).Draw(rt, "lot")
				events := g.Events(rt, 16)
				// The first record shows every column: a clause may name one that left the
				// source, but none that nobody has seen.
				first := "D 9@1"
				if stored == model.StoredBitemporal {
					first = "D 9@1 sys 1"
				}
				start, err := script.Batch([]string{first})
				if err != nil {
					rt.Fatal(err)
				}
				b.must(t, first)
				b.feed(t)
				replay += "\nbatch\n" + first + "\n----\n" + start
				var fed []string
				for len(events) > 0 {
					n := rapid.IntRange(1, len(events)).Draw(rt, "cut")
					var lines []string
					for _, e := range events[:n] {
						lines = append(lines, eventText(e))
					}
					events = events[n:]
					for range rapid.IntRange(0, 2).Draw(rt, "redelivered") {
						if len(fed) > 0 {
							lines = append(lines, rapid.SampledFrom(fed).Draw(rt, "again"))
						}
					}
					fed = append(fed, lines...)
					want, err := script.Batch(lines)
					if err != nil {
						rt.Fatal(err)
					}
					replay += "\nbatch\n" + strings.Join(lines, "\n") + "\n----\n" + want
					if _, err := b.run(lines...); err != nil {
						rt.Fatalf("%v\n%s", err, replay)
					}
					if got := b.table(t); !slices.Equal(got, script.Table()) {
						rt.Fatalf("got %q\n%s", got, replay)
					}
					if b.flow.BatchRows == 0 {
						if got := model.Show("table", b.table(t)) + model.Show("feed", b.feed(t)); got != want {
							rt.Fatalf("got\n%s\n%s", got, replay)
						}
					}
				}
			})
		})
	}
}
