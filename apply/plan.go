package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// The names that apply keeps for itself (apply-state 4).
const (
	hiddenGroup    = "__sluice"
	rescuedColumn  = "_rescued_data"
	stateTxn       = "sluice-state"
	propState      = "sluice.apply.state"
	propFormat     = "sluice.apply.format"
	formatNumber   = 1
	defaultRows    = 100_000
	defaultBytes   = 256_000_000
	maxLostRaces   = 5
	defaultEngine  = "sluice"
	tagRows        = "sluice.rows"
	propRetention  = "delta.setTransactionRetentionDuration"
	propChangeFeed = "delta.enableChangeDataFeed"
	propDV         = "delta.enableDeletionVectors"
)

// Validate reports what is wrong with a flow whatever its source holds, and what
// the engine lacks (code UNSUPPORTED_CLAUSE). Run does the same before it reads.
func (f *Flow) Validate() error {
	var errs []error
	switch strings.ToLower(f.StoredAsSCDType) {
	case "", "1":
	case storedSCD2, storedBitemporal:
	default:
		errs = append(errs, analysis(CodeSyntax, "stored as %q: must be 1, 2 or bitemporal", f.StoredAsSCDType))
	}
	errs = append(errs, f.validateClauses()...)
	errs = append(errs, f.validateExpectations()...)
	errs = append(errs, f.validateEvolution()...)
	if f.Snapshot != "" || f.SnapshotVersion != "" {
		errs = append(errs, analysis(CodeUnsupportedClause, "a snapshot is SELECT of columns or * FROM a source, with or without WHERE, and its version SELECT of one expression without FROM; other queries are not run: compute into a file or a table first"))
	}
	if len(f.ColumnList) > 0 && len(f.ExceptColumnList) > 0 {
		errs = append(errs, analysis(CodeCannotSetTogether, "a list of columns and a list of excepted columns exclude each other"))
	}
	for what, list := range map[string][]string{"keys": f.Keys, "columns": f.ColumnList, "except-columns": f.ExceptColumnList, "partition-by": f.PartitionBy,
		"ignore-null-updates": slices.Concat(f.IgnoreNullUpdatesColumnList, f.IgnoreNullUpdatesExceptColumnList),
		"track-history":       slices.Concat(f.TrackHistoryColumnList, f.TrackHistoryExceptColumnList)} {
		seen := map[string]bool{}
		for _, c := range list {
			if c == "" {
				errs = append(errs, analysis(CodeColumnsNotFound, "%s names a column without a name", what))
			}
			if l := strings.ToLower(c); seen[l] {
				errs = append(errs, analysis(CodeDuplicateColumn, "%s names column %q twice", what, c))
			} else {
				seen[l] = true
			}
		}
	}
	for _, e := range []struct{ what, text string }{{"sequence-by", f.SequenceBy}, {"apply-as-deletes", f.ApplyAsDeletes}, {"apply-as-truncates", f.ApplyAsTruncates}, {"system-sequence-by", f.SystemSequenceBy}, {"where", f.SnapshotWhere}} {
		if e.text == "" {
			continue
		}
		if _, err := expr.Parse(e.text); err != nil {
			errs = append(errs, &Error{Code: CodeSyntax, Phase: PhaseAnalysis, Message: e.what, Err: err})
		}
	}
	if _, _, err := delta.CheckProperties(f.Properties); err != nil {
		errs = append(errs, &Error{Code: codeOf(err, CodeInvalidTarget), Phase: PhaseAnalysis, Message: "the properties cannot be set", Err: err})
	}
	for k := range f.Properties {
		if strings.HasPrefix(strings.ToLower(k), "sluice.") {
			errs = append(errs, analysis(CodeInvalidTarget, "property %q belongs to sluice and cannot be set", k))
		}
		if strings.EqualFold(k, propRetention) {
			errs = append(errs, transactionRetention())
		}
	}
	if f.BatchRows < 0 || f.BatchBytes < 0 {
		errs = append(errs, analysis("INVALID_OPTION", "batch limits must not be negative"))
	}
	switch f.OnPoison {
	case "", PoisonFail, PoisonQuarantine:
	default:
		errs = append(errs, analysis("INVALID_OPTION", "on-poison %q: must be quarantine or fail", f.OnPoison))
	}
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return errors.Join(errs...)
}

