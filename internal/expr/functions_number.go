package expr

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/sluice-data/sluice/log/schema"
)

var (
	ceilFunction = function{1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.whole(a[0], n, true) }}
)

var numberFunctions = map[string]function{
	"abs":     {1, 1, bindAbs},
	"round":   {1, 2, bindRound},
	"floor":   {1, 1, func(b *binder, a []*bnode, n *node) *bnode { return b.whole(a[0], n, false) }},
	"ceil":    ceilFunction,
	"ceiling": ceilFunction,
	"mod":     {2, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.arithmetic("%", a[0], a[1], n.pos) }},
	"isnan": {1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := b.numeric(a[0], n)
		if !isFloat(x.typ) {
			x = b.cast(x, schema.Double, n.pos, false)
		}
		return b.function(bnode{typ: schema.Boolean, pos: n.pos, args: []*bnode{x}, fn: func(c *context, in []*vector) *vector {
			out := c.blank(schema.Boolean, in[0])
			out.takeErrs(in[0], out.rows(c))
			for i := range out.b {
				out.b[i] = !in[0].isNull(i) && math.IsNaN(in[0].f[i*in[0].step])
			}
			return out
		}})
	}},
	"sign": {1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := b.cast(b.numeric(a[0], n), schema.Double, n.pos, false)
		return b.scalar(schema.Double, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			f := in[0].f[i*in[0].step]
			switch {
			case f > 0:
				f = 1
			case f < 0:
				f = -1
			}
			out.f[i] = f
			return nil
		})
	}},
}

// numeric checks that an argument is a number; a string becomes a double.
func (b *binder) numeric(x *bnode, n *node) *bnode {
	switch {
	case isNumeric(x.typ):
		return x
	case x.typ == schema.String || x.typ == schema.Void:
		return b.cast(x, schema.Double, n.pos, false)
	}
	return b.cast(b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs a number, found %s", n.name, x.typ)), schema.Double, n.pos, false)
}

func bindAbs(b *binder, a []*bnode, n *node) *bnode {
	x := b.numeric(a[0], n)
	t := x.typ
	over := overflow(n.pos, t)
	return b.scalar(t, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		k := i * in[0].step
		switch {
		case out.i != nil:
			v := in[0].i[k]
			if v < 0 {
				v = -v
			}
			if out.i[i] = v; v < 0 || !fitsInt(v, t) {
				return over
			}
		case out.f != nil:
			out.f[i] = math.Abs(in[0].f[k])
		default:
			out.d[i] = in[0].d[k].Abs()
		}
		return nil
	})
}

// whole binds floor and ceil: BIGINT for integers and floats, a decimal without
// fraction for decimals.
func (b *binder) whole(x *bnode, n *node, up bool) *bnode {
	x = b.numeric(x, n)
	if d, ok := x.typ.(schema.Decimal); ok {
		if d.Scale == 0 {
			return x
		}
		t := adjust(d.Precision-d.Scale+1, 0)
		return b.scalar(t, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			q, r := new(big.Int).QuoRem(in[0].d[i*in[0].step].BigInt(), pow10[d.Scale], new(big.Int))
			if up && r.Sign() > 0 {
				q.Add(q, big.NewInt(1))
			} else if !up && r.Sign() < 0 {
				q.Sub(q, big.NewInt(1))
			}
			var ok bool
			if out.d[i], ok = fitDecimal(q, t.Precision); !ok {
				return outOfRange(n.pos, t)
			}
			return nil
		})
	}
	if isInt(x.typ) {
		return b.cast(x, schema.Long, n.pos, false)
	}
	return b.scalar(schema.Long, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		f := in[0].f[i*in[0].step]
		if up {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		if !(f >= -(1<<63) && f < 1<<63) {
			return overflow(n.pos, schema.Long)
		}
		out.i[i] = int64(f)
		return nil
	})
}

// bindRound rounds half up to a literal number of digits.
func bindRound(b *binder, a []*bnode, n *node) *bnode {
	x := b.numeric(a[0], n)
	digits := 0
	if len(a) == 2 {
		if a[1].op != opLiteral || !isInt(a[1].typ) || a[1].lit.isNull(0) {
			return b.problem(a[1].pos, CodeNotAllowed, "the second argument of round must be an integer literal")
		}
		digits = int(min(max(a[1].lit.i[0], -400), 400))
	}
	switch t := x.typ.(type) {
	case schema.Decimal:
		return b.roundDecimal(x, t, digits, n)
	default:
		if isInt(t) {
			if digits >= 0 {
				return x
			}
			return b.scalar(t, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
				v := roundBig(big.NewInt(in[0].int(i)), -digits)
				if !v.IsInt64() || !fitsInt(v.Int64(), t) {
					return overflow(n.pos, t)
				}
				out.i[i] = v.Int64()
				return nil
			})
		}
	}
	bits := 64
	if x.typ == schema.Float {
		bits = 32
	}
	return b.scalar(x.typ, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		f := in[0].f[i*in[0].step]
		out.f[i] = f
		if v, scale, ok := parseNumber(strconv.FormatFloat(f, 'e', -1, bits)); ok && scale > digits {
			v = roundBig(v, scale-digits)
			r, err := strconv.ParseFloat(fmt.Sprintf("%se%d", v, -scale), bits)
			if err != nil {
				return overflow(n.pos, x.typ)
			}
			out.f[i] = math.Copysign(r, f)
		}
		return nil
	})
}

// roundBig rounds v to a multiple of 10^digits, half away from zero.
func roundBig(v *big.Int, digits int) *big.Int {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	return unit.Mul(divRound(v, unit), unit)
}

func (b *binder) roundDecimal(x *bnode, d schema.Decimal, digits int, n *node) *bnode {
	scale := min(max(digits, 0), d.Scale)
	precision := d.Precision - d.Scale + 1 + scale
	if digits < 0 {
		precision = max(d.Precision-d.Scale+1, -digits+1)
	}
	t := schema.Decimal{Precision: min(precision, 38), Scale: scale}
	return b.scalar(t, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		v := in[0].d[i*in[0].step].BigInt()
		if digits < d.Scale {
			v = roundBig(v, d.Scale-digits)
		}
		var ok bool
		if out.d[i], ok = fitDecimal(rescaleBig(v, d.Scale, scale), t.Precision); !ok {
			return outOfRange(n.pos, t)
		}
		return nil
	})
}
