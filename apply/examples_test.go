package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/model"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// bench is one target with a growing input, for tests.
type bench struct {
	n      *notation
	flow   Flow
	store  storage.Store
	source *textSource
	opts   Options
	seen   int64 // target version whose feed was shown
}

func newBench(t testing.TB, config string) *bench {
	t.Helper()
	keys, data, seq, sys := "id BIGINT", "name STRING, city STRING", "BIGINT", ""
	b := &bench{store: storage.NewMemory("t"), source: &textSource{name: "file:events"}, seen: -1, opts: Options{Clock: steadyClock()}}
	b.flow = Flow{Name: "f", SequenceBy: "seq", ExceptColumnList: []string{"seq"}}
	for _, l := range strings.Split(strings.TrimSpace(config), "\n") {
		k, v, ok := strings.Cut(l, ":")
		if !ok {
			continue
		}
		switch v = strings.TrimSpace(v); k {
		case "keys":
			keys = v
		case "data":
			data = v
		case "seq":
			seq = v
		case "sys":
			sys = v
		case "sequence-by":
			b.flow.SequenceBy = v
		case "deletes":
			b.flow.ApplyAsDeletes = v
		case "truncates":
			b.flow.ApplyAsTruncates = v
		case "except":
			b.flow.ExceptColumnList = append(b.flow.ExceptColumnList, v)
		case "stored-as":
			b.flow.StoredAsSCDType = v
			if v == "bitemporal" {
				b.flow.SystemSequenceBy = "sys"
				b.flow.ExceptColumnList = append(b.flow.ExceptColumnList, "sys")
			}
		case "track":
			b.flow.TrackHistoryColumnList = model.Split(v)
		case "ignore-null":
			if list, on := strings.CutPrefix(v, "on "); on {
				b.flow.IgnoreNullUpdatesColumnList = model.Split(list)
			} else {
				b.flow.IgnoreNullUpdates = true
			}
		case "columns-to-update":
			b.flow.ColumnsToUpdate = v
		case "expect":
			name, rest, _ := strings.Cut(v, " (")
			cond, violation, _ := strings.Cut(rest, ")")
			b.flow.Expectations = append(b.flow.Expectations, Expectation{Name: name, Expr: cond, OnViolation: strings.TrimSpace(violation)})
		case "snapshot":
		default:
			t.Fatalf("flow: unknown setting %q", k)
		}
	}
	var err error
	if b.n, err = parseNotation(keys, data, seq); err != nil {
		t.Fatal(err)
	}
	if b.flow.SystemSequenceBy != "" {
		b.n.sys = b.n.seq
		if sys != "" {
			d, err := schema.ParseDDL("sys " + sys)
			if err != nil {
				t.Fatal(err)
			}
			b.n.sys = d.Fields[0].Type
		}
	}
	b.n.lists = b.flow.ColumnsToUpdate
	return b
}

// steadyClock ticks a millisecond a call; files are closed in parallel, so it is
// called from several goroutines.
func steadyClock() func() time.Time {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var ticks atomic.Int64
	return func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
}

func (b *bench) spec() Spec {
	return Spec{Source: b.source, NewDecoder: func() event.Decoder { return &textDecoder{n: b.n} }, Target: Targets{Store: b.store, Name: "t"}, Flow: b.flow}
}

// run feeds more events and applies what is new. Refused events are dropped from
// the input again.
func (b *bench) run(lines ...string) (Result, error) {
	b.source.lines = append(b.source.lines, lines...)
	res, err := Run(context.Background(), b.spec(), b.opts)
	if err != nil {
		b.source.lines = b.source.lines[:len(b.source.lines)-len(lines)]
	}
	return res, err
}

