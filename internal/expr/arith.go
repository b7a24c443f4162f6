package expr

import (
	"fmt"
	"math"
	"math/big"

	"github.com/sluice-data/sluice/log/schema"
)

func overflow(pos Pos, t schema.Type) error {
	return &EvalError{CodeName: CodeOverflow, Pos: pos, Msg: t.String() + " overflow"}
}

func outOfRange(pos Pos, t schema.Type) error {
	return &EvalError{CodeName: CodeOutOfRange, Pos: pos, Msg: "result does not fit " + t.String()}
}

func divideByZero(pos Pos) error {
	return &EvalError{CodeName: CodeDivideByZero, Pos: pos, Msg: "division by zero"}
}

// promote brings a string operand of arithmetic to a number.
func (b *binder) promote(x, y *bnode, pos Pos) (*bnode, *bnode) {
	one := func(x, y *bnode) *bnode {
		switch {
		case x.typ == schema.Void && y.typ == schema.Void:
			return b.cast(x, schema.Double, pos, false)
		case x.typ == schema.Void && isNumeric(y.typ):
			return b.cast(x, y.typ, pos, false)
		case x.typ == schema.String && isNumeric(y.typ):
			return b.cast(x, promoteString(y.typ), pos, false)
		case x.typ == schema.String && y.typ == schema.String:
			return b.cast(x, schema.Double, pos, false)
		}
		return x
	}
	return one(x, y), one(y, x)
}

// arithmetic binds + - * / % DIV.
func (b *binder) arithmetic(op string, x, y *bnode, pos Pos) *bnode {
	x, y = b.promote(x, y, pos)
	if x.typ == schema.Date && isInt(y.typ) && (op == "+" || op == "-") {
		return b.addDays(x, y, op == "-", pos)
	}
	if !isNumeric(x.typ) || !isNumeric(y.typ) {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot compute %s %s %s", x.typ, op, y.typ))
	}
	switch {
	case isFloat(x.typ) || isFloat(y.typ), op == "/" && isInt(x.typ) && isInt(y.typ):
		return b.floatArithmetic(op, x, y, pos)
	case isInt(x.typ) && isInt(y.typ):
		t := x.typ
		if intRank[y.typ] > intRank[t] {
			t = y.typ
		}
		if op == "DIV" {
			t = schema.Long
		}
		return b.intArithmetic(op, x, y, t, pos)
	}
	return b.decimalArithmetic(op, x, y, pos)
}

func (b *binder) intArithmetic(op string, x, y *bnode, t schema.Type, pos Pos) *bnode {
	over, zero := overflow(pos, t), divideByZero(pos)
	calc := intOps[op]
	return b.function(bnode{typ: t, pos: pos, args: []*bnode{x, y}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(t, a...)
		n := out.rows(c)
		for i := range out.i {
			if out.null != nil && out.null[i] {
				continue
			}
			p, q := a[0].i[i*a[0].step], a[1].i[i*a[1].step]
			if q == 0 && (op == "%" || op == "DIV") {
				out.fail(i, n, zero)
				continue
			}
			r, ok := calc(p, q)
			if !ok || !fitsInt(r, t) {
				out.fail(i, n, over)
			}
			out.i[i] = r
		}
		return out
	}})
}

var intOps = map[string]func(a, b int64) (int64, bool){
	"+": func(a, b int64) (int64, bool) {
		r := a + b
		return r, (r > a) == (b > 0)
	},
	"-": func(a, b int64) (int64, bool) {
		r := a - b
		return r, (r < a) == (b > 0)
	},
	"*": func(a, b int64) (int64, bool) {
		if a == 0 || b == 0 {
			return 0, true
		}
		r := a * b
		return r, r/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
	},
	"%": func(a, b int64) (int64, bool) {
		if b == -1 {
			return 0, true
		}
		return a % b, true
	},
	"DIV": func(a, b int64) (int64, bool) {
		if b == -1 && a == math.MinInt64 {
			return 0, false
		}
		return a / b, true
	},
}

// floatArithmetic computes in double; two floats give a float, rounded once.
func (b *binder) floatArithmetic(op string, x, y *bnode, pos Pos) *bnode {
	t := schema.Type(schema.Double)
	if x.typ == schema.Float && y.typ == schema.Float {
		t = schema.Float
	}
	if op == "DIV" {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot compute %s DIV %s", x.typ, y.typ))
	}
	x, y = b.cast(x, t, pos, false), b.cast(y, t, pos, false)
	zero := divideByZero(pos)
	return b.function(bnode{typ: t, pos: pos, args: []*bnode{x, y}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(t, a...)
		n := out.rows(c)
		for i := range out.f {
			if out.null != nil && out.null[i] {
				continue
			}
			p, q := a[0].f[i*a[0].step], a[1].f[i*a[1].step]
			var r float64
			switch op {
			case "+":
				r = p + q
			case "-":
				r = p - q
			case "*":
				r = p * q
			default:
				if q == 0 {
					out.fail(i, n, zero)
					continue
				}
				if r = p / q; op == "%" {
					r = math.Mod(p, q)
				}
			}
			if t == schema.Float {
				r = float64(float32(r))
			}
			out.f[i] = r
		}
		return out
	}})
}

