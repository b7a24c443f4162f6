package expr

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

// Options are the settings of [Expr.BindWith]; the zero value is the default.
type Options struct {
	// Zone is the zone of timestamps written without one, and of the conversions
	// between timestamps and local dates and times. Default UTC.
	Zone *time.Location
	// Target, if set, is the type of the column that the value is stored in; a
	// value of another type is converted where Spark's ANSI store assignment
	// allows it, and fails to bind elsewhere.
	Target schema.Type
	// Now, if set, is the value of current_timestamp(), current_date() and their
	// kin, for expressions that are evaluated once, such as a column's default;
	// without it they are refused.
	Now *time.Time
}

func (o Options) withDefaults() Options {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	return o
}

// Bound is an expression resolved against a schema. It is immutable and may be
// evaluated by several goroutines at once.
type Bound struct {
	root  *bnode
	expr  *Expr
	slots []slot
}

// slot is one column, or field of a column, that the expression reads.
type slot struct {
	path []string // as spelled in the schema
	typ  schema.Type
}

type opcode uint8

const (
	opFunc    opcode = iota // a strict or lazy function, opaque to pruning
	opColumn                // slot
	opLiteral               // lit
	opAnd
	opOr
	opNot
	opCompare    // cmp
	opIsNull     // neg: IS NOT NULL
	opIsBool     // IS [NOT] TRUE or FALSE: truth, neg
	opIn         // args[0] is one of set, literals of its class; neg: the list has a NULL
	opStartsWith // args[1] is a literal
	opCast       // monotone; neg: TRY_CAST
)

// bnode is a bound node. The value of everything but columns and literals is
// fn applied to the values of args.
type bnode struct {
	op   opcode
	typ  schema.Type
	pos  Pos
	args []*bnode
	fn   func(c *context, args []*vector) *vector

	slot     int
	lit      *vector
	cmp      compareOp
	neg      bool
	truth    bool
	monotone bool
	set      []Value
}

// Bind resolves names and types of e against the columns of s. The error is a
// *[BindError] with every problem found.
func (e *Expr) Bind(s *schema.Struct) (*Bound, error) { return e.BindWith(s, Options{}) }

// BindWith is Bind with options.
func (e *Expr) BindWith(s *schema.Struct, o Options) (*Bound, error) {
	b := &binder{schema: s, opts: o.withDefaults(), slotOf: map[string]int{}}
	root := b.bind(e.root)
	if o.Target != nil && len(b.problems) == 0 {
		if !assignable(root.typ, o.Target) {
			b.problem(e.root.pos, CodeTypeMismatch, fmt.Sprintf("a value of type %s cannot be stored as %s", root.typ, o.Target))
		} else {
			root = b.castWith(root, o.Target, false, castOptions{pos: e.root.pos, byName: true})
		}
	}
	if len(b.problems) > 0 {
		sort.SliceStable(b.problems, func(i, j int) bool { return b.problems[i].Pos.Offset < b.problems[j].Pos.Offset })
		return nil, &BindError{Problems: b.problems}
	}
	return &Bound{root: root, expr: e, slots: b.slots}, nil
}

// Type is the type of the result.
func (b *Bound) Type() schema.Type { return b.root.typ }

// String is the canonical text of the expression that was bound.
func (b *Bound) String() string { return b.expr.String() }

// Expr is the expression that was bound.
func (b *Bound) Expr() *Expr { return b.expr }

// Columns are the top-level columns that the expression reads, as spelled in the
// schema, sorted.
func (b *Bound) Columns() []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range b.slots {
		if !seen[s.path[0]] {
			seen[s.path[0]] = true
			out = append(out, s.path[0])
		}
	}
	sort.Strings(out)
	return out
}

// Paths are the columns and fields that the expression reads, in order of first use.
func (b *Bound) Paths() [][]string {
	out := make([][]string, len(b.slots))
	for i, s := range b.slots {
		out[i] = append([]string(nil), s.path...)
	}
	return out
}

// ReferencesOnly reports whether the expression reads no other top-level columns
// than cols (ignoring case).
func (b *Bound) ReferencesOnly(cols []string) bool {
	for _, c := range b.Columns() {
		found := false
		for _, d := range cols {
			found = found || strings.EqualFold(c, d)
		}
		if !found {
			return false
		}
	}
	return true
}

// SplitConjuncts are the operands of a top-level AND, or b itself.
func (b *Bound) SplitConjuncts() []*Bound {
	parts := b.expr.Conjuncts()
	if b.root.op != opAnd || len(parts) != len(b.root.args) {
		return []*Bound{b}
	}
	out := make([]*Bound, len(parts))
	for i, a := range b.root.args {
		used := map[int]bool{}
		a.walk(func(n *bnode) {
			if n.op == opColumn {
				used[n.slot] = true
			}
		})
		slots := make([]slot, len(b.slots))
		for k, s := range b.slots {
			if used[k] {
				slots[k] = s
			}
		}
		out[i] = (&Bound{root: a, expr: parts[i], slots: slots}).compact()
	}
	return out
}

