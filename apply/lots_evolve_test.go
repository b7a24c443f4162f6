package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A batch that does not fit into memory evolves like one that does: the columns, the
// rows with what is rescued of them, and the warnings, also where no row is rescued.
func TestRun_LotsEvolve(t *testing.T) {
	for _, mode := range Evolutions() {
		for _, c := range []struct {
			name string
			fits int // each how many-th value does not fit; 0: all do
			data string
		}{
			{"a new column", 3, "name STRING, city STRING, zip STRING"}, {"a new column alone", 0, "name STRING, city STRING, zip STRING"},
			{"another type", 3, "name STRING, city STRING"}, {"another type that fits", 0, "name STRING, city STRING"},
		} {
			t.Run(mode+", "+c.name, func(t *testing.T) {
				var want []string
				for _, lot := range []int64{0, 2000} {
					b := newBench(t, "data: name STRING, city BIGINT")
					b.opts.lotBytes = lot
					b.must(t, "U 0@1 (a, 1)", "U 50@1 (b, 2)")
					n, err := parseNotation("id BIGINT", c.data, "BIGINT")
					if err != nil {
						t.Fatal(err)
					}
					b.n, b.flow.Evolution = n, Evolution(mode)
					var lines []string
					for k := range 40 {
						city, zip := fmt.Sprint(k), ""
						if c.fits > 0 && k%c.fits == 0 {
							city = fmt.Sprintf("c%d", k)
						}
						if len(n.data) > 2 {
							zip = fmt.Sprintf(", z%d", k)
						}
						lines = append(lines, fmt.Sprintf("U %d@10 (n%d, %s%s)", (k*7)%40, k, city, zip))
					}
					r, err := b.run(lines...)
					if lot > 0 && r.Bytes.Spilled == 0 && err == nil {
						t.Fatal("nothing went to a temporary file")
					}
					slices.Sort(r.Warnings) // columns are looked at before rows are
					got := []string{fmt.Sprint(codeOf(err, "")), fmt.Sprint(r.Events, r.Rows), fmt.Sprint(r.Warnings)}
					snap, err2 := b.open(t).Snapshot(context.Background())
					if err2 != nil {
						t.Fatal(err2)
					}
					got = append(append(got, snap.Schema.String()), b.table(t)...)
					if want == nil {
						want = got
						rescues := err == nil && mode != "none" && (c.fits > 0 || len(n.data) > 2 && mode == "rescue")
						if has := strings.Contains(snap.Schema.String(), rescuedColumn); has != rescues {
							t.Errorf("rescued data %t: %q", has, got)
						}
						continue
					}
					if !slices.Equal(got, want) {
						t.Errorf("in lots  %q\nin one   %q", got, want)
					}
				}
			})
		}
	}
}
