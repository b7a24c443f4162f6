package wire

import (
	"github.com/sluice-data/sluice/log/schema"
)

// Shape gathers what JSON values of one column looked like, for inference. The
// type it gives only ever widens: nothing, BOOLEAN, BIGINT, DECIMAL or DOUBLE,
// STRING; arrays by their elements; objects and mixtures are STRING.
type Shape struct {
	seen      uint16
	intDigits int // most digits before the point of a number
	scale     int // most digits after it
	elem      *Shape
	// Exact makes fractions DECIMAL(38,s); else they are DOUBLE.
	Exact bool
}

const (
	sawBool uint16 = 1 << iota
	sawInt
	sawWide // integer beyond 64 bits
	sawFrac
	sawExp
	sawString
	sawWord // NaN, Infinity, -Infinity
	sawArray
	sawObject
)

const sawNumber = sawInt | sawWide | sawFrac | sawExp

// Add takes a value in and tells whether the type may have changed.
func (s *Shape) Add(t Token) bool {
	was := *s
	switch t.Kind {
	case True, False:
		s.seen |= sawBool
	case Number:
		s.addNumber(t.Raw)
	case String:
		if isWord(t) {
			s.seen |= sawWord
		} else {
			s.seen |= sawString
		}
	case Object:
		s.seen |= sawObject
	case Array:
		s.seen |= sawArray
		changed := false
		if s.elem == nil {
			s.elem = &Shape{Exact: s.Exact}
			changed = true
		}
		Elements(t, func(e Token) bool {
			if s.elem.Add(e) {
				changed = true
			}
			return true
		})
		return changed || was.seen != s.seen
	}
	return was.seen != s.seen || was.scale != s.scale || was.intDigits != s.intDigits
}

func isWord(t Token) bool {
	switch string(t.Raw) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	return false
}

func (s *Shape) addNumber(raw []byte) {
	i := 0
	if raw[0] == '-' {
		i++
	}
	whole := digits(raw, i) - i
	frac, exp := 0, false
	if j := i + whole; j < len(raw) {
		if raw[j] == '.' {
			frac = digits(raw, j+1) - j - 1
			j += 1 + frac
		}
		exp = j < len(raw)
	}
	s.intDigits = max(s.intDigits, whole)
	s.scale = max(s.scale, frac)
	switch {
	case exp:
		s.seen |= sawExp
	case frac > 0:
		s.seen |= sawFrac
	default:
		if _, ok := Int(raw); ok {
			s.seen |= sawInt
		} else {
			s.seen |= sawWide
		}
	}
}

// Type is the narrowest type that holds all values seen; nil if there was none.
func (s *Shape) Type() schema.Type {
	switch n := s.seen; {
	case n == 0:
		return nil
	case n == sawBool:
		return schema.Boolean
	case n == sawInt:
		return schema.Long
	case n == sawArray:
		elem := schema.Type(schema.String)
		if s.elem != nil && s.elem.Type() != nil {
			elem = s.elem.Type()
		}
		return &schema.Array{Elem: elem, ContainsNull: true}
	case n&^sawNumber == 0:
		switch {
		case !s.Exact && n&(sawFrac|sawExp) != 0 && n&sawWide == 0:
			return schema.Double
		case n&sawExp != 0:
			return schema.Double
		case s.intDigits+s.scale <= 38:
			return schema.Decimal{Precision: 38, Scale: s.scale}
		}
	case n&sawWord != 0 && n&^(sawNumber|sawWord) == 0 && n&(sawFrac|sawExp) != 0 && n&sawWide == 0:
		return schema.Double
	}
	return schema.String
}

// fits tells whether a column of type typ, which s gave, holds the token
// without widening.
func fits(typ schema.Type, t Token) bool {
	if t.Kind == Null {
		return true
	}
	switch typ := typ.(type) {
	case schema.Primitive:
		switch typ {
		case schema.String:
			return true
		case schema.Long:
			_, ok := Int(t.Raw)
			return t.Kind == Number && ok
		case schema.Boolean:
			return t.Kind == True || t.Kind == False
		case schema.Double:
			return t.Kind == Number || t.Kind == String && isWord(t)
		}
	case schema.Decimal:
		if t.Kind != Number {
			return false
		}
		_, ok := decimalText(t.Raw, typ.Precision, typ.Scale)
		return ok
	case *schema.Array:
		if t.Kind != Array {
			return false
		}
		ok := true
		Elements(t, func(e Token) bool { ok = fits(typ.Elem, e); return ok })
		return ok
	}
	return false
}

// assume makes the shape one of which typ was inferred.
func (s *Shape) assume(typ schema.Type) {
	switch typ := typ.(type) {
	case schema.Primitive:
		switch typ {
		case schema.Boolean:
			s.seen |= sawBool
		case schema.Long:
			s.seen |= sawInt
		case schema.Double:
			s.seen |= sawExp
		default:
			s.seen |= sawString
		}
	case schema.Decimal:
		s.seen |= sawFrac
		s.scale = typ.Scale
	case *schema.Array:
		s.seen |= sawArray
		s.elem = &Shape{Exact: s.Exact}
		s.elem.assume(typ.Elem)
	}
}
