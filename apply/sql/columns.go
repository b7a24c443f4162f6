package sql

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// The columns that a change feed adds (auto-cdc 2.11).
var feedColumns = []string{"_change_type", "_commit_version", "_commit_timestamp"}

// flowColumns holds a flow to the schema of its source, as far as it is known.
func (a *analyzer) flowColumns(p *FlowPlan) {
	src := a.schemas.of(p.Source)
	if p.Snapshot != "" {
		src = SourceSchema{}
		if q, ok := ReadSnapshotQuery(p.Snapshot); ok {
			src = a.schemas.of(q.Table)
			p.queried = q.Columns
		}
	}
	if src.Columns == nil && p.Binding != nil {
		src.Columns = p.Binding.Schema
	}
	p.Known = src.Columns != nil
	a.selectColumns(p, src)
	a.keyColumns(p, src)
	a.tracked(p)
	if p.Snapshot != "" {
		return
	}
	p.Sequence = a.sequence(p, "sequence_by", p.SequenceBy, src)
	if p.SequenceBy == "" && src.OwnSequence {
		p.Sequence = src.Position
	}
	p.SystemSequence = a.sequence(p, "system_sequence_by", p.SystemSequenceBy, src)
	a.condition(p, "apply_as_deletes", p.ApplyAsDeletes, src)
	a.condition(p, "apply_as_truncates", p.ApplyAsTruncates, src)
}

func contains(list []string, c string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return fold(x) == fold(c) })
}

// only are the columns that alone land in the target, by a list or by the query of
// snapshots; nil: all.
func (p *FlowPlan) only() []string {
	if p.queried != nil {
		return columns(p.queried)
	}
	return columns(p.ColumnList)
}

// selects tells whether a source column lands in the target; columns of an
// unknown source do unless the lists say no.
func (p *FlowPlan) selects(c string, src SourceSchema) bool {
	only, except := p.only(), columns(p.ExceptColumnList)
	switch {
	case only != nil && !contains(only, c), contains(except, c):
		return false
	case p.ColumnsToUpdate != "" && fold(columns([]string{p.ColumnsToUpdate})[0]) == fold(c):
		return false
	case src.ChangeFeed && contains(feedColumns, c) && only == nil:
		return false
	}
	return src.Columns == nil || src.Columns.Index(c) >= 0
}

func (a *analyzer) selectColumns(p *FlowPlan, src SourceSchema) {
	for _, c := range columns(p.queried) {
		if p.Known && src.Columns.Index(c) < 0 {
			a.notFound(p.at.of("snapshot"), "FROM SNAPSHOT", c, src.Columns.Names())
		}
	}
	for _, l := range p.lists() {
		if l.option != "column_list" && l.option != "except_column_list" && l.option != "columns_to_update" || !p.Known {
			continue
		}
		for i, c := range columns(l.names) {
			k := src.Columns.Index(c)
			if k < 0 {
				a.notFound(p.at.item(l.option, i), l.clause, c, src.Columns.Names())
				continue
			}
			if l.option == "columns_to_update" && src.Columns.Fields[k].Type != schema.Type(schema.Void) && !isStringArray(src.Columns.Fields[k].Type) {
				a.add(p.at.item(l.option, i), CodeColumnsToUpdate, "name a column of type ARRAY<STRING>", "column %s has type %s", c, src.Columns.Fields[k].Type)
			}
		}
	}
	if !p.Known {
		a.frameworkNames(p, p.only())
		return
	}
	p.Selected = &schema.Struct{}
	for _, f := range src.Columns.Fields {
		if strings.HasPrefix(fold(f.Name), reservedPrefix) {
			a.add(p.at.of("source"), CodeReservedPrefix, "rename it in the source", "source column %s starts with the reserved prefix %s", f.Name, reservedPrefix)
		}
		if p.selects(f.Name, src) {
			p.Selected.Fields = append(p.Selected.Fields, f)
		}
	}
	a.frameworkNames(p, p.Selected.Names())
}

