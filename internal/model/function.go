package model

import (
	"slices"
)

// The storage types.
const (
	StoredSCD1       = "1"
	StoredSCD2       = "2"
	StoredBitemporal = "bitemporal"
)

// Column is a data column of the target; Fields are those of a struct.
type Column struct {
	Name   string
	Fields []Column
}

// Flow is what the flows of a target agree on (auto-cdc 1.3), and its columns.
type Flow struct {
	// Stored is StoredSCD1 (also ""), StoredSCD2 or StoredBitemporal.
	Stored string
	// Columns are the data columns in target order.
	Columns []Column
	// Covered are the columns of IGNORE NULL UPDATES; nil: the clause is not used.
	Covered []string
	// ColumnsToUpdate: events list the columns that they set.
	ColumnsToUpdate bool
	// Tracked are the columns of TRACK HISTORY ON; nil: all.
	Tracked []string
	// Expectations are tested on rows of the result.
	Expectations []Expectation
}

// Expectation is a condition on result rows; Violation is "", "DROP ROW" or
// "FAIL UPDATE". Holds answers true, false or unknown (nil).
type Expectation struct {
	Name      string
	Holds     func(value func(column string) Value) *bool
	Violation string
}

// Plain are columns of the given names that are no structs.
func Plain(names ...string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

func (f Flow) covers(column string) bool { return slices.Contains(f.Covered, column) }

func (f Flow) tracks(column string) bool {
	return f.Tracked == nil || slices.Contains(f.Tracked, column)
}

// Result is F of the event set: every row, hidden ones of DROP ROW included
// (auto-cdc 2.5 to 2.8).
func (f Flow) Result(events []Event) Table {
	out := Table{}
	done := map[string]bool{}
	for _, e := range events {
		k := Text(e.Key)
		if e.Kind == Truncate || done[k] {
			continue
		}
		done[k] = true
		var rows []Row
		switch f.Stored {
		case StoredSCD2:
			rows = f.scd2(events, e.Key)
		case StoredBitemporal:
			rows = f.bitemporal(events, e.Key)
		default:
			rows = f.scd1(events, e.Key)
		}
		for _, r := range rows {
			out[r.identity()] = r
		}
	}
	return out
}

// Visible is the result without the rows that a DROP ROW expectation hides (2.9).
func (f Flow) Visible(events []Event) Table {
	out := Table{}
	for id, r := range f.Result(events) {
		if !f.dropped(r) {
			out[id] = r
		}
	}
	return out
}

// known are the facts of one key in the form that 2.4 to 2.6 speak of: Up(k) by
// ascending sequence, and Del(k).
type known struct {
	seqs []Value
	up   []map[string]Value // authored fields, aligned with seqs
	del  []Value
}

// of gathers the facts of a key from the events for which take is true.
func (f Flow) of(events []Event, key Value, take func(Event) bool) known {
	var k known
	ties := map[string][]Event{}
	for _, e := range events {
		if !take(e) {
			continue
		}
		switch {
		case e.Kind == Truncate, e.Kind == Delete && Compare(e.Key, key) == 0:
			k.del = append(k.del, e.Seq)
		case e.Kind == Upsert && Compare(e.Key, key) == 0:
			if s := Text(e.Seq); ties[s] == nil {
				k.seqs = append(k.seqs, e.Seq)
			}
			ties[Text(e.Seq)] = append(ties[Text(e.Seq)], f.withOldKey(events, e))
		}
	}
	slices.SortFunc(k.seqs, Compare)
	for _, s := range k.seqs {
		k.up = append(k.up, f.tie(ties[Text(s)]))
	}
	return k
}

func all(Event) bool { return true }

func below(s Value) func(Event) bool {
	return func(e Event) bool { return Compare(e.Seq, s) < 0 }
}

// scd1 is 2.5: one row or none.
func (f Flow) scd1(events []Event, key Value) []Row {
	fields, visible := f.of(events, key, all).latest()
	if !visible {
		return nil
	}
	return []Row{{Key: key, Values: f.rebuild(fields)}}
}

// latest is 2.5: the values of the fields, and whether the key is visible.
func (k known) latest() (map[string]Value, bool) {
	var d Value
	for _, s := range k.del {
		if d == nil || Compare(s, d) > 0 {
			d = s
		}
	}
	fields := map[string]Value{}
	for i, s := range k.seqs {
		if d == nil || Compare(s, d) >= 0 {
			for n, v := range k.up[i] {
				fields[n] = v // seqs ascend: the largest stays
			}
		}
	}
	u := len(k.seqs) - 1
	return fields, u >= 0 && (d == nil || Compare(k.seqs[u], d) >= 0)
}

// withOldKey authors what a key change took over from the old key (2.3).
func (f Flow) withOldKey(events []Event, e Event) Event {
	if e.OldKey == nil {
		return e
	}
	fields, _ := f.of(events, e.OldKey, below(e.Seq)).latest()
	old := f.rebuild(fields)
	vals := map[string]Value{}
	for i, c := range f.Columns {
		if v, ok := e.Values[c.Name]; ok {
			vals[c.Name] = v
		} else if _, known := fields[field{c, nil}.name()]; slices.Contains(e.Schema, c.Name) && (known || f.covers(c.Name)) {
			vals[c.Name] = old[i]
		}
	}
	e.Values = vals
	return e
}

// tie resolves upserts of one key and sequence (2.4 rule 1): in whole-row mode the
// largest tuple wins, an absent column below NULL; in field mode each field takes
// the largest authored value.
func (f Flow) tie(ups []Event) map[string]Value {
	whole := f.Covered == nil && !f.ColumnsToUpdate
	for _, e := range ups {
		for _, c := range f.Columns {
			whole = whole && slices.Contains(e.Schema, c.Name)
		}
	}
	out := f.authored(ups[0])
	for _, e := range ups[1:] {
		a := f.authored(e)
		if whole {
			if f.compareTuples(a, out) > 0 {
				out = a
			}
			continue
		}
		for n, v := range a {
			if old, ok := out[n]; !ok || Compare(v, old) > 0 {
				out[n] = v
			}
		}
	}
	return out
}

func (f Flow) compareTuples(a, b map[string]Value) int {
	for _, x := range f.fields() {
		av, aok := a[x.name()]
		bv, bok := b[x.name()]
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

// scd2 is 2.6 of all events of a key.
func (f Flow) scd2(events []Event, key Value) []Row { return f.history(f.of(events, key, all), key) }

// history is 2.6.
func (f Flow) history(k known, key Value) []Row {
	n := len(k.seqs)
	effective := make([][]Value, n)
	ends := make([]Value, n) // nil is infinity
	for i := range n {
		fields := map[string]Value{}
		for j := 0; j <= i; j++ {
			if !k.cut(k.seqs[j], k.seqs[i]) {
				for name, v := range k.up[j] {
					fields[name] = v
				}
			}
		}
		effective[i] = f.rebuild(fields)
		if i+1 < n {
			ends[i] = k.seqs[i+1]
		}
		for _, d := range k.del {
			if Compare(d, k.seqs[i]) > 0 && (ends[i] == nil || Compare(d, ends[i]) < 0) {
				ends[i] = d
			}
		}
	}
	joins := func(i int) bool { // si and s(i+1)
		if i+1 >= n || Compare(ends[i], k.seqs[i+1]) != 0 {
			return false
		}
		for c, col := range f.Columns {
			if f.tracks(col.Name) && Compare(effective[i][c], effective[i+1][c]) != 0 {
				return false
			}
		}
		return true
	}
	var rows []Row
	for i := 0; i < n; i++ {
		first := i
		for joins(i) {
			i++
		}
		rows = append(rows, Row{Key: key, Values: effective[i], Start: k.seqs[first], End: ends[i], Periods: 1})
	}
	return rows
}

// cut tells whether a delete lies above a and at or below b.
func (k known) cut(a, b Value) bool {
	return slices.ContainsFunc(k.del, func(d Value) bool { return Compare(a, d) < 0 && Compare(d, b) <= 0 })
}

// bitemporal is 2.7.
func (f Flow) bitemporal(events []Event, key Value) []Row {
	var mine []Event
	var sys []Value
	for _, e := range events {
		if e.Kind != Truncate && Compare(e.Key, key) == 0 {
			mine = append(mine, e)
			if !slices.ContainsFunc(sys, func(s Value) bool { return Compare(s, e.Sys) == 0 }) {
				sys = append(sys, e.Sys)
			}
		}
	}
	slices.SortFunc(sys, Compare)
	var beliefs [][]Row
	for _, s := range sys {
		beliefs = append(beliefs, f.Known(mine, key, s))
	}
	holds := func(j int, r Row) bool {
		return slices.ContainsFunc(beliefs[j], func(x Row) bool { return same(x, r) })
	}
	var out []Row
	for a := range beliefs {
		for _, r := range beliefs[a] {
			if a > 0 && holds(a-1, r) {
				continue
			}
			r.Periods, r.SysStart = 2, sys[a]
			b := a
			for b+1 < len(beliefs) && holds(b+1, Row{Key: r.Key, Values: r.Values, Start: r.Start, End: r.End, Periods: 1}) {
				b++
			}
			if b+1 < len(sys) {
				r.SysEnd = sys[b+1]
			}
			out = append(out, r)
		}
	}
	return out
}

// Known is the belief about a key at a system sequence (2.7): SCD2 of the events
// known then, where a later report of a business sequence replaces earlier ones.
func (f Flow) Known(events []Event, key, sys Value) []Row {
	return f.history(f.of(events, key, func(e Event) bool {
		if Compare(e.Sys, sys) > 0 {
			return false
		}
		return !slices.ContainsFunc(events, func(x Event) bool {
			return Compare(x.Key, key) == 0 && Compare(x.Sys, sys) <= 0 && Compare(x.Seq, e.Seq) == 0 && Compare(x.Sys, e.Sys) > 0
		})
	}), key)
}

// dropped tells whether a DROP ROW expectation hides a row.
func (f Flow) dropped(r Row) bool {
	return slices.ContainsFunc(f.Expectations, func(x Expectation) bool { return x.Violation == "DROP ROW" && !f.meets(x, r) })
}

// meets: NULL counts as violation (2.9).
func (f Flow) meets(x Expectation, r Row) bool {
	held := x.Holds(func(column string) Value {
		for i, c := range f.Columns {
			if c.Name == column {
				return r.Values[i]
			}
		}
		return nil
	})
	return held != nil && *held
}

// Judged are the counts of one expectation over the rows that a commit inserts or
// changes (2.9).
type Judged struct{ Passed, Failed, Dropped int }

// Judge tests the rows that lead from one result to the next; failed says whether
// a FAIL UPDATE expectation stops the update.
func (f Flow) Judge(before, after Table) (counts map[string]Judged, failed bool) {
	counts = map[string]Judged{}
	for _, c := range Feed(before, after) {
		if c.Type != "insert" && c.Type != "update_postimage" {
			continue
		}
		for _, x := range f.Expectations {
			j := counts[x.Name]
			switch {
			case f.meets(x, c.Row):
				j.Passed++
			default:
				j.Failed++
				failed = failed || x.Violation == "FAIL UPDATE"
				if x.Violation == "DROP ROW" {
					j.Dropped++
				}
			}
			counts[x.Name] = j
		}
	}
	return counts, failed
}
