package model

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

// The laws of auto-cdc 2.12 on the model itself, for every storage type and mode.
func TestFlow_Laws(t *testing.T) {
	for _, stored := range []string{StoredSCD1, StoredSCD2, StoredBitemporal} {
		t.Run("laws 1, 2, 4 and 6 "+stored, func(t *testing.T) {
			testenv.Check(t, func(t *rapid.T) {
				f, g := Generator{Columns: []string{"a", "b", "c"}, Keys: 2, Seqs: 7, Truncates: true}.Flow(t, stored)
				events := g.Events(t, 14)
				want := f.Result(events)
				again := rapid.Permutation(append(slices.Clone(events), events...)).Draw(t, "twice, shuffled")
				if got := f.Result(again); !slices.Equal(got.Lines(), want.Lines()) {
					t.Fatalf("laws 1 and 2: got %q, want %q", got.Lines(), want.Lines())
				}
				cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
				before := f.Result(events[:cut])
				after, ok := Replay(before, Feed(before, want))
				if !ok || !slices.Equal(after.Lines(), want.Lines()) {
					t.Fatalf("law 6: got %q, want %q", after.Lines(), want.Lines())
				}
				if stored == StoredSCD2 {
					disjoint(t, want)
				}
			})
		})
	}
	t.Run("law 3 open SCD2 rows are the SCD1 rows", func(t *testing.T) {
		testenv.Check(t, func(t *rapid.T) {
			f, g := Generator{Columns: []string{"a", "b", "c"}, Keys: 2, Seqs: 7}.Flow(t, StoredSCD2)
			events := g.Events(t, 14)
			open := Table{}
			for _, r := range f.Result(events) {
				if r.End == nil {
					open[Text(r.Key)] = Row{Key: r.Key, Values: r.Values}
				}
			}
			f.Stored = StoredSCD1
			if want := f.Result(events); !slices.Equal(open.Lines(), want.Lines()) {
				t.Fatalf("got %q, want %q", open.Lines(), want.Lines())
			}
		})
	})
	t.Run("law 5 bitemporal as of a system time is SCD2 of what was known", func(t *testing.T) {
		testenv.Check(t, func(t *rapid.T) {
			f, g := Generator{Columns: []string{"a", "b"}, Keys: 1, Seqs: 5}.Flow(t, StoredBitemporal)
			events := g.Events(t, 12)
			rows := f.Result(events)
			for s := int64(0); s <= 5; s++ {
				cut := Table{}
				for _, r := range rows {
					if Compare(r.SysStart, s) <= 0 && (r.SysEnd == nil || Compare(r.SysEnd, s) > 0) {
						x := Row{Key: r.Key, Values: r.Values, Start: r.Start, End: r.End, Periods: 1}
						cut[x.identity()] = x
					}
				}
				known := Table{}
				for _, r := range f.Known(events, int64(1), s) {
					known[r.identity()] = r
				}
				if !slices.Equal(cut.Lines(), known.Lines()) {
					t.Fatalf("at %d: got %q, want %q", s, cut.Lines(), known.Lines())
				}
			}
		})
	})
	t.Run("law 7 snapshots are their differences", func(t *testing.T) {
		testenv.Check(t, func(t *rapid.T) {
			f := Flow{Stored: rapid.SampledFrom([]string{StoredSCD1, StoredSCD2}).Draw(t, "stored"), Columns: Plain("a", "b")}
			var whole, difference []Event
			last := Table{}
			for v := int64(1); v <= 5; v++ {
				now := Table{}
				for k := int64(1); k <= 3; k++ {
					if rapid.Bool().Draw(t, "there") {
						r := Row{Key: k, Values: []Value{rapid.SampledFrom([]Value{nil, "x", "y"}).Draw(t, "a"), "b"}}
						now[Text(k)] = r
					}
				}
				var rows []Row
				for _, k := range slices.Sorted(keysOf(now)) {
					rows = append(rows, now[k])
				}
				whole = append(whole, SnapshotEvents(v, []string{"a", "b"}, rows)...)
				for _, c := range Feed(last, now) {
					switch c.Type {
					case "delete":
						difference = append(difference, Event{Kind: Delete, Key: c.Row.Key, Seq: v})
					case "insert", "update_postimage":
						difference = append(difference, SnapshotEvents(v, []string{"a", "b"}, []Row{c.Row})[1:]...)
					}
				}
				last = now
			}
			if got, want := f.Result(whole).Lines(), f.Result(difference).Lines(); !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		})
	})
}

func keysOf(t Table) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range t {
			if !yield(k) {
				return
			}
		}
	}
}

// disjoint is law 4, and that no row is empty.
func disjoint(t *rapid.T, rows Table) {
	for _, a := range rows {
		if a.End != nil && Compare(a.Start, a.End) >= 0 {
			t.Fatalf("empty row %s", a)
		}
		for _, b := range rows {
			if Compare(a.Key, b.Key) == 0 && Compare(a.Start, b.Start) < 0 && (a.End == nil || Compare(a.End, b.Start) > 0) {
				t.Fatalf("law 4: %s and %s overlap", a, b)
			}
		}
	}
}

func TestCompare_Floats(t *testing.T) {
	for _, c := range []struct {
		a, b Value
		want int
	}{{math.NaN(), math.NaN(), 0}, {math.NaN(), math.Inf(1), 1}, {math.Copysign(0, -1), 0.0, 0}, {nil, math.Inf(-1), -1},
		{[]Value{int64(10), nil}, []Value{int64(10), int64(1)}, -1}} {
		if got := Compare(c.a, c.b); got != c.want {
			t.Errorf("Compare(%v, %v) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSCD1_KeyChange(t *testing.T) {
	cols := []string{"name", "city"}
	events := []Event{
		{Kind: Upsert, Key: int64(1), Seq: int64(1), Schema: cols, Values: map[string]Value{"name": "Ann", "city": "Rome"}},
		{Kind: Delete, Key: int64(1), Seq: int64(3)},
		{Kind: Upsert, Key: int64(2), Seq: int64(3), Schema: cols, Values: map[string]Value{"name": "Ann"}, OldKey: int64(1)},
	}
	if got := SCD1(events, cols).Lines(); !slices.Equal(got, []string{"2, Ann, Rome"}) {
		t.Errorf("got %q", got)
	}
}
