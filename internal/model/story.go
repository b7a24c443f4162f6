package model

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// Story draws a flow with all that the laws speak of (auto-cdc 2.12) in the notation
// of the worked examples: types of keys, values and sequences with nulls, NaN and
// -0.0, structs, partial events, schemas that lack columns, conditions,
// expectations, lists, ties.
type Story struct {
	// Config are the settings of the flow, for [NewScript].
	Config string
	// Stored is the storage type.
	Stored string
	// Shown: the first batch shows every column, see [Story.First].
	Shown bool
	// Snapshots: the flow may share its target with snapshots, or be one (SCD2).
	Snapshots bool
	// KeyTexts, SeqTexts are all keys and, in ascending order, all sequences.
	KeyTexts, SeqTexts []string
	// Fails: a FAIL UPDATE expectation may refuse a batch, so batches are not to be cut.
	Fails bool

	columns   []storyColumn
	condition string // a column op decides: "" none
	nulls     bool   // every other value is null
	partial   bool   // upserts leave out values
	growth    bool   // events lack columns
	lists     bool
	conflicts bool
	truncates bool
	badSeqs   []string
	bodies    map[string]string
}

type storyColumn struct {
	name, ddl string
	values    []string // without null
}

var (
	storyTexts   = []string{"a", "b", "c"}
	storyNumbers = []string{"NaN", "0", "-0", "1.5", "-Inf"}
)

// NewStory draws a flow of a storage type.
func NewStory(t *rapid.T, stored string) *Story {
	s := &Story{Stored: stored, bodies: map[string]string{}, truncates: stored == StoredSCD1}
	var config strings.Builder
	set := func(k, v string) { fmt.Fprintf(&config, "%s: %s\n", k, v) }
	var keys string
	switch rapid.IntRange(0, 3).Draw(t, "key type") {
	case 0:
		keys, s.KeyTexts = "id DOUBLE", []string{"NaN", "0", "-0", "1.5"}
	case 1:
		keys, s.KeyTexts = "region STRING, id BIGINT", []string{"{eu,1}", "{us,1}", "{eu,2}"}
	default:
		keys, s.KeyTexts = "id BIGINT", []string{"1", "2", "3"}
	}
	set("keys", keys)
	seq := s.sequences(t)
	set("seq", seq)
	if stored == StoredBitemporal {
		set("sys", seq)
	}
	s.draw(t)
	var ddl, names []string
	for _, c := range s.columns {
		ddl, names = append(ddl, c.name+" "+c.ddl), append(names, c.name)
	}
	set("data", strings.Join(ddl, ", "))
	set("stored-as", stored)
	if s.condition != "" {
		set("deletes", "op = 'D'")
		if s.truncates && rapid.Bool().Draw(t, "truncate condition") {
			set("truncates", "op = 'T'")
			s.condition = "DTUx"
		}
		if rapid.Bool().Draw(t, "op is not selected") {
			set("except", "op")
			names = names[1:]
		}
	}
	s.mode(t, names, set)
	s.Config = config.String()
	return s
}

func (s *Story) sequences(t *rapid.T) string {
	switch rapid.IntRange(0, 4).Draw(t, "sequence type") {
	case 0:
		s.SeqTexts = []string{"{null,1}", "{null,2}", "{1,null}", "{1,1}", "{2,null}", "{2,2}", "{3,1}"}
		s.badSeqs = []string{"{null,null}"}
		return "STRUCT<ts: BIGINT, n: BIGINT>"
	case 1:
		s.SeqTexts = []string{"-Inf", "-1.5", "-0", "0", "0.5", "2", "+Inf"}
		s.badSeqs = []string{"null", "NaN"}
		return "DOUBLE"
	case 2:
		s.SeqTexts = []string{"A", "B", "C", "a", "aa", "b"}
		s.badSeqs = []string{"null"}
		return "STRING"
	}
	s.SeqTexts = []string{"-2", "1", "2", "3", "4", "5", "6", "7"}
	s.badSeqs = []string{"null"}
	return "BIGINT"
}

