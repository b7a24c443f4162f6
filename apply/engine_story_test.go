package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/model"
	"github.com/sluice-data/sluice/internal/testenv"
)

// tale plays a random flow on the engine and on the model, step by step, and writes
// down an example file that replays it.
type tale struct {
	t      *testing.T
	rt     *rapid.T
	s      *model.Story
	b      *bench
	script *model.Script
	replay string

	flows     map[string]*textSource
	fed       map[string][]string
	snapshots []textSnapshot
	past      []storyPoint
}

// storyPoint is a version of the target, what it showed, and how many snapshots it knew.
type storyPoint struct {
	version   int64
	table     []string
	snapshots int
}

func newStory(t *testing.T, rt *rapid.T, stored string) *tale {
	s := model.NewStory(rt, stored)
	x := &tale{t: t, rt: rt, s: s, b: newBench(t, s.Config), flows: map[string]*textSource{}, fed: map[string][]string{}}
	var err error
	if x.script, err = model.NewScript(s.Config); err != nil {
		rt.Fatal(err)
	}
	x.replay = "flow\n" + s.Config + "----\nok\n"
	if !s.Fails {
		x.b.flow.BatchRows = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "batch rows")
	}
	if vectors := rapid.Bool().Draw(rt, "deletion vectors"); vectors {
		x.b.flow.DeletionVectors = &vectors
	}
	x.b.opts.stateBudget, x.b.opts.factFiles = rapid.SampledFrom([]int64{0, -1}).Draw(rt, "state budget"), rapid.SampledFrom([]int{0, 2, 3}).Draw(rt, "state files")
	return x
}

// use makes f the flow that runs next; every third one has no positions, as stdin.
func (x *tale) use(f string) {
	src := x.flows[f]
	if src == nil {
		src = &textSource{name: "file:" + f}
		if rapid.IntRange(0, 2).Draw(x.rt, "no positions") == 0 {
			src.name = ""
		}
		x.flows[f] = src
	}
	x.b.flow.Name, x.b.source = f, src
}

func (x *tale) batch(f string, lines []string) {
	x.use(f)
	want, err := x.script.Batch(lines)
	if err != nil {
		x.rt.Fatal(err)
	}
	x.replay += "\nbatch flow=" + f + "\n" + strings.Join(lines, "\n") + "\n----\n" + want
	res, err := x.b.run(lines...)
	if x.compare(want, res, err) {
		x.fed[f] = append(x.fed[f], lines...)
	}
}

func (x *tale) snapshot(version string) {
	var rows []string
	zero := false
	for _, k := range x.s.KeyTexts {
		if (k == "0" || k == "-0") && zero {
			continue
		}
		if rapid.Bool().Draw(x.rt, "there") {
			rows, zero = append(rows, x.s.Row(x.rt, k)), zero || k == "0" || k == "-0"
		}
	}
	if len(rows) == 0 && len(x.past) == 0 {
		return // nothing tells the columns of the target
	}
	want, err := x.script.Snapshot(version, rows)
	if err != nil {
		x.rt.Fatal(err)
	}
	x.replay += fmt.Sprintf("\nsnapshot version=%s\n%s\n----\n%s", version, strings.Join(rows, "\n"), want)
	res, err := x.b.snapshot(version, rows)
	x.snapshots = append(x.snapshots, textSnapshot{version: version, rows: rows})
	if !x.compare(want, res, err) {
		x.snapshots = x.snapshots[:len(x.snapshots)-1]
		for i := range x.past {
			x.past[i].snapshots = min(x.past[i].snapshots, len(x.snapshots))
		}
	}
}