// table prints the visible rows, sorted.
func (b *bench) table(t testing.TB) []string {
	t.Helper()
	ctx := context.Background()
	ok, err := delta.Exists(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	tab, err := delta.Open(ctx, b.store, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tab.Layout(snap)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for f, err := range snap.Files(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		for batch, err := range datafile.Read(ctx, b.store, l, f, datafile.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range int(batch.NumRows()) {
				cells := make([]string, batch.NumCols())
				for c := range cells {
					cells[c] = cellText(batch.Column(c), r)
				}
				out = append(out, rowText(snap.Schema.Names(), cells))
			}
		}
	}
	slices.Sort(out)
	return out
}

// feed prints the change rows since the last call, by key; images in their order.
func (b *bench) feed(t testing.TB) []string {
	t.Helper()
	ctx := context.Background()
	tab, err := delta.Open(ctx, b.store, delta.Options{})
	if errors.Is(err, delta.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Version <= b.seen {
		return nil
	}
	l, err := tab.Layout(snap)
	if err != nil {
		t.Fatal(err)
	}
	order := map[string]int{"delete": 0, "update_preimage": 1, "update_postimage": 2, "insert": 3}
	type row struct {
		version         int64
		key, kind, text string
	}
	var rows []row
	read := func(version int64, src datafile.Source, kind string, only []int64) {
		o := datafile.ReadOptions{Change: kind == "", Rows: only, KeepDeleted: only != nil}
		for batch, err := range datafile.ReadFile(ctx, b.store, l, src, o) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range int(batch.NumRows()) {
				var cells []string
				for c := range len(snap.Schema.Fields) {
					cells = append(cells, cellText(batch.Column(c), r))
				}
				k := kind
				if k == "" {
					k = cellText(batch.Column(len(cells)), r)
				}
				rows = append(rows, row{version, identityText(snap.Schema.Names(), cells, len(b.n.keys)), k, k + " " + rowText(snap.Schema.Names(), cells)})
			}
		}
	}
	for c, err := range tab.Log().Commits(ctx, b.seen+1, snap.Version) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range c.CDC {
			read(c.Version, datafile.Source{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size}, "", nil)
		}
		if len(c.CDC) > 0 {
			continue
		}
		removed := map[string]*deltalog.Remove{}
		for _, f := range c.Removes {
			if f.DataChange {
				removed[f.Path] = f
			}
		}
		for _, f := range c.Adds {
			if !f.DataChange {
				continue
			}
			if r := removed[f.Path]; r != nil { // another deletion vector; it shrinks in a rewind
				was, err := datafile.LoadVector(ctx, b.store, r.DeletionVector)
				if err != nil {
					t.Fatal(err)
				}
				is, err := datafile.LoadVector(ctx, b.store, f.DeletionVector)
				if err != nil {
					t.Fatal(err)
				}
				delete(removed, f.Path)
				for kind, rows := range map[string][]int64{"delete": lessRows(is, was), "insert": lessRows(was, is)} {
					if len(rows) > 0 {
						read(c.Version, datafile.SourceOf(f), kind, rows)
					}
				}
				continue
			}
			read(c.Version, datafile.SourceOf(f), "insert", nil)
		}
		for _, f := range removed {
			read(c.Version, datafile.Source{Path: f.Path, PartitionValues: f.PartitionValues, Size: *f.Size, DeletionVector: f.DeletionVector}, "delete", nil)
		}
	}
	b.seen = snap.Version
	slices.SortFunc(rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(x.version, y.version), strings.Compare(x.key, y.key), order[x.kind]-order[y.kind])
	})
	var out []string
	for _, r := range rows {
		out = append(out, r.text)
	}
	return out
}

// lessRows are the rows of a deletion vector that another does not have.
func lessRows(a, b *dv.Vector) []int64 {
	if a == nil {
		return nil
	}
	return slices.Collect(a.Minus(b).Rows())
}

