package sql

import (
	"errors"
	"strings"

	"github.com/sluice-data/sluice/internal/expr"
)

// clauses are the words that start the clauses of a feed. COLUMNS TO UPDATE goes
// before COLUMNS (auto-cdc 1.2 rule 3).
var clauses = []struct {
	option string
	words  []string
}{
	{"ignore_null_updates", []string{"IGNORE", "NULL", "UPDATES"}},
	{"apply_as_deletes", []string{"APPLY", "AS", "DELETE", "WHEN"}},
	{"apply_as_truncates", []string{"APPLY", "AS", "TRUNCATE", "WHEN"}},
	{"sequence_by", []string{"SEQUENCE", "BY"}},
	{"system_sequence_by", []string{"SYSTEM", "SEQUENCE", "BY"}},
	{"columns_to_update", []string{"COLUMNS", "TO", "UPDATE"}},
	{"column_list", []string{"COLUMNS"}},
	{"stored_as_scd_type", []string{"STORED", "AS"}},
	{"track_history_column_list", []string{"TRACK", "HISTORY", "ON"}},
	{"keys", []string{"KEYS", "("}},
}

// feed reads FROM ... KEYS ... and the clauses after them. base is at of the flow.
func (p *parser) feed(f *Flow, at positions) {
	t := p.cur()
	at["source"] = t.pos
	p.lay.item("from", p.at)
	if !p.accept("FROM") {
		p.fail(t, "FROM comes first, KEYS second", "expected FROM, found %s", t.describe())
		return
	}
	if p.next("SNAPSHOT", "(") {
		p.snapshot(f, at)
	} else {
		p.stream(f, at)
	}
	keys := p.cur()
	if !p.accept("KEYS") {
		p.fail(keys, "KEYS (columns) comes second, after FROM", "expected KEYS, found %s", keys.describe())
		return
	}
	outer := p.form
	p.form = forms["keys"]
	p.lay.item("keys", p.at-1)
	at["keys"], at["#keys"] = keys.pos, keys.pos
	f.Keys = p.idents(at, "keys")
	if !p.broken {
		p.form = outer
	}
	for !p.broken && p.cur().kind != tokEOF && !p.cur().is(";") {
		if !p.clause(f, at) {
			return
		}
	}
}

func (p *parser) stream(f *Flow, at positions) {
	t := p.cur()
	if p.next("STREAM") && !p.peek(1).is("KEYS") && !p.peek(1).is(".") || p.next("STREAM", "KEYS") && !p.peek(2).is("(") {
		p.take()
		if p.accept("(") {
			p.streamName(f, at)
			p.expect(")")
			return
		}
		p.streamName(f, at)
		return
	}
	if p.next("(") || p.next("SELECT") {
		p.fail(t, "filter or reshape in a view before", "the source of a flow is a name, not a query")
		return
	}
	p.streamName(f, at)
	f.NotStream = true
	at["source"] = t.pos
}

func (p *parser) streamName(f *Flow, at positions) {
	at["source"] = p.cur().pos
	if p.next("SELECT") || p.next("(") || p.next("WITH") && !p.peek(1).is(")") && !p.peek(1).is("KEYS") {
		p.fail(p.cur(), "filter or reshape before; the source is a name", "the source of a flow is a name, not a query")
		return
	}
	f.Source = p.name("name of the source")
	if p.next("(") {
		p.fail(p.cur(), "bind a name with CREATE SOURCE and use that", "the source of a flow is a name, not a function")
	}
}

func (p *parser) snapshot(f *Flow, at positions) {
	p.take()
	defer func(outer string) { p.form = outer }(p.form)
	p.form = forms["snapshot"]
	at["snapshot"] = p.cur().pos
	f.Snapshot = p.query("snapshot query")
	if t := p.cur(); p.accept("WITH", "VERSION") {
		p.lay.item("snapshot_version", p.at-2)
		at["snapshot_version"] = p.cur().pos
		f.SnapshotVersion = p.query("version query")
	} else if p.next("WITH") {
		p.fail(t, "write WITH VERSION (query)", "expected WITH VERSION, found %s", t.describe())
	}
}