// compare holds the engine against the model after a step; false: both refused it.
func (x *tale) compare(want string, res Result, err error) bool {
	code, refused := "", false
	if rest, ok := strings.CutPrefix(want, "error: "); ok {
		code, _, refused = strings.Cut(rest, "\n")
		want = rest[len(code)+1:]
	}
	var e *Error
	if errors.As(err, &e); refused != (err != nil) || refused && (e == nil || e.Code != code) {
		x.rt.Fatalf("got %v, want code %q\n%s", err, code, x.replay)
	}
	got := x.table()
	if !slices.Equal(got, x.script.Table()) {
		x.rt.Fatalf("got %q\n%s", got, x.replay)
	}
	feed := zeros(x.b.feed(x.t))
	for i := 0; i+1 < len(feed); i++ { // the sign of a zero is an update that the model does not know
		pre, ok := strings.CutPrefix(feed[i], "update_preimage ")
		if post, ok2 := strings.CutPrefix(feed[i+1], "update_postimage "); ok && ok2 && pre == post {
			feed, i = slices.Delete(feed, i, i+2), i-1
		}
	}
	if x.b.flow.BatchRows == 0 {
		text := model.Show("table", got) + model.Show("feed", feed)
		for _, e := range x.b.flow.Expectations {
			if c := res.Expectations[e.Name]; !refused {
				text += fmt.Sprintf("%s: passed %d, failed %d, dropped %d\n", e.Name, c.Passed, c.Failed, c.Dropped)
			}
		}
		if text != want {
			x.rt.Fatalf("got\n%s\n%s", text, x.replay)
		}
	}
	if len(got) > 0 || len(x.past) > 0 || err == nil {
		x.remember()
	}
	return !refused
}

func (x *tale) remember() {
	if ok, err := delta.Exists(context.Background(), x.b.store); err != nil || !ok {
		return
	}
	snap, err := x.b.open(x.t).Snapshot(context.Background())
	if err != nil {
		x.rt.Fatal(err)
	}
	x.past = append(x.past, storyPoint{snap.Version, x.table(), len(x.snapshots)})
}

// between does what may happen to a table between two batches; none of it shows.
func (x *tale) between(what string) {
	ctx := context.Background()
	x.replay += "\n# " + what + "\n"
	switch what {
	case "optimize":
		if _, err := x.b.open(x.t).Optimize(ctx, delta.OptimizeOptions{}); err != nil {
			x.rt.Fatal(err)
		}
	case "foreign optimize":
		if len(x.b.table(x.t)) > 0 {
			x.b.foreignRewrite(x.t, "OPTIMIZE", nil, false, nil)
		}
	case "reset":
		for f, src := range x.flows {
			// A flow without positions that changed nothing has left no trace.
			_, err := Reset(ctx, x.b.operator(), f, false, x.b.opts)
			var e *Error
			if errors.As(err, &e) && e.Code == CodeUnknownFlow && (src.name == "" || len(x.fed[f]) == 0) {
				continue
			}
			if err != nil {
				x.rt.Fatalf("%v\n%s", err, x.replay)
			}
		}
	case "rewind":
		x.rewind(ctx)
	}
}

// rewind goes back to a random point; what the sources still have leads to the same
// table again (auto-cdc 2.11, E69).
func (x *tale) rewind(ctx context.Context) {
	p := x.past[rapid.IntRange(0, len(x.past)-1).Draw(x.rt, "point")]
	x.replay += fmt.Sprintf("# to version %d: %q\n", p.version, p.table)
	if _, err := Rewind(ctx, x.b.operator(), &p.version, nil, x.b.opts); err != nil {
		x.rt.Fatalf("rewind: %v\n%s", err, x.replay)
	}
	if got := x.table(); x.s.Shown && !slices.Equal(got, p.table) {
		x.rt.Fatalf("after the rewind: got %q\n%s", got, x.replay)
	}
	for _, f := range []string{"f", "g"} {
		if x.flows[f] != nil {
			x.use(f)
			if _, err := x.b.run(); err != nil {
				x.rt.Fatalf("replay of %s: %v\n%s", f, err, x.replay)
			}
		}
	}
	for _, s := range x.snapshots[p.snapshots:] {
		if _, err := x.b.snapshot(s.version, s.rows); err != nil {
			x.rt.Fatalf("replay of snapshot %s: %v\n%s", s.version, err, x.replay)
		}
	}
	if got := x.table(); !slices.Equal(got, x.script.Table()) {
		x.rt.Fatalf("after rewind and replay: got %q\n%s", got, x.replay)
	}
	x.b.feed(x.t)
	x.past = nil
	x.remember()
}