func isStringArray(t schema.Type) bool {
	arr, ok := t.(*schema.Array)
	return ok && arr.Elem == schema.Type(schema.String)
}

// frameworkNames refuses selected columns that are named like those we add.
func (a *analyzer) frameworkNames(p *FlowPlan, selected []string) {
	for _, c := range selected {
		if !contains(frameworkColumns(p.SCD), c) {
			continue
		}
		at := p.at.of("source")
		for i, listed := range columns(p.ColumnList) {
			if fold(listed) == fold(c) {
				at = p.at.item("column_list", i)
			}
		}
		a.add(at, CodeReservedName, "leave it out with COLUMNS * EXCEPT ("+c+")", "source column %s is named like a column of the history", c)
	}
}

func (a *analyzer) notFound(at Pos, clause, c string, have []string) {
	remedy := "columns there: " + strings.Join(have[:min(len(have), 20)], ", ")
	if len(have) > 20 {
		remedy += ", ..."
	}
	a.add(at, CodeColumnsNotFound, remedy, "%s: there is no column %s", clause, clip(c))
}

func (a *analyzer) keyColumns(p *FlowPlan, src SourceSchema) {
	for i, k := range p.KeyColumns {
		at := p.at.item("keys", i)
		if p.Known {
			n := src.Columns.Index(k)
			if n < 0 {
				a.notFound(at, "KEYS", k, src.Columns.Names())
				continue
			}
			f := src.Columns.Fields[n]
			p.KeyColumns[i] = f.Name
			if f.Type != schema.Type(schema.Void) && !expr.Orderable(f.Type) {
				a.add(at, CodeKeyType, "use columns without maps and variants", "key column %s has type %s, which has no equality", f.Name, f.Type)
			}
		}
		if !p.selects(k, src) && (!p.Known || src.Columns.Index(k) >= 0) {
			a.add(at, CodeKeyNotSelected, "select it in COLUMNS", "key column %s is not among the selected columns", k)
		}
	}
}

// tracked resolves the lists that select from the data columns.
func (a *analyzer) tracked(p *FlowPlan) {
	var data []string
	if p.Known {
		for _, f := range p.Selected.Fields {
			if !contains(p.KeyColumns, f.Name) {
				data = append(data, f.Name)
			}
		}
	}
	for _, l := range p.lists() {
		if !strings.HasPrefix(l.option, "track_history") && !strings.HasPrefix(l.option, "ignore_null") {
			continue
		}
		for i, c := range columns(l.names) {
			at := p.at.item(l.option, i)
			switch {
			case contains(p.KeyColumns, c):
				a.add(at, CodeColumnsNotFound, "leave it out; keys never change", "%s: %s is a key column", l.clause, c)
			case p.Known && !contains(data, c):
				a.notFound(at, l.clause, c, data)
			case !p.Known && !p.selects(c, SourceSchema{}):
				a.add(at, CodeColumnsNotFound, "select it in COLUMNS", "%s: column %s is not among the selected columns", l.clause, clip(c))
			}
		}
	}
	if !p.Known {
		return
	}
	pick := func(list, except []string) []string {
		var out []string
		for _, c := range data {
			if list != nil && !contains(columns(list), c) || contains(columns(except), c) {
				continue
			}
			out = append(out, c)
		}
		return out
	}
	if p.ignoresNulls() {
		p.IgnoreNull = pick(p.IgnoreNullUpdatesColumnList, p.IgnoreNullUpdatesExceptColumnList)
	}
	if p.SCD != "1" {
		p.Tracked = pick(p.TrackHistoryColumnList, p.TrackHistoryExceptColumnList)
	}
}