func errorText(t *testing.T, err error) string {
	t.Helper()
	var e *Error
	if errors.As(err, &e) {
		return "error: " + e.Code + "\n"
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// identityText is what auto-cdc 2.10 knows a row by, as the model prints it.
func identityText(names, cells []string, keys int) string {
	id := strings.Join(cells[:keys], ",")
	if keys > 1 {
		id = "{" + id + "}"
	}
	for i, n := range names {
		switch n {
		case "__START_AT":
			id += " from " + cells[i]
		case "__SYSTEM_START_AT":
			id += " since " + cells[i]
		}
	}
	return id
}

// TestExamples runs the worked examples of auto-cdc 4, one file each: the table and
// the feed after every batch. Each example is then run again in batches of one row
// and shuffled: the last table must be the same. The reference model plays the same
// files (package model); a flow that the engine refuses by name is only its.
func TestExamples(t *testing.T) {
	datadriven.Walk(t, "testdata/examples", func(t *testing.T, path string) {
		var b *bench
		var config string
		var all, last []string
		once := true // the file has one flow, and nothing but batches
		refused := false
		var batches [][]string
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "flow" && refused {
				return d.Expected
			}
			switch d.Cmd {
			case "flow":
				once = once && b == nil
				config = d.Input
				b = newBench(t, config)
				all, batches, last = nil, nil, nil
				var e *Error
				refused = errors.As(b.flow.Validate(), &e) && e.Code == CodeUnsupportedClause
				return "ok\n"
			case "refresh":
				once = false
				if _, err := Refresh(context.Background(), Operator{Store: b.store, Name: "t"}, b.opts); err != nil {
					t.Fatal(err)
				}
				b.source = &textSource{name: b.source.name} // what the source still has follows
				return "ok\n"
			case "snapshot":
				once = false
				var version string
				d.ScanArgs(t, "version", &version)
				_, err := b.snapshot(version, strings.Split(d.Input, "\n"))
				last = b.table(t)
				return errorText(t, err) + model.Show("table", last) + model.Show("feed", b.feed(t))
			case "batch":
				if d.HasArg("flow") {
					d.ScanArgs(t, "flow", &b.flow.Name)
					b.source = &textSource{name: "file:" + b.flow.Name}
				}
				lines := strings.Split(d.Input, "\n")
				res, err := b.run(lines...)
				out, tail := errorText(t, err), ""
				if err == nil {
					all, batches = append(all, lines...), append(batches, lines)
					for _, x := range b.flow.Expectations {
						c := res.Expectations[x.Name]
						tail += fmt.Sprintf("%s: passed %d, failed %d, dropped %d\n", x.Name, c.Passed, c.Failed, c.Dropped)
					}
				}
				last = b.table(t)
				return out + model.Show("table", last) + model.Show("feed", b.feed(t)) + tail
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
		if refused || !once {
			return
		}
		again := func(name string, rows int, lines []string) {
			b := newBench(t, config)
			b.flow.BatchRows = rows
			if _, err := b.run(lines...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := b.table(t); !slices.Equal(got, last) {
				t.Errorf("%s: got %q, want %q", name, got, last)
			}
		}
		again("one-row batches", 1, all)
		again("one batch", 0, all)
		vectors, copies := newBench(t, config), newBench(t, config)
		on := true
		vectors.flow.DeletionVectors = &on
		for _, lines := range batches {
			for _, b := range []*bench{vectors, copies} {
				if _, err := b.run(lines...); err != nil {
					t.Fatalf("deletion vectors: %v", err)
				}
			}
			if got, want := vectors.feed(t), copies.feed(t); !slices.Equal(got, want) {
				t.Fatalf("deletion vectors: feed of %q is %q, without them %q", lines, got, want)
			}
		}
		if got := vectors.table(t); !slices.Equal(got, last) {
			t.Errorf("deletion vectors: got %q, want %q", got, last)
		}
		r := rand.New(rand.NewSource(1))
		for i := range 5 {
			lines := slices.Clone(all)
			r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			again(fmt.Sprintf("shuffled %d: %q", i, lines), 1+i%3, lines)
		}
	})
}
