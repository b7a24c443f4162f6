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
	// Systems is the number of distinct system sequences; 0: events have none.
	Systems int
	// Lists: upserts may carry a COLUMNS TO UPDATE list.
	Lists bool
	// Nulls makes every other value null, for IGNORE NULL UPDATES.
	Nulls bool
	// Values is the number of distinct texts of a column; 0: five.
	Values int
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
		var sys Value
		if g.Systems > 0 {
			sys = rapid.Int64Range(1, int64(g.Systems)).Draw(t, "sys")
		}
		switch kind := rapid.IntRange(0, 19).Draw(t, "kind"); {
		case kind == 0 && g.Truncates:
			out = append(out, Event{Kind: Truncate, Seq: s})
		case kind <= 5:
			out = append(out, Event{Kind: Delete, Key: k, Seq: s, Sys: sys})
		default:
			e, ok := seen[at{k, s}]
			if !ok || g.Conflicts {
				e = g.upsert(t, k, s)
				seen[at{k, s}] = e
			}
			e.Sys = sys
			out = append(out, e)
		}
	}
	return out
}

func (g Generator) upsert(t *rapid.T, k, s int64) Event {
	schema := g.Columns
	if g.Growth {
		schema = schema[:rapid.IntRange(1, len(schema)).Draw(t, "schema")]
	}
	e := Event{Kind: Upsert, Key: k, Seq: s, Schema: slices.Clone(schema), Values: map[string]Value{}}
	values := g.Values
	if values == 0 {
		values = 5
	}
	for _, c := range schema {
		if g.Unavailable && rapid.IntRange(0, 3).Draw(t, "unavailable") == 0 {
			continue
		}
		var v Value
		if i := rapid.IntRange(0, values).Draw(t, c); i > 0 && !(g.Nulls && rapid.Bool().Draw(t, "null")) {
			v = string(rune('a' + i - 1))
		}
		e.Values[c] = v
	}
	if g.Lists && rapid.Bool().Draw(t, "listed") {
		e.Listed = []string{}
		for _, c := range e.Schema { // to list another one is an error
			if rapid.Bool().Draw(t, "list "+c) {
				e.Listed = append(e.Listed, c)
			}
		}
	}
	return e
}

// Flow draws a flow of a storage type over the generator's columns, and a generator
// of events that fit it.
func (g Generator) Flow(t *rapid.T, stored string) (Flow, Generator) {
	f := Flow{Stored: stored, Columns: Plain(g.Columns...)}
	g.Truncates = g.Truncates && (stored == StoredSCD1 || stored == "")
	g.Systems = 0
	if stored == StoredBitemporal {
		g.Systems = 4
	}
	switch rapid.IntRange(0, 3).Draw(t, "mode") {
	case 0:
		f.Covered = g.some(t, "covered")
		g.Nulls = true
	case 1:
		if stored != StoredBitemporal {
			f.ColumnsToUpdate, g.Lists = true, true
		}
	}
	if stored != StoredSCD1 && stored != "" && rapid.Bool().Draw(t, "tracking") {
		f.Tracked = g.some(t, "tracked")
	}
	g.Unavailable, g.Growth = rapid.IntRange(0, 3).Draw(t, "unavailable") == 0, rapid.IntRange(0, 3).Draw(t, "growth") == 0
	// Whole-row ties of events with different columns are not promised an order.
	g.Conflicts = f.Covered != nil || f.ColumnsToUpdate || !g.Unavailable && !g.Growth
	g.Values = rapid.IntRange(1, 3).Draw(t, "values")
	return f, g
}

// some draws a list of at least one column.
func (g Generator) some(t *rapid.T, label string) []string {
	out := []string{}
	for _, c := range g.Columns {
		if rapid.Bool().Draw(t, label+" "+c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = append(out, g.Columns[0])
	}
	return out
}