// draw draws the columns.
func (s *Story) draw(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "condition") == 0 {
		s.condition = "DUx"
		s.columns = append(s.columns, storyColumn{"op", "STRING", nil})
	}
	for _, name := range []string{"a", "b", "c"} {
		c := storyColumn{name, "STRING", storyTexts[:rapid.IntRange(1, 3).Draw(t, "texts")]}
		switch rapid.IntRange(0, 5).Draw(t, "type of "+name) {
		case 0:
			c.ddl, c.values = "DOUBLE", storyNumbers
		case 1:
			c.ddl, c.values = "STRUCT<x: STRING, y: DOUBLE>", []string{"{null,null}", "{a,null}", "{null,NaN}", "{null,1.5}", "{a,1.5}", "{b,NaN}"}
		case 2:
			c.ddl, c.values = "STRUCT<x: STRUCT<z: STRING>, y: STRING>", []string{"{{null},null}", "{null,null}", "{{a},null}", "{null,a}", "{{b},a}"}
		}
		s.columns = append(s.columns, c)
	}
}

// mode draws the clauses over the selected data columns.
func (s *Story) mode(t *rapid.T, names []string, set func(k, v string)) {
	some := func(label string) string {
		var out []string
		for _, c := range names {
			if rapid.Bool().Draw(t, label+" "+c) {
				out = append(out, c)
			}
		}
		if len(out) == 0 {
			out = names[:1]
		}
		return strings.Join(out, ", ")
	}
	field := false
	switch rapid.IntRange(0, 4).Draw(t, "mode") {
	case 0:
		set("ignore-null", "on "+some("covered"))
		s.nulls, field, s.Shown = true, true, true
	case 1:
		set("ignore-null", "*")
		s.nulls, field = true, true
	case 2:
		if s.Stored != StoredBitemporal {
			set("columns-to-update", "cols")
			s.lists, field = true, true
		}
	}
	if s.Stored != StoredSCD1 && rapid.Bool().Draw(t, "tracking") {
		set("track", some("tracked"))
		s.Shown = true
	}
	if rapid.IntRange(0, 3).Draw(t, "expectation") == 0 {
		c := names[len(names)-1]
		violation := rapid.SampledFrom([]string{"DROP ROW", "DROP ROW", "FAIL UPDATE", ""}).Draw(t, "violation")
		s.Fails, s.Shown = violation == "FAIL UPDATE", true
		for i := range s.columns { // the counts of rows do not tell the zeros apart
			s.columns[i].values = slices.DeleteFunc(slices.Clone(s.columns[i].values), func(v string) bool { return v == "-0" })
		}
		set("expect", strings.TrimSpace("x ("+c+" IS NOT NULL) "+violation))
	}
	s.partial, s.growth = rapid.IntRange(0, 3).Draw(t, "partial") == 0, rapid.IntRange(0, 3).Draw(t, "growth") == 0
	s.Snapshots = !field && s.condition == "" && s.Stored != StoredBitemporal && rapid.IntRange(0, 2).Draw(t, "snapshots") == 0
	if s.Snapshots {
		// A snapshot knows all values of its rows.
		s.partial, s.growth, s.Shown = false, false, true
	}
	s.Shown = s.Shown || s.condition != "" || s.lists || rapid.Bool().Draw(t, "shown")
	// Whole-row ties of events with different columns are not promised an order.
	s.conflicts = field || !s.partial && !s.growth
}

// First is a line that shows every column.
func (s *Story) First() string {
	if s.condition != "" {
		return s.line("U", s.KeyTexts[0], s.SeqTexts[0], s.SeqTexts[0], "(op=D, a=null, b=null, c=null)")
	}
	return s.line("D", s.KeyTexts[0], s.SeqTexts[0], s.SeqTexts[0], "")
}

func (s *Story) line(kind, key, seq, sys, body string) string {
	out := kind + " " + key + "@" + seq
	if kind == "T" {
		out = "T@" + seq
	}
	if s.Stored == StoredBitemporal {
		out += " sys " + sys
	}
	return strings.TrimSpace(out + " " + body)
}

