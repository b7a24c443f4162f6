package wire

import (
	"math"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/sluice-data/sluice/log/schema"
)

func (n *Node) unsigned(t Token, s *scratch) (v scalar, ok bool) {
	if t.Kind != Number {
		return v, false
	}
	if i, ok := Int(t.Raw); ok && i < 0 {
		v.d = decimal128.FromU64(uint64(i))
		return v, true
	}
	v.d, ok = decimalText(t.Raw, 20, 0)
	return v, ok
}

// variable reads a VariableScaleDecimal; a bare number or digits pass, too.
func (n *Node) variable(t Token, s *scratch) (v scalar, ok bool) {
	typ, isDecimal := n.Type.(schema.Decimal)
	if t.Kind != Object {
		if isDecimal {
			m := *n
			m.Form = Plain
			return m.convert(t, s)
		}
		v.b = s.textOf(t)
		return v, t.Kind == Number || t.Kind == String
	}
	scale, haveScale, value := int64(0), false, Token{}
	Members(t, func(k, val Token) bool {
		switch {
		case k.Is("scale") && val.Kind == Number:
			scale, haveScale = Int(val.Raw)
		case k.Is("value"):
			value = val
		}
		return true
	})
	if !haveScale || value.Kind != String || scale > 20000 || scale < -20000 {
		return v, false
	}
	b, ok := decodeBytes(s.textOf(value), Base64, s)
	if !ok || len(b) == 0 {
		return v, false
	}
	from := int(scale)
	if isDecimal {
		v.d, ok = decimalBytes(b, from, typ.Precision, typ.Scale)
		return v, ok
	}
	s.text = appendUnscaled(s.text[:0], b, from)
	v.b = s.text
	return v, true
}

// bigDecimal prints base64 of an unscaled value in plain notation.
func (n *Node) bigDecimal(t Token, s *scratch) (v scalar, ok bool) {
	if t.Kind == Number {
		v.b = t.Raw
		return v, true
	}
	b, ok := n.bytes(t, s)
	if !ok || len(b) == 0 {
		return v, false
	}
	s.text = appendUnscaled(s.text[:0], b, n.Scale)
	v.b = s.text
	return v, true
}

// wrapped tells whether a scale is a negative one that came as its eleven low
// bits (PostgreSQL's numeric(5,-2) as 2046). The values are multiplied to match,
// so only the declared type is off.
func wrapped(scale int) bool { return scale >= 1024 && scale < 2048 }

// DeclaredScale is the scale that the source's column has.
func DeclaredScale(scale int) int {
	if wrapped(scale) {
		return scale - 2048
	}
	return scale
}

func (n *Node) clock(t Token, s *scratch) (v scalar, ok bool) {
	var us int64
	switch t.Kind {
	case Number:
		if us, ok = Int(t.Raw); !ok {
			return v, false
		}
		switch n.Unit {
		case Millis:
			if us > math.MaxInt64/1000 || us < math.MinInt64/1000 {
				return v, false
			}
			us *= 1000
		case Nanos:
			us = floorDiv(us, 1000)
		}
		if us > 10_000*3_600_000_000 || us < -10_000*3_600_000_000 {
			return v, false
		}
	case String:
		text := s.textOf(t)
		neg := len(text) > 0 && text[0] == '-'
		if neg {
			text = text[1:]
		}
		var i int
		if us, i, ok = parseClock(text, 999); !ok {
			return v, false
		}
		if i < len(text) {
			if _, k, ok := parseOffset(text[i:]); !ok || i+k != len(text) {
				return v, false
			}
		}
		if neg {
			us = -us
		}
	default:
		return v, false
	}
	s.out = appendClock(s.out[:0], us)
	v.b = s.out
	return v, true
}

// bits prints little-endian bits with the highest first, as the databases do.
func (n *Node) bits(t Token, s *scratch) (v scalar, ok bool) {
	b, ok := n.bytes(t, s)
	if !ok {
		return v, false
	}
	size := n.Scale
	if size <= 0 || size > 8*len(b) {
		// A varying bit string is as long as its bytes tell.
		size = min(max(size, 0), 8*len(b))
		if n.Scale <= 0 {
			size = 8 * len(b)
		}
	}
	s.text = s.text[:0]
	for i := size - 1; i >= 0; i-- {
		s.text = append(s.text, '0'+b[i/8]>>(i%8)&1)
	}
	v.b = s.text
	return v, true
}

