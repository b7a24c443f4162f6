package apply

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

// The engine equals the model for random events in random cuts with redelivery
// (laws 1, 2 and 6 of auto-cdc 2.12): after every run the table is the model's of
// all events so far, and the feed is what leads from the last table to it.
func TestRun_Model(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		g := model.Generator{Columns: []string{"a", "b", "c"}, Keys: 4, Seqs: 8, Truncates: rapid.Bool().Draw(rt, "truncates"),
			Unavailable: rapid.Bool().Draw(rt, "unavailable"), Growth: rapid.Bool().Draw(rt, "growth")}
		g.Conflicts = !g.Unavailable && !g.Growth
		events := g.Events(rt, 24)
		b := newBench(t, "data: a STRING, b STRING, c STRING")
		if rapid.IntRange(0, 3).Draw(rt, "partitioned") == 0 {
			b.flow.PartitionBy = []string{"a"}
		}
		if rapid.IntRange(0, 7).Draw(rt, "mapped") == 0 {
			b.flow.Properties = map[string]string{"delta.columnMapping.mode": "name"}
		}
		vectors := rapid.Bool().Draw(rt, "vectors")
		b.flow.DeletionVectors = &vectors
		b.flow.BatchRows = rapid.SampledFrom([]int{0, 1, 3, 7}).Draw(rt, "batch rows")
		b.opts.stateBudget, b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2, 3}).Draw(rt, "state files")
		b.opts.lotBytes = rapid.SampledFrom([]int64{0, 0, 2000}).Draw(rt, "lot")
		var fed []string
		before := model.Table{}
		columns := seenColumns{}
		for len(events) > 0 {
			n := rapid.IntRange(1, len(events)).Draw(rt, "cut")
			var lines []string
			for _, e := range events[:n] {
				lines = append(lines, eventText(e))
				columns.see(e)
			}
			events = events[n:]
			for range rapid.IntRange(0, 3).Draw(rt, "redelivered") {
				if len(fed) > 0 {
					lines = append(lines, rapid.SampledFrom(fed).Draw(rt, "again"))
				}
			}
			if _, err := b.run(lines...); err != nil {
				rt.Fatal(err)
			}
			fed = append(fed, lines...)
			want := model.SCD1(b.n.toModel(t, fed), columns.list)
			if got := b.table(t); !slices.Equal(got, want.Lines()) {
				rt.Fatalf("after %q:\ngot  %q\nwant %q", fed, got, want.Lines())
			}
			if b.flow.BatchRows == 0 {
				var feed []string
				for _, c := range model.Feed(before, want) {
					feed = append(feed, pad(c, len(columns.list)))
				}
				if got := b.feed(t); !slices.Equal(got, feed) {
					rt.Fatalf("feed after %q:\ngot  %q\nwant %q", fed, got, feed)
				}
			}
			before = want
		}
	})
}

// seenColumns are the columns of the target in the order in which they joined it.
type seenColumns struct{ list []string }

func (s *seenColumns) see(e model.Event) {
	schema := e.Schema
	if e.Kind != model.Upsert { // the notation reads deletes under the full schema
		schema = []string{"a", "b", "c"}
	}
	for _, c := range schema {
		if !slices.Contains(s.list, c) {
			s.list = append(s.list, c)
		}
	}
}

func pad(c model.Change, columns int) string {
	s := c.String()
	return s + strings.Repeat(", null", columns-len(c.Row.Values))
}