// bind reads an expression against a schema, nil if it is not known: then only
// what no schema could cure is reported. notAllowed is the code of what
// expressions must not hold.
func (a *analyzer) bind(at Pos, clause, text string, s *schema.Struct, notAllowed string) *expr.Bound {
	e, err := expr.Parse(text)
	var syntax *expr.SyntaxError
	if errors.As(err, &syntax) {
		problem := syntaxProblem(syntax, at, notAllowed)
		if problem.Remedy == "" {
			problem.Remedy = "write it as in a SELECT of Spark SQL"
		}
		a.list = append(a.list, problem)
		return nil
	}
	known := s != nil
	if !known {
		s = &schema.Struct{}
	}
	bound, err := e.Bind(s)
	var be *expr.BindError
	if errors.As(err, &be) {
		for _, x := range be.Problems {
			code, remedy := x.Code, ""
			switch x.Code {
			case expr.CodeNotAllowed, expr.CodeNonDeterministic:
				code, remedy = notAllowed, "conditions and sequences are fixed by the columns of one row"
			case expr.CodeUnknownFunction, expr.CodeArgumentCount:
				if strings.HasSuffix(x.Msg, "_snapshot_version") {
					continue // reported as such
				}
			case expr.CodeUnresolvedColumn:
				if !known {
					continue
				}
				code, remedy = CodeColumnsNotFound, "name one of these"
			default:
				if !known {
					continue
				}
				remedy = "CAST to a type that fits"
			}
			switch x.Code {
			case expr.CodeUnknownFunction:
				remedy = "compute it before, in what the source is made from"
			case expr.CodeArgumentCount:
				remedy = "give as many arguments as the function takes"
			}
			if notAllowed == CodeExpectation {
				code = CodeExpectation
			}
			a.add(shift(at, x.Pos), code, remedy, "%s: %s", clause, x.Msg)
		}
		return nil
	}
	if err != nil || !known {
		return nil
	}
	return bound
}

func (a *analyzer) sequence(p *FlowPlan, option, text string, src SourceSchema) schema.Type {
	if text == "" {
		return nil
	}
	clause := strings.ToUpper(strings.ReplaceAll(option, "_", " "))
	at := p.at.item(option, 0)
	bound := a.bind(at, clause, p.raw.of(option, text), src.Columns, CodeExpression)
	if bound == nil {
		return nil
	}
	t := bound.Type()
	if t == schema.Type(schema.Void) && len(bound.Columns()) > 0 {
		return nil // nothing but nulls so far; its type comes with its values
	}
	if !expr.Orderable(t) || t == schema.Type(schema.Void) {
		a.add(at, CodeNotOrderable, "use columns without maps and variants", "%s has type %s, which has no order", clause, t)
		return nil
	}
	if option == "sequence_by" {
		if src.ChangeFeed && !contains(bound.Columns(), "_commit_version") {
			a.add(at, CodeCommitVersionSequence, "write SEQUENCE BY _commit_version", "the change feed of a table is ordered by its _commit_version")
		}
		for _, c := range bound.Columns() {
			if contains(p.Tracked, c) && p.SCD != "1" {
				a.warn("flow %s: the sequence column %s is stored and tracked, so every event makes a new version; exclude it with COLUMNS * EXCEPT (%s) or TRACK HISTORY ON * EXCEPT (%s)", p.FlowName, c, c, c)
			}
		}
	}
	return t
}

func (a *analyzer) condition(p *FlowPlan, option, text string, src SourceSchema) {
	if text == "" {
		return
	}
	clause := map[string]string{"apply_as_deletes": "APPLY AS DELETE WHEN", "apply_as_truncates": "APPLY AS TRUNCATE WHEN"}[option]
	at := p.at.item(option, 0)
	bound := a.bind(at, clause, p.raw.of(option, text), src.Columns, CodeExpression)
	if bound == nil {
		return
	}
	if t := bound.Type(); t != schema.Type(schema.Boolean) && t != schema.Type(schema.Void) {
		a.add(at, CodeNotBoolean, "write a comparison", "%s has type %s, not BOOLEAN", clause, t)
	}
}