// structured reads the parts of a date, time or timestamp; infinities (named by
// specialValue) and dates that do not exist have no form.
func (n *Node) structured(t Token, s *scratch) (v scalar, ok bool) {
	if t.Kind != Object {
		return v, false
	}
	parts := [...]struct {
		name string
		n    int64
		have bool
	}{{name: "year"}, {name: "month"}, {name: "day"}, {name: "hour"}, {name: "minute"}, {name: "second"}, {name: "nanos"}, {name: "offsetSeconds"}}
	good := true
	Members(t, func(k, val Token) bool {
		if k.Is("specialValue") && val.Kind != Null {
			good = val.Kind == String && len(val.Raw) == 0
		}
		for i := range parts {
			if k.Is(parts[i].name) && val.Kind == Number {
				parts[i].n, parts[i].have = Int(val.Raw)
				good = good && parts[i].have
			}
		}
		return good
	})
	hour, minute, second, nanos, offset := parts[3].n, parts[4].n, parts[5].n, parts[6].n, parts[7].n
	if !good || hour < 0 || hour > 24 || minute < 0 || minute > 59 || second < 0 || second > 59 || nanos < 0 || nanos > 999_999_999 || offset < -18*3600 || offset > 18*3600 {
		return v, false
	}
	clock := (hour*3600+minute*60+second)*1_000_000 + nanos/1000
	if n.Type == schema.String {
		if !parts[3].have {
			return v, false
		}
		s.out = appendClock(s.out[:0], clock)
		v.b = s.out
		return v, true
	}
	year, month, day := parts[0].n, parts[1].n, parts[2].n
	if !parts[0].have || !parts[1].have || !parts[2].have || month < 1 || month > 12 || day < 1 || year < -290_000 || year > 294_000 || day > int64(daysIn(year, int(month))) || clock > dayMicros {
		return v, false
	}
	v.i = daysFromCivil(year, int(month), int(day))
	if n.Type == schema.Date {
		return v, clock == 0
	}
	v.i = v.i*dayMicros + clock
	if n.Type == schema.Timestamp {
		v.i -= offset * 1_000_000
	}
	return v, finite(v.i)
}

// bitsNumber prints an unsigned number as Scale bits, the highest first.
func (n *Node) bitsNumber(t Token, s *scratch) (v scalar, ok bool) {
	if t.Kind != Number && t.Kind != String {
		return v, false
	}
	u, err := strconv.ParseUint(string(s.textOf(t)), 10, 64)
	if err != nil || n.Scale <= 0 || n.Scale > 64 || n.Scale < 64 && u>>n.Scale != 0 {
		return v, false
	}
	s.out = s.out[:0]
	for i := n.Scale - 1; i >= 0; i-- {
		s.out = append(s.out, '0'+byte(u>>i&1))
	}
	v.b = s.out
	return v, true
}

// label turns an index or a bit mask into the text of the labels.
func (n *Node) label(t Token, s *scratch) (v scalar, ok bool) {
	if t.Kind != Number && t.Kind != String {
		return v, false
	}
	text := s.textOf(t)
	u, err := strconv.ParseUint(string(text), 10, 64)
	switch {
	case err != nil || t.Kind == String && slices.Contains(n.Labels, string(text)):
		v.b = text
		return v, t.Kind == String
	case n.Form == EnumIndex:
		if u > uint64(len(n.Labels)) {
			return v, false
		}
		if u > 0 {
			v.b = []byte(n.Labels[u-1])
		}
		return v, true
	case len(n.Labels) < 64 && u>>len(n.Labels) != 0:
		return v, false
	}
	s.out = s.out[:0]
	for i, l := range n.Labels {
		if i < 64 && u>>i&1 == 1 {
			if len(s.out) > 0 {
				s.out = append(s.out, ',')
			}
			s.out = append(s.out, l...)
		}
	}
	v.b = s.out
	return v, true
}
