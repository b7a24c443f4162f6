package model

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var cols = []string{"name", "city"}

func up(k, s int64, name, city Value) Event {
	return Event{Kind: Upsert, Key: k, Seq: s, Schema: cols, Values: map[string]Value{"name": name, "city": city}}
}

func TestSCD1_Examples(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []Event
		want   []string
	}{
		{"E02 late update loses", []Event{up(1, 5, "Ann", "Rome"), up(1, 9, "Ann", "Oslo"), up(1, 7, "Ann", "Bonn"), up(1, 8, "Ann", "Lima")}, []string{"1, Ann, Oslo"}},
		{"E07 tie of upsert and delete", []Event{up(1, 5, "Ann", "Rome"), {Kind: Delete, Key: int64(1), Seq: int64(6)}, up(1, 6, "Ann", "Oslo")}, []string{"1, Ann, Oslo"}},
		{"E12 largest tuple", []Event{up(1, 5, "Ann", "Rome"), up(2, 5, "Bob", "Rome"), up(1, 5, "Ann", "Oslo"), up(2, 5, "Bob", "Zug")}, []string{"1, Ann, Rome", "2, Bob, Zug"}},
		{"E19 truncate kills unseen keys", []Event{{Kind: Truncate, Seq: int64(5)}, up(1, 4, "Ann", "Rome"), up(2, 5, "Bob", "Oslo"), up(3, 6, "Cy", "Lima")}, []string{"2, Bob, Oslo", "3, Cy, Lima"}},
		{"key change takes unavailable values over", []Event{
			up(1, 1, "Ann", "Rome"), {Kind: Delete, Key: int64(1), Seq: int64(3)},
			{Kind: Upsert, Key: int64(2), Seq: int64(3), Schema: cols, Values: map[string]Value{"name": "Ann"}, OldKey: int64(1)}},
			[]string{"2, Ann, Rome"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SCD1(c.events, cols).Lines(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Laws 1, 2 and 6 of auto-cdc 2.12 on the model itself.
func TestSCD1_Laws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Generator{Columns: []string{"a", "b", "c"}, Keys: 3, Seqs: 6, Truncates: true,
			Unavailable: rapid.Bool().Draw(t, "unavailable"), Growth: rapid.Bool().Draw(t, "growth")}
		g.Conflicts = !g.Unavailable && !g.Growth
		events := g.Events(t, 20)
		want := SCD1(events, g.Columns)
		shuffled := rapid.Permutation(append(slices.Clone(events), events...)).Draw(t, "twice, shuffled")
		if got := SCD1(shuffled, g.Columns); !slices.Equal(got.Lines(), want.Lines()) {
			t.Fatalf("laws 1 and 2: got %q, want %q", got.Lines(), want.Lines())
		}
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		before := SCD1(events[:cut], g.Columns)
		after, ok := Replay(before, Feed(before, want))
		if !ok || !slices.Equal(after.Lines(), want.Lines()) {
			t.Fatalf("law 6: got %q, want %q", after.Lines(), want.Lines())
		}
	})
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
