package merge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// plan is a statement bound to one schema of the table and that of the source.
// Expressions over both sides read batches whose columns are called alias.column.
type plan struct {
	st             *Statement
	target, source *schema.Struct
	joint          *schema.Struct
	zone           *time.Location
	now            time.Time // of current_timestamp() and its kin

	// ON taken apart: keys find pairs by hash; onTarget (over the table's own columns)
	// and onSource, which read one side only, cut both sides down; rest decides the pairs
	// that are left.
	keys     []joinKey
	onTarget *expr.Bound
	onSource *expr.Bound
	rest     *expr.Bound

	clauses []boundClause
}

// joinKey is one equality of ON with one side in each operand.
type joinKey struct {
	target, source *expr.Bound
	nullSafe       bool
	column         string // of the table, if the operand is just that
	text           string // of the source's operand
}

// boundClause is a clause whose expressions are bound.
type boundClause struct {
	kind   Kind
	action Action
	when   *expr.Bound
	sets   []setter
	given  []string // columns of the table that it assigns
}

// setter is one assignment.
type setter struct {
	path  []int // indices of fields, the column first
	value *expr.Bound
	// fit is the column's field when the value is fitted to it by name instead of
	// being converted by the expression.
	fit  *schema.Field
	name string
}

// scope says which sides an expression may name.
type scope struct{ target, source bool }

var clauseScope = map[Kind]scope{Matched: {true, true}, NotMatched: {source: true}, NotMatchedBySource: {target: true}}

// grown is what a statement with schema evolution adds to the table: all columns of
// the source for the star forms, and columns that assignments name.
func (s *Statement) grown(target, source *schema.Struct, zone *time.Location, now time.Time) (*schema.Struct, error) {
	out := &schema.Struct{}
	if !s.evolve {
		return out, nil
	}
	p := newPlan(s, target, source, zone, now)
	add := func(f schema.Field) {
		if out.Index(f.Name) < 0 {
			out.Fields = append(out.Fields, f)
		}
	}
	for _, c := range s.clauses {
		if c.action == UpdateAll || c.action == InsertAll {
			for _, f := range source.Fields {
				add(schema.Field{Name: f.Name, Type: f.Type, Nullable: true})
			}
		}
		for _, a := range c.sets {
			path := p.targetPath(a.Path)
			if len(path) != 1 || target.Index(path[0]) >= 0 {
				continue
			}
			v, err := p.bind(a.Value, clauseScope[c.kind], nil)
			if err != nil {
				return nil, err
			}
			add(schema.Field{Name: path[0], Type: v.Type(), Nullable: true})
		}
	}
	return out, nil
}

func newPlan(s *Statement, target, source *schema.Struct, zone *time.Location, now time.Time) *plan {
	p := &plan{st: s, target: target, source: source, zone: zone, now: now, joint: &schema.Struct{}}
	for _, f := range target.Fields {
		f.Name = p.targetName(f.Name)
		p.joint.Fields = append(p.joint.Fields, f)
	}
	for _, f := range source.Fields {
		f.Name = p.sourceName(f.Name)
		p.joint.Fields = append(p.joint.Fields, f)
	}
	return p
}

func (p *plan) targetName(column string) string { return p.st.target.display() + "." + column }

func (p *plan) sourceName(column string) string { return p.st.source.display() + "." + column }

// bindStatement binds everything.
func bindStatement(s *Statement, target, source *schema.Struct, zone *time.Location, now time.Time) (*plan, error) {
	p := newPlan(s, target, source, zone, now)
	if err := p.splitOn(); err != nil {
		return nil, fmt.Errorf("ON: %w", err)
	}
	for _, c := range s.clauses {
		b, err := p.clause(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kindText[c.kind], err)
		}
		p.clauses = append(p.clauses, b)
	}
	return p, nil
}

