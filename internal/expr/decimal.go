package expr

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

var pow10 = func() [80]*big.Int {
	var out [80]*big.Int
	x := big.NewInt(1)
	for i := range out {
		out[i] = new(big.Int).Set(x)
		x.Mul(x, big.NewInt(10))
	}
	return out
}()

// small is v as an int64, if it fits: most decimals do, and need no big integers.
func small(v decimal128.Num) (int64, bool) {
	lo := int64(v.LowBits())
	return lo, v.HighBits() == lo>>63
}

var smallPow10 = func() (out [19]int64) {
	out[0] = 1
	for i := 1; i < len(out); i++ {
		out[i] = out[i-1] * 10
	}
	return out
}()

// scaleUp is v * 10^n.
func scaleUp(v int64, n int) (int64, bool) {
	if n < 0 || n >= len(smallPow10) {
		return 0, false
	}
	r := v * smallPow10[n]
	return r, r/smallPow10[n] == v
}

// fitSmall is fitDecimal for an int64.
func fitSmall(v int64, precision int) (decimal128.Num, bool) {
	if precision < len(smallPow10) && (v >= smallPow10[precision] || v <= -smallPow10[precision]) {
		return decimal128.Num{}, false
	}
	return decimal128.FromI64(v), true
}

// smallCalc is + - * of decimals whose values and exact result fit an int64 at
// the result's scale.
func smallCalc(op string, p decimal128.Num, ps int, q decimal128.Num, qs, scale int) (int64, bool) {
	a, ok1 := small(p)
	c, ok2 := small(q)
	if !ok1 || !ok2 {
		return 0, false
	}
	switch op {
	case "*":
		if ps+qs != scale {
			return 0, false
		}
	case "+", "-":
		if a, ok1 = scaleUp(a, scale-ps); !ok1 {
			return 0, false
		}
		if c, ok2 = scaleUp(c, scale-qs); !ok2 {
			return 0, false
		}
	default:
		return 0, false
	}
	return intOps[op](a, c)
}

// fitDecimal is v as an unscaled value of at most precision digits.
func fitDecimal(v *big.Int, precision int) (decimal128.Num, bool) {
	if v.CmpAbs(pow10[precision]) >= 0 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(v), true
}

// divRound is a/b rounded half away from zero; b is not 0.
func divRound(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Lsh(r.Abs(r), 1).CmpAbs(b) >= 0 {
		if a.Sign()*b.Sign() < 0 {
			q.Sub(q, big.NewInt(1))
		} else {
			q.Add(q, big.NewInt(1))
		}
	}
	return q
}

// rescaleBig changes the scale, rounding half away from zero.
func rescaleBig(v *big.Int, from, to int) *big.Int {
	switch {
	case to > from:
		return new(big.Int).Mul(v, pow10[to-from])
	case to < from:
		return divRound(v, pow10[from-to])
	}
	return v
}

// rescale brings an unscaled decimal to another type; false means it has too
// many whole digits.
func rescale(v decimal128.Num, fromScale int, to schema.Decimal) (decimal128.Num, bool) {
	if fromScale == to.Scale {
		return v, to.Precision >= 38 || v.FitsInPrecision(int32(to.Precision))
	}
	if s, ok := small(v); ok {
		if r, ok := scaleUp(s, to.Scale-fromScale); ok {
			return fitSmall(r, to.Precision)
		}
	}
	return fitDecimal(rescaleBig(v.BigInt(), fromScale, to.Scale), to.Precision)
}

// compareDecimal compares by value.
func compareDecimal(a decimal128.Num, as int32, b decimal128.Num, bs int32) int {
	if as == bs {
		return a.Cmp(b)
	}
	if c := cmp.Compare(a.Sign(), b.Sign()); c != 0 {
		return c
	}
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			if r, ok := scaleUp(x, int(bs-as)); ok {
				return cmp.Compare(r, y)
			}
			if r, ok := scaleUp(y, int(as-bs)); ok {
				return cmp.Compare(x, r)
			}
		}
	}
	x, y := a.BigInt(), b.BigInt()
	if as < bs {
		x = new(big.Int).Mul(x, pow10[bs-as])
	} else {
		y = new(big.Int).Mul(y, pow10[as-bs])
	}
	return x.Cmp(y)
}