func transactionRetention() *Error {
	return stored(CodeTransactionRetention, "%s would let the pin of the apply state expire; unset it", propRetention)
}

// plan is what a flow means for one schema of its source.
type plan struct {
	source   *schema.Struct // the batch's columns
	selected []int          // those that land in the target, in source order
	keys     []int          // among source, sorted by name
	seqType  schema.Type
	sequence *expr.Bound // nil: the format's position
	deletes  *expr.Bound // nil: none
	truncate *expr.Bound

	storedAs   string
	mode       string
	absent     []absent
	covered    map[int]bool // source columns whose nulls are ignored
	lists      int          // source column of COLUMNS TO UPDATE, -1: none
	tracked    map[int]bool // of the selected columns that are no key
	tracksList bool         // the tracked columns are listed one by one
	// textNumbers: the sequence is a text that holds numbers.
	textNumbers bool
	system      *expr.Bound // nil: not bitemporal
	systemType  schema.Type
	// setsAside: an event that names no row or no place in the order is no reason to
	// refuse the batch (cdc-formats 0.4, P4 and P5) and goes into aside.
	setsAside bool
	aside     []event.Poison
}

// planFor binds the flow to the schema of a batch; every error is of phase A.
// stored is the type of the target's sequence, "" if it has none yet.
func (f *Flow) planFor(b *event.Batch, stored string, zone expr.Options) (*plan, error) {
	p := &plan{source: b.Columns, lists: -1}
	if err := f.selectColumns(p, b.SeqOnly); err != nil {
		return nil, err
	}
	if err := f.bindKeys(p, b.Keys); err != nil {
		return nil, err
	}
	if err := f.bindSequence(p, b, stored, zone); err != nil {
		return nil, err
	}
	if err := f.bindClauses(p, zone); err != nil {
		return nil, err
	}
	var err error
	if p.deletes, err = bindCondition("apply-as-deletes", f.ApplyAsDeletes, b.Columns, zone); err != nil {
		return nil, err
	}
	if p.truncate, err = bindCondition("apply-as-truncates", f.ApplyAsTruncates, b.Columns, zone); err != nil {
		return nil, err
	}
	return p, nil
}

// feedColumns are those of a change feed's own, which land in the target only where
// COLUMNS lists them (auto-cdc 2.11).
var feedColumns = []string{"_change_type", "_commit_version", "_commit_timestamp"}

func (f *Flow) selectColumns(p *plan, feed bool) error {
	listed := func(list []string, selects bool) (map[int]bool, error) {
		in := map[int]bool{}
		for _, c := range list {
			i := p.source.Index(c)
			if i < 0 && selects { // a column that this batch lacks may be one of the target
				p.absent = append(p.absent, absent{"COLUMNS", c})
				continue
			}
			if i < 0 {
				return nil, analysis(CodeColumnsNotFound, "column %q is not in the source (%s); where later records bring it, declare the columns of the source", c, strings.Join(p.source.Names(), ", "))
			}
			in[i] = true
		}
		return in, nil
	}
	only, err := listed(f.ColumnList, true)
	if err != nil {
		return err
	}
	except, err := listed(f.ExceptColumnList, false)
	if err != nil {
		return err
	}
	if f.ColumnsToUpdate != "" {
		if p.lists = p.source.Index(f.ColumnsToUpdate); p.lists < 0 {
			return analysis(CodeColumnsNotFound, "column %q of COLUMNS TO UPDATE is not in the source (%s)", f.ColumnsToUpdate, strings.Join(p.source.Names(), ", "))
		}
	}
	lower := map[string]string{}
	for i, c := range p.source.Fields {
		if strings.HasPrefix(strings.ToLower(c.Name), hiddenGroup) {
			return analysis(CodeReservedPrefix, "source column %q starts with the reserved prefix %s", c.Name, hiddenGroup)
		}
		if len(f.ColumnList) > 0 && !only[i] || except[i] || i == p.lists {
			continue
		}
		if feed && f.ColumnList == nil && slices.Contains(feedColumns, c.Name) {
			continue
		}
		if other, dup := lower[strings.ToLower(c.Name)]; dup {
			return analysis(CodeDuplicateColumn, "source columns %q and %q differ only in case; leave one out", other, c.Name)
		}
		lower[strings.ToLower(c.Name)] = c.Name
		p.selected = append(p.selected, i)
	}
	return nil
}

