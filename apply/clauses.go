package apply

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// The storage types of a target, as a flow's definition names them.
const (
	storedSCD1       = "1"
	storedSCD2       = "2"
	storedBitemporal = "bitemporal"
)

// The modes in which a flow authors fields; the flows of a target agree on it.
const (
	modeWhole      = ""
	modeIgnoreNull = "ignore-null"
	modeColumns    = "columns-to-update"
)

// storedAs is the storage type in its canonical form.
func (f *Flow) storedAs() string {
	if f.StoredAsSCDType == "" {
		return storedSCD1
	}
	return strings.ToLower(f.StoredAsSCDType)
}

func (f *Flow) ignoresNulls() bool {
	return f.IgnoreNullUpdates || f.IgnoreNullUpdatesColumnList != nil || f.IgnoreNullUpdatesExceptColumnList != nil
}

// mode is how the flow's events author fields (auto-cdc 2.3).
func (f *Flow) mode() string {
	switch {
	case f.ColumnsToUpdate != "":
		return modeColumns
	case f.ignoresNulls():
		return modeIgnoreNull
	}
	return modeWhole
}

// validateClauses are the rules between clauses that need no schema.
func (f *Flow) validateClauses() []error {
	var errs []error
	fail := func(bad bool, code, format string, args ...any) {
		if bad {
			errs = append(errs, analysis(code, format, args...))
		}
	}
	n := 0
	for _, set := range []bool{f.IgnoreNullUpdates, f.IgnoreNullUpdatesColumnList != nil, f.IgnoreNullUpdatesExceptColumnList != nil} {
		if set {
			n++
		}
	}
	fail(n > 1, CodeConflictingIgnoreNull, "give one ignore-null option: all columns, a list, or a list of exceptions")
	fail(f.IgnoreNullUpdatesColumnList != nil && len(f.IgnoreNullUpdatesColumnList) == 0, CodeIgnoreNullEmptyList, "the list of columns whose nulls are ignored is empty")
	fail(f.TrackHistoryColumnList != nil && f.TrackHistoryExceptColumnList != nil, CodeCannotSetTogether, "a list of tracked columns and a list of untracked ones exclude each other")
	kind := f.storedAs()
	if f.ColumnsToUpdate != "" {
		fail(f.ignoresNulls(), CodeInvalidColumnsToUpdate, "COLUMNS TO UPDATE and IGNORE NULL UPDATES exclude each other")
		fail(kind == storedBitemporal, CodeInvalidColumnsToUpdate, "COLUMNS TO UPDATE cannot be used with BITEMPORAL")
	}
	tracks := f.TrackHistoryColumnList != nil || f.TrackHistoryExceptColumnList != nil
	fail(tracks && kind == storedSCD1, CodeTrackHistoryRequiresSCD2, "TRACK HISTORY ON needs STORED AS SCD TYPE 2")
	fail(f.ApplyAsTruncates != "" && kind != storedSCD1, CodeTruncateRequiresSCD1, "APPLY AS TRUNCATE needs STORED AS SCD TYPE 1")
	fail(kind == storedBitemporal && f.SystemSequenceBy == "", CodeBitemporalSystemSequence, "BITEMPORAL needs SYSTEM SEQUENCE BY")
	fail(kind != storedBitemporal && f.SystemSequenceBy != "", CodeBitemporalSystemSequence, "SYSTEM SEQUENCE BY needs STORED AS BITEMPORAL")
	return errs
}

// frameNames are the framework columns of a storage type, in their order.
func frameNames(storedAs string) []string {
	switch storedAs {
	case storedSCD2:
		return []string{startColumn, endColumn}
	case storedBitemporal:
		return []string{startColumn, endColumn, systemStartColumn, systemEndColumn}
	}
	return nil
}

const (
	startColumn       = "__START_AT"
	endColumn         = "__END_AT"
	systemStartColumn = "__SYSTEM_START_AT"
	systemEndColumn   = "__SYSTEM_END_AT"
)

