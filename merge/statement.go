package merge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/internal/expr"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// Stable codes of statements that are refused, Spark's where it has one.
const (
	CodeMultipleMatches   = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
	CodeNoClause          = "DELTA_MERGE_MISSING_WHEN"
	CodeClauseOrder       = "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"
	CodeClauseOrderSource = "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION"
	CodeClauseOrderTarget = "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION"
	CodeClauseAction      = "INVALID_MERGE_CLAUSE_ACTION"
	CodeAmbiguous         = "AMBIGUOUS_REFERENCE"
	CodeUnresolvedInMerge = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
	CodeSetConflict       = "DELTA_CONFLICT_SET_COLUMN"
	CodeInsertDuplicate   = "DELTA_DUPLICATE_COLUMNS_ON_INSERT"
	CodeInsertCount       = "INSERT_COLUMN_ARITY_MISMATCH"
	CodeSubquery          = "DELTA_UNSUPPORTED_SUBQUERY"
)

// Action is what a clause does.
type Action uint8

// The actions. UpdateAll and InsertAll are the star forms.
const (
	Update Action = iota + 1
	UpdateAll
	Delete
	Insert
	InsertAll
)

// Kind says which rows a clause is about.
type Kind uint8

// The kinds: pairs of rows for which ON is true, source rows and target rows without
// a partner.
const (
	Matched Kind = iota + 1
	NotMatched
	NotMatchedBySource
)

var kindText = map[Kind]string{Matched: "WHEN MATCHED", NotMatched: "WHEN NOT MATCHED", NotMatchedBySource: "WHEN NOT MATCHED BY SOURCE"}

// Spec is a MERGE statement as Go values; see [Build]. Texts are SQL expressions over
// the columns of both sides, qualified by alias or bare where only one side has them.
type Spec struct {
	// Target and Source are the aliases; default "target" and "source".
	Target, Source string
	On             string
	Clauses        []Clause
	// SchemaEvolution lets star forms and assignments add columns to the table.
	SchemaEvolution bool
}

// Clause is one WHEN clause of a [Spec].
type Clause struct {
	Kind Kind
	// If is a further condition; "" is none.
	If     string
	Action Action
	// Set are the assignments of Update and Insert.
	Set []Set
	// Assignments are the same as one text, "a = x + 1, b = 'y'"; positions in errors
	// are places in it. It comes after Set.
	Assignments string
}

// Set is one assignment: a column, or a field of one in SQL spelling, and its value.
type Set struct{ Column, Value string }

// Statement is a MERGE statement that has been read and checked as far as that needs
// no table. It is immutable.
type Statement struct {
	target, source side
	on             *expr.Expr
	clauses        []clause
	evolve         bool
}

// side is how expressions name one side.
type side struct {
	parts []string // of its name
	alias string
}

// display is the alias, or the last part of the name.
func (s side) display() string {
	if s.alias != "" || len(s.parts) == 0 {
		return s.alias
	}
	return s.parts[len(s.parts)-1]
}

// strip takes the qualifier off a path; ok is false if the path has none of this side.
func (s side) strip(path []string) ([]string, bool) {
	if s.alias != "" {
		return path[1:], len(path) > 1 && strings.EqualFold(path[0], s.alias)
	}
	for n := len(s.parts); n > 0; n-- {
		q := s.parts[len(s.parts)-n:]
		if len(path) <= n {
			continue
		}
		same := true
		for i := range q {
			same = same && strings.EqualFold(q[i], path[i])
		}
		if same {
			return path[n:], true
		}
	}
	return path, false
}

// clause is one WHEN clause.
type clause struct {
	kind   Kind
	pos    expr.Pos
	when   *expr.Expr // nil: always
	action Action
	sets   []expr.Assignment
}

// SourceName is how the statement names its source.
func (s *Statement) SourceName() string { return strings.Join(s.source.parts, ".") }

// TargetName is how the statement names the table.
func (s *Statement) TargetName() string { return strings.Join(s.target.parts, ".") }

// TargetParts are the parts of TargetName.
func (s *Statement) TargetParts() []string { return slices.Clone(s.target.parts) }

// SchemaEvolution reports whether the statement may add columns.
func (s *Statement) SchemaEvolution() bool { return s.evolve }

// WithSchemaEvolution is the statement with schema evolution on.
func (s *Statement) WithSchemaEvolution() *Statement {
	out := *s
	out.evolve = true
	return &out
}