func (f *Flow) bindKeys(p *plan, own []string) error {
	keys := f.Keys
	if len(keys) == 0 {
		keys = own
	}
	if len(keys) == 0 {
		return analysis(CodeEmptyKeys, "the source carries no key; name the key columns")
	}
	for _, k := range keys {
		i := p.source.Index(k)
		if i < 0 {
			return analysis(CodeColumnsNotFound, "key column %q is not in the source (%s)", k, strings.Join(p.source.Names(), ", "))
		}
		if !slices.Contains(p.selected, i) {
			return analysis(CodeKeyNotSelected, "key column %q is not among the selected columns", k)
		}
		if t := p.source.Fields[i].Type; t != schema.Void && !expr.Orderable(t) {
			return analysis(CodeKeyType, "key column %q has type %s, which has no equality", k, t)
		}
		p.keys = append(p.keys, i)
	}
	slices.SortFunc(p.keys, func(a, b int) int {
		return strings.Compare(strings.ToLower(p.source.Fields[a].Name), strings.ToLower(p.source.Fields[b].Name))
	})
	return nil
}

func (f *Flow) bindSequence(p *plan, b *event.Batch, stored string, zone expr.Options) error {
	own := f.SequenceBy
	if b.SeqOnly && own != "" {
		bound, err := bind("sequence-by", own, b.Columns, zone)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(bound.Columns(), func(c string) bool { return strings.EqualFold(c, "_commit_version") }) {
			return analysis(CodeCommitVersionSequence, "sequence by %s: changes of a table are ordered by _commit_version; name it, alone or in a STRUCT", own)
		}
		if strings.EqualFold(strings.Trim(own, "` "), "_commit_version") && stored == typeName(b.SeqType) {
			own = "" // a target from before the expression's own type was taken
		}
	}
	if own == "" {
		if b.SeqType == nil {
			return analysis(CodeMissingSequence, "the format carries no position; say what orders the events (sequence by)")
		}
		p.seqType = b.SeqType
		return nil
	}
	bound, err := bind("sequence-by", f.SequenceBy, b.Columns, zone)
	if err != nil {
		return err
	}
	if bound.Type() == schema.Void && len(bound.Columns()) > 0 {
		return running(CodeNullSequence, "the sequence %s is null in every row of the batch", f.SequenceBy)
	}
	if !expr.Orderable(bound.Type()) || bound.Type() == schema.Void {
		return analysis(CodeSequenceNotOrderable, "sequence %s has type %s, which has no order", f.SequenceBy, bound.Type())
	}
	p.sequence, p.seqType = bound, bound.Type()
	return nil
}

func bindCondition(what, text string, s *schema.Struct, zone expr.Options) (*expr.Bound, error) {
	if text == "" {
		return nil, nil
	}
	bound, err := bind(what, text, s, zone)
	if err != nil {
		return nil, err
	}
	if t := bound.Type(); t != schema.Boolean && t != schema.Void {
		return nil, analysis(CodeConditionNotBoolean, "%s %s has type %s, not BOOLEAN", what, text, t)
	}
	return bound, nil
}

func bind(what, text string, s *schema.Struct, zone expr.Options) (*expr.Bound, error) {
	e, err := expr.Parse(text)
	if err != nil {
		return nil, &Error{Code: CodeSyntax, Phase: PhaseAnalysis, Message: what, Err: err}
	}
	bound, err := e.BindWith(s, zone)
	if err == nil {
		return bound, nil
	}
	code := CodeExpressionNotAllowed
	var be *expr.BindError
	if errors.As(err, &be) {
		switch be.Code() {
		case expr.CodeNonDeterministic, expr.CodeNotAllowed:
		case expr.CodeUnresolvedColumn:
			code = CodeColumnsNotFound
		default:
			code = be.Code()
		}
	}
	return nil, &Error{Code: code, Phase: PhaseAnalysis, Message: fmt.Sprintf("%s %s", what, text), Err: err}
}

