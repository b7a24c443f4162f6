package model

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestExamples plays the worked examples of auto-cdc 4 (E01 to E69) on the model:
// table and feed after every batch are those of the specification. The engine plays
// the same files (package apply). Then the events of each example are shuffled and
// joined at once: the same table (law 1).
func TestExamples(t *testing.T) {
	datadriven.Walk(t, "../../apply/testdata/examples", func(t *testing.T, path string) {
		var s *Script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			lines := strings.Split(d.Input, "\n")
			var out string
			var err error
			switch d.Cmd {
			case "flow":
				s, err = NewScript(d.Input)
				out = "ok\n"
			case "batch":
				out, err = s.Batch(lines)
			case "snapshot":
				var version string
				d.ScanArgs(t, "version", &version)
				out, err = s.Snapshot(version, lines)
			case "refresh":
				s.Refresh()
				return "ok\n"
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if err != nil {
				t.Fatal(err)
			}
			return out
		})
		r := rand.New(rand.NewSource(1))
		for i := range 10 {
			events := append(slices.Clone(s.events), s.events...)
			r.Shuffle(len(events), func(a, b int) { events[a], events[b] = events[b], events[a] })
			if got := s.flow.Visible(events).Lines(); !slices.Equal(got, s.Table()) {
				t.Errorf("shuffle %d: %q: got %q, want %q", i, fmt.Sprint(events), got, s.Table())
			}
		}
	})
}
