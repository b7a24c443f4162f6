package model

import (
	"fmt"
	"math"
	"slices"
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
	Sys  Value // system sequence of BITEMPORAL; nil elsewhere
	// Schema are the data columns of the flow when the event was read; Values
	// those among them that the record carried (the others are UNAVAILABLE).
	Schema []string
	Values map[string]Value
	// Listed is the value of the COLUMNS TO UPDATE column; nil is NULL.
	Listed []string
	// OldKey: the row came from that key; unauthored columns of Schema are
	// authored with the old key's effective value just below Seq. nil: none.
	OldKey Value
}

// SnapshotEvents is a snapshot by its definition (auto-cdc 2.8): a truncate at v
// and an upsert at v for each row.
func SnapshotEvents(v Value, columns []string, rows []Row) []Event {
	out := []Event{{Kind: Truncate, Seq: v}}
	for _, r := range rows {
		e := Event{Kind: Upsert, Key: r.Key, Seq: v, Schema: columns, Values: map[string]Value{}}
		for i, c := range columns {
			e.Values[c] = r.Values[i]
		}
		out = append(out, e)
	}
	return out
}

// FeedEvents are the change rows of a Delta commit as events (auto-cdc 2.11): a
// preimage and a delete are deletes at the commit version, the others upserts.
func FeedEvents(version Value, columns []string, feed []Change) []Event {
	var out []Event
	for _, c := range feed {
		if c.Type == "delete" || c.Type == "update_preimage" {
			out = append(out, Event{Kind: Delete, Key: c.Row.Key, Seq: version})
			continue
		}
		out = append(out, SnapshotEvents(version, columns, []Row{c.Row})[1:]...)
	}
	return out
}

// Check answers the code of auto-cdc 1.6 that refuses a batch; "" if none does.
func (f Flow) Check(events []Event) string {
	for _, e := range events {
		seqs := []Value{e.Seq}
		if f.Stored == StoredBitemporal {
			seqs = append(seqs, e.Sys)
		}
		for _, s := range seqs {
			if allNull(s) {
				return "AUTOCDC_MICROBATCH_VALIDATION.NULL_SEQUENCE"
			}
			if hasNaN(s) {
				return "AUTOCDC_MICROBATCH_VALIDATION.NAN_SEQUENCE"
			}
		}
		if e.Kind != Truncate && hasNull(e.Key) {
			return "AUTOCDC_MICROBATCH_VALIDATION.NULL_KEY"
		}
	}
	return ""
}

func allNull(v Value) bool {
	if s, ok := v.([]Value); ok {
		return !slices.ContainsFunc(s, func(x Value) bool { return !allNull(x) })
	}
	return v == nil
}

func hasNull(v Value) bool {
	if s, ok := v.([]Value); ok {
		return slices.ContainsFunc(s, hasNull)
	}
	return v == nil
}

func hasNaN(v Value) bool {
	if s, ok := v.([]Value); ok {
		return slices.ContainsFunc(s, hasNaN)
	}
	x, ok := v.(float64)
	return ok && math.IsNaN(x)
}

// field is one register of auto-cdc 2.3: a column, or a leaf of one. path are the
// positions of the leaf in its structs.
type field struct {
	column Column
	path   []int
}

func (f field) name() string { return f.column.Name + fmt.Sprint(f.path) }

// fields are the fields of the target's columns: covered structs are opened.
func (f Flow) fields() []field {
	var out []field
	var open func(c Column, fields []Column, path []int)
	open = func(c Column, fields []Column, path []int) {
		if len(fields) == 0 {
			out = append(out, field{c, slices.Clone(path)})
			return
		}
		for i, x := range fields {
			open(c, x.Fields, append(path, i))
		}
	}
	for _, c := range f.Columns {
		if f.covers(c.Name) {
			open(c, c.Fields, nil)
		} else {
			out = append(out, field{c, nil})
		}
	}
	return out
}

// of is the field's value in a column's value; a null struct has null leaves.
func (f field) of(v Value) Value {
	for _, i := range f.path {
		s, ok := v.([]Value)
		if !ok {
			return nil
		}
		v = s[i]
	}
	return v
}

// authored are the values that an upsert authors, by name of the field (2.3).
func (f Flow) authored(e Event) map[string]Value {
	out := map[string]Value{}
	for _, x := range f.fields() {
		c := x.column.Name
		v, carried := e.Values[c]
		if !slices.Contains(e.Schema, c) || !carried {
			continue
		}
		if f.ColumnsToUpdate && e.Listed != nil && !slices.Contains(e.Listed, c) {
			continue
		}
		if v = x.of(v); f.covers(c) && v == nil {
			continue
		}
		out[x.name()] = v
	}
	return out
}

// rebuild puts the fields of a row together again: one value per column. A
// covered struct whose leaves are all null is null.
func (f Flow) rebuild(fields map[string]Value) []Value {
	out := make([]Value, len(f.Columns))
	for i, c := range f.Columns {
		if !f.covers(c.Name) {
			out[i] = fields[field{c, nil}.name()]
			continue
		}
		var build func(fields []Column, path []int) Value
		build = func(inner []Column, path []int) Value {
			if len(inner) == 0 {
				return fields[field{c, path}.name()]
			}
			s := make([]Value, len(inner))
			for j, x := range inner {
				s[j] = build(x.Fields, append(slices.Clone(path), j))
			}
			if allNull(s) {
				return nil
			}
			return s
		}
		out[i] = build(c.Fields, nil)
	}
	return out
}