// bindClauses resolves the clauses of field mode and history against the columns
// of a source.
func (f *Flow) bindClauses(p *plan, zone expr.Options) error {
	p.mode, p.storedAs = f.mode(), f.storedAs()
	frame := frameNames(p.storedAs)
	for _, i := range p.selected {
		n := p.source.Fields[i].Name
		if slices.ContainsFunc(frame, func(c string) bool { return strings.EqualFold(c, n) }) {
			return analysis(CodeReservedColumn, "source column %q is named like a column that the target keeps for itself; leave it out", n)
		}
	}
	if f.ColumnsToUpdate != "" {
		t, ok := p.source.Fields[p.lists].Type.(*schema.Array)
		if void := p.source.Fields[p.lists].Type == schema.Void; !void && (!ok || t.Elem != schema.String) {
			return analysis(CodeInvalidColumnsToUpdate, "column %q has type %s, not ARRAY<STRING>", f.ColumnsToUpdate, p.source.Fields[p.lists].Type)
		}
	}
	listed := func(clause string, list []string) (map[int]bool, error) {
		in := map[int]bool{}
		for _, c := range list {
			i := p.source.Index(c)
			if i < 0 { // a column that left the source is still one of the target
				p.absent = append(p.absent, absent{clause, c})
				continue
			}
			if !slices.Contains(p.selected, i) || slices.Contains(p.keys, i) {
				return nil, analysis(CodeColumnsNotFound, "%s: column %q is not among the selected columns that are no key", clause, c)
			}
			if in[i] {
				return nil, analysis(CodeDuplicateColumn, "%s names column %q twice", clause, c)
			}
			in[i] = true
		}
		return in, nil
	}
	only, err := listed("IGNORE NULL UPDATES", f.IgnoreNullUpdatesColumnList)
	if err != nil {
		return err
	}
	except, err := listed("IGNORE NULL UPDATES", f.IgnoreNullUpdatesExceptColumnList)
	if err != nil {
		return err
	}
	tracked, err := listed("TRACK HISTORY ON", f.TrackHistoryColumnList)
	if err != nil {
		return err
	}
	untracked, err := listed("TRACK HISTORY ON", f.TrackHistoryExceptColumnList)
	if err != nil {
		return err
	}
	p.covered, p.tracked = map[int]bool{}, map[int]bool{}
	for _, i := range p.selected {
		if slices.Contains(p.keys, i) {
			continue
		}
		if f.ignoresNulls() && !except[i] && (f.IgnoreNullUpdatesColumnList == nil || only[i]) {
			p.covered[i] = true
		}
		p.tracked[i] = !untracked[i] && (f.TrackHistoryColumnList == nil || tracked[i])
	}
	p.tracksList = f.TrackHistoryColumnList != nil
	if f.SystemSequenceBy == "" {
		return nil
	}
	b, err := bind("system-sequence-by", f.SystemSequenceBy, p.source, zone)
	if err != nil {
		return err
	}
	if !expr.Orderable(b.Type()) || b.Type() == schema.Void {
		return analysis(CodeSequenceNotOrderable, "system sequence %s has type %s, which has no order", f.SystemSequenceBy, b.Type())
	}
	p.system, p.systemType = b, b.Type()
	return nil
}

// absent is a column that a clause lists and the source, as a batch shows it, lacks.
type absent struct{ clause, column string }

// checkAbsent refuses listed columns that neither source nor target has.
func (s *shape) checkAbsent(plans []*plan) error {
	for _, p := range plans {
		for _, x := range p.absent {
			if s.schema.Index(x.column) < 0 {
				return analysis(CodeColumnsNotFound, "%s: column %q is not in the source (%s)", x.clause, x.column, strings.Join(p.source.Names(), ", "))
			}
		}
	}
	return nil
}

// silentRows are, per source column, the rows whose list of columns does not name
// it. Nil without COLUMNS TO UPDATE. A null list names every column.
func (p *plan) silentRows(b *event.Batch, upsert func(row int) bool) ([]event.Bits, error) {
	if p.mode != modeColumns {
		return nil, nil
	}
	if p.source.Fields[p.lists].Type == schema.Void {
		return nil, nil // null lists name every column
	}
	list, ok := b.Rows.Column(p.lists).(*array.List)
	if !ok {
		return nil, analysis(CodeInvalidColumnsToUpdate, "column %q is no list of text", p.source.Fields[p.lists].Name)
	}
	names, ok := list.ListValues().(*array.String)
	if !ok {
		return nil, analysis(CodeInvalidColumnsToUpdate, "column %q is no list of text", p.source.Fields[p.lists].Name)
	}
	out := make([]event.Bits, len(p.source.Fields))
	named := make([]bool, len(p.source.Fields))
	for r := range list.Len() {
		if list.IsNull(r) || !upsert(r) {
			continue
		}
		clear(named)
		from, to := list.ValueOffsets(r)
		for e := int(from); e < int(to); e++ {
			i := -1
			if names.IsValid(e) {
				i = p.source.Index(names.Value(e))
			}
			if i < 0 {
				return nil, running(CodeUnknownColumnToUpdate, "the event lists column %q, which the source does not have: %s%s",
					cellString(names, e), tableText(b.Table), lineText(b, r))
			}
			named[i] = true
		}
		for i := range out {
			if !named[i] {
				out[i] = out[i].Set(r)
			}
		}
	}
	return out, nil
}