// Build reads the texts of a spec. Errors are those of [Parse].
func Build(p Spec) (*Statement, error) {
	s := &Statement{target: side{alias: p.Target}, source: side{alias: p.Source}, evolve: p.SchemaEvolution}
	if s.target.alias == "" {
		s.target.alias = "target"
	}
	if s.source.alias == "" {
		s.source.alias = "source"
	}
	var err error
	if s.on, err = expr.Parse(p.On); err != nil {
		return nil, fmt.Errorf("ON: %w", err)
	}
	for i, c := range p.Clauses {
		out := clause{kind: c.Kind, action: c.Action}
		at := func(err error) error { return fmt.Errorf("clause %d (%s): %w", i+1, kindText[c.Kind], err) }
		if kindText[c.Kind] == "" {
			return nil, invalid(CodeClauseAction, expr.Pos{}, "clause %d has no kind", i+1)
		}
		if c.If != "" {
			if out.when, err = expr.Parse(c.If); err != nil {
				return nil, at(err)
			}
		}
		for _, set := range c.Set {
			path, err := readPath(set.Column)
			if err != nil {
				return nil, at(err)
			}
			value, err := expr.Parse(set.Value)
			if err != nil {
				return nil, at(fmt.Errorf("set %s: %w", set.Column, err))
			}
			out.sets = append(out.sets, expr.Assignment{Path: path, Value: value})
		}
		if c.Assignments != "" {
			more, err := expr.ParseAssignments(c.Assignments)
			if err != nil {
				return nil, at(err)
			}
			out.sets = append(out.sets, more...)
		}
		s.clauses = append(s.clauses, out)
	}
	return s, s.check()
}

func readPath(text string) ([]string, error) {
	c, err := expr.NewCursor(text)
	if err != nil {
		return nil, err
	}
	path := c.Path()
	c.End()
	return path, c.Err()
}

func invalid(code string, pos expr.Pos, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if pos.Line > 0 {
		text += " at " + pos.String()
	}
	return &StatementError{code, text}
}

// StatementError is a statement that means nothing, by itself or for the tables it is
// used on.
type StatementError struct{ ErrorCode, Reason string }

func (e *StatementError) Error() string { return e.Reason }

// Code is the stable error code.
func (e *StatementError) Code() string { return e.ErrorCode }

// Is answers the class deltalog.ErrInvalid.
func (e *StatementError) Is(target error) bool { return target == deltalog.ErrInvalid }

var clauseOrder = map[Kind]string{Matched: CodeClauseOrder, NotMatched: CodeClauseOrderTarget, NotMatchedBySource: CodeClauseOrderSource}

var allowed = map[Kind]map[Action]bool{
	Matched: {Update: true, UpdateAll: true, Delete: true}, NotMatched: {Insert: true, InsertAll: true},
	NotMatchedBySource: {Update: true, Delete: true},
}

// check holds the statement to what needs no table.
func (s *Statement) check() error {
	if strings.EqualFold(s.target.display(), s.source.display()) {
		return invalid(CodeAmbiguous, expr.Pos{}, "target and source are both called %s; give one of them another alias", s.target.display())
	}
	if len(s.clauses) == 0 {
		return invalid(CodeNoClause, expr.Pos{}, "a MERGE needs at least one WHEN clause")
	}
	open := map[Kind]bool{}
	for _, c := range s.clauses {
		if open[c.kind] {
			return invalid(clauseOrder[c.kind], c.pos, "only the last %s clause may go without a condition", kindText[c.kind])
		}
		open[c.kind] = c.when == nil
		if !allowed[c.kind][c.action] {
			return invalid(CodeClauseAction, c.pos, "a clause %s cannot do that: pairs are updated or deleted, source rows inserted, target rows without a source updated by assignments or deleted", kindText[c.kind])
		}
		if (c.action == Update || c.action == Insert) && len(c.sets) == 0 {
			return invalid(CodeClauseAction, c.pos, "a clause %s assigns nothing", kindText[c.kind])
		}
	}
	return nil
}

