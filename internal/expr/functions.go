package expr

import (
	"fmt"
	"sort"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// function is one row of the function table. Max below 0 means any number.
type function struct {
	min, max int
	bind     func(b *binder, a []*bnode, n *node) *bnode
}

// refusedFunctions are known by name and never evaluated.
var refusedFunctions = map[string]string{
	"current_timestamp": CodeNonDeterministic, "current_date": CodeNonDeterministic, "now": CodeNonDeterministic,
	"localtimestamp": CodeNonDeterministic, "current_time": CodeNonDeterministic, "current_timezone": CodeNonDeterministic,
	"rand": CodeNonDeterministic, "random": CodeNonDeterministic, "randn": CodeNonDeterministic, "uuid": CodeNonDeterministic,
	"shuffle": CodeNonDeterministic, "monotonically_increasing_id": CodeNonDeterministic, "spark_partition_id": CodeNonDeterministic,
	"input_file_name": CodeNonDeterministic, "current_user": CodeNonDeterministic, "session_user": CodeNonDeterministic,
	"user": CodeNonDeterministic, "unix_timestamp": CodeNonDeterministic,

	"count": CodeNotAllowed, "sum": CodeNotAllowed, "avg": CodeNotAllowed, "mean": CodeNotAllowed, "min": CodeNotAllowed,
	"max": CodeNotAllowed, "first": CodeNotAllowed, "last": CodeNotAllowed, "first_value": CodeNotAllowed, "last_value": CodeNotAllowed,
	"collect_list": CodeNotAllowed, "collect_set": CodeNotAllowed, "any_value": CodeNotAllowed, "max_by": CodeNotAllowed,
	"min_by": CodeNotAllowed, "stddev": CodeNotAllowed, "variance": CodeNotAllowed, "count_if": CodeNotAllowed,
	"bool_and": CodeNotAllowed, "bool_or": CodeNotAllowed, "every": CodeNotAllowed, "some": CodeNotAllowed, "any": CodeNotAllowed,
	"approx_count_distinct": CodeNotAllowed, "row_number": CodeNotAllowed, "rank": CodeNotAllowed, "dense_rank": CodeNotAllowed,
	"lag": CodeNotAllowed, "lead": CodeNotAllowed, "explode": CodeNotAllowed, "posexplode": CodeNotAllowed, "ntile": CodeNotAllowed,
}

// bareClock reports whether a name without parentheses is a clock.
func bareClock(name string) bool {
	switch name {
	case "current_timestamp", "current_date", "current_time", "localtimestamp", "current_user", "session_user":
		return true
	}
	return false
}

// clock is the literal that a clock function stands for when the time is fixed
// ([Options.Now]); nil when it is not, or name is no clock.
func (b *binder) clock(name string, pos Pos) *bnode {
	if b.opts.Now == nil {
		return nil
	}
	us := b.opts.Now.UnixMicro()
	switch name {
	case "current_timestamp", "now":
		return literalNode(pos, schema.Timestamp, IntValue(us))
	case "localtimestamp":
		return literalNode(pos, schema.TimestampNTZ, IntValue(toLocal(us, b.opts.Zone)))
	case "current_date", "curdate":
		return literalNode(pos, schema.Date, IntValue(floorDiv(toLocal(us, b.opts.Zone), 86400*usPerSecond)))
	}
	return nil
}

func functionOf(name string) (function, bool) {
	for _, table := range []map[string]function{generalFunctions, textFunctions, numberFunctions, timeFunctions, nestedFunctions, variantFunctions} {
		if f, ok := table[name]; ok {
			return f, true
		}
	}
	if t, ok := typeNames[strings.ToUpper(name)]; ok && name != "char" && name != "varchar" {
		return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.castCall(a[0], t, n.pos) }}, true
	}
	if name == "decimal" {
		return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode {
			return b.castCall(a[0], schema.Decimal{Precision: 10}, n.pos)
		}}, true
	}
	return function{}, false
}

