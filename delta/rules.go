package delta

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// ConstraintError is a row that the table does not take: its constraint, column,
// values and place.
type ConstraintError = datafile.ConstraintError

// Codes of a [ConstraintError] beside those of package datafile.
const (
	CodeCheck          = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"                 // W-421, W-422, W-423
	CodeNewCheck       = "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"                 // W-422
	CodeIdentityGiven  = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED" // W-425
	CodeIdentityUpdate = "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED"          // W-425
	CodeRuleText       = "DELTA_UNSUPPORTED_EXPRESSION"                         // a rule that sluice cannot evaluate
	constraintPrefix   = "delta.constraints."
	keyDefault         = schema.DefaultKey
	keyGeneration      = schema.GenerationKey
	keyInvariants      = "delta.invariants"
	featureDefaults    = deltalog.Feature("allowColumnDefaults")
	identitySchemaTag  = "delta.identity.schemaUpdate"
)

// Rules make and check the new rows of one commit by what the table's metadata asks
// for, in this order: defaults of columns that were not given (W-424), identity
// values (W-425), generated columns computed or verified (W-423), char and varchar
// lengths (W-405), NOT NULL (W-403), delta.invariants (W-421), CHECK constraints
// (W-422). They are for one commit, since they hand out identity values; several
// goroutines may use them at once.
type Rules struct {
	cfg     *deltalog.TableConfig
	schema  *schema.Struct
	columns []columnRule
	checks  []rowCheck
	lengths bool

	mu     sync.Mutex // of the identity counters
	moved  bool
	always bool // some column is GENERATED ALWAYS AS IDENTITY
}

// columnRule says where the values of one top-level column come from.
type columnRule struct {
	initial   *expr.Bound // CURRENT_DEFAULT
	generated *expr.Bound
	identity  *identity
}

// rowCheck is a condition that every new row must meet.
type rowCheck struct {
	name string // as in the error
	text string
	cond *expr.Bound
}

// Rules reads the rules of a table version. An expression that sluice does not
// evaluate is an ErrUnsupported that names all such rules.
func (t *Table) Rules(cfg *deltalog.TableConfig) (*Rules, error) {
	r := &Rules{cfg: cfg, schema: cfg.Schema, columns: make([]columnRule, len(cfg.Schema.Fields))}
	p := &rulesParser{t: t, r: r, cfg: cfg}
	for i, f := range cfg.Schema.Fields {
		p.column(&r.columns[i], f)
	}
	p.nested(cfg.Schema, "", true)
	p.constraints()
	if len(p.refused) > 0 {
		sort.Strings(p.refused)
		return nil, &deltalog.UnsupportedError{ErrorCode: CodeRuleText, Op: deltalog.OpWrite, Features: p.refused,
			MinReaderVersion: cfg.Protocol.MinReaderVersion, MinWriterVersion: cfg.Protocol.MinWriterVersion}
	}
	return r, nil
}

// MadeColumns are the columns that get a value of their own where rows lack them:
// those with a default, generated and identity columns.
func MadeColumns(cfg *deltalog.TableConfig) []string {
	var out []string
	for _, f := range cfg.Schema.Fields {
		for key, feature := range map[string]deltalog.Feature{keyDefault: featureDefaults, keyGeneration: deltalog.GeneratedColumns, keyIdentityStart: deltalog.IdentityColumns} {
			if _, ok := f.Metadata.Get(key); ok && cfg.Supports(feature) {
				out = append(out, f.Name)
				break
			}
		}
	}
	return out
}

// rulesParser collects rules and what it cannot parse.
type rulesParser struct {
	t       *Table
	r       *Rules
	cfg     *deltalog.TableConfig
	refused []string
}

func (p *rulesParser) refuse(rule string, why any) {
	p.refused = append(p.refused, fmt.Sprintf("%s: %v", rule, why))
}

