package model

import (
	"fmt"
	"slices"
	"strings"
)

// Script plays a worked example on the model: the settings of a flow, then one
// batch after another, each printed with table and feed.
//
// Settings, one a line: "data:", "keys:", "seq:" and "sys:" are types;
// "sequence-by: -seq" negates; "deletes:" and "truncates:" are conditions of the
// form column = 'text'; "except:" names columns that do not land in the target;
// "stored-as: 2", "track: a, b" or "track: except a", "ignore-null: *", "on a, b"
// or "except a", "columns-to-update: yes", "expect: name (column IS NOT NULL) DROP
// ROW" with the conditions IS NOT NULL and <> 'text'.
type Script struct {
	Keys, Data []Named
	Seq, Sys   Type
	Settings   map[string][]string

	flow    Flow
	events  []Event
	shown   Table // visible before the next batch
	result  Table // with hidden rows
	version Value // last snapshot
}

// NewScript reads the settings of a flow.
func NewScript(config string) (*Script, error) {
	s := &Script{Settings: map[string][]string{}, shown: Table{}, result: Table{}}
	for _, l := range strings.Split(strings.TrimSpace(config), "\n") {
		if k, v, ok := strings.Cut(l, ":"); ok {
			s.Settings[k] = append(s.Settings[k], strings.TrimSpace(v))
		}
	}
	var err error
	if s.Keys, err = ParseColumns(s.setting("keys", "id BIGINT")); err != nil {
		return nil, err
	}
	if s.Data, err = ParseColumns(s.setting("data", "name STRING, city STRING")); err != nil {
		return nil, err
	}
	if s.Seq, err = parseType(s.setting("seq", "BIGINT")); err != nil {
		return nil, err
	}
	if s.Sys, err = parseType(s.setting("sys", "BIGINT")); err != nil {
		return nil, err
	}
	s.flow.Stored = s.setting("stored-as", StoredSCD1)
	s.flow.ColumnsToUpdate = s.setting("columns-to-update", "") != ""
	selected := s.selected()
	if v := s.setting("ignore-null", ""); v != "" {
		s.flow.Covered = listOf(v, selected)
	}
	if v := s.setting("track", ""); v != "" {
		s.flow.Tracked = append([]string{}, listOf(v, selected)...)
	}
	for _, v := range s.Settings["expect"] {
		x, err := parseExpectation(v)
		if err != nil {
			return nil, err
		}
		s.flow.Expectations = append(s.flow.Expectations, x)
	}
	return s, nil
}

func (s *Script) setting(key, otherwise string) string {
	if v := s.Settings[key]; len(v) > 0 {
		return v[0]
	}
	return otherwise
}

// DataNames are the columns of the full schema.
func (s *Script) DataNames() []string {
	out := make([]string, len(s.Data))
	for i, c := range s.Data {
		out[i] = c.Name
	}
	return out
}

func (s *Script) selected() []string {
	return slices.DeleteFunc(s.DataNames(), func(c string) bool { return slices.Contains(s.Settings["except"], c) })
}

// listOf reads "*", "on a, b", "a, b" or "except a".
func listOf(text string, all []string) []string {
	if text == "*" {
		return all
	}
	if list, ok := strings.CutPrefix(text, "except "); ok {
		not := Split(list)
		return slices.DeleteFunc(slices.Clone(all), func(c string) bool { return slices.Contains(not, c) })
	}
	return Split(strings.TrimPrefix(text, "on "))
}

func parseExpectation(text string) (Expectation, error) {
	name, rest, _ := strings.Cut(text, " (")
	cond, violation, ok := strings.Cut(rest, ")")
	if !ok {
		return Expectation{}, fmt.Errorf("expectation %q", text)
	}
	x := Expectation{Name: name, Violation: strings.TrimSpace(violation)}
	yes, no := true, false
	truth := func(b bool) *bool {
		if b {
			return &yes
		}
		return &no
	}
	if c, ok := strings.CutSuffix(cond, " IS NOT NULL"); ok {
		x.Holds = func(value func(string) Value) *bool { return truth(value(c) != nil) }
		return x, nil
	}
	if c, v, ok := strings.Cut(cond, " <> "); ok {
		v = strings.Trim(v, "'")
		x.Holds = func(value func(string) Value) *bool {
			if value(c) == nil {
				return nil
			}
			return truth(value(c) != Value(v))
		}
		return x, nil
	}
	return x, fmt.Errorf("expectation %q: unknown condition", text)
}

// Event is an event of the notation.
func (s *Script) Event(text string) (Event, error) {
	l, err := ParseLine(text, s.DataNames())
	if err != nil {
		return Event{}, err
	}
	e := Event{Kind: Kind(l.Kind), Listed: l.Listed}
	if e.Seq, err = s.Seq.Parse(l.Seq); err != nil {
		return e, err
	}
	if s.setting("sequence-by", "") == "-seq" {
		e.Seq = -e.Seq.(int64)
	}
	if l.Sys != "" {
		if e.Sys, err = s.Sys.Parse(l.Sys); err != nil {
			return e, err
		}
	}
	if e.Kind != Truncate {
		if e.Key, err = s.key(l.Key); err != nil {
			return e, err
		}
	}
	if l.Old != "" {
		if e.OldKey, err = s.key(l.Old); err != nil {
			return e, err
		}
	}
	if e.Kind != Upsert {
		return e, nil
	}
	e.Values = map[string]Value{}
	var carried = map[string]Value{}
	for _, c := range s.Data {
		if v, ok := l.Values[c.Name]; ok {
			if carried[c.Name], err = c.Type.Parse(v); err != nil {
				return e, err
			}
		}
	}
	for _, cond := range []struct {
		setting string
		kind    Kind
	}{{"truncates", Truncate}, {"deletes", Delete}} {
		column, want, ok := strings.Cut(s.setting(cond.setting, ""), " = ")
		if ok && carried[column] == Value(strings.Trim(want, "'")) {
			e.Kind, e.Values = cond.kind, nil
			if cond.kind == Truncate {
				e.Key = nil
			}
			return e, nil
		}
	}
	selected := s.selected()
	for _, c := range l.Columns {
		if !slices.Contains(selected, c) {
			continue
		}
		e.Schema = append(e.Schema, c)
		if v, ok := carried[c]; ok {
			e.Values[c] = v
		}
	}
	return e, nil
}