// resolve is the joint name of a column that an expression names.
func (p *plan) resolve(path []string, pos expr.Pos, sc scope) ([]string, error) {
	problem := func(code, format string, args ...any) error {
		return &expr.BindError{Problems: []expr.Problem{{Code: code, Pos: pos, Msg: fmt.Sprintf(format, args...)}}}
	}
	name := strings.Join(path, ".")
	sides := []struct {
		is     side
		schema *schema.Struct
		joint  func(string) string
		in     bool
		what   string
	}{{p.st.target, p.target, p.targetName, sc.target, "the table"}, {p.st.source, p.source, p.sourceName, sc.source, "the source"}}
	for _, s := range sides {
		rest, ok := s.is.strip(path)
		if !ok {
			continue
		}
		i := s.schema.Index(rest[0])
		switch {
		case i >= 0 && !s.in:
			return nil, problem(CodeUnresolvedInMerge, "column %s of %s cannot be used here", name, s.what)
		case i >= 0:
			return append([]string{s.joint(s.schema.Fields[i].Name)}, rest[1:]...), nil
		}
	}
	var found []string
	elsewhere := ""
	for _, s := range sides {
		i := s.schema.Index(path[0])
		switch {
		case i < 0:
		case !s.in:
			elsewhere = s.what
		case found != nil:
			return nil, problem(CodeAmbiguous, "column %s is in the table and in the source; write %s.%s or %s.%s", name, p.st.target.display(), name, p.st.source.display(), name)
		default:
			found = append([]string{s.joint(s.schema.Fields[i].Name)}, path[1:]...)
		}
	}
	switch {
	case found != nil:
		return found, nil
	case elsewhere != "":
		return nil, problem(CodeUnresolvedInMerge, "column %s is one of %s, which cannot be used here", name, elsewhere)
	}
	return nil, problem(CodeUnresolvedInMerge, "column %s does not exist (the table has %s; the source has %s)", name, list(p.target), list(p.source))
}

func list(s *schema.Struct) string {
	names := s.Names()
	if len(names) > 20 {
		names = append(slices.Clone(names[:20]), "...")
	}
	return strings.Join(names, ", ")
}

func (p *plan) bind(e *expr.Expr, sc scope, want schema.Type) (*expr.Bound, error) {
	r, err := e.Rename(func(path []string, pos expr.Pos) ([]string, error) { return p.resolve(path, pos, sc) })
	if err != nil {
		return nil, err
	}
	return r.BindWith(p.joint, expr.Options{Zone: p.zone, Target: want, Now: &p.now})
}

func (p *plan) condition(e *expr.Expr, sc scope) (*expr.Bound, error) {
	if e == nil {
		return nil, nil
	}
	b, err := p.bind(e, sc, nil)
	if err != nil {
		return nil, err
	}
	if b.Type() != schema.Boolean && b.Type() != schema.Void {
		return nil, invalid(expr.CodeTypeMismatch, e.Pos(), "condition %s has type %s, not BOOLEAN", e, b.Type())
	}
	return b, nil
}

// sidesOf tells which sides a bound expression reads.
func (p *plan) sidesOf(b *expr.Bound) scope {
	var out scope
	for _, c := range b.Columns() {
		i := p.joint.Index(c)
		out.target = out.target || i < len(p.target.Fields)
		out.source = out.source || i >= len(p.target.Fields)
	}
	return out
}

// splitOn takes ON apart.
func (p *plan) splitOn() error {
	both := scope{true, true}
	if _, err := p.condition(p.st.on, both); err != nil {
		return err
	}
	var onTarget, onSource, rest []*expr.Expr
	for _, e := range p.st.on.Conjuncts() {
		b, err := p.condition(e, both)
		if err != nil {
			return err
		}
		reads := p.sidesOf(b)
		switch {
		case reads.target && !reads.source:
			onTarget = append(onTarget, e)
		case !reads.target:
			onSource = append(onSource, e) // a constant belongs to it: ON FALSE pairs no row
		default:
			if !p.asKey(e) {
				rest = append(rest, e)
			}
		}
	}
	var err error
	if len(onTarget) > 0 {
		if p.onTarget, err = p.overTarget(expr.And(onTarget...)); err != nil {
			return err
		}
	}
	if len(onSource) > 0 {
		if p.onSource, err = p.condition(expr.And(onSource...), both); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		p.rest, err = p.condition(expr.And(rest...), both)
	}
	return err
}

// overTarget binds an expression that reads the table alone to the table's columns.
func (p *plan) overTarget(e *expr.Expr) (*expr.Bound, error) {
	r, err := e.Rename(func(path []string, pos expr.Pos) ([]string, error) {
		joint, err := p.resolve(path, pos, scope{true, true})
		if err != nil {
			return nil, err
		}
		return append([]string{p.target.Fields[p.joint.Index(joint[0])].Name}, joint[1:]...), nil
	})
	if err != nil {
		return nil, err
	}
	return r.BindWith(p.target, expr.Options{Zone: p.zone, Now: &p.now})
}

