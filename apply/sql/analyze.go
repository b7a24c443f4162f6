package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// Analyze checks a script against the rules of phase A (auto-cdc 1.4, 1.6) and
// the schemas of its sources, and answers the validated plan. The error is
// [Errors] with every problem. Nothing is read.
func Analyze(s *Script, schemas Schemas) (*Plan, error) {
	a := &analyzer{script: s, schemas: schemas, plan: &Plan{Sources: s.Sources}, tables: map[string]*TablePlan{}}
	a.sources()
	a.declareTables()
	a.flows()
	for _, t := range a.plan.Tables {
		a.together(t)
		a.tableSchema(t)
		a.layoutOf(t)
		a.expectations(t)
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	return a.plan, nil
}

type analyzer struct {
	problems
	script  *Script
	schemas Schemas
	plan    *Plan
	tables  map[string]*TablePlan
}

func (a *analyzer) warn(format string, args ...any) {
	a.plan.Warnings = append(a.plan.Warnings, fmt.Sprintf(format, args...))
}

// checkName refuses what is no name; front ends other than SQL pass any text.
func (a *analyzer) checkName(at Pos, what, name string) bool {
	parts, ok := splitName(name)
	switch {
	case name == "":
		a.add(at, CodeSyntax, "add it", "%s is missing", what)
	case !ok:
		a.add(at, CodeSyntax, "join identifiers by dots; other characters go in backticks", "%s %q is no name", what, clip(name))
	case len(parts) > 3:
		a.add(at, CodeSyntax, "a name is catalog.schema.table at most", "%s %s has %d parts", what, clip(name), len(parts))
	default:
		return true
	}
	return false
}

func (a *analyzer) sources() {
	seen := map[string]bool{}
	for _, s := range a.script.Sources {
		if a.checkName(s.at.of("name"), "name of the source", s.Name) && seen[fold(s.Name)] {
			a.add(s.at.of("name"), CodeFlowConflict, "give it another name", "source %s is created twice", s.Name)
		}
		seen[fold(s.Name)] = true
		if len(s.From) == 0 || slices.Contains(s.From, "") {
			a.add(s.at.of("from"), CodeSyntax, "name a file, a glob, a directory or -", "source %s says nowhere where it reads from", s.Name)
		}
	}
}

func (a *analyzer) declareTables() {
	for _, t := range a.script.Tables {
		if !a.checkName(t.at.of("name"), "name of the table", t.Name) {
			continue
		}
		if t.OrRefresh && t.IfNotExists && t.at == nil {
			a.add(Pos{}, CodeCreateOptions, "use one of them", "table %s: OR REFRESH and IF NOT EXISTS exclude each other", t.Name)
		}
		if _, dup := a.tables[fold(t.Name)]; dup {
			a.add(t.at.of("name"), CodeInvalidTarget, "declare it once", "table %s is created twice", t.Name)
			continue
		}
		p := &TablePlan{Table: t}
		a.tables[fold(t.Name)] = p
		a.plan.Tables = append(a.plan.Tables, p)
		if t.query {
			a.add(t.at.of(""), CodeUnsupportedClause, "sluice runs flows, not queries", "table %s has its own query", t.Name)
		}
	}
	for _, v := range a.script.views {
		a.add(v.at, CodeUnsupportedClause, "sluice runs flows, not queries", "CREATE %s is not supported", v.kind)
	}
}

func (a *analyzer) flows() {
	names := map[string]bool{}
	for _, f := range a.script.Flows {
		p := &FlowPlan{Flow: f, FlowName: f.Name, SCD: f.StoredAsSCDType}
		if p.FlowName == "" {
			p.FlowName = f.Target
		}
		if p.SCD = strings.ToLower(p.SCD); p.SCD == "" {
			p.SCD = "1"
		}
		if f.Name != "" {
			a.checkName(f.at.of("name"), "name of the flow", f.Name)
		}
		if names[fold(p.FlowName)] && p.FlowName != "" {
			a.add(f.at.of("name"), CodeFlowConflict, "name every flow, with CREATE FLOW", "flow name %s is used twice", p.FlowName)
		}
		names[fold(p.FlowName)] = true
		a.bindTarget(p)
		if f.insert {
			continue
		}
		for _, s := range a.script.Sources {
			if fold(s.Name) == fold(f.Source) {
				p.Binding = s
			}
		}
		if a.flowOptions(p) {
			a.flowColumns(p)
		}
		a.plan.Flows = append(a.plan.Flows, p)
	}
}

func (a *analyzer) bindTarget(p *FlowPlan) {
	f := p.Flow
	at := f.at.of("target")
	if !a.checkName(at, "name of the target", f.Target) {
		return
	}
	t := a.tables[fold(f.Target)]
	view := slices.IndexFunc(a.script.views, func(v *view) bool { return fold(v.name) == fold(f.Target) })
	switch {
	case view >= 0:
		a.add(at, CodeInvalidTarget, "flows write into streaming tables", "target %s is a %s, not a streaming table", f.Target, a.script.views[view].kind)
	case t == nil:
		a.add(at, CodeInvalidTarget, "add CREATE OR REFRESH STREAMING TABLE "+f.Target, "target %s is not created in this script", f.Target)
	case t.query:
		a.add(at, CodeInvalidTarget, "create the table without a query", "target %s has its own query", f.Target)
	case f.insert:
		t.Flows = append(t.Flows, p)
	default:
		p.Into = t
		t.Flows = append(t.Flows, p)
	}
}

// together holds the flows of one target to each other (auto-cdc 1.4 rule 3).
func (a *analyzer) together(t *TablePlan) {
	var cdc, stream, snapshots, appends []*FlowPlan
	for _, f := range t.Flows {
		switch {
		case f.insert:
			appends = append(appends, f)
			continue
		case f.Snapshot != "":
			snapshots = append(snapshots, f)
		default:
			stream = append(stream, f)
		}
		cdc = append(cdc, f)
	}
	for _, f := range appends {
		if len(cdc) > 0 {
			a.add(f.at.of("target"), CodeFlowConflict, "give the append flow its own table", "table %s is the target of a CDC flow and of an append flow", t.Name)
		} else {
			a.add(f.at.of(""), CodeUnsupportedClause, "sluice runs AUTO CDC flows", "append flows are not supported")
		}
	}
	t.Flows = cdc
	for _, f := range snapshots[min(1, len(snapshots)):] {
		a.add(f.at.of(""), CodeTwoSnapshots, "keep one; ONCE does not change that", "table %s has a second snapshot flow", t.Name)
	}
	for _, f := range stream[min(1, len(stream)):] {
		a.agree(t, stream[0], f)
	}
	if len(stream) > 0 && len(snapshots) > 0 {
		a.interop(t, stream, snapshots[0])
	}
}

func sameSet(a, b []string) bool {
	norm := func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = fold(s)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(norm(a), norm(b))
}

func (a *analyzer) agree(t *TablePlan, first, f *FlowPlan) {
	conflict := func(option, what, mine, other string) {
		a.add(f.at.of(option), CodeFlowConflict, "flows into one table must agree", "table %s: flow %s has %s %s, flow %s has %s", t.Name, f.FlowName, what, mine, first.FlowName, other)
	}
	if !sameSet(first.KeyColumns, f.KeyColumns) {
		conflict("keys", "keys", strings.Join(f.KeyColumns, ", "), strings.Join(first.KeyColumns, ", "))
	}
	if first.SCD != f.SCD {
		conflict("stored_as_scd_type", "storage type", f.SCD, first.SCD)
	}
	if x, y := first.fieldMode(), f.fieldMode(); x != y {
		conflict("ignore_null_updates", "mode", y, x)
	}
	if first.Sequence != nil && f.Sequence != nil && !schema.EqualIgnoringNullability(first.Sequence, f.Sequence) {
		conflict("sequence_by", "sequence type", f.Sequence.String(), first.Sequence.String())
	}
	if first.SystemSequence != nil && f.SystemSequence != nil && !schema.EqualIgnoringNullability(first.SystemSequence, f.SystemSequence) {
		conflict("system_sequence_by", "system sequence type", f.SystemSequence.String(), first.SystemSequence.String())
	}
	if first.SCD != "1" && first.SCD == f.SCD {
		same := sameSet(first.TrackHistoryColumnList, f.TrackHistoryColumnList) && sameSet(first.TrackHistoryExceptColumnList, f.TrackHistoryExceptColumnList)
		if first.Known && f.Known {
			same = sameSet(first.Tracked, f.Tracked)
		}
		if !same {
			conflict("track_history_column_list", "another tracked set", strings.Join(f.Tracked, ", "), strings.Join(first.Tracked, ", "))
		}
	}
}

// interop are the limits of a snapshot flow beside change flows (auto-cdc 2.8).
func (a *analyzer) interop(t *TablePlan, stream []*FlowPlan, s *FlowPlan) {
	add := func(at Pos, code, format string, args ...any) {
		a.add(at, code, "a snapshot flow beside change flows needs SCD TYPE 1, the same keys, whole rows and a version of the sequence's type", "table "+t.Name+": "+format, args...)
	}
	if s.SCD != "1" {
		add(s.at.of("stored_as_scd_type"), CodeInteropStorage, "the snapshot flow is stored as %s", s.SCD)
	}
	for _, f := range stream {
		if !sameSet(f.KeyColumns, s.KeyColumns) {
			add(s.at.of("keys"), CodeInteropKeys, "the snapshot flow has keys %s, flow %s has %s", strings.Join(s.KeyColumns, ", "), f.FlowName, strings.Join(f.KeyColumns, ", "))
		}
		if f.fieldMode() != "whole rows" {
			add(f.at.of("ignore_null_updates"), CodeInteropIgnoreNull, "flow %s has %s", f.FlowName, f.fieldMode())
		}
		if f.SCD != "1" && s.SCD == "1" {
			add(f.at.of("stored_as_scd_type"), CodeInteropStorage, "flow %s is stored as %s", f.FlowName, f.SCD)
		}
		if f.Sequence != nil && s.VersionType != nil && !schema.EqualIgnoringNullability(f.Sequence, s.VersionType) {
			add(s.at.of("snapshot_version"), CodeInteropSequence, "the version has type %s, the sequence of flow %s has %s", s.VersionType, f.FlowName, f.Sequence)
		}
	}
}