// compact drops the slots that are not used.
func (b *Bound) compact() *Bound {
	at := make([]int, len(b.slots))
	var slots []slot
	for i, s := range b.slots {
		if s.path != nil {
			at[i] = len(slots)
			slots = append(slots, s)
		}
	}
	var copyNode func(n *bnode) *bnode
	copyNode = func(n *bnode) *bnode {
		m := *n
		if n.op == opColumn {
			m.slot = at[n.slot]
		}
		m.args = make([]*bnode, len(n.args))
		for i, a := range n.args {
			m.args[i] = copyNode(a)
		}
		return &m
	}
	return &Bound{root: copyNode(b.root), expr: b.expr, slots: slots}
}

func (n *bnode) walk(f func(*bnode)) {
	f(n)
	for _, a := range n.args {
		a.walk(f)
	}
}

// binder turns nodes into bound nodes and collects problems. After a problem it
// goes on with a NULL of unknown type, which fits everywhere.
type binder struct {
	schema   *schema.Struct
	opts     Options
	slots    []slot
	slotOf   map[string]int
	problems []Problem
}

func (b *binder) problem(pos Pos, code, msg string) *bnode {
	b.problems = append(b.problems, Problem{Code: code, Pos: pos, Msg: msg})
	return b.null(pos)
}

func (b *binder) null(pos Pos) *bnode {
	return literalNode(pos, schema.Void, Value{})
}

func literalNode(pos Pos, t schema.Type, v Value) *bnode {
	return &bnode{op: opLiteral, typ: t, pos: pos, lit: constant(t, v)}
}

// function makes a node and folds it into a literal if all its args are. After a
// problem types need not fit, so nothing is computed any more.
func (b *binder) function(n bnode) *bnode {
	if len(n.args) > 0 && len(b.problems) == 0 {
		vals := make([]*vector, len(n.args))
		for i, a := range n.args {
			if a.op != opLiteral {
				return &n
			}
			vals[i] = a.lit
		}
		return &bnode{op: opLiteral, typ: n.typ, pos: n.pos, lit: n.fn(&context{n: 1}, vals)}
	}
	return &n
}

// cast converts n to another type. An implicit conversion of a literal that
// fails is a problem now rather than an error of every row.
func (b *binder) cast(n *bnode, to schema.Type, pos Pos, explicit bool) *bnode {
	return b.castMode(n, to, pos, explicit, false)
}

func (b *binder) castMode(n *bnode, to schema.Type, pos Pos, explicit, try bool) *bnode {
	return b.castWith(n, to, explicit, castOptions{pos: pos, try: try})
}

func (b *binder) castWith(n *bnode, to schema.Type, explicit bool, o castOptions) *bnode {
	o.zone = b.opts.Zone
	if schema.EqualIgnoringNullability(n.typ, to) {
		return n
	}
	out := b.function(bnode{
		op: opCast, typ: to, pos: o.pos, args: []*bnode{n}, monotone: monotone(n.typ, to), neg: o.try,
		fn: castFunc(n.typ, to, o),
	})
	if !explicit && out.op == opLiteral && out.lit.errs != nil && n.lit.errs == nil {
		msg := out.lit.errs[0].Error()
		if e, ok := out.lit.errs[0].(*EvalError); ok {
			msg = e.Msg
		}
		return b.problem(n.pos, CodeInvalidCast, msg)
	}
	return out
}

func (b *binder) bindAll(list []*node) []*bnode {
	out := make([]*bnode, len(list))
	for i, n := range list {
		out[i] = b.bind(n)
	}
	return out
}

func (b *binder) bind(n *node) *bnode {
	switch n.kind {
	case nLiteral:
		v := n.value
		if n.typ == schema.Timestamp && n.text != "" {
			us, _ := parseTimestamp(n.text, b.opts.Zone, false)
			v = IntValue(us)
		}
		return literalNode(n.pos, n.typ, v)
	case nName:
		return b.column(n)
	case nField:
		return b.field(b.bind(n.args[0]), n.name, n.pos)
	case nIndex:
		return b.index(b.bind(n.args[0]), b.bind(n.args[1]), n.pos)
	case nCall:
		return b.call(n)
	case nUnary:
		return b.negate(b.bind(n.args[0]), n.name, n.pos)
	case nBinary:
		x, y := b.bind(n.args[0]), b.bind(n.args[1])
		if op, ok := compareOps[n.name]; ok {
			return b.compare(op, x, y, n.pos)
		}
		if n.name == "||" {
			return b.concat([]*bnode{x, y}, n.pos)
		}
		return b.arithmetic(n.name, x, y, n.pos)
	case nAnd, nOr:
		args := b.bindAll(n.args)
		for i, a := range args {
			args[i] = b.boolean(a)
		}
		return b.logic(n.kind == nAnd, args, n.pos)
	case nNot:
		return b.not(b.boolean(b.bind(n.args[0])), n.pos)
	case nIs:
		return b.is(n)
	case nIsFrom:
		same := b.compare(cmpSame, b.bind(n.args[0]), b.bind(n.args[1]), n.pos)
		if n.neg {
			return same
		}
		return b.not(same, n.pos)
	case nIn:
		return b.maybeNot(b.in(b.bind(n.args[0]), b.bindAll(n.args[1:]), n.pos), n)
	case nBetween:
		x, low, high := b.bind(n.args[0]), b.bind(n.args[1]), b.bind(n.args[2])
		both := []*bnode{b.compare(cmpGE, x, low, n.pos), b.compare(cmpLE, x, high, n.pos)}
		return b.maybeNot(b.logic(true, both, n.pos), n)
	case nLike:
		return b.maybeNot(b.like(n), n)
	case nCase:
		return b.caseWhen(n)
	case nCast:
		x := b.bind(n.args[0])
		if !castable(x.typ, n.typ) {
			return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("cannot cast %s to %s", x.typ, n.typ))
		}
		return b.castMode(x, n.typ, n.pos, true, n.name == "TRY_CAST")
	}
	return b.problem(n.pos, CodeNotAllowed, "expression is not supported")
}