// def is what the flow fixes at its first commit.
// Key types are the target's where it can hold every key of the source.
func (p *plan) def(name string, table *schema.Struct) flowDef {
	d := flowDef{Name: name, Sequence: typeName(p.seqType), StoredAs: p.storedAs, Mode: p.mode}
	if p.systemType != nil {
		d.System = typeName(p.systemType)
	}
	for _, k := range p.keys {
		c := p.source.Fields[k]
		t := c.Type
		if table != nil {
			if at := table.Index(c.Name); at >= 0 && (t == schema.Void || widens(t, table.Fields[at].Type)) {
				t = table.Fields[at].Type
			}
		}
		d.Keys = append(d.Keys, typedKey{c.Name, typeName(t)})
	}
	for _, i := range p.selected {
		d.Columns = append(d.Columns, p.source.Fields[i].Name)
	}
	return d
}

// checkDef compares a flow with what the state holds of it, or of another flow
// of the same target (phase S).
func checkDef(have, want flowDef) error {
	if have.unread() {
		return nil
	}
	same := len(have.Keys) == len(want.Keys)
	for i := 0; same && i < len(have.Keys); i++ {
		same = strings.EqualFold(have.Keys[i].Name, want.Keys[i].Name) && have.Keys[i].Type == want.Keys[i].Type
	}
	switch {
	case have.StoredAs != want.StoredAs:
		return stored(CodeSCDTypeDrift, "the target is stored as SCD type %s, the flow says %s", have.StoredAs, want.StoredAs)
	case !same:
		return stored(CodeKeySchemaDrift, "the target's keys are %s, the flow's are %s", keyText(have.Keys), keyText(want.Keys))
	case have.Sequence != want.Sequence:
		return stored(CodeSequencingTypeDrift, "the target's sequence has type %s, the flow's has %s", have.Sequence, want.Sequence)
	case have.System != want.System:
		return stored(CodeSequencingTypeDrift, "the target's system sequence has type %s, the flow's has %s", have.System, want.System)
	case have.Name != want.Name && have.Mode != want.Mode:
		return stored(CodeFlowConflict, "flow %s of the target is in mode %q, flow %s in mode %q; the flows of a target agree on IGNORE NULL UPDATES and COLUMNS TO UPDATE",
			have.Name, modeText(have.Mode), want.Name, modeText(want.Mode))
	}
	return nil
}

func modeText(mode string) string {
	if mode == modeWhole {
		return "whole-row"
	}
	return mode
}

// checkKeys compares the keys that a flow names with those of the state before
// anything is read; their types are compared when they are known.
func (f *Flow) checkKeys(st *state) error {
	if len(f.Keys) == 0 {
		return nil
	}
	want := slices.Clone(f.Keys)
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	for _, name := range slices.Sorted(maps.Keys(st.flows)) {
		d := st.flows[name]
		have := d.Keys
		if !d.unread() && !slices.EqualFunc(have, want, func(k typedKey, w string) bool { return strings.EqualFold(k.Name, w) }) {
			return stored(CodeKeySchemaDrift, "the target's keys are %s, the flow's are %s", keyText(have), strings.Join(want, ", "))
		}
	}
	return nil
}

func keyText(keys []typedKey) string {
	s := make([]string, len(keys))
	for i, k := range keys {
		s[i] = k.Name + " " + k.Type
	}
	return strings.Join(s, ", ")
}

// typeName is a type's DDL form without nullability, which sequences and keys
// are compared by.
func typeName(t schema.Type) string { return nullable(t).String() }

// nullable is t with every field and element nullable, the form of what apply creates.
func nullable(t schema.Type) schema.Type {
	switch t := t.(type) {
	case *schema.Struct:
		out := &schema.Struct{Fields: make([]schema.Field, len(t.Fields))}
		for i, f := range t.Fields {
			out.Fields[i] = schema.Field{Name: f.Name, Type: nullable(f.Type), Nullable: true, Metadata: f.Metadata}
		}
		return out
	case *schema.Array:
		return &schema.Array{Elem: nullable(t.Elem), ContainsNull: true}
	case *schema.Map:
		return &schema.Map{Key: nullable(t.Key), Value: nullable(t.Value), ValueContainsNull: true}
	}
	return t
}
