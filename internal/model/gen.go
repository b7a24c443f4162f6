package model

import (
	"slices"

	"pgregory.net/rapid"
)

// Generator draws random event sets.
type Generator struct {
	// Columns are the data columns; each holds text or null.
	Columns []string
	Keys    int // number of distinct keys
	Seqs    int // number of distinct sequences: fewer make more ties
	// Unavailable: upserts may leave columns of their schema unauthored.
	Unavailable bool
	// Growth: events may be read under a schema without the last columns.
	Growth bool
	// Conflicts: events of one key and sequence may have different content. Without
	// it the content is a function of key and sequence.
	Conflicts bool
	// Truncates are drawn about once in 20 events.
	Truncates bool
}

// Events draws between 1 and n events.
func (g Generator) Events(t *rapid.T, n int) []Event {
	count := rapid.IntRange(1, n).Draw(t, "events")
	type at struct{ k, s int64 }
	seen := map[at]Event{}
	out := make([]Event, 0, count)
	for range count {
		k := rapid.Int64Range(1, int64(g.Keys)).Draw(t, "key")
		s := rapid.Int64Range(1, int64(g.Seqs)).Draw(t, "seq")
		switch kind := rapid.IntRange(0, 19).Draw(t, "kind"); {
		case kind == 0 && g.Truncates:
			out = append(out, Event{Kind: Truncate, Seq: s})
		case kind <= 5:
			out = append(out, Event{Kind: Delete, Key: k, Seq: s})
		default:
			e, ok := seen[at{k, s}]
			if !ok || g.Conflicts {
				schema := g.Columns
				if g.Growth {
					schema = schema[:rapid.IntRange(1, len(schema)).Draw(t, "schema")]
				}
				e = Event{Kind: Upsert, Key: k, Seq: s, Schema: slices.Clone(schema), Values: map[string]Value{}}
				for _, c := range schema {
					if g.Unavailable && rapid.IntRange(0, 3).Draw(t, "unavailable") == 0 {
						continue
					}
					var v Value
					if i := rapid.IntRange(0, 5).Draw(t, c); i > 0 {
						v = string(rune('a' + i - 1))
					}
					e.Values[c] = v
				}
				seen[at{k, s}] = e
			}
			out = append(out, e)
		}
	}
	return out
}