// asKey takes an equality with one side in each operand as a join key, if the bytes
// of keycode are equal exactly when the values are.
func (p *plan) asKey(e *expr.Expr) bool {
	left, right, nullSafe, ok := e.Equality()
	if !ok {
		return false
	}
	both := scope{true, true}
	l, err := p.bind(left, both, nil)
	if err != nil {
		return false
	}
	r, err := p.bind(right, both, nil)
	if err != nil {
		return false
	}
	ls, rs := p.sidesOf(l), p.sidesOf(r)
	if ls.source {
		left, right, l, r, ls, rs = right, left, r, l, rs, ls
	}
	if !ls.target || ls.source || !rs.source || rs.target {
		return false
	}
	common, ok := keyType(l.Type(), r.Type())
	if !ok {
		return false
	}
	k := joinKey{nullSafe: nullSafe, text: right.String()}
	if k.target, err = p.bind(left, both, common); err != nil {
		return false
	}
	if k.source, err = p.bind(right, both, common); err != nil {
		return false
	}
	if names := left.Names(); len(names) == 1 && left.String() == pathText(names[0]) {
		joint, err := p.resolve(names[0], expr.Pos{}, both)
		if err == nil && len(joint) == 1 {
			k.column = p.target.Fields[p.joint.Index(joint[0])].Name
		}
	}
	p.keys = append(p.keys, k)
	return true
}

// keyType is the type in which both sides of an equality are compared without loss.
func keyType(a, b schema.Type) (schema.Type, bool) {
	width := map[schema.Type]int{schema.Byte: 1, schema.Short: 2, schema.Integer: 3, schema.Long: 4}
	switch {
	case a == schema.Void || b == schema.Void:
		return nil, false
	case width[a] > 0 && width[b] > 0:
		if width[a] < width[b] {
			a = b
		}
		return a, true
	case (a == schema.Float || a == schema.Double) && (b == schema.Float || b == schema.Double):
		return schema.Double, true
	case !schema.EqualIgnoringNullability(a, b):
		return nil, false
	}
	return a, expr.Orderable(a) && !nested(a)
}

func nested(t schema.Type) bool {
	switch t.(type) {
	case *schema.Struct, *schema.Array, *schema.Map:
		return true
	}
	return false
}

// targetPath is the path of an assigned column without qualifier.
func (p *plan) targetPath(path []string) []string {
	if rest, ok := p.st.target.strip(path); ok && p.target.Index(path[0]) < 0 {
		return rest
	}
	return path
}

// clause binds one clause.
func (p *plan) clause(c clause) (boundClause, error) {
	b := boundClause{kind: c.kind, action: c.action}
	var err error
	if b.when, err = p.condition(c.when, clauseScope[c.kind]); err != nil {
		return b, err
	}
	switch c.action {
	case UpdateAll, InsertAll:
		err = p.star(&b)
	case Update, Insert:
		for _, a := range c.sets {
			if err = p.assign(&b, c, a); err != nil {
				return b, err
			}
		}
	}
	for _, s := range b.sets {
		if name := p.target.Fields[s.path[0]].Name; !slices.Contains(b.given, name) {
			b.given = append(b.given, name)
		}
	}
	if c.action == Insert || c.action == InsertAll {
		slices.SortFunc(b.sets, func(x, y setter) int { return x.path[0] - y.path[0] })
	}
	return b, err
}

func (p *plan) assign(b *boundClause, c clause, a expr.Assignment) error {
	path := p.targetPath(a.Path)
	s := setter{name: strings.Join(path, ".")}
	var typ schema.Type
	st := p.target
	for d, name := range path {
		i := -1
		if st != nil {
			i = st.Index(name)
		}
		if i < 0 {
			return invalid(CodeUnresolvedInMerge, a.Pos, "the table has no column %s to assign to (it has %s)", s.name, list(p.target))
		}
		s.path, typ = append(s.path, i), st.Fields[i].Type
		if st, _ = typ.(*schema.Struct); st == nil && d < len(path)-1 {
			return invalid(CodeUnresolvedInMerge, a.Pos, "column %s: %s is not a struct", s.name, name)
		}
	}
	for _, o := range b.sets {
		if n := min(len(o.path), len(s.path)); slices.Equal(o.path[:n], s.path[:n]) {
			if c.action == Insert {
				return invalid(CodeInsertDuplicate, a.Pos, "column %s is inserted twice", s.name)
			}
			return invalid(CodeSetConflict, a.Pos, "the assignment of %s overlaps with that of %s", s.name, o.name)
		}
	}
	if c.action == Insert && len(s.path) > 1 {
		return invalid(CodeUnresolvedInMerge, a.Pos, "%s is not a column; a field cannot be inserted alone", s.name)
	}
	var err error
	s.value, s.fit, err = p.value(a.Value, clauseScope[c.kind], schema.Field{Name: path[len(path)-1], Type: typ, Nullable: true})
	if err != nil {
		return fmt.Errorf("assign %s: %w", s.name, err)
	}
	b.sets = append(b.sets, s)
	return nil
}

