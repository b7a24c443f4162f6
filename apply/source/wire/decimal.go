package wire

import (
	"bytes"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// pow10 holds the powers of ten below 10^39.
var pow10 = func() (p [39]decimal128.Num) {
	p[0] = decimal128.FromU64(1)
	ten := decimal128.FromU64(10)
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1].Mul(ten)
	}
	return p
}()

// fitsPrecision tells whether |n| < 10^p.
func fitsPrecision(n decimal128.Num, p int) bool {
	a := n.Abs()
	return a.Sign() >= 0 && a.Less(pow10[p])
}

// decimalText reads plain or exponent notation into an unscaled value of the
// given precision and scale; ok is false if a digit would be lost or the value
// does not fit.
func decimalText(s []byte, precision, scale int) (decimal128.Num, bool) {
	var zero decimal128.Num
	i, neg := 0, false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		i++
	}
	var n, frac int // significant digits, fraction digits
	seenDigit, dot := false, false
	v := decimal128.Num{}
	pend, pendN := uint64(0), 0 // digits not yet folded into v
	flush := func() {
		if pendN > 0 {
			v = v.Mul(pow10[pendN]).Add(decimal128.FromU64(pend))
			pend, pendN = 0, 0
		}
	}
	trailing := 0 // zeros not yet taken in
	exp := 0
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			seenDigit = true
			if dot {
				frac++
			}
			if c == '0' {
				if n > 0 {
					trailing++
				}
				continue
			}
			for ; trailing > 0; trailing-- {
				pend, pendN = pend*10, pendN+1
				n++
				if pendN == 18 {
					flush()
				}
			}
			pend, pendN = pend*10+uint64(c-'0'), pendN+1
			n++
			if n > 38 {
				return zero, false
			}
			if pendN == 18 {
				flush()
			}
		case c == '.' && !dot:
			dot = true
		case (c == 'e' || c == 'E') && seenDigit:
			e, ok := smallInt(s[i+1:])
			if !ok {
				return zero, false
			}
			exp, i = e, len(s)
		default:
			return zero, false
		}
	}
	if !seenDigit {
		return zero, false
	}
	flush()
	if n == 0 {
		return zero, true
	}
	// value = v * 10^(trailing - frac + exp)
	shift := trailing - frac + exp + scale
	if shift < 0 || n+shift > 38 {
		return zero, false
	}
	v = v.Mul(pow10[shift])
	if !fitsPrecision(v, precision) {
		return zero, false
	}
	if neg {
		v = v.Negate()
	}
	return v, true
}

func smallInt(s []byte) (int, bool) {
	neg := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 6 {
		return 0, false
	}
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// unscaled reads big-endian two's complement of at most 16 bytes.
func unscaled(b []byte) (decimal128.Num, bool) {
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	if len(b) > 16 {
		return decimal128.Num{}, false
	}
	var hi int64
	var lo uint64
	if len(b) > 0 && b[0] >= 0x80 {
		hi, lo = -1, ^uint64(0)
	}
	for _, c := range b {
		hi = hi<<8 | int64(lo>>56)
		lo = lo<<8 | uint64(c)
	}
	return decimal128.New(hi, lo), true
}

// decimalBytes reads an unscaled two's complement value of scale from into
// precision and scale; a digit is never dropped.
func decimalBytes(b []byte, from, precision, scale int) (decimal128.Num, bool) {
	v, ok := unscaled(b)
	if !ok || !fitsPrecision(v, 38) {
		return wideBytes(b, from, precision, scale)
	}
	switch shift := scale - from; {
	case shift > 38 || shift < -38:
		return v, v == decimal128.Num{}
	case shift > 0:
		if !fitsPrecision(v, 38-shift) {
			return v, false
		}
		v = v.Mul(pow10[shift])
	case shift < 0:
		q, r := v.Div(pow10[-shift])
		if r != (decimal128.Num{}) {
			return v, false
		}
		v = q
	}
	return v, fitsPrecision(v, precision)
}

// wideBytes is decimalBytes for values beyond 128 bits: a numeric(5,-2) comes
// multiplied by ten to the 2046.
func wideBytes(b []byte, from, precision, scale int) (n decimal128.Num, ok bool) {
	if len(b) > 1<<14 || from <= scale {
		return n, false
	}
	v := bigBytes(b)
	var rest big.Int
	v.QuoRem(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(from-scale)), nil), &rest)
	if rest.Sign() != 0 || v.BitLen() > 127 {
		return n, false
	}
	n = decimal128.FromBigInt(v)
	return n, fitsPrecision(n, precision)
}

// bigBytes reads big-endian two's complement.
func bigBytes(b []byte) *big.Int {
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}

// appendUnscaled prints an unscaled two's complement value of any size in plain
// notation with exactly scale fraction digits.
func appendUnscaled(buf, b []byte, scale int) []byte {
	v := bigBytes(b)
	if v.Sign() < 0 {
		buf = append(buf, '-')
		v.Abs(v)
	}
	digits := v.Append(nil, 10)
	if scale <= 0 {
		buf = append(buf, digits...)
		if v.Sign() != 0 {
			for range -scale {
				buf = append(buf, '0')
			}
		}
		return buf
	}
	for len(digits) <= scale {
		digits = append([]byte("0"), digits...)
	}
	whole, frac := digits[:len(digits)-scale], digits[len(digits)-scale:]
	if wrapped(scale) {
		frac = bytes.TrimRight(frac, "0")
	}
	buf = append(buf, whole...)
	if len(frac) == 0 {
		return buf
	}
	buf = append(buf, '.')
	return append(buf, frac...)
}