func (s *Script) key(text string) (Value, error) {
	if len(s.Keys) == 1 {
		return s.Keys[0].Type.Parse(text)
	}
	return Type{Name: "struct", Fields: s.Keys}.Parse(text)
}

// Batch applies events and prints table and feed; a refused batch changes nothing
// and prints its code first.
func (s *Script) Batch(lines []string) (string, error) {
	var events []Event
	for _, l := range lines {
		e, err := s.Event(l)
		if err != nil {
			return "", err
		}
		events = append(events, e)
	}
	if code := s.flow.Check(events); code != "" {
		return s.show("error: "+code+"\n", s.shown), nil
	}
	return s.take(events), nil
}

// Snapshot applies a snapshot of rows "(1, Ann, Rome)"; a refused one changes
// nothing (auto-cdc 2.8).
func (s *Script) Snapshot(version string, rows []string) (string, error) {
	const class = "APPLY_CHANGES_FROM_SNAPSHOT_ERROR."
	refused := func(code string) (string, error) { return s.show("error: "+class+code+"\n", s.shown), nil }
	v, err := s.Seq.Parse(version)
	if err != nil {
		return "", err
	}
	if allNull(v) {
		return refused("NULL_SNAPSHOT_VERSION")
	}
	if s.version != nil && Compare(v, s.version) <= 0 {
		return refused("OUT_OF_ORDER_SNAPSHOT_VERSION")
	}
	events := []Event{{Kind: Truncate, Seq: v}}
	seen := map[string]bool{}
	for _, r := range rows {
		if strings.TrimSpace(r) == "" {
			continue
		}
		e, err := s.Event(SnapshotLine(r, version))
		if err != nil {
			return "", err
		}
		if seen[Text(e.Key)] {
			return refused("DUPLICATE_KEY_VIOLATION")
		}
		seen[Text(e.Key)] = true
		events = append(events, e)
	}
	if code := s.flow.Check(events); code != "" {
		return s.show("error: "+code+"\n", s.shown), nil
	}
	text := s.take(events)
	if !strings.HasPrefix(text, "error: ") {
		s.version = v
	}
	return text, nil
}

// SnapshotLine is a row "(1, Ann, Rome)" of a snapshot as an upsert.
func SnapshotLine(row, version string) string {
	row = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(row), "("), ")")
	key := Split(row)[0]
	return fmt.Sprintf("U %s@%s (%s)", key, version, strings.TrimSpace(strings.TrimPrefix(row[len(key):], ",")))
}

// Refresh empties everything; the rows stay visible until the next batch.
func (s *Script) Refresh() { s.events, s.version, s.flow.Columns, s.result = nil, nil, nil, Table{} }

// take joins events to those seen, unless an expectation stops them.
func (s *Script) take(events []Event) string {
	flow := s.flow
	flow.Columns = slices.Clone(flow.Columns)
	for _, e := range events {
		names := e.Schema
		if e.Kind != Upsert { // the notation reads deletes under the full schema
			names = s.selected()
		}
		for _, n := range names {
			if !slices.ContainsFunc(flow.Columns, func(c Column) bool { return c.Name == n }) {
				i := slices.IndexFunc(s.Data, func(c Named) bool { return c.Name == n })
				flow.Columns = append(flow.Columns, columnOf(s.Data[i]))
			}
		}
	}
	all := append(slices.Clone(s.events), events...)
	result := flow.Result(all)
	counts, failed := flow.Judge(s.result, result)
	if failed {
		return s.show("error: EXPECTATION_VIOLATED\n", s.shown)
	}
	s.flow, s.events, s.result = flow, all, result
	before := s.shown
	s.shown = flow.Visible(all)
	text := s.show("", before)
	for _, x := range flow.Expectations {
		c := counts[x.Name]
		text += fmt.Sprintf("%s: passed %d, failed %d, dropped %d\n", x.Name, c.Passed, c.Failed, c.Dropped)
	}
	return text
}

func columnOf(n Named) Column {
	c := Column{Name: n.Name}
	for _, f := range n.Type.Fields {
		c.Fields = append(c.Fields, columnOf(f))
	}
	return c
}

func (s *Script) show(head string, before Table) string {
	var feed []string
	for _, c := range Feed(before, s.shown) {
		for i := len(c.Row.Values); i < len(s.flow.Columns); i++ {
			c.Row.Values = append(slices.Clone(c.Row.Values), nil)
		}
		feed = append(feed, c.String())
	}
	return head + Show("table", s.shown.Lines()) + Show("feed", feed)
}

// Show prints a titled list.
func Show(title string, lines []string) string {
	out := title + ":\n"
	for _, l := range lines {
		out += "  " + l + "\n"
	}
	return out
}

// Table prints the visible rows, sorted.
func (s *Script) Table() []string { return s.shown.Lines() }