// FunctionNames lists the functions that expressions may call, sorted.
func FunctionNames() []string {
	var out []string
	for _, table := range []map[string]function{generalFunctions, textFunctions, numberFunctions, timeFunctions, nestedFunctions, variantFunctions} {
		for name := range table {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

func (b *binder) castCall(x *bnode, t schema.Type, pos Pos) *bnode {
	if !castable(x.typ, t) {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot cast %s to %s", x.typ, t))
	}
	return b.cast(x, t, pos, true)
}

func (b *binder) call(n *node) *bnode {
	f, ok := functionOf(n.name)
	if !ok {
		if why, refused := refusedFunctions[n.name]; refused {
			if len(n.args) == 0 {
				if x := b.clock(n.name, n.pos); x != nil {
					return x
				}
			}
			msg := n.name + " is not allowed: it depends on other rows"
			if why == CodeNonDeterministic {
				msg = n.name + " is not allowed: its value is not fixed by the row"
			}
			return b.problem(n.pos, why, msg)
		}
		b.bindAll(n.args)
		return b.problem(n.pos, CodeUnknownFunction, fmt.Sprintf("unknown function %s", clip(n.name)))
	}
	if len(n.args) < f.min || f.max >= 0 && len(n.args) > f.max {
		b.bindAll(n.args)
		want := fmt.Sprintf("%d to %d", f.min, f.max)
		switch {
		case f.max < 0:
			want = fmt.Sprintf("at least %d", f.min)
		case f.min == f.max:
			want = fmt.Sprint(f.min)
		}
		return b.problem(n.pos, CodeArgumentCount, fmt.Sprintf("%s takes %s arguments, not %d", n.name, want, len(n.args)))
	}
	return f.bind(b, b.bindAll(n.args), n)
}

var generalFunctions = map[string]function{
	"coalesce": {1, -1, func(b *binder, a []*bnode, n *node) *bnode { return b.coalesce(a, n.pos) }},
	"nvl":      {2, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.coalesce(a, n.pos) }},
	"ifnull":   {2, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.coalesce(a, n.pos) }},
	"nvl2": {3, 3, func(b *binder, a []*bnode, n *node) *bnode {
		return b.choose([]*bnode{b.isNull(a[0], true, n.pos)}, a[1:], n.name, n.pos)
	}},
	"nullif": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		same := b.compare(cmpEQ, a[0], a[1], n.pos)
		return b.choose([]*bnode{same}, []*bnode{b.null(n.pos), a[0]}, n.name, n.pos)
	}},
	"if":        {3, 3, bindIf},
	"iff":       {3, 3, bindIf},
	"isnull":    {1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.isNull(a[0], false, n.pos) }},
	"isnotnull": {1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.isNull(a[0], true, n.pos) }},
	"greatest":  {2, -1, func(b *binder, a []*bnode, n *node) *bnode { return b.extreme(a, n, 1) }},
	"least":     {2, -1, func(b *binder, a []*bnode, n *node) *bnode { return b.extreme(a, n, -1) }},
}

func bindIf(b *binder, a []*bnode, n *node) *bnode {
	return b.choose([]*bnode{b.boolean(a[0])}, a[1:], n.name, n.pos)
}

// extreme binds greatest (sign 1) and least (-1): nulls are skipped.
func (b *binder) extreme(a []*bnode, n *node, sign int) *bnode {
	before := len(b.problems)
	a, typ := b.unify(a, n.name, n.pos)
	if len(b.problems) > before {
		return b.null(n.pos)
	}
	if !orderable(typ) {
		return b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s: values of type %s have no order", n.name, typ))
	}
	return b.function(bnode{typ: typ, pos: n.pos, args: a, fn: func(c *context, v []*vector) *vector {
		return c.pick(typ, v, v, func(i int) (int, error) {
			best := -1
			for j := range v {
				if err := v[j].err(i); err != nil {
					return 0, err
				}
				if v[j].isNull(i) {
					continue
				}
				if best < 0 || sign*comparePair(v[j], v[best], i) > 0 {
					best = j
				}
			}
			return max(best, 0), nil
		})
	}})
}

// scalar makes a strict function: f computes slot i of out from slots of args,
// none of them null; it may fail or mark null.
func (b *binder) scalar(t schema.Type, pos Pos, a []*bnode, f func(out *vector, i int, in []*vector) error) *bnode {
	return b.function(bnode{typ: t, pos: pos, args: a, fn: func(c *context, in []*vector) *vector {
		out := c.alloc(t, in...)
		n := out.rows(c)
		for i := range n {
			if out.null != nil && out.null[i] {
				continue
			}
			switch err := f(out, i, in); err {
			case nil:
			case errNull:
				out.setNull(i, n)
			default:
				out.fail(i, n, err)
			}
		}
		return out
	}})
}

type nullResult struct{}

func (nullResult) Error() string { return "null" }

// errNull is what a scalar returns for a null result.
var errNull error = nullResult{}

func (v *vector) str(i int) string { return v.s[i*v.step] }

func (v *vector) int(i int) int64 { return v.i[i*v.step] }

// integer converts an argument to BIGINT; only integers (and NULL) are taken.
func (b *binder) integer(n *bnode, what string) *bnode {
	if isInt(n.typ) || n.typ == schema.Void || n.typ == schema.String && n.op == opLiteral {
		return b.cast(n, schema.Long, n.pos, false)
	}
	return b.cast(b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs an integer, found %s", what, n.typ)), schema.Long, n.pos, false)
}