// query reads "(" query ")" as text; nobody here runs it.
func (p *parser) query(what string) string {
	p.expect("(")
	first := p.cur()
	start, depth := first.off, 0
	for !p.broken {
		t := p.cur()
		switch {
		case t.kind == tokEOF || t.is(";"):
			p.fail(t, "close the query with )", "the %s has no end", what)
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		}
		if depth < 0 {
			break
		}
		p.take()
	}
	if p.broken {
		return ""
	}
	end := p.cur().off
	text := strings.TrimSpace(p.text[start:end])
	switch {
	case text == "" || first.is(")"):
		p.fail(first, "", "the %s is empty", what)
	case !first.is("SELECT") && !first.is("WITH") && !first.is("TABLE") && !first.is("VALUES") && !first.is("FROM") && !first.is("("):
		p.fail(first, "write (SELECT ...)", "expected a query, found %s", first.describe())
	}
	p.lay.verbatim(start, end)
	p.expect(")")
	return text
}

// clauseAt finds the clause that starts at token i. loose is false where only an
// expression can start, so that a column named columns is one.
func (p *parser) clauseAt(i int, loose bool) (option string, words []string) {
	tok := func(k int) token { return p.toks[min(i+k, len(p.toks)-1)] }
	for _, c := range clauses {
		match := true
		for k, w := range c.words {
			match = match && tok(k).is(w)
		}
		if !match {
			continue
		}
		if c.option == "column_list" {
			next := tok(1)
			name := next.kind == tokWord || next.kind == tokQuoted
			if !next.is("(") && !(next.is("*") && tok(2).is("EXCEPT")) && !(loose && name) {
				continue
			}
		}
		return c.option, c.words
	}
	return "", nil
}

// clause reads one clause; false if it could not.
func (p *parser) clause(f *Flow, at positions) bool {
	t := p.cur()
	option, words := p.clauseAt(p.at, true)
	if option == "" && t.is("COLUMNS") {
		option, words = "column_list", []string{"COLUMNS"}
	}
	if option == "" {
		if what := p.wider(); what != "" {
			p.failCode(t, CodeUnsupportedClause, "leave it out", "%s is not supported", what)
			return false
		}
		p.unknownClause(t)
		return false
	}
	clause := strings.Join(words, " ")
	if option == "keys" {
		clause = "KEYS"
	}
	if f.Snapshot != "" && option != "stored_as_scd_type" && option != "track_history_column_list" && option != "keys" {
		p.fail(t, "snapshot flows take STORED AS SCD TYPE and TRACK HISTORY ON", "%s is not a clause of FROM SNAPSHOT", clause)
		return false
	}
	if _, dup := at["#"+option]; dup {
		p.add(t.pos, CodeDuplicateClause, "keep one", "%s is given twice", clause)
	}
	at["#"+option] = t.pos
	if _, ok := at[option]; !ok {
		at[option] = t.pos
	}
	p.lay.item(option, p.at)
	p.at += len(words)
	defer func(outer string) { p.form = outer }(p.form)
	p.form = forms[option]
	switch option {
	case "keys":
		p.at--
		p.idents(positions{}, "keys")
	case "ignore_null_updates":
		if p.accept("ON") {
			f.IgnoreNullUpdatesColumnList, f.IgnoreNullUpdatesExceptColumnList = p.columnSet(at, "ignore_null_updates_column_list", t)
		} else {
			f.IgnoreNullUpdates = true
		}
	case "apply_as_deletes":
		f.ApplyAsDeletes = p.expression(f, at, option, clause)
	case "apply_as_truncates":
		f.ApplyAsTruncates = p.expression(f, at, option, clause)
	case "sequence_by":
		f.SequenceBy = p.expression(f, at, option, clause)
	case "system_sequence_by":
		f.SystemSequenceBy = p.expression(f, at, option, clause)
	case "column_list":
		f.ColumnList, f.ExceptColumnList = p.columnSet(at, option, t)
	case "columns_to_update":
		at["columns_to_update.0"] = p.cur().pos
		if list := p.bareIdents(at, option); len(list) > 1 {
			p.add(at.item(option, 1), CodeSyntax, "name the one column that lists the columns of an event", "COLUMNS TO UPDATE takes one column")
		} else if len(list) == 1 {
			f.ColumnsToUpdate = list[0]
		}
	case "stored_as_scd_type":
		f.StoredAsSCDType = p.storedAs(f)
	case "track_history_column_list":
		f.TrackHistoryColumnList, f.TrackHistoryExceptColumnList = p.columnSet(at, option, t)
	}
	return !p.broken
}

