package expr

import (
	"math"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// Bounds are what is known of the values of a group of rows without reading
// them: the statistics of a file, or its partition values. Paths are spelled as
// in the schema that the expression was bound to.
//
// A bound must hold for every row of the group, or be reported as absent. So
// whoever implements it widens what was cut or rounded: the maximum of
// timestamps that were floored to milliseconds, decimals that do not fit
// their scale. A Value has the kind of the column's type.
type Bounds interface {
	// RowCount counts the rows of the group, deleted ones included.
	RowCount() (int64, bool)
	// Min is a value that no non-null value of the column is below.
	Min(path []string) (Value, bool)
	// Max is a value that no non-null value of the column is above; for floating
	// point columns NaN may be left out of it, unless Exact.
	Max(path []string) (Value, bool)
	// NullCount counts the nulls of the column. With wide bounds only zero and
	// RowCount mean anything, and only they are used.
	NullCount(path []string) (int64, bool)
	// Exact reports that Min and Max are values that occur in the column, as a
	// partition value does; statistics are not exact.
	Exact(path []string) bool
}

// outcomes is the set of results that a condition may have.
type outcomes uint8

const (
	mayTrue outcomes = 1 << iota
	mayFalse
	mayNull
	mayAll = mayTrue | mayFalse | mayNull
)

// MayMatch reports whether a row within the bounds may make the condition TRUE
// . False is a proof; true is not. Rows that fail to evaluate are not
// looked for.
func (b *Bound) MayMatch(bounds Bounds) bool {
	if n, ok := bounds.RowCount(); ok && n == 0 {
		return false
	}
	return pruner{b, bounds}.outcomes(b.root)&mayTrue != 0
}

// AllMatch reports whether the bounds prove that every row is TRUE.
func (b *Bound) AllMatch(bounds Bounds) bool {
	return pruner{b, bounds}.outcomes(b.root) == mayTrue
}

type pruner struct {
	b      *Bound
	bounds Bounds
}

// interval is what is known of the value of a node; an end that is nil is open.
// soft bounds the values other than NaN, where hi is open because of NaN alone.
type interval struct {
	lo, hi   *vector
	soft     *vector
	mayNull  bool
	mayValue bool
}

var unknownInterval = interval{mayNull: true, mayValue: true}

func (p pruner) interval(n *bnode) interval {
	switch n.op {
	case opLiteral:
		if n.lit.errs == nil && n.lit.isNull(0) {
			return interval{mayNull: true}
		}
		if n.lit.errs != nil {
			return unknownInterval
		}
		return interval{lo: n.lit, hi: n.lit, mayValue: true}
	case opColumn:
		return p.column(p.b.slots[n.slot])
	case opCast:
		in := p.interval(n.args[0])
		out := interval{mayNull: in.mayNull || n.neg, mayValue: in.mayValue}
		if n.monotone {
			out.lo, out.hi, out.soft = n.apply(in.lo), n.apply(in.hi), n.apply(in.soft)
		}
		return out
	}
	return unknownInterval
}

// apply converts one end; an end that cannot be converted is open.
func (n *bnode) apply(end *vector) *vector {
	if end == nil {
		return nil
	}
	v := n.fn(&context{n: 1}, []*vector{end})
	if v.isNull(0) {
		return nil
	}
	return v
}

func (p pruner) column(s slot) interval {
	out := unknownInterval
	if nulls, ok := p.bounds.NullCount(s.path); ok {
		rows, known := p.bounds.RowCount()
		out.mayNull = nulls != 0
		out.mayValue = !known || nulls != rows
		if nulls == 0 && known && rows == 0 {
			out.mayValue = true
		}
	}
	if out.mayValue {
		exact := p.bounds.Exact(s.path)
		if v, ok := p.bounds.Min(s.path); ok {
			out.lo = boundVector(s.typ, v, exact)
		}
		if v, ok := p.bounds.Max(s.path); ok {
			if out.hi = boundVector(s.typ, v, exact); isFloat(s.typ) && !exact {
				out.soft, out.hi = out.hi, nil
			}
		}
	}
	return out
}

// boundVector is a bound as a constant, nil if it is of no use for the type.
func boundVector(t schema.Type, v Value, exact bool) *vector {
	fits := false
	switch classOf(t) {
	case clsBool:
		fits = v.Kind == KindBool && exact
	case clsInt:
		fits = v.Kind == KindInt
	case clsFloat:
		fits = v.Kind == KindFloat && (exact || !math.IsNaN(v.Float))
	case clsBytes:
		fits = v.Kind == KindBytes && (exact || t != schema.Binary)
	case clsDec:
		if v.Kind == KindDecimal {
			scale := t.(schema.Decimal).Scale
			if int(v.Scale) <= scale && v.Scale >= 0 {
				v.Dec, fits = fitScaled(v.Dec.BigInt(), int(v.Scale), schema.Decimal{Precision: 38, Scale: scale})
			}
		}
	}
	if !fits {
		return nil
	}
	return constant(t, v)
}

func (p pruner) outcomes(n *bnode) outcomes {
	switch n.op {
	case opLiteral:
		switch {
		case n.lit.errs != nil || classOf(n.typ) != clsBool && classOf(n.typ) != clsNull:
			return mayAll
		case n.lit.isNull(0):
			return mayNull
		}
		return truth(n.lit.b[0])
	case opColumn:
		return p.condition(p.interval(n))
	case opNot:
		m := p.outcomes(n.args[0])
		out := m & mayNull
		if m&mayTrue != 0 {
			out |= mayFalse
		}
		if m&mayFalse != 0 {
			out |= mayTrue
		}
		return out
	case opAnd, opOr:
		out := p.outcomes(n.args[0])
		for _, a := range n.args[1:] {
			out = combine(out, p.outcomes(a), n.op == opAnd)
		}
		return out
	case opCompare:
		return p.compare(n.cmp, p.interval(n.args[0]), p.interval(n.args[1]))
	case opIsNull:
		in := p.interval(n.args[0])
		if n.args[0].typ == schema.Boolean {
			m := p.outcomes(n.args[0])
			in.mayNull, in.mayValue = m&mayNull != 0, m&(mayTrue|mayFalse) != 0
		}
		var out outcomes
		if in.mayNull {
			out |= truth(!n.neg)
		}
		if in.mayValue {
			out |= truth(n.neg)
		}
		return out
	case opIsBool:
		m := p.outcomes(n.args[0])
		var out outcomes
		if m&truth(n.truth) != 0 {
			out |= truth(!n.neg)
		}
		if m&^truth(n.truth) != 0 {
			out |= truth(n.neg)
		}
		return out
	case opIn:
		return p.in(n)
	case opStartsWith:
		return p.startsWith(n)
	}
	return mayAll
}

func truth(b bool) outcomes {
	if b {
		return mayTrue
	}
	return mayFalse
}

// condition is the outcomes of a boolean column.
func (p pruner) condition(in interval) outcomes {
	var out outcomes
	if in.mayNull {
		out |= mayNull
	}
	if in.mayValue {
		if in.hi == nil || in.hi.b[0] {
			out |= mayTrue
		}
		if in.lo == nil || !in.lo.b[0] {
			out |= mayFalse
		}
	}
	return out
}

// combine is AND (all) or OR over sets of outcomes.
func combine(x, y outcomes, all bool) outcomes {
	weak, strong := mayTrue, mayFalse // FALSE decides an AND
	if !all {
		weak, strong = mayFalse, mayTrue
	}
	out := (x | y) & strong
	if x&weak != 0 && y&weak != 0 {
		out |= weak
	}
	if x&mayNull != 0 && y&(mayNull|weak) != 0 || y&mayNull != 0 && x&(mayNull|weak) != 0 {
		out |= mayNull
	}
	return out
}

// below reports whether a is known to be less than b.
func below(a, b *vector) bool { return a != nil && b != nil && comparePair(a, b, 0) < 0 }

func atMost(a, b *vector) bool { return a != nil && b != nil && comparePair(a, b, 0) <= 0 }

// top is the highest value of x that may equal a value of y.
func (x interval) top(y interval) *vector {
	if y.hi != nil && (y.hi.f == nil || !math.IsNaN(y.hi.f[0])) && x.hi == nil {
		return x.soft
	}
	return x.hi
}

func (p pruner) compare(op compareOp, x, y interval) outcomes {
	var out outcomes
	values := x.mayValue && y.mayValue
	switch {
	case op == cmpSame:
		if x.mayNull && y.mayNull {
			out |= mayTrue
		}
		if x.mayNull && y.mayValue || y.mayNull && x.mayValue {
			out |= mayFalse
		}
	case x.mayNull || y.mayNull:
		out |= mayNull
	}
	if !values {
		return out
	}
	can, not := mayTrue, mayFalse
	switch op {
	case cmpEQ, cmpSame, cmpNE:
		if op == cmpNE {
			can, not = not, can
		}
		if !below(x.top(y), y.lo) && !below(y.top(x), x.lo) {
			out |= can
		}
		// All values are equal only if both intervals are one and the same point.
		if !(atMost(x.hi, y.lo) && atMost(y.hi, x.lo)) {
			out |= not
		}
		return out
	case cmpGT, cmpGE:
		x, y = y, x
	}
	if op == cmpLT || op == cmpGT {
		if !atMost(y.hi, x.lo) {
			out |= can
		}
		if !below(x.hi, y.lo) {
			out |= not
		}
		return out
	}
	if !below(y.hi, x.lo) {
		out |= can
	}
	if !atMost(x.hi, y.lo) {
		out |= not
	}
	return out
}

func (p pruner) in(n *bnode) outcomes {
	x := p.interval(n.args[0])
	var out outcomes
	if x.mayNull {
		out |= mayNull
	}
	if !x.mayValue {
		return out
	}
	miss := mayFalse
	if n.neg {
		miss = mayNull
	}
	only := false
	for _, v := range n.set {
		c := constant(n.args[0].typ, v)
		if !below(x.hi, c) && !below(c, x.lo) {
			out |= mayTrue
			only = only || atMost(x.hi, c) && atMost(c, x.lo)
		}
	}
	if !only {
		out |= miss
	}
	return out
}

// startsWith: whatever has the prefix is at least the prefix, and at most
// anything else that does not start with something below it.
func (p pruner) startsWith(n *bnode) outcomes {
	x, prefix := p.interval(n.args[0]), n.args[1].lit.s[0]
	var out outcomes
	if x.mayNull {
		out |= mayNull
	}
	if !x.mayValue {
		return out
	}
	loHead := ""
	if x.lo != nil {
		loHead = x.lo.s[0][:min(len(x.lo.s[0]), len(prefix))]
	}
	if (x.hi == nil || x.hi.s[0] >= prefix) && (x.lo == nil || loHead <= prefix) {
		out |= mayTrue
	}
	if x.lo == nil || x.hi == nil || !strings.HasPrefix(x.lo.s[0], prefix) || !strings.HasPrefix(x.hi.s[0], prefix) {
		out |= mayFalse
	}
	return out
}