// decimalType is the result type of Spark's decimal arithmetic.
func decimalType(op string, x, y schema.Decimal) schema.Decimal {
	scale := max(x.Scale, y.Scale)
	switch op {
	case "+", "-":
		return adjust(max(x.Precision-x.Scale, y.Precision-y.Scale)+scale+1, scale)
	case "*":
		return adjust(x.Precision+y.Precision+1, x.Scale+y.Scale)
	case "/":
		scale = max(6, x.Scale+y.Precision+1)
		return adjust(x.Precision-x.Scale+y.Scale+scale, scale)
	}
	return adjust(min(x.Precision-x.Scale, y.Precision-y.Scale)+scale, scale)
}

func (b *binder) decimalArithmetic(op string, x, y *bnode, pos Pos) *bnode {
	dx, _ := asDecimal(literalType(x, y.typ))
	dy, _ := asDecimal(literalType(y, x.typ))
	x, y = b.cast(x, dx, pos, false), b.cast(y, dy, pos, false)
	t := decimalType(op, dx, dy)
	var typ schema.Type = t
	if op == "DIV" {
		typ = schema.Long
	}
	over, zero := outOfRange(pos, typ), divideByZero(pos)
	return b.function(bnode{typ: typ, pos: pos, args: []*bnode{x, y}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(typ, a...)
		n := out.rows(c)
		for i := range n {
			if out.null != nil && out.null[i] {
				continue
			}
			pd, qd := a[0].d[i*a[0].step], a[1].d[i*a[1].step]
			if r, ok := smallCalc(op, pd, dx.Scale, qd, dy.Scale, t.Scale); ok {
				if out.d[i], ok = fitSmall(r, t.Precision); !ok {
					out.fail(i, n, over)
				}
				continue
			}
			p, q := pd.BigInt(), qd.BigInt()
			if q.Sign() == 0 && (op == "/" || op == "%" || op == "DIV") {
				out.fail(i, n, zero)
				continue
			}
			r := decimalCalc(op, p, dx.Scale, q, dy.Scale, t.Scale)
			ok := false
			if op == "DIV" {
				if ok = r.IsInt64(); ok {
					out.i[i] = r.Int64()
				}
			} else {
				out.d[i], ok = fitDecimal(r, t.Precision)
			}
			if !ok {
				out.fail(i, n, over)
			}
		}
		return out
	}})
}

// decimalCalc computes exactly, then rounds half up to the result's scale.
func decimalCalc(op string, p *big.Int, ps int, q *big.Int, qs, scale int) *big.Int {
	common := max(ps, qs)
	switch op {
	case "*":
		return rescaleBig(p.Mul(p, q), ps+qs, scale)
	case "/":
		// p/10^ps / (q/10^qs) * 10^scale
		if shift := scale + qs - ps; shift >= 0 {
			p = p.Mul(p, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), nil))
		} else {
			q = q.Mul(q, pow10[-shift])
		}
		return divRound(p, q)
	}
	p, q = rescaleBig(p, ps, common), rescaleBig(q, qs, common)
	r := new(big.Int)
	switch op {
	case "+":
		r.Add(p, q)
	case "-":
		r.Sub(p, q)
	case "%":
		r.Rem(p, q)
	case "DIV":
		return r.Quo(p, q)
	}
	return rescaleBig(r, common, scale)
}

// negate binds unary + and -.
func (b *binder) negate(x *bnode, op string, pos Pos) *bnode {
	if x.typ == schema.String || x.typ == schema.Void {
		x = b.cast(x, schema.Double, pos, false)
	}
	if !isNumeric(x.typ) {
		return b.problem(pos, CodeTypeMismatch, fmt.Sprintf("cannot compute %s %s", op, x.typ))
	}
	if op == "+" {
		return x
	}
	t := x.typ
	over := overflow(pos, t)
	return b.function(bnode{typ: t, pos: pos, args: []*bnode{x}, fn: func(c *context, a []*vector) *vector {
		out := c.alloc(t, a[0])
		n := out.rows(c)
		for i := range n {
			if out.null != nil && out.null[i] {
				continue
			}
			k := i * a[0].step
			switch {
			case out.i != nil:
				out.i[i] = -a[0].i[k]
				if a[0].i[k] == math.MinInt64 || !fitsInt(out.i[i], t) {
					out.fail(i, n, over)
				}
			case out.f != nil:
				out.f[i] = -a[0].f[k]
			default:
				out.d[i] = a[0].d[k].Negate()
			}
		}
		return out
	}})
}