// exceptOption is the option that excludes columns where option lists them.
func exceptOption(option string) string {
	switch option {
	case "column_list":
		return "except_column_list"
	case "track_history_column_list":
		return "track_history_except_column_list"
	}
	return "ignore_null_updates_except_column_list"
}

// unknownClause guesses what was meant.
func (p *parser) unknownClause(t token) {
	p.fail(t, hint(t, p.peek(1)), "unexpected %s", t.describe())
}

// hint is a remedy for a token that cannot stand between clauses.
func hint(t, next token) string {
	switch {
	case t.is("FROM"):
		return "a flow has one FROM"
	case t.is("WHERE"):
		return "filter before; the source of a flow is a name"
	case t.is("APPLY"):
		return "write APPLY AS DELETE WHEN or APPLY AS TRUNCATE WHEN"
	case t.is("IGNORE"):
		return "write IGNORE NULL UPDATES"
	case t.is("TRACK"):
		return "write TRACK HISTORY ON"
	case t.is("SEQUENCE"), t.is("SYSTEM"):
		return "write SEQUENCE BY or SYSTEM SEQUENCE BY"
	case t.is("STORED"):
		return "write STORED AS SCD TYPE 1, STORED AS SCD TYPE 2 or STORED AS BITEMPORAL"
	case t.is("COLUMNS"):
		return "write COLUMNS (a, b), COLUMNS * EXCEPT (a) or COLUMNS TO UPDATE c"
	case t.is("WITH"):
		return "WITH VERSION stands before KEYS"
	case t.is("ONCE"):
		return "ONCE stands after AUTO CDC"
	case t.is(",") && next.kind == tokWord && !next.is("SEQUENCE") && !next.is("APPLY") && !next.is("STORED"):
		return "several columns in one sequence are STRUCT(a, b)"
	case t.is(","):
		return "clauses are not separated by commas"
	case t.is("CREATE"):
		return "statements end with ;"
	}
	return ""
}

// columnSet reads a list of columns or * EXCEPT (list). For the latter the clause
// is recorded under the option that excludes.
func (p *parser) columnSet(at positions, option string, clause token) (list, except []string) {
	if _, ok := at[option]; !ok {
		at[option] = clause.pos
	}
	switch {
	case p.accept("*"):
		if !p.next("EXCEPT") {
			p.fail(p.cur(), "write * EXCEPT (columns), or leave the clause out", "expected EXCEPT after *, found %s", p.cur().describe())
			return nil, nil
		}
		p.take()
		other := exceptOption(option)
		at[other] = clause.pos
		return nil, p.idents(at, other)
	case p.next("("):
		return p.idents(at, option), nil
	case p.next("TO"):
		p.fail(p.cur(), "quote or parenthesise the column, or write COLUMNS TO UPDATE", "a column named to must be quoted here")
		return nil, nil
	}
	return p.bareIdents(at, option), nil
}

func (p *parser) storedAs(f *Flow) string {
	t := p.cur()
	if p.accept("BITEMPORAL") {
		if f.Snapshot != "" {
			p.fail(t, "snapshots are stored as SCD TYPE 1 or 2", "BITEMPORAL is not for FROM SNAPSHOT")
		}
		return "bitemporal"
	}
	if !p.accept("SCD", "TYPE") {
		p.fail(t, "write SCD TYPE 1, SCD TYPE 2 or BITEMPORAL", "expected SCD TYPE or BITEMPORAL, found %s", t.describe())
		return ""
	}
	n := p.cur()
	if n.kind != tokNumber || n.text != "1" && n.text != "2" {
		p.fail(n, "types are 1 and 2", "expected 1 or 2, found %s", n.describe())
		return ""
	}
	return p.take().text
}