// value binds the value of a column: converted as SQL stores it, or, where a nested
// value has other fields, fitted to the column by the names of its fields.
func (p *plan) value(e *expr.Expr, sc scope, f schema.Field) (*expr.Bound, *schema.Field, error) {
	v, err := p.bind(e, sc, f.Type)
	if err == nil {
		return v, nil, nil
	}
	if raw, rawErr := p.bind(e, sc, nil); rawErr == nil && p.st.evolve && nested(f.Type) && nested(raw.Type()) {
		return raw, &f, nil
	}
	return nil, nil, err
}

// star binds UPDATE SET * and INSERT *: columns go by name. Without schema evolution
// the source must have every column that the table does not make itself.
func (p *plan) star(b *boundClause) error {
	for i, f := range p.target.Fields {
		j := p.source.Index(f.Name)
		if j < 0 {
			if p.st.evolve || b.action == InsertAll && selfMade(f) {
				continue
			}
			return invalid(CodeUnresolvedInMerge, expr.Pos{}, "the source has no column %s for * (it has %s); name the columns, or allow schema evolution", f.Name, list(p.source))
		}
		if err := p.starColumn(b, []int{i}, f, []string{p.source.Fields[j].Name}, p.source.Fields[j].Type); err != nil {
			return err
		}
	}
	return nil
}

// starColumn assigns a column, or the fields of a struct that the source has fewer
// fields of, so that an update leaves the others as they are.
func (p *plan) starColumn(b *boundClause, path []int, f schema.Field, from []string, have schema.Type) error {
	ts, ok := f.Type.(*schema.Struct)
	ss, both := have.(*schema.Struct)
	if ok && both && p.st.evolve && b.action == UpdateAll && len(ss.Fields) < len(ts.Fields) {
		for i, tf := range ts.Fields {
			j := ss.Index(tf.Name)
			if j < 0 {
				continue
			}
			if err := p.starColumn(b, append(slices.Clone(path), i), tf, append(slices.Clone(from), ss.Fields[j].Name), ss.Fields[j].Type); err != nil {
				return err
			}
		}
		return nil
	}
	names := append(slices.Clone(p.st.source.qualifier()), from...)
	v, fit, err := p.value(expr.Column(names...), scope{source: true}, schema.Field{Name: f.Name, Type: f.Type, Nullable: true})
	if err != nil {
		return fmt.Errorf("assign %s: %w", f.Name, err)
	}
	b.sets = append(b.sets, setter{path: path, value: v, fit: fit, name: f.Name})
	return nil
}

func (s side) qualifier() []string {
	if s.alias != "" {
		return []string{s.alias}
	}
	return s.parts
}

// selfMade columns get a value when none is given.
func selfMade(f schema.Field) bool {
	for _, k := range []string{schema.DefaultKey, schema.GenerationKey, "delta.identity.step"} {
		if _, ok := f.Metadata.Get(k); ok {
			return true
		}
	}
	return false
}

// columnsOf are the columns of one side that bound expressions read, in schema order.
func (p *plan) columnsOf(target bool, list ...*expr.Bound) []string {
	var out []string
	for i, f := range p.joint.Fields {
		if (i < len(p.target.Fields)) != target {
			continue
		}
		for _, b := range list {
			if b != nil && slices.Contains(b.Columns(), f.Name) {
				if target {
					out = append(out, p.target.Fields[i].Name)
				} else {
					out = append(out, p.source.Fields[i-len(p.target.Fields)].Name)
				}
				break
			}
		}
	}
	return out
}

func (c *boundClause) values() []*expr.Bound {
	out := make([]*expr.Bound, len(c.sets))
	for i, s := range c.sets {
		out[i] = s.value
	}
	return out
}