// bind parses an expression over the columns of the table. A target converts the
// value to the type of its column.
func (p *rulesParser) bind(rule, text string, o expr.Options) *expr.Bound {
	e, err := expr.Parse(text)
	if err != nil {
		p.refuse(rule, err)
		return nil
	}
	o.Zone = p.t.opts.TimeZone
	b, err := e.BindWith(p.cfg.Schema, o)
	if err != nil {
		p.refuse(rule, err)
		return nil
	}
	return b
}

// condition binds a rule that must be TRUE.
func (p *rulesParser) condition(rule, text string) *expr.Bound {
	b := p.bind(rule, text, expr.Options{})
	if b != nil && b.Type() != schema.Boolean && b.Type() != schema.Void {
		p.refuse(rule, fmt.Sprintf("it has type %s, not BOOLEAN", b.Type()))
		return nil
	}
	return b
}

func (p *rulesParser) column(c *columnRule, f schema.Field) {
	if text, ok := textOf(f, keyGeneration); ok && p.cfg.Supports(deltalog.GeneratedColumns) {
		rule := "generated column " + f.Name + " AS " + text
		if c.generated = p.bind(rule, text, expr.Options{Target: f.Type}); c.generated != nil && slices.Contains(c.generated.Columns(), f.Name) {
			p.refuse(rule, "it refers to itself")
		}
	}
	if text, ok := textOf(f, keyDefault); ok && p.cfg.Supports(featureDefaults) {
		now := p.t.opts.Clock()
		c.initial = p.bind("column "+f.Name+" DEFAULT "+text, text, expr.Options{Target: f.Type, Now: &now})
		if c.initial != nil && len(c.initial.Columns()) > 0 {
			p.refuse("column "+f.Name+" DEFAULT "+text, "a default cannot read columns")
		}
	}
	if p.cfg.Supports(deltalog.IdentityColumns) {
		id, err := identityOf(f)
		if err != nil {
			p.refuse("identity column "+f.Name, err)
		}
		c.identity = id
		p.r.always = p.r.always || id != nil && !id.explicit
	}
	_, limited := f.Metadata.Get(schema.CharVarcharKey)
	p.r.lengths = p.r.lengths || limited
}

// nested looks for invariants, which may stand on fields of structs too; within
// arrays and maps nobody evaluates them.
func (p *rulesParser) nested(t schema.Type, path string, plain bool) {
	switch t := t.(type) {
	case *schema.Struct:
		for _, f := range t.Fields {
			at := dotted(path, f.Name)
			if text, ok := invariantOf(f); ok && p.cfg.Supports(deltalog.Invariants) {
				rule := "invariant " + text + " of column " + at
				if !plain {
					p.refuse(rule, "it is inside of an array or map")
				} else if b := p.condition(rule, text); b != nil {
					p.r.checks = append(p.r.checks, rowCheck{name: "EXPRESSION(" + text + ")", text: b.String(), cond: b})
				}
			}
			p.nested(f.Type, at, plain)
		}
	case *schema.Array:
		p.nested(t.Elem, dotted(path, "element"), false)
	case *schema.Map:
		p.nested(t.Key, dotted(path, "key"), false)
		p.nested(t.Value, dotted(path, "value"), false)
	}
}

// constraints are in order of their names; the property counts with the feature only.
func (p *rulesParser) constraints() {
	if !p.cfg.Supports(deltalog.CheckConstraints) {
		return
	}
	for _, c := range Constraints(p.cfg.Metadata) {
		rule := "CHECK constraint " + c.Name + " (" + c.Expression + ")"
		if b := p.condition(rule, c.Expression); b != nil {
			p.r.checks = append(p.r.checks, rowCheck{name: c.Name, text: b.String(), cond: b})
		}
	}
}

// Constraint is one CHECK constraint of a table.
type Constraint struct{ Name, Expression string }

