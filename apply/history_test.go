package apply

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
)

// pinned is the target as a run finds it.
func (b *bench) pinned(t testing.TB) *target {
	t.Helper()
	r := &run{spec: b.spec(), o: b.opts.withDefaults(), flow: b.flow, name: b.flow.Name, targets: map[string]*target{}, warned: map[string]bool{}}
	tg := newTarget(r, "", "t", b.store)
	if err := tg.pin(context.Background()); err != nil {
		t.Fatal(err)
	}
	return tg
}

// hiddenText prints the hidden events of the state, sorted.
func (b *bench) hiddenText(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, facts := range b.pinned(t).state.hidden {
		for _, f := range facts {
			out = append(out, fmt.Sprintf("%s %d", f.kind, int64(f.seq[len(f.seq)-1])))
		}
	}
	slices.Sort(out)
	return out
}

// The state holds what no row tells, and nothing else (auto-cdc 3).
func TestState_HoldsNoMoreThanNeeded(t *testing.T) {
	for _, c := range []struct {
		name, config string
		batches      [][]string
		want         []string
	}{
		{"E36 in order", "stored-as: 2", [][]string{{"U 1@1 (Ann, Rome)"}, {"U 1@5 (Ann, Oslo)"}, {"D 1@6"}, {"U 1@9 (Ann, Bonn)"}}, nil},
		{"E38 a gap is told by the row's end", "stored-as: 2", [][]string{{"U 1@1 (Ann, Rome)", "U 1@9 (Ann, Oslo)"}, {"D 1@4"}}, nil},
		{"E40 unmatched deletes", "stored-as: 2", [][]string{{"D 1@5", "D 1@8"}}, []string{"boundary 5", "boundary 8"}},
		{"E43 members of a run", "stored-as: 2", [][]string{{"U 1@5 (Ann, Rome)", "U 1@7 (Ann, Rome)", "U 1@9 (Ann, Rome)"}}, []string{"upsert 5", "upsert 7"}},
		{"E43 a later member waits in the state", "stored-as: 2", [][]string{{"U 1@5 (Ann, Rome)"}, {"U 1@9 (Ann, Rome)"}}, []string{"upsert 9"}},
		{"E45 in place", "stored-as: 2\ntrack: name", [][]string{{"U 1@1 (Ann, Rome)"}, {"U 1@5 (Ann, Oslo)"}}, []string{"upsert 1"}},
		{"E48 a tied delete is the floor of its row", "stored-as: 2", [][]string{{"U 1@1 (Ann, Rome)"}, {"D 1@8", "U 1@8 (Ann, Oslo)"}}, nil},
		{"E47 replay", "stored-as: 2", [][]string{{"U 1@1 (Ann, Rome)", "U 1@5 (Ann, Oslo)", "D 1@6"}, {"U 1@5 (Ann, Oslo)", "D 1@6", "U 1@1 (Ann, Rome)"}}, nil},
		{"E64 a row that DROP ROW hides", "expect: c (city IS NOT NULL) DROP ROW", [][]string{{"U 1@1 (Ann, Rome)"}, {"U 1@2 (Ann, null)"}}, []string{"dropped 2"}},
		{"dropped versions", "stored-as: 2\nexpect: c (city IS NOT NULL) DROP ROW", [][]string{{"U 1@1 (Ann, Rome)"}, {"U 1@3 (Ann, null)", "D 1@5"}}, []string{"dropped 3", "dropped 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.config)
			for _, lines := range c.batches {
				b.must(t, lines...)
			}
			if got := b.hiddenText(t); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Events that are replayed write nothing at all.
func TestRun_HistoryReplayIsSilent(t *testing.T) {
	for _, stored := range []string{"2", "bitemporal"} {
		t.Run("E47 "+stored, func(t *testing.T) {
			b := newBench(t, "stored-as: "+stored)
			lines := []string{"U 1@1 (Ann, Rome)", "U 1@3 (Ann, Rome)", "U 1@5 (Ann, Oslo)", "D 1@6", "D 1@8"}
			if stored == "bitemporal" {
				for i, l := range lines {
					at, rest, _ := strings.Cut(l, " (")
					lines[i] = at + fmt.Sprintf(" sys %d", i+1)
					if rest != "" {
						lines[i] += " (" + rest
					}
				}
			}
			first := b.must(t, lines...)
			b.source.name = "" // no positions: everything is read again
			b.source.lines = nil
			again := b.must(t, lines...)
			if again.Version != first.Version || again.Events.Duplicate != again.Events.Read {
				t.Errorf("version %d after %d, events %+v", again.Version, first.Version, again.Events)
			}
		})
	}
}

// Open and closed versions lie in separate files; an event in order neither reads
// nor rewrites closed ones (apply-state 7.3).
func TestRun_ClosedFilesApart(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "stored-as: 2")
	b.must(t, "U 1@1 (Ann, Rome)", "U 2@1 (Bob, Reno)", "U 3@1 (Cy, Lima)")
	b.must(t, "U 1@3 (Ann, Oslo)", "U 2@3 (Bob, Zug)", "D 3@3")
	b.must(t, "U 1@5 (Ann, Bonn)", "U 2@5 (Bob, Rome)")
	closed := func() []*deltalog.Add {
		snap, err := b.open(t).Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.open(t).Layout(snap)
		if err != nil {
			t.Fatal(err)
		}
		files, err := snap.FileList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var out []*deltalog.Add
		for _, f := range files {
			open, ended := 0, 0
			for batch, err := range datafile.Read(ctx, b.store, l, f, datafile.ReadOptions{Columns: []string{endColumn}}) {
				if err != nil {
					t.Fatal(err)
				}
				open += batch.Column(0).NullN()
				ended += batch.Column(0).Len() - batch.Column(0).NullN()
			}
			if open > 0 && ended > 0 {
				t.Errorf("file %s holds %d open and %d closed versions", f.Path, open, ended)
			}
			if open == 0 {
				out = append(out, f)
			}
		}
		return out
	}
	gone := closed()
	if len(gone) == 0 {
		t.Fatal("no file of closed versions")
	}
	for _, f := range gone {
		if err := b.store.Delete(ctx, f.Path); err != nil {
			t.Fatal(err)
		}
	}
	b.must(t, "U 1@7 (Ann, Lima)", "U 2@6 (Bob, Oslo)", "D 2@9")
	if _, err := b.run("U 1@2 (Ann, Kiel)"); err == nil {
		t.Error("a late event did not look at closed versions")
	}
}

// Rows that another engine wrote again keep what they name, by key and start.
func TestTarget_HistoryAndOtherWriters(t *testing.T) {
	late := func(t *testing.T, change func(*bench)) []string {
		b := newBench(t, "stored-as: 2\ntrack: name")
		b.must(t, "U 1@1 (Ann, Rome)", "U 1@3 (Ann, Lima)", "U 1@5 (Ann, Oslo)", "U 1@9 (Cy, Oslo)", "U 2@2 (Bob, Reno)", "D 2@4")
		change(b)
		b.must(t, "U 1@4 (Bob, Bonn)", "U 2@3 (Bob, Zug)")
		return b.table(t)
	}
	want := late(t, func(*bench) {})
	t.Run("E46 OPTIMIZE without the group", func(t *testing.T) {
		got := late(t, func(b *bench) {
			b.foreignRewrite(t, "OPTIMIZE", nil, false, func(r []string) []string { return r })
		})
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("UPDATE of a closed version", func(t *testing.T) {
		b := newBench(t, "stored-as: 2")
		b.must(t, "U 1@1 (Ann, Rome)", "U 1@5 (Ann, Oslo)")
		b.foreignRewrite(t, "UPDATE", nil, true, func(r []string) []string {
			if r[2] == "Rome" {
				r[2] = "Roma"
			}
			return r
		})
		b.must(t, "U 1@9 (Ann, Bonn)", "U 1@3 (Ann, Kiel)")
		b.wantTable(t, "1, Ann, Bonn, 9→∞", "1, Ann, Kiel, 3→5", "1, Ann, Oslo, 5→9", "1, Ann, Roma, 1→3")
	})
}

// What is stored of a target with history is compared at start (auto-cdc 1.6).
func TestFlow_HistoryDrift(t *testing.T) {
	for _, c := range []struct {
		name, code, first, then string
		set                     func(*Flow)
	}{
		{"E35 SCD1 to SCD2", CodeSCDTypeDrift, "", "stored-as: 2", nil},
		{"E35 SCD2 to SCD1", CodeSCDTypeDrift, "stored-as: 2", "", nil},
		{"E35 tracked set (name) to (city)", CodeTrackHistoryDrift, "stored-as: 2\ntrack: name", "stored-as: 2\ntrack: city", nil},
		{"E35 a default becomes a list", CodeTrackHistoryDrift, "stored-as: 2", "stored-as: 2\ntrack: name", nil},
		{"E35 the same set as a list", "", "stored-as: 2", "stored-as: 2\ntrack: city, name", nil},
		{"E35 the same set as exceptions", "", "stored-as: 2\ntrack: name", "stored-as: 2", func(f *Flow) { f.TrackHistoryExceptColumnList = []string{"city"} }},
		{"another mode of the same flow", "", "", "ignore-null: *", nil},
		{"another mode of another flow", CodeFlowConflict, "", "ignore-null: *", func(f *Flow) { f.Name = "g" }},
		{"system sequence type", CodeSequencingTypeDrift, "stored-as: bitemporal", "stored-as: bitemporal", func(f *Flow) { f.SystemSequenceBy = "CAST(sys AS STRING)" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			event := func(s string) string {
				if strings.Contains(c.first, "bitemporal") {
					return "U 1@" + s + " sys " + s + " (Ann, Rome)"
				}
				return "U 1@" + s + " (Ann, Rome)"
			}
			first := newBench(t, c.first)
			first.must(t, event("1"))
			before, version := first.table(t), first.must(t).Version
			b := newBench(t, c.then)
			b.store, b.source.name = first.store, "file:other"
			if c.set != nil {
				c.set(&b.flow)
			}
			res, err := b.run(event("2"))
			if c.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantCode(t, err, c.code)
			b.wantTable(t, before...)
			if now := first.must(t).Version; now != version || res.Events.Read != 0 {
				t.Errorf("version %d, want %d: positions or feed moved; %d events were read", now, version, res.Events.Read)
			}
		})
	}
	t.Run("E35 a new column joins a default set", func(t *testing.T) {
		b := newBench(t, "data: name STRING, city STRING, tier STRING\nstored-as: 2")
		b.must(t, "U 1@1 (name=Ann, city=Rome)")
		b.must(t, "U 1@2 (Ann, Rome, gold)")
		b.wantTable(t, "1, Ann, Rome, gold, 2→∞", "1, Ann, Rome, null, 1→2")
	})
	t.Run("E35 a new column joins no list", func(t *testing.T) {
		b := newBench(t, "data: name STRING, city STRING, tier STRING\nstored-as: 2\ntrack: name, city")
		b.must(t, "U 1@1 (name=Ann, city=Rome)")
		b.must(t, "U 1@2 (Ann, Rome, gold)")
		b.wantTable(t, "1, Ann, Rome, gold, 1→∞")
	})
}

// Refusals while a batch is processed (auto-cdc 1.6, phase R).
func TestRun_HistoryRefusals(t *testing.T) {
	for _, c := range []struct{ name, code, config, event string }{
		{"a truncate of a target with history", CodeTruncateRequiresSCD1, "stored-as: 2", "T@3"},
		{"null system sequence", CodeNullSequence, "stored-as: bitemporal", "U 1@3 sys null (Ann, Oslo)"},
		{"unknown column to update", CodeUnknownColumnToUpdate, "columns-to-update: cols", "U 1@3 (Ann, Oslo) cols[nope]"},
		{"E57 null key", CodeNullKey, "stored-as: 2", "U null@3 (Ann, Oslo)"},
		{"E66 expectation", CodeExpectationViolated, "stored-as: 2\nexpect: c (city <> 'Oslo') FAIL UPDATE", "U 1@3 (Ann, Oslo)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.config)
			first := "U 1@1 (Ann, Rome)"
			if strings.Contains(c.config, "bitemporal") {
				first = "U 1@1 sys 1 (Ann, Rome)"
			}
			version, table := b.must(t, first).Version, b.table(t)
			res, err := b.run(c.event)
			wantCode(t, err, c.code)
			if res.Version != version {
				t.Errorf("version %d, want %d", res.Version, version)
			}
			b.wantTable(t, table...)
		})
	}
	t.Run("keys and unselected columns may be listed", func(t *testing.T) {
		b := newBench(t, "columns-to-update: cols")
		b.must(t, "U 1@1 (Ann, Rome)", "U 1@2 (Anna, Oslo) cols[id,seq,CITY]")
		b.wantTable(t, "1, Ann, Oslo")
	})
}

// Field reports about SCD2: each state is reached in every order of the events.
func TestRun_HistoryFieldReports(t *testing.T) {
	for _, c := range []struct {
		name, config string
		events       []string
		want         []string
	}{
		{"B63 green@200", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "U 1@200 (green)"}, []string{"1, blue, 300→∞", "1, green, 200→300", "1, red, 100→200"}},
		{"B63 red@200", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "U 1@200 (red)"}, []string{"1, blue, 300→∞", "1, red, 100→300"}},
		{"B63 delete@200", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "D 1@200"}, []string{"1, blue, 300→∞", "1, red, 100→200"}},
		{"B63 green@50", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "U 1@50 (green)"}, []string{"1, blue, 300→∞", "1, green, 50→100", "1, red, 100→300"}},
		{"B63 blue@400", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "U 1@400 (blue)"}, []string{"1, blue, 300→∞", "1, red, 100→300"}},
		{"B63 delete@350 then blue@320", "", []string{"U 1@100 (red)", "U 1@300 (blue)", "D 1@350", "U 1@320 (blue)"}, []string{"1, blue, 300→350", "1, red, 100→300"}},
		{"B65 ties", "", []string{"U 1@10 (A)", "U 1@10 (B)", "D 1@10", "U 1@10 (A)", "U 1@3 (A)", "U 1@6 (A)"}, []string{"1, A, 3→10", "1, B, 10→∞"}},
		{"B68 back-filling", "", []string{"U 1@2024 (b)", "U 2@2024 (b)", "U 1@2019 (a)", "U 2@2020 (a)", "U 1@2021 (c)"},
			[]string{"1, a, 2019→2021", "1, b, 2024→∞", "1, c, 2021→2024", "2, a, 2020→2024", "2, b, 2024→∞"}},
		{"B70 null-safe change detection", "data: p STRING, q STRING", []string{"U 1@1 (x, null)", "U 1@2 (null, x)", "U 1@3 (null, null)", "U 1@4 (null, null)", "U 1@6 (x, null)"},
			[]string{"1, null, null, 3→6", "1, null, x, 2→3", "1, x, null, 1→2", "1, x, null, 6→∞"}},
		{"B70 NaN and zeros", "data: f DOUBLE", []string{"U 1@1 (NaN)", "U 1@2 (NaN)", "U 1@3 (0)", "U 1@4 (-0.0)"}, []string{"1, -0, 3→∞", "1, NaN, 1→3"}},
		{"B71 deletes repeated", "", []string{"U 1@10 (a)", "D 1@20", "D 1@30", "U 1@40 (a)", "D 1@45", "D 2@7"}, []string{"1, a, 10→20", "1, a, 40→45"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := c.config
			if config == "" {
				config = "data: name STRING"
			}
			r := rand.New(rand.NewSource(3))
			for i := range 4 {
				b := newBench(t, config+"\nstored-as: 2")
				b.flow.BatchRows = i // one batch, then of one, two and three rows
				lines := slices.Clone(c.events)
				if i > 0 {
					r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
				}
				b.must(t, lines...)
				got := b.table(t)
				if !slices.Equal(got, c.want) {
					t.Fatalf("%q in batches of %d: got %q, want %q", lines, i, got, c.want)
				}
			}
		})
	}
}
