package expr

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// logic binds AND (all) or OR of conditions.
func (b *binder) logic(all bool, args []*bnode, pos Pos) *bnode {
	op := opOr
	if all {
		op = opAnd
	}
	return b.function(bnode{op: op, typ: schema.Boolean, pos: pos, args: args, fn: logicFunc(all)})
}

// logicFunc looks at the operands of a row from left to right until one decides:
// FALSE decides an AND, TRUE an OR; an error met before that is the result.
func logicFunc(all bool) func(*context, []*vector) *vector {
	return func(c *context, a []*vector) *vector {
		out := c.blank(schema.Boolean, a...)
		n := out.rows(c)
		simple := true
		for _, v := range a {
			simple = simple && v.null == nil
		}
		for i := range out.b {
			out.b[i] = all
		}
		if simple {
			for _, v := range a {
				for i := range out.b {
					if v.b[i*v.step] != all {
						out.b[i] = !all
					}
				}
			}
			return out
		}
		for i := range out.b {
			unknown := false
			for _, v := range a {
				if v.isNull(i) {
					if err := v.err(i); err != nil {
						out.fail(i, n, err)
						unknown = false
						break
					}
					unknown = true
				} else if v.b[i*v.step] != all {
					out.b[i], unknown = !all, false
					break
				}
			}
			if unknown {
				out.setNull(i, n)
			}
		}
		return out
	}
}

func (b *binder) not(x *bnode, pos Pos) *bnode {
	return b.function(bnode{op: opNot, typ: schema.Boolean, pos: pos, args: []*bnode{x}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(schema.Boolean, a[0])
		for i := range out.b {
			out.b[i] = !a[0].b[i*a[0].step]
		}
		return out
	}})
}

// is binds IS [NOT] NULL, TRUE, FALSE, UNKNOWN.
func (b *binder) is(n *node) *bnode {
	x := b.bind(n.args[0])
	if n.name == "NULL" || n.name == "UNKNOWN" {
		if n.name == "UNKNOWN" {
			x = b.boolean(x)
		}
		return b.isNull(x, n.neg, n.pos)
	}
	truth, neg := n.name == "TRUE", n.neg
	return b.function(bnode{op: opIsBool, truth: truth, neg: neg, typ: schema.Boolean, pos: n.pos, args: []*bnode{b.boolean(x)}, fn: func(c *context, a []*vector) *vector {
		out := c.blank(schema.Boolean, a[0])
		out.takeErrs(a[0], out.rows(c))
		for i := range out.b {
			out.b[i] = (!a[0].isNull(i) && a[0].b[i*a[0].step] == truth) != neg
		}
		return out
	}})
}

func (b *binder) isNull(x *bnode, neg bool, pos Pos) *bnode {
	return b.function(bnode{op: opIsNull, neg: neg, typ: schema.Boolean, pos: pos, args: []*bnode{x}, fn: func(c *context, a []*vector) *vector {
		out := c.blank(schema.Boolean, a[0])
		out.takeErrs(a[0], out.rows(c))
		for i := range out.b {
			out.b[i] = a[0].isNull(i) != neg
		}
		return out
	}})
}

// in binds x IN (list): NULL if x is, or if nothing equals it and the list has a NULL.
func (b *binder) in(x *bnode, list []*bnode, pos Pos) *bnode {
	equal := make([]*bnode, len(list))
	before := len(b.problems)
	for i, item := range list {
		equal[i] = b.compare(cmpEQ, x, item, pos)
	}
	if len(b.problems) > before {
		return b.null(pos)
	}
	if set, arg, hasNull, ok := literalSet(equal); ok && len(list) > 3 {
		return b.function(bnode{op: opIn, typ: schema.Boolean, pos: pos, args: []*bnode{arg}, set: set, neg: hasNull, fn: inFunc(set, hasNull)})
	}
	if len(equal) == 1 {
		return equal[0]
	}
	return b.logic(false, equal, pos)
}

// literalSet is the list of an IN whose items are literals of the class of x.
func literalSet(equal []*bnode) (set []Value, x *bnode, hasNull, ok bool) {
	for _, e := range equal {
		if e.op != opCompare || e.args[1].op != opLiteral {
			return nil, nil, false, false
		}
		l, r := e.args[0], e.args[1].lit
		if x == nil {
			x = l
		}
		if l != x || r.errs != nil || classOf(r.typ) != classOf(x.typ) {
			return nil, nil, false, false
		}
		switch classOf(x.typ) {
		case clsInt, clsBytes:
		default:
			return nil, nil, false, false
		}
		if r.isNull(0) {
			hasNull = true
		} else {
			set = append(set, r.value(0))
		}
	}
	return set, x, hasNull, x != nil
}

func inFunc(set []Value, hasNull bool) func(*context, []*vector) *vector {
	ints, texts := map[int64]bool{}, map[string]bool{}
	for _, v := range set {
		if v.Kind == KindInt {
			ints[v.Int] = true
		} else {
			texts[v.Bytes] = true
		}
	}
	return func(c *context, a []*vector) *vector {
		x := a[0]
		out := c.alloc(schema.Boolean, x)
		n := out.rows(c)
		for i := range out.b {
			if out.null != nil && out.null[i] {
				continue
			}
			if x.i != nil {
				out.b[i] = ints[x.i[i*x.step]]
			} else {
				out.b[i] = texts[x.s[i*x.step]]
			}
			if hasNull && !out.b[i] {
				out.setNull(i, n)
			}
		}
		return out
	}
}

