package sql

import (
	"strings"
)

// flowOptions are the checks that need no schema; false if column names cannot be
// looked up.
func (a *analyzer) flowOptions(p *FlowPlan) (names bool) {
	f := p.Flow
	p.FieldMode = f.fieldMode() != "whole rows"
	switch p.SCD {
	case "1", "2", "bitemporal":
	default:
		a.add(f.at.of("stored_as_scd_type"), CodeSyntax, "types are 1, 2 and bitemporal", "stored as %q", clip(f.StoredAsSCDType))
		p.SCD = "1"
	}
	if f.OrRefresh && f.IfNotExists && f.at == nil {
		a.add(Pos{}, CodeCreateOptions, "use one of them", "flow %s: OR REFRESH and IF NOT EXISTS exclude each other", p.FlowName)
	}
	a.feedOptions(p)
	names = a.listOptions(p)
	bitemporal := p.SCD == "bitemporal"
	switch {
	case bitemporal && f.SystemSequenceBy == "" && f.Snapshot == "":
		a.add(f.at.of("stored_as_scd_type"), CodeSystemSequence, "add SYSTEM SEQUENCE BY", "BITEMPORAL needs SYSTEM SEQUENCE BY")
	case !bitemporal && f.SystemSequenceBy != "":
		a.add(f.at.of("system_sequence_by"), CodeSystemSequence, "leave it out, or store as BITEMPORAL", "SYSTEM SEQUENCE BY is for BITEMPORAL only")
	}
	if f.ApplyAsTruncates != "" && p.SCD != "1" {
		a.add(f.at.of("apply_as_truncates"), CodeTruncate, "leave it out, or store as SCD TYPE 1", "APPLY AS TRUNCATE is for SCD TYPE 1 only")
	}
	if p.SCD == "1" && (f.TrackHistoryColumnList != nil || f.TrackHistoryExceptColumnList != nil) {
		at := f.at.of("track_history_column_list")
		if f.TrackHistoryColumnList == nil {
			at = f.at.of("track_history_except_column_list")
		}
		a.add(at, CodeTrackHistory, "leave it out, or store as SCD TYPE 2", "TRACK HISTORY ON is for SCD TYPE 2 and BITEMPORAL only")
	}
	if f.ColumnsToUpdate != "" {
		at := f.at.of("columns_to_update")
		if f.ignoresNulls() {
			a.add(at, CodeColumnsToUpdate, "use one of them", "COLUMNS TO UPDATE and IGNORE NULL UPDATES exclude each other")
		}
		if bitemporal {
			a.add(at, CodeColumnsToUpdate, "leave it out", "COLUMNS TO UPDATE is not for BITEMPORAL")
		}
	}
	return names
}

func (a *analyzer) feedOptions(p *FlowPlan) {
	f := p.Flow
	if f.Snapshot == "" {
		if f.Source == "" {
			a.checkName(f.at.of("source"), "source", "")
		} else {
			a.checkName(f.at.of("source"), "name of the source", f.Source)
		}
		if f.NotStream {
			a.add(f.at.of("source"), CodeNotStreaming, "write FROM STREAM("+f.Source+")", "source %s is not read as a stream", f.Source)
		}
		if f.SnapshotVersion != "" {
			a.add(f.at.of("snapshot_version"), CodeSyntax, "leave it out", "a snapshot version is for snapshot flows only")
		}
		if f.SequenceBy == "" && !a.schemas.of(f.Source).OwnSequence {
			a.add(f.at.of(""), CodeMissingSequence, "add SEQUENCE BY", "flow %s does not say what orders its events", p.FlowName)
		}
		for _, e := range []struct{ option, text string }{{"sequence_by", f.SequenceBy}, {"system_sequence_by", f.SystemSequenceBy},
			{"apply_as_deletes", f.ApplyAsDeletes}, {"apply_as_truncates", f.ApplyAsTruncates}} {
			a.versionFunctions(f.at.item(e.option, 0), e.text, "", "")
		}
		return
	}
	if f.Source != "" {
		a.add(f.at.of("source"), CodeSyntax, "keep one", "a source and a snapshot query exclude each other")
	}
	for _, o := range []struct {
		option string
		set    bool
	}{{"sequence_by", f.SequenceBy != ""}, {"system_sequence_by", f.SystemSequenceBy != ""}, {"apply_as_deletes", f.ApplyAsDeletes != ""},
		{"apply_as_truncates", f.ApplyAsTruncates != ""}, {"ignore_null_updates", f.ignoresNulls()}, {"columns_to_update", f.ColumnsToUpdate != ""},
		{"column_list", f.ColumnList != nil || f.ExceptColumnList != nil}} {
		if o.set {
			a.add(f.at.of(o.option), CodeSyntax, "leave it out", "%s is not for snapshot flows", o.option)
		}
	}
	if p.SCD == "bitemporal" {
		a.add(f.at.of("stored_as_scd_type"), CodeSyntax, "snapshots are stored as SCD TYPE 1 or 2", "BITEMPORAL is not for snapshot flows")
	}
	current := "current_snapshot_version"
	if f.SnapshotVersion == "" {
		current = ""
	}
	a.versionFunctions(f.at.of("snapshot"), f.Snapshot, current, "the snapshot query may call current_snapshot_version(), with WITH VERSION")
	a.versionFunctions(f.at.of("snapshot_version"), f.SnapshotVersion, "last_snapshot_version", "the version query may call last_snapshot_version()")
	a.versionQuery(p)
}

