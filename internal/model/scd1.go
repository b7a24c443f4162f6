package model

import (
	"slices"
	"strings"
)

// Kind is U, D or T (auto-cdc 2.2).
type Kind byte

// The kinds of events.
const (
	Upsert   Kind = 'U'
	Delete   Kind = 'D'
	Truncate Kind = 'T'
)

// Event is one event of a flow.
type Event struct {
	Kind Kind
	Key  Value // nil for truncates
	Seq  Value
	// Schema are the data columns of the flow when the event was read; Values
	// the authored ones among them.
	Schema []string
	Values map[string]Value
	// OldKey: the row came from that key; unauthored columns of Schema are
	// authored with the old key's effective value just below Seq. nil: none.
	OldKey Value
}

// Row is the data columns of one visible row, in table order.
type Row struct {
	Key    Value
	Values []Value
}

func (r Row) String() string {
	s := []string{Text(r.Key)}
	for _, v := range r.Values {
		s = append(s, Text(v))
	}
	return strings.Join(s, ", ")
}

// Table is a visible table by Text of the key.
type Table map[string]Row

// SCD1 is the visible table of a set of events over the given data columns
// (auto-cdc 2.3 to 2.5, 2.8).
func SCD1(events []Event, columns []string) Table {
	out := Table{}
	for _, e := range events {
		if e.Kind == Truncate {
			continue
		}
		k := Text(e.Key)
		if _, done := out[k]; done {
			continue
		}
		if vals, visible := effective(events, e.Key, nil, columns); visible {
			row := Row{Key: e.Key, Values: make([]Value, len(columns))}
			for i, c := range columns {
				row.Values[i] = vals[c]
			}
			out[k] = row
		}
	}
	return out
}

// effective is the row of a key from the events with a sequence below limit
// (nil: all): the authored fields only.
func effective(events []Event, key, limit Value, columns []string) (map[string]Value, bool) {
	var floor Value // max Del(k)
	var ups []Event
	for _, e := range events {
		if limit != nil && Compare(e.Seq, limit) >= 0 {
			continue
		}
		switch {
		case e.Kind == Truncate || e.Kind == Delete && Compare(e.Key, key) == 0:
			if floor == nil || Compare(e.Seq, floor) > 0 {
				floor = e.Seq
			}
		case e.Kind == Upsert && Compare(e.Key, key) == 0:
			ups = append(ups, withOldKey(events, e, columns))
		}
	}
	slices.SortStableFunc(ups, func(a, b Event) int { return Compare(a.Seq, b.Seq) })
	out := map[string]Value{}
	visible := false
	for i := 0; i < len(ups); {
		j := i
		for j < len(ups) && Compare(ups[j].Seq, ups[i].Seq) == 0 {
			j++
		}
		if floor == nil || Compare(ups[i].Seq, floor) >= 0 {
			visible = true
			for c, v := range tie(ups[i:j], columns) {
				out[c] = v
			}
		}
		i = j
	}
	return out, visible
}

// withOldKey authors what a key change took over from the old key (2.3).
func withOldKey(events []Event, e Event, columns []string) Event {
	if e.OldKey == nil {
		return e
	}
	old, _ := effective(events, e.OldKey, e.Seq, columns)
	vals := map[string]Value{}
	for _, c := range e.Schema {
		if v, ok := e.Values[c]; ok {
			vals[c] = v
		} else if v, ok := old[c]; ok {
			vals[c] = v
		}
	}
	e.Values = vals
	return e
}

// tie resolves upserts of one key and sequence (2.4 rule 1): the largest tuple
// wins whole if the flow's schema has every column, else field by field.
func tie(ups []Event, columns []string) map[string]Value {
	whole := true
	for _, e := range ups {
		for _, c := range columns {
			whole = whole && slices.Contains(e.Schema, c)
		}
	}
	if whole {
		best := ups[0]
		for _, e := range ups[1:] {
			if compareTuples(e, best, columns) > 0 {
				best = e
			}
		}
		return best.Values
	}
	out := map[string]Value{}
	for _, e := range ups {
		for c, v := range e.Values {
			if old, ok := out[c]; !ok || Compare(v, old) > 0 {
				out[c] = v
			}
		}
	}
	return out
}

func compareTuples(a, b Event, columns []string) int {
	for _, c := range columns {
		av, aok := a.Values[c]
		bv, bok := b.Values[c]
		switch {
		case aok && !bok:
			return 1
		case !aok && bok:
			return -1
		case aok:
			if r := Compare(av, bv); r != 0 {
				return r
			}
		}
	}
	return 0
}

// Change is one row of a change feed.
type Change struct {
	Type string // insert, delete, update_preimage, update_postimage
	Row  Row
}

func (c Change) String() string { return c.Type + " " + c.Row.String() }

// Feed is the change feed of a commit (auto-cdc 2.10) that turned before into
// after, sorted by key.
func Feed(before, after Table) []Change {
	keys := map[string]bool{}
	for k := range before {
		keys[k] = true
	}
	for k := range after {
		keys[k] = true
	}
	var out []Change
	for _, k := range sorted(keys) {
		b, hadB := before[k]
		a, hasA := after[k]
		switch {
		case !hadB:
			out = append(out, Change{"insert", a})
		case !hasA:
			out = append(out, Change{"delete", b})
		case !same(a, b):
			out = append(out, Change{"update_preimage", b}, Change{"update_postimage", a})
		}
	}
	return out
}

// Replay applies feed rows to a table; ok is false where the feed contradicts
// the table (law 6).
func Replay(t Table, feed []Change) (out Table, ok bool) {
	out = Table{}
	for k, r := range t {
		out[k] = r
	}
	for _, c := range feed {
		k := Text(c.Row.Key)
		have, there := out[k]
		switch c.Type {
		case "insert":
			if there {
				return out, false
			}
			out[k] = c.Row
		case "delete", "update_preimage":
			if !there || !same(have, c.Row) {
				return out, false
			}
			delete(out, k)
		case "update_postimage":
			if there {
				return out, false
			}
			out[k] = c.Row
		default:
			return out, false
		}
	}
	return out, true
}

// Lines prints a table, sorted.
func (t Table) Lines() []string {
	var out []string
	for _, r := range t {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// same pads the shorter row with nulls: a column that joined the table later.
func same(a, b Row) bool {
	for i := range max(len(a.Values), len(b.Values)) {
		var x, y Value
		if i < len(a.Values) {
			x = a.Values[i]
		}
		if i < len(b.Values) {
			y = b.Values[i]
		}
		if Compare(x, y) != 0 {
			return false
		}
	}
	return true
}

func sorted(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