// caseWhen binds both forms of CASE.
func (b *binder) caseWhen(n *node) *bnode {
	args := b.bindAll(n.args)
	var operand *bnode
	if n.operand {
		operand, args = args[0], args[1:]
	}
	var conds, values []*bnode
	for len(args) >= 2 {
		cond := args[0]
		if operand != nil {
			cond = b.compare(cmpEQ, operand, cond, cond.pos)
		} else {
			cond = b.boolean(cond)
		}
		conds, values = append(conds, cond), append(values, args[1])
		args = args[2:]
	}
	if n.otherwise {
		values = append(values, args[0])
	} else {
		values = append(values, b.null(n.pos))
	}
	return b.choose(conds, values, "CASE", n.pos)
}

// choose binds the value of the first condition that is TRUE, else the last value.
func (b *binder) choose(conds, values []*bnode, what string, pos Pos) *bnode {
	before := len(b.problems)
	values, typ := b.unify(values, what, pos)
	if len(b.problems) > before {
		return b.null(pos)
	}
	k := len(conds)
	return b.function(bnode{typ: typ, pos: pos, args: append(conds, values...), fn: func(c *context, a []*vector) *vector {
		return c.pick(typ, a[k:], a, func(i int) (int, error) {
			for j, cond := range a[:k] {
				if err := cond.err(i); err != nil {
					return 0, err
				}
				if !cond.isNull(i) && cond.b[i*cond.step] {
					return j, nil
				}
			}
			return k, nil
		})
	}})
}

// coalesce binds the first value that is not null.
func (b *binder) coalesce(values []*bnode, pos Pos) *bnode {
	before := len(b.problems)
	values, typ := b.unify(values, "coalesce", pos)
	if len(b.problems) > before {
		return b.null(pos)
	}
	return b.function(bnode{typ: typ, pos: pos, args: values, fn: func(c *context, a []*vector) *vector {
		return c.pick(typ, a, a, func(i int) (int, error) {
			for j, v := range a {
				if !v.isNull(i) || v.err(i) != nil {
					return j, nil
				}
			}
			return len(a) - 1, nil
		})
	}})
}

// pick makes a vector of row i of the vector that choose names. all decides
// whether the result is one value for all rows.
func (c *context) pick(t schema.Type, from, all []*vector, choose func(i int) (int, error)) *vector {
	out := c.blank(t, all...)
	n := out.rows(c)
	var nested array.Builder
	if classOf(t) == clsNested {
		at, err := schema.ArrowType(t)
		if err != nil {
			return constant(schema.Void, Value{})
		}
		nested = array.NewBuilder(memory.DefaultAllocator, at)
		defer nested.Release()
	}
	for i := range n {
		j, err := choose(i)
		var v *vector
		if err == nil {
			v = from[j]
			err = v.err(i)
		}
		switch {
		case err != nil:
			out.fail(i, n, err)
		case v.isNull(i):
			out.setNull(i, n)
		default:
			out.set(i, v, i)
		}
		if nested != nil {
			if v == nil || v.isNull(i) {
				nested.AppendNull()
			} else {
				appendNested(nested, v.arr, i*v.step)
			}
		}
	}
	if nested != nil {
		out.arr = nested.NewArray()
	}
	return out
}

// like binds LIKE, ILIKE and RLIKE.
func (b *binder) like(n *node) *bnode {
	x, y := b.bind(n.args[0]), b.bind(n.args[1])
	x, y = b.text(x, n.name), b.text(y, n.name)
	if n.name == "RLIKE" {
		return b.rlike(x, y, n.pos)
	}
	esc := byte('\\')
	if n.text != "" {
		esc = n.text[0]
	}
	fold := n.name == "ILIKE"
	if y.op == opLiteral && !y.lit.isNull(0) {
		p, err := compileLike(y.lit.s[0], esc, fold)
		if err != nil {
			return b.problem(y.pos, CodeInvalidArgument, err.Error())
		}
		if prefix, ok := p.prefixOnly(); ok && !fold {
			return b.startsWith(x, literalNode(y.pos, schema.String, BytesValue(prefix)), n.pos)
		}
		return b.strictText(n.pos, x, func(s string) bool { return p.match(s) })
	}
	pos := n.pos
	return b.function(bnode{typ: schema.Boolean, pos: pos, args: []*bnode{x, y}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(schema.Boolean, a...)
		rows := out.rows(c)
		for i := range out.b {
			if out.null != nil && out.null[i] {
				continue
			}
			p, err := compileLike(a[1].s[i*a[1].step], esc, fold)
			if err != nil {
				out.fail(i, rows, &EvalError{CodeName: CodeInvalidArgument, Pos: pos, Msg: err.Error()})
				continue
			}
			out.b[i] = p.match(a[0].s[i*a[0].step])
		}
		return out
	}})
}

// text converts an argument to STRING; binary, nested and unknown types are refused.
func (b *binder) text(n *bnode, what string) *bnode {
	if n.typ == schema.String {
		return n
	}
	if n.typ == schema.Binary || !castable(n.typ, schema.String) {
		return b.cast(b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs a STRING, found %s", what, n.typ)), schema.String, n.pos, false)
	}
	return b.cast(n, schema.String, n.pos, false)
}