// String is the statement in canonical form.
func (s *Statement) String() string {
	var b strings.Builder
	b.WriteString("MERGE ")
	if s.evolve {
		b.WriteString("WITH SCHEMA EVOLUTION ")
	}
	b.WriteString("INTO " + s.target.String() + "\nUSING " + s.source.String() + "\nON " + s.on.String())
	for _, c := range s.clauses {
		b.WriteString("\n" + kindText[c.kind])
		if c.when != nil {
			b.WriteString(" AND " + c.when.String())
		}
		b.WriteString(" THEN ")
		switch c.action {
		case Delete:
			b.WriteString("DELETE")
		case UpdateAll:
			b.WriteString("UPDATE SET *")
		case InsertAll:
			b.WriteString("INSERT *")
		case Update:
			b.WriteString("UPDATE SET ")
			for i, a := range c.sets {
				if i > 0 {
					b.WriteString(", ")
				}
				b.WriteString(pathText(a.Path) + " = " + a.Value.String())
			}
		case Insert:
			var names, values []string
			for _, a := range c.sets {
				names, values = append(names, pathText(a.Path)), append(values, a.Value.String())
			}
			b.WriteString("INSERT (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
		}
	}
	return b.String()
}

func (s side) String() string {
	if len(s.parts) == 0 {
		return schema.QuoteName(s.alias)
	}
	out := pathText(s.parts)
	if s.alias != "" {
		out += " AS " + schema.QuoteName(s.alias)
	}
	return out
}

func pathText(path []string) string {
	out := make([]string, len(path))
	for i, p := range path {
		out[i] = schema.QuoteName(p)
	}
	return strings.Join(out, ".")
}

// Parse reads one MERGE statement:
//
//	MERGE [WITH SCHEMA EVOLUTION] INTO target [[AS] alias] USING source [[AS] alias] ON condition
//	{ WHEN MATCHED [AND condition] THEN { UPDATE SET * | UPDATE SET column = value, ... | DELETE }
//	| WHEN NOT MATCHED [BY TARGET] [AND condition] THEN { INSERT * | INSERT (column, ...) VALUES (value, ...) }
//	| WHEN NOT MATCHED BY SOURCE [AND condition] THEN { UPDATE SET column = value, ... | DELETE } } ...
//
// Errors name line and column: *expr.SyntaxError in text that is no statement,
// [*StatementError] for one that means nothing.
func Parse(text string) (*Statement, error) {
	c, err := expr.NewCursor(strings.TrimRight(text, "; \t\r\n"))
	if err != nil {
		return nil, err
	}
	p := &parser{Cursor: c}
	s := p.statement()
	if p.invalid != nil {
		return nil, p.invalid
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return s, s.check()
}

type parser struct {
	*expr.Cursor
	invalid error // of a well-formed text
}

func (p *parser) statement() *Statement {
	s := &Statement{}
	p.Expect("MERGE")
	if p.Accept("WITH") {
		p.Expect("SCHEMA", "EVOLUTION")
		s.evolve = true
	}
	p.Expect("INTO")
	s.target = p.side("USING")
	p.Expect("USING")
	if p.Is("(") {
		p.refuse(invalid(CodeSubquery, p.Pos(), "a query is not a source here; give the rows a name"))
	}
	s.source = p.side("ON")
	p.Expect("ON")
	s.on = p.Expr()
	for p.Err() == nil && p.invalid == nil && p.Is("WHEN") {
		s.clauses = append(s.clauses, p.clause())
	}
	if p.invalid == nil {
		p.End()
	}
	return s
}

func (p *parser) refuse(err error) {
	if p.invalid == nil {
		p.invalid = err
	}
}

// side reads a name with its alias; the word next ends it.
func (p *parser) side(next string) side {
	s := side{parts: p.Path()}
	if p.Accept("AS") || p.AtName() && !p.Is(next) {
		path := p.Path()
		s.alias = path[0]
		if len(path) > 1 {
			p.Fail(p.Pos(), "an alias has one part")
		}
	}
	return s
}

func (p *parser) clause() clause {
	c := clause{kind: Matched, pos: p.Pos()}
	p.Expect("WHEN")
	switch {
	case p.Accept("NOT", "MATCHED", "BY", "SOURCE"):
		c.kind = NotMatchedBySource
	case p.Accept("NOT", "MATCHED", "BY", "TARGET"), p.Accept("NOT", "MATCHED"):
		c.kind = NotMatched
	default:
		p.Expect("MATCHED")
	}
	if p.Accept("AND") {
		c.when = p.Expr()
	}
	p.Expect("THEN")
	switch {
	case p.Accept("DELETE"):
		c.action = Delete
	case p.Accept("UPDATE", "SET", "*"), p.Accept("UPDATE", "*"):
		c.action = UpdateAll
	case p.Accept("UPDATE"):
		p.Expect("SET")
		c.action, c.sets = Update, p.assignments()
	case p.Accept("INSERT", "*"):
		c.action = InsertAll
	default:
		p.Expect("INSERT")
		c.action, c.sets = Insert, p.insert(c.pos)
	}
	return c
}

func (p *parser) assignments() []expr.Assignment {
	var out []expr.Assignment
	for p.Err() == nil {
		a := expr.Assignment{Pos: p.Pos()}
		a.Path = p.Path()
		if !p.Accept("==") {
			p.Expect("=")
		}
		a.Value = p.Expr()
		out = append(out, a)
		if !p.Accept(",") {
			break
		}
	}
	return out
}

func (p *parser) insert(at expr.Pos) []expr.Assignment {
	var out []expr.Assignment
	p.Expect("(")
	for p.Err() == nil {
		a := expr.Assignment{Pos: p.Pos()}
		a.Path = p.Path()
		out = append(out, a)
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")", "VALUES", "(")
	n := 0
	for p.Err() == nil {
		v := p.Expr()
		if n < len(out) {
			out[n].Value = v
		}
		n++
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	if p.Err() == nil && n != len(out) {
		p.refuse(invalid(CodeInsertCount, at, "%d columns and %d values", len(out), n))
	}
	return out
}

// MultipleMatchError: several source rows match one target row, and which of them
// changes it is nowhere said.
type MultipleMatchError struct {
	Rows int64 // target rows that it concerns
	// Key is the text of the join keys of one of them, "" without equality keys.
	Key string
}

func (e *MultipleMatchError) Error() string {
	at := ""
	if e.Key != "" {
		at = " (one of them: " + e.Key + ")"
	}
	return fmt.Sprintf("%d target rows match several source rows%s; make the source's keys unique, or narrow ON", e.Rows, at)
}

// Code is the stable error code.
func (e *MultipleMatchError) Code() string { return CodeMultipleMatches }

// Is answers the class deltalog.ErrInvalid.
func (e *MultipleMatchError) Is(target error) bool { return target == deltalog.ErrInvalid }
