package model

import (
	"slices"
	"strings"
)

// Row is one row of a target: data columns in table order, and its periods.
type Row struct {
	Key    Value
	Values []Value
	// Start and End are the validity of SCD2 and BITEMPORAL rows, SysStart and
	// SysEnd the system period of BITEMPORAL ones; a nil end is infinity.
	Start, End, SysStart, SysEnd Value
	// Periods is how many of the two a row has: 0 (SCD1), 1 or 2.
	Periods int
}

// String writes a row as auto-cdc 4 does, the parts of a composite key apart.
func (r Row) String() string {
	s := []string{Text(r.Key)}
	if parts, ok := r.Key.([]Value); ok {
		s = nil
		for _, p := range parts {
			s = append(s, Text(p))
		}
	}
	for _, v := range r.Values {
		s = append(s, Text(v))
	}
	if r.Periods > 0 {
		s = append(s, Period(Text(r.Start), Text(r.End)))
	}
	if r.Periods > 1 {
		s = append(s, "sys "+Period(Text(r.SysStart), Text(r.SysEnd)))
	}
	return strings.Join(s, ", ")
}

// Period writes a validity; "null" as its end is infinity.
func Period(start, end string) string {
	if end == "null" {
		end = "∞"
	}
	return start + "→" + end
}

// identity is what 2.10 knows a row by.
func (r Row) identity() string {
	id := Text(r.Key)
	if r.Periods > 0 {
		id += " from " + Text(r.Start)
	}
	if r.Periods > 1 {
		id += " since " + Text(r.SysStart)
	}
	return id
}

// Table is a set of rows by identity; of an SCD1 row that is Text of its key.
type Table map[string]Row

// Lines prints a table, sorted.
func (t Table) Lines() []string {
	var out []string
	for _, r := range t {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// SCD1 is the whole-row SCD1 table of plain columns: a short form for tests.
func SCD1(events []Event, columns []string) Table {
	return Flow{Columns: Plain(columns...)}.Result(events)
}

// Change is one row of a change feed.
type Change struct {
	Type string // insert, delete, update_preimage, update_postimage
	Row  Row
}

func (c Change) String() string { return c.Type + " " + c.Row.String() }

// Feed is the change feed of a commit (auto-cdc 2.10) that turned before into
// after, sorted by identity.
func Feed(before, after Table) []Change {
	ids := map[string]bool{}
	for k := range before {
		ids[k] = true
	}
	for k := range after {
		ids[k] = true
	}
	var out []Change
	for _, k := range sorted(ids) {
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
		k := c.Row.identity()
		have, there := out[k]
		switch c.Type {
		case "insert", "update_postimage":
			if there {
				return out, false
			}
			out[k] = c.Row
		case "delete", "update_preimage":
			if !there || !same(have, c.Row) {
				return out, false
			}
			delete(out, k)
		default:
			return out, false
		}
	}
	return out, true
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
	return Compare(a.Key, b.Key) == 0 && Compare(a.Start, b.Start) == 0 && Compare(a.End, b.End) == 0 &&
		Compare(a.SysStart, b.SysStart) == 0 && Compare(a.SysEnd, b.SysEnd) == 0
}

func sorted(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