func (x *tale) step() {
	switch op := rapid.IntRange(0, 15).Draw(x.rt, "step"); {
	case len(x.past) == 0:
	case op == 0:
		x.between("optimize")
	case op == 1:
		x.between("foreign optimize")
	case op == 2:
		x.between("reset")
	case op <= 4 && !x.s.Fails:
		x.between("rewind")
	}
	if n := len(x.snapshots); x.s.Snapshots && (x.s.Stored == model.StoredSCD2 || rapid.Bool().Draw(x.rt, "snapshot")) {
		x.snapshot(rapid.SampledFrom(x.s.SeqTexts[min(n, len(x.s.SeqTexts)-1):]).Draw(x.rt, "version"))
		return
	}
	f := rapid.SampledFrom([]string{"f", "f", "g"}).Draw(x.rt, "flow")
	lines := x.s.Lines(x.rt, 6)
	for range rapid.IntRange(0, 2).Draw(x.rt, "redelivered") {
		from := x.fed[rapid.SampledFrom([]string{"f", "g"}).Draw(x.rt, "of")]
		if len(from) > 0 {
			lines = append(lines, rapid.SampledFrom(from).Draw(x.rt, "again"))
		}
	}
	if x.b.flow.BatchRows == 0 && rapid.IntRange(0, 11).Draw(x.rt, "is bad") == 0 {
		lines = slices.Insert(lines, rapid.IntRange(0, len(lines)).Draw(x.rt, "at"), x.s.Bad(x.rt))
	}
	x.batch(f, lines)
}

// sum is law 6 from the first version on: the feed leads to the table.
func (x *tale) sum() {
	if !x.s.Shown || len(x.past) == 0 {
		return // columns that join later are not in earlier rows
	}
	x.b.seen = -1
	rows := map[string]bool{}
	feed := x.b.feed(x.t)
	for _, c := range feed {
		kind, row, _ := strings.Cut(c, " ")
		if there := kind == "delete" || kind == "update_preimage"; rows[row] != there {
			x.rt.Fatalf("feed: %s, and the row is there: %v\n%s\n%s", c, rows[row], x.replay, strings.Join(feed, "\n"))
		} else if rows[row] = !there; there {
			delete(rows, row)
		}
	}
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, x.b.table(x.t)) {
		x.rt.Fatalf("the feed sums to %q, the table is %q\n%s", got, x.b.table(x.t), x.replay)
	}
}

var minusZero = regexp.MustCompile(`([ ,{])-0(,|}|→|$)`)

// zeros writes -0.0 as the model does: the two are one value, but a key is stored as
// 0.0 (auto-cdc 2.1), and keys come first.
func zeros(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l
		for range 3 { // neighbours overlap
			out[i] = minusZero.ReplaceAllString(out[i], "${1}0${2}")
		}
	}
	return out
}

func (x *tale) table() []string {
	out := zeros(x.b.table(x.t))
	slices.Sort(out)
	return out
}

// Every law of auto-cdc 2.12 that speaks of one target, over all types, clauses,
// snapshots, several flows, refused batches, other writers' OPTIMIZE, resets and
// rewinds. A failure shrinks, and prints an example file that replays it.
func TestRun_Stories(t *testing.T) {
	for _, stored := range []string{model.StoredSCD1, model.StoredSCD2, model.StoredBitemporal} {
		t.Run("laws 1, 2, 4, 6, 7 "+stored, func(t *testing.T) {
			testenv.Check(t, func(rt *rapid.T) {
				x := newStory(t, rt, stored)
				if x.s.Shown && !(x.s.Snapshots && stored == model.StoredSCD2) {
					x.batch("f", []string{x.s.First()})
				}
				for range rapid.IntRange(1, 7).Draw(rt, "steps") {
					x.step()
				}
				x.sum()
			})
		})
	}
}