func (b *binder) maybeNot(x *bnode, n *node) *bnode {
	if n.neg {
		return b.not(x, n.pos)
	}
	return x
}

// column resolves a.b.c: a column, then fields of it.
func (b *binder) column(n *node) *bnode {
	name := strings.Join(n.path, ".")
	i := b.schema.Index(n.path[0])
	if i < 0 {
		if low := strings.ToLower(n.path[0]); len(n.path) == 1 && bareClock(low) {
			if x := b.clock(low, n.pos); x != nil {
				return x
			}
			return b.problem(n.pos, CodeNonDeterministic, low+" is not allowed: its value is not fixed by the row")
		}
		return b.problem(n.pos, CodeUnresolvedColumn, fmt.Sprintf("column %s does not exist (columns: %s)", name, clipList(b.schema.Names())))
	}
	path, typ := []string{b.schema.Fields[i].Name}, b.schema.Fields[i].Type
	for k, f := range n.path[1:] {
		s, ok := typ.(*schema.Struct)
		if !ok {
			if _, isMap := typ.(*schema.Map); isMap {
				x := b.slotNode(path, typ, n.pos)
				x = b.index(x, literalNode(n.pos, schema.String, BytesValue(f)), n.pos)
				for _, g := range n.path[k+2:] {
					x = b.field(x, g, n.pos)
				}
				return x
			}
			return b.problem(n.pos, CodeUnresolvedColumn, fmt.Sprintf("column %s has type %s, no field %s", strings.Join(path, "."), typ, f))
		}
		j := s.Index(f)
		if j < 0 {
			return b.problem(n.pos, CodeUnresolvedColumn, fmt.Sprintf("column %s has no field %s (fields: %s)", strings.Join(path, "."), f, clipList(s.Names())))
		}
		path, typ = append(path, s.Fields[j].Name), s.Fields[j].Type
	}
	return b.slotNode(path, typ, n.pos)
}

func clipList(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

func (b *binder) slotNode(path []string, typ schema.Type, pos Pos) *bnode {
	if u, ok := typ.(schema.Unknown); ok {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("column %s has the unknown type %s", strings.Join(path, "."), u))
	}
	key := strings.Join(path, "\x00")
	i, ok := b.slotOf[key]
	if !ok {
		i = len(b.slots)
		b.slotOf[key] = i
		b.slots = append(b.slots, slot{path: append([]string(nil), path...), typ: typ})
	}
	return &bnode{op: opColumn, typ: typ, pos: pos, slot: i}
}

// boolean checks that n is a condition.
func (b *binder) boolean(n *bnode) *bnode {
	switch n.typ {
	case schema.Boolean:
		return n
	case schema.Void:
		return b.cast(n, schema.Boolean, n.pos, false)
	}
	return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("expected a condition, found a value of type %s", n.typ))
}

// unify brings all nodes to one type.
func (b *binder) unify(list []*bnode, what string, pos Pos) ([]*bnode, schema.Type) {
	typ := schema.Type(schema.Void)
	for _, n := range list {
		t, ok := commonType(typ, n.typ)
		if !ok {
			b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s: %s and %s have no common type", what, typ, n.typ))
			return list, schema.Void
		}
		typ = t
	}
	out := make([]*bnode, len(list))
	for i, n := range list {
		out[i] = b.cast(n, typ, pos, false)
	}
	return out, typ
}

// literalType is the type of n in arithmetic: beside a decimal an integer literal
// counts with the digits it has, as in Spark.
func literalType(n *bnode, beside schema.Type) schema.Type {
	if n.op == opLiteral && isInt(n.typ) && isDecimal(beside) && !n.lit.isNull(0) {
		return literalDecimal(n.lit.i[0])
	}
	return n.typ
}

func literalDecimal(i int64) schema.Decimal {
	digits := 1
	for i /= 10; i != 0; i /= 10 {
		digits++
	}
	return schema.Decimal{Precision: digits}
}