// Lines draws between 1 and n events.
func (s *Story) Lines(t *rapid.T, n int) []string {
	var out []string
	for range rapid.IntRange(1, n).Draw(t, "events") {
		key, seq := rapid.SampledFrom(s.KeyTexts).Draw(t, "key"), rapid.SampledFrom(s.SeqTexts).Draw(t, "seq")
		sys := ""
		if s.Stored == StoredBitemporal {
			sys = rapid.SampledFrom(s.SeqTexts[:5]).Draw(t, "sys")
		}
		kind := rapid.IntRange(0, 19).Draw(t, "kind")
		switch {
		case s.condition != "":
			op := "U"
			if kind <= 6 {
				op = rapid.SampledFrom(strings.Split(s.condition, "")).Draw(t, "op")
			}
			if op == "x" {
				op = "null"
			}
			out = append(out, s.line("U", key, seq, sys, s.body(t, key+"@"+seq, op)))
		case kind == 0 && s.truncates:
			out = append(out, s.line("T", "", seq, "", ""))
		case kind <= 5:
			out = append(out, s.line("D", key, seq, sys, ""))
		default:
			out = append(out, s.line("U", key, seq, sys, s.body(t, key+"@"+seq, "")))
		}
	}
	return out
}

// Bad draws an event that refuses its batch (E57).
func (s *Story) Bad(t *rapid.T) string {
	key, seq, sys := s.KeyTexts[0], s.SeqTexts[0], s.SeqTexts[0]
	switch rapid.IntRange(0, 2).Draw(t, "bad") {
	case 0:
		key = "null"
		if strings.HasPrefix(s.KeyTexts[0], "{") {
			key = "{eu,null}"
		}
	case 1:
		seq = rapid.SampledFrom(s.badSeqs).Draw(t, "bad sequence")
	default:
		if s.Stored == StoredBitemporal {
			sys = rapid.SampledFrom(s.badSeqs).Draw(t, "bad system sequence")
		} else {
			seq = rapid.SampledFrom(s.badSeqs).Draw(t, "bad sequence")
		}
	}
	if s.condition != "" {
		return s.line("U", key, seq, sys, "(op=U, a=null, b=null, c=null)")
	}
	return s.line("D", key, seq, sys, "")
}

// Row draws a row of a snapshot.
func (s *Story) Row(t *rapid.T, key string) string {
	return fmt.Sprintf("(%s, %s", key, s.draws(t, "")[1:])
}

func (s *Story) body(t *rapid.T, at, op string) string {
	if at = strings.ReplaceAll(at, "-0@", "0@"); strings.HasSuffix(at, "@-0") { // one key, one sequence
		at = strings.TrimSuffix(at, "-0") + "0"
	}
	if b, ok := s.bodies[at]; ok && !s.conflicts {
		return b
	}
	s.bodies[at] = s.draws(t, op)
	return s.bodies[at]
}

func (s *Story) draws(t *rapid.T, op string) string {
	columns := s.columns
	if s.growth {
		columns = columns[:rapid.IntRange(min(len(columns)-2, 2), len(columns)).Draw(t, "schema")]
	}
	var vals, listed []string
	for _, c := range columns {
		if c.name == "op" {
			vals = append(vals, "op="+op)
			continue
		}
		v := "null"
		switch {
		case s.partial && rapid.IntRange(0, 3).Draw(t, "unavailable") == 0:
			v = "?"
		case s.nulls && rapid.Bool().Draw(t, "null"):
		default:
			if i := rapid.IntRange(0, len(c.values)).Draw(t, c.name); i > 0 {
				v = c.values[i-1]
			}
		}
		vals = append(vals, c.name+"="+v)
		if s.lists && rapid.Bool().Draw(t, "list "+c.name) {
			listed = append(listed, c.name)
		}
	}
	body := "(" + strings.Join(vals, ", ") + ")"
	if s.lists && rapid.Bool().Draw(t, "listed") {
		body += " cols[" + strings.Join(slices.Compact(listed), ",") + "]"
	}
	return body
}