// openWords cannot end an expression, so no clause starts after them.
var openWords = map[string]bool{"AND": true, "OR": true, "NOT": true, "IN": true, "IS": true, "LIKE": true, "ILIKE": true, "RLIKE": true,
	"REGEXP": true, "BETWEEN": true, "WHEN": true, "THEN": true, "ELSE": true, "CASE": true, "DIV": true, "ESCAPE": true, "DISTINCT": true, "FROM": true}

func ends(t token) bool {
	switch t.kind {
	case tokWord:
		return !openWords[strings.ToUpper(t.text)]
	case tokSymbol:
		return t.text == ")" || t.text == "]"
	}
	return true
}

// expression reads up to the next clause at depth zero (auto-cdc 1.2 rule 5) and
// answers the canonical text.
func (p *parser) expression(f *Flow, at positions, option, clause string) string {
	start, depth := p.at, 0
	for !p.broken {
		t := p.cur()
		if t.kind == tokEOF || t.is(";") {
			break
		}
		if depth == 0 && (p.at == start || ends(p.toks[p.at-1])) {
			if o, _ := p.clauseAt(p.at, p.at > start); o != "" {
				break
			}
			if p.at > start && p.wider() != "" && !t.is("AS") {
				break
			}
		}
		switch {
		case t.is("(") || t.is("["):
			depth++
		case t.is(")") || t.is("]"):
			depth--
		}
		p.take()
	}
	if p.at == start {
		p.fail(p.cur(), "", "expected an expression after %s, found %s", clause, p.cur().describe())
		return ""
	}
	at[option+".0"] = p.toks[start].pos
	if f.raw == nil {
		f.raw = originals{}
	}
	return p.parseExpr(start, p.at, CodeExpression, f.raw, option)
}

// parseExpr checks the expression of the tokens [from, to). Its problems do not
// stop the statement. notAllowed is the code of what expressions must not hold.
func (p *parser) parseExpr(from, to int, notAllowed string, raw originals, option string) string {
	text := p.text[p.toks[from].off:p.toks[to-1].end]
	raw[option] = text
	e, err := expr.Parse(text)
	if err == nil {
		return e.String()
	}
	var syntax *expr.SyntaxError
	if errors.As(err, &syntax) {
		problem := syntaxProblem(syntax, p.toks[from].pos, notAllowed)
		for i := from; i < to && problem.Remedy == ""; i++ {
			if p.toks[i].off == p.toks[from].off+syntax.Pos.Offset {
				problem.Remedy = hint(p.toks[i], p.toks[i+1])
			}
		}
		if strings.HasPrefix(problem.Message, "malformed") {
			problem.Remedy = "literals are DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00'"
		}
		if problem.Remedy == "" && p.form != "" {
			problem.Remedy = "the form is " + p.form
		}
		p.list = append(p.list, problem)
	}
	return ""
}

// syntaxProblem moves an error of an expression to its place in the script.
func syntaxProblem(e *expr.SyntaxError, base Pos, notAllowed string) *Error {
	at := shift(base, e.Pos)
	out := &Error{Code: CodeSyntax, Line: at.Line, Col: at.Col, Message: e.Msg}
	if e.Code() == expr.CodeNotAllowed {
		out.Code, out.Remedy = notAllowed, "compute it before; conditions and sequences see one row"
	}
	return out
}

func shift(base Pos, p expr.Pos) Pos {
	switch {
	case base.Line == 0:
		return base
	case p.Line <= 1:
		return Pos{base.Line, base.Col + max(p.Col, 1) - 1}
	}
	return Pos{base.Line + p.Line - 1, p.Col}
}

// canonicalExpr is the canonical text of an expression, or the text itself.
func canonicalExpr(text string) string {
	if text == "" {
		return ""
	}
	if e, err := expr.Parse(text); err == nil {
		return e.String()
	}
	return text
}