// parseDecimal reads a number of up to 38 digits exactly. The type has the digits
// that were written.
func parseDecimal(s string) (decimal128.Num, schema.Decimal, bool) {
	v, scale, ok := parseNumber(s)
	if !ok {
		return decimal128.Num{}, schema.Decimal{}, false
	}
	if scale < 0 {
		if scale < -38 {
			return decimal128.Num{}, schema.Decimal{}, false
		}
		v, scale = new(big.Int).Mul(v, pow10[-scale]), 0
	}
	digits := len(new(big.Int).Abs(v).String())
	typ := schema.Decimal{Precision: max(digits, scale, 1), Scale: scale}
	if typ.Precision > 38 {
		return decimal128.Num{}, schema.Decimal{}, false
	}
	return decimal128.FromBigInt(v), typ, true
}

// parseNumber reads [+-]digits[.digits][E[+-]digits] as unscaled value and scale.
// It refuses more than a thousand digits or an exponent beyond 1000.
func parseNumber(s string) (*big.Int, int, bool) {
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > 1000 || e < -1000 {
			return nil, 0, false
		}
		mantissa, exponent = s[:i], e
	}
	sign := ""
	if mantissa != "" && (mantissa[0] == '-' || mantissa[0] == '+') {
		sign, mantissa = strings.Trim(mantissa[:1], "+"), mantissa[1:]
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	digits := whole + frac
	if digits == "" || len(digits) > 1000 {
		return nil, 0, false
	}
	for i := 0; i < len(digits); i++ {
		if digits[i] < '0' || digits[i] > '9' {
			return nil, 0, false
		}
	}
	v, ok := new(big.Int).SetString(sign+digits, 10)
	return v, len(frac) - exponent, ok
}

// toDecimal reads text as a value of a decimal type, rounding half up.
func toDecimal(s string, t schema.Decimal) (decimal128.Num, bool, bool) {
	v, scale, ok := parseNumber(strings.TrimSpace(s))
	if !ok {
		return decimal128.Num{}, false, false
	}
	n, fits := fitScaled(v, scale, t)
	return n, fits, true
}

// fitScaled is v * 10^-scale as a value of t. The scale may be anything up to
// about 2000 either way.
func fitScaled(v *big.Int, scale int, t schema.Decimal) (decimal128.Num, bool) {
	if v.Sign() == 0 {
		return decimal128.Num{}, true
	}
	switch shift := t.Scale - scale; {
	case shift > 0:
		if shift >= len(pow10) {
			return decimal128.Num{}, false
		}
		v = new(big.Int).Mul(v, pow10[shift])
	case shift < 0:
		v = divRound(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-shift)), nil))
	}
	return fitDecimal(v, t.Precision)
}

// decimalFloat is the double nearest to the decimal.
func decimalFloat(v decimal128.Num, scale int) float64 {
	hi, lo := v.HighBits(), v.LowBits()
	if small := int64(lo); (hi == 0 && small >= 0 || hi == -1 && small < 0) && small < 1<<53 && small > -(1<<53) && scale <= 22 {
		return float64(small) / math.Pow10(scale) // both exact: one rounding
	}
	f, _ := strconv.ParseFloat(v.ToString(int32(scale)), 64)
	return f
}

// floatDecimal is the float as a decimal through its shortest text, as Spark does.
func floatDecimal(f float64, bits int, t schema.Decimal) (decimal128.Num, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return decimal128.Num{}, false
	}
	n, fits, _ := toDecimal(strconv.FormatFloat(f, 'e', -1, bits), t)
	return n, fits
}