// Constraints lists the CHECK constraints of a table by name.
func Constraints(m *deltalog.Metadata) []Constraint {
	var out []Constraint
	for k, v := range m.Configuration {
		if len(k) > len(constraintPrefix) && strings.EqualFold(k[:len(constraintPrefix)], constraintPrefix) {
			out = append(out, Constraint{k[len(constraintPrefix):], v})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Make fits rows to the table, columns matched by name as in [Conform]: columns that
// are missing get their default, identity or generated value, else null. The batch
// that comes back has the columns of the table and met every rule.
func (r *Rules) Make(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	given := make([]bool, len(r.columns))
	for _, f := range b.Schema().Fields() {
		if i := r.schema.Index(f.Name); i >= 0 {
			given[i] = true
		}
	}
	rows, err := Conform(r.schema, b)
	if err != nil {
		return nil, err
	}
	for i, c := range r.columns {
		if c.identity == nil || !given[i] || b.NumRows() == 0 {
			continue
		}
		if !c.identity.explicit {
			rows.Release()
			return nil, &ConstraintError{ErrorCode: CodeIdentityGiven, Column: r.schema.Fields[i].Name, Row: -1,
				Reason: "values cannot be given for a GENERATED ALWAYS AS IDENTITY column"}
		}
		r.mu.Lock()
		c.identity.given = true
		r.mu.Unlock()
	}
	defer rows.Release()
	return r.insert(rows, given)
}

// insert fills what was not given and checks the rows; columns are those of the
// table.
func (r *Rules) insert(rows arrow.RecordBatch, given []bool) (arrow.RecordBatch, error) {
	cols := slices.Clone(rows.Columns())
	n := int(rows.NumRows())
	for i, c := range r.columns {
		if given[i] {
			continue
		}
		switch {
		case c.identity != nil:
			a, err := r.allot(i, n, nil)
			if err != nil {
				return nil, err
			}
			cols[i] = a
		case c.initial != nil && c.generated == nil:
			a, err := c.initial.Eval(array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, int64(n)))
			if err != nil {
				return nil, fmt.Errorf("default of column %s: %w", r.schema.Fields[i].Name, err)
			}
			cols[i] = retype(a, cols[i].DataType())
		}
	}
	return r.finish(rows.Schema(), cols, n, given)
}

// Regenerate computes the generated columns of new rows anew, except those in given,
// whose values the caller chose: an UPDATE or MERGE names the columns that it
// assigns. Other columns stay. Rows have at least the columns of the table, in its
// order.
func (r *Rules) Regenerate(rows arrow.RecordBatch, given []string) (arrow.RecordBatch, error) {
	keep := make([]bool, len(r.columns))
	for _, name := range given {
		if i := r.schema.Index(name); i >= 0 {
			keep[i] = true
		}
	}
	cols := slices.Clone(rows.Columns())
	if err := r.generate(rows.Schema(), cols, int(rows.NumRows()), keep); err != nil {
		return nil, err
	}
	return array.NewRecordBatch(rows.Schema(), cols, rows.NumRows()), nil
}

// MayAssign refuses columns that UPDATE and MERGE must not set.
func (r *Rules) MayAssign(columns ...string) error {
	for _, name := range columns {
		if i := r.schema.Index(name); i >= 0 && r.columns[i].identity != nil {
			return &deltalog.InvalidError{ErrorCode: CodeIdentityUpdate, Rule: "W-425", Reason: "identity column " + r.schema.Fields[i].Name + " cannot be updated"}
		}
	}
	return nil
}

// generate computes the generated columns that were not given from the others.
func (r *Rules) generate(s *arrow.Schema, cols []arrow.Array, n int, given []bool) error {
	for i, c := range r.columns {
		if c.generated == nil || given[i] {
			continue
		}
		b := array.NewRecordBatch(s, cols, int64(n))
		a, err := c.generated.Eval(b)
		b.Release()
		if err != nil {
			return fmt.Errorf("generated column %s: %w", r.schema.Fields[i].Name, err)
		}
		cols[i] = retype(a, cols[i].DataType())
	}
	return nil
}

// finish computes generated columns, pads, and checks.
func (r *Rules) finish(s *arrow.Schema, cols []arrow.Array, n int, given []bool) (arrow.RecordBatch, error) {
	if err := r.lengthsOf(cols); err != nil {
		return nil, err
	}
	if err := r.generate(s, cols, n, given); err != nil {
		return nil, err
	}
	if err := r.lengthsOf(cols); err != nil {
		return nil, err
	}
	out := array.NewRecordBatch(s, cols, int64(n))
	if err := r.check(out, given); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

func (r *Rules) lengthsOf(cols []arrow.Array) error {
	if !r.lengths {
		return nil
	}
	return datafile.ApplyLengths(r.schema, cols)
}

// changed checks rows that take the place of others, whose hidden columns come after
// those of the table.
func (r *Rules) changed(before, after arrow.RecordBatch) (arrow.RecordBatch, error) {
	for i, c := range r.columns {
		if c.identity != nil && before != nil && !array.Equal(before.Column(i), after.Column(i)) {
			return nil, r.MayAssign(r.schema.Fields[i].Name)
		}
	}
	given := make([]bool, len(r.columns))
	for i := range given {
		given[i] = true
	}
	return r.finish(after.Schema(), slices.Clone(after.Columns()), int(after.NumRows()), given)
}

// check holds complete rows to every rule; generated columns that were given are
// verified.
func (r *Rules) check(rows arrow.RecordBatch, given []bool) error {
	if err := datafile.CheckNotNull(r.schema, rows.Columns()[:len(r.columns)]); err != nil {
		return err
	}
	for i, c := range r.columns {
		if c.generated == nil || !given[i] {
			continue
		}
		want, err := c.generated.Eval(rows)
		if err != nil {
			return fmt.Errorf("generated column %s: %w", r.schema.Fields[i].Name, err)
		}
		if row := firstDifference(rows.Column(i), want); row >= 0 {
			want.Release()
			name := r.schema.Fields[i].Name
			return r.violation(rows, row, "Generated Column", schema.QuoteName(name)+" <=> "+c.generated.String(), name, append([]string{name}, c.generated.Columns()...))
		}
		want.Release()
	}
	for _, c := range r.checks {
		hits, err := c.cond.EvalFilter(rows)
		if err != nil {
			return fmt.Errorf("CHECK constraint %s: %w", c.name, err)
		}
		if int64(len(hits)) == rows.NumRows() {
			continue
		}
		row := 0
		for row < len(hits) && hits[row] == int32(row) {
			row++
		}
		return r.violation(rows, row, c.name, c.text, "", c.cond.Columns())
	}
	return nil
}

// violation describes the row by the columns that the rule reads.
func (r *Rules) violation(rows arrow.RecordBatch, row int, name, text, column string, reads []string) error {
	e := &ConstraintError{ErrorCode: CodeCheck, Column: column, Row: int64(row), Constraint: name, Expression: text}
	if column == "" && len(reads) > 0 {
		e.Column = reads[0]
	}
	for _, c := range reads {
		if at := rows.Schema().FieldIndices(c); len(at) > 0 {
			e.Values = append(e.Values, datafile.NamedValue{Column: c, Text: rows.Column(at[0]).ValueStr(row)})
		}
	}
	return e
}

// firstDifference is the first row in which a and b differ, null being equal to
// null and NaN to NaN; -1 when there is none.
func firstDifference(a, b arrow.Array) int {
	b = retype(b, a.DataType())
	if array.Equal(a, b) {
		return -1
	}
	for i := range a.Len() {
		if nan(a, i) && nan(b, i) {
			continue
		}
		if !array.SliceEqual(a, int64(i), int64(i+1), b, int64(i), int64(i+1)) {
			return i
		}
	}
	return -1
}

// nan reports whether value i is there and not a number.
func nan(a arrow.Array, i int) bool {
	if a.IsNull(i) {
		return false
	}
	switch a := a.(type) {
	case *array.Float64:
		return math.IsNaN(a.Value(i))
	case *array.Float32:
		return math.IsNaN(float64(a.Value(i)))
	}
	return false
}