// versionFunctions refuses calls of the snapshot version functions outside their
// clauses. Text and place belong together.
func (a *analyzer) versionFunctions(at Pos, text, allowed, remedy string) {
	if text == "" || !strings.Contains(strings.ToLower(text), "_snapshot_version") {
		return
	}
	if remedy == "" {
		remedy = "they belong into the queries of FROM SNAPSHOT"
	}
	toks, _, _ := lex(text)
	for _, t := range toks {
		if (t.is("last_snapshot_version") || t.is("current_snapshot_version")) && !t.is(allowed) {
			a.add(at, CodeVersionFunction, remedy, "%s() is not allowed here", strings.ToLower(t.text))
		}
	}
}

// listOptions checks the column lists as such; false if a name is none, so that
// it cannot be looked up.
func (a *analyzer) listOptions(p *FlowPlan) (ok bool) {
	before := len(a.list)
	f := p.Flow
	if len(f.Keys) == 0 {
		a.add(f.at.of("keys"), CodeEmptyKeys, "name at least one key column", "flow %s has no keys", p.FlowName)
	}
	if f.ColumnList != nil && f.ExceptColumnList != nil {
		a.add(f.at.of("except_column_list"), CodeSetTogether, "keep one", "column_list and except_column_list exclude each other")
	}
	if f.TrackHistoryColumnList != nil && f.TrackHistoryExceptColumnList != nil {
		a.add(f.at.of("track_history_except_column_list"), CodeSetTogether, "keep one", "track_history_column_list and track_history_except_column_list exclude each other")
	}
	given := 0
	for _, set := range []bool{f.IgnoreNullUpdates, f.IgnoreNullUpdatesColumnList != nil, f.IgnoreNullUpdatesExceptColumnList != nil} {
		if set {
			given++
		}
	}
	if given > 1 {
		a.add(f.at.of("ignore_null_updates_column_list"), CodeIgnoreNullConflict, "keep one", "more than one of the ignore_null_updates options is given")
	}
	if f.IgnoreNullUpdatesColumnList != nil && len(f.IgnoreNullUpdatesColumnList) == 0 {
		a.add(f.at.of("ignore_null_updates_column_list"), CodeIgnoreNullEmpty, "name columns, or use ignore_null_updates for all", "ignore_null_updates_column_list is empty")
	}
	for _, l := range f.lists() {
		seen := map[string]bool{}
		for i, c := range l.names {
			at := f.at.item(l.option, i)
			parts, isName := splitName(c)
			switch {
			case c == "":
				a.add(at, CodeColumnsNotFound, "write the name of a column", "%s names a column without a name", l.clause)
				continue
			case !isName:
				a.add(at, CodeSyntax, "quote names with backticks", "%s: %q is no column name", l.clause, clip(c))
				continue
			case len(parts) > 1:
				a.add(at, CodeMultipart, "name the whole column; a column whose name has a dot stands in backticks", "%s: %s is not a column name but a path", l.clause, clip(c))
				continue
			}
			if key := fold(parts[0]); seen[key] {
				a.add(at, CodeDuplicateColumn, "name it once", "%s names column %s twice", l.clause, clip(parts[0]))
			} else {
				seen[key] = true
			}
		}
	}
	p.KeyColumns = columns(f.Keys)
	for _, e := range a.list[before:] {
		if e.Code == CodeMultipart || e.Code == CodeSyntax {
			return false
		}
	}
	return true
}

type columnList struct {
	option, clause string
	names          []string
	except         bool
}

func (f *Flow) lists() []columnList {
	out := []columnList{
		{"keys", "KEYS", f.Keys, false},
		{"ignore_null_updates_column_list", "IGNORE NULL UPDATES ON", f.IgnoreNullUpdatesColumnList, false},
		{"ignore_null_updates_except_column_list", "IGNORE NULL UPDATES ON * EXCEPT", f.IgnoreNullUpdatesExceptColumnList, true},
		{"column_list", "COLUMNS", f.ColumnList, false},
		{"except_column_list", "COLUMNS * EXCEPT", f.ExceptColumnList, true},
		{"track_history_column_list", "TRACK HISTORY ON", f.TrackHistoryColumnList, false},
		{"track_history_except_column_list", "TRACK HISTORY ON * EXCEPT", f.TrackHistoryExceptColumnList, true},
	}
	if f.ColumnsToUpdate != "" {
		out = append(out, columnList{"columns_to_update", "COLUMNS TO UPDATE", []string{f.ColumnsToUpdate}, false})
	}
	return out
}
