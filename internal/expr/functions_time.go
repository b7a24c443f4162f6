package expr

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluice-data/sluice/log/schema"
)

func datePart(f func(y, m, d, day int64) int64) function {
	return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := b.toType(a[0], schema.Date, n)
		return b.scalar(schema.Integer, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			day := in[0].int(i)
			y, m, d := civilFromDays(day)
			out.i[i] = f(y, m, d, day)
			return nil
		})
	}}
}

func clockPart(unit, modulo int64) function {
	return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		x := a[0]
		if x.typ != schema.TimestampNTZ {
			x = b.toType(x, schema.Timestamp, n)
		}
		zone := b.opts.Zone
		return b.scalar(schema.Integer, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			us := in[0].int(i)
			if in[0].typ == schema.Timestamp {
				us = toLocal(us, zone)
			}
			v := floorDiv(us, unit)
			out.i[i] = v - floorDiv(v, modulo)*modulo
			return nil
		})
	}}
}

// epoch makes timestamps from numbers of a unit, or the reverse.
func epoch(unit int64, toTime bool) function {
	return function{1, 1, func(b *binder, a []*bnode, n *node) *bnode {
		if toTime {
			x := b.integer(a[0], n.name)
			return b.scalar(schema.Timestamp, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
				v := in[0].int(i)
				if out.i[i] = v * unit; out.i[i]/unit != v {
					return overflow(n.pos, schema.Timestamp)
				}
				return nil
			})
		}
		x := b.toType(a[0], schema.Timestamp, n)
		return b.scalar(schema.Long, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
			out.i[i] = floorDiv(in[0].int(i), unit)
			return nil
		})
	}}
}

var dayFunction = datePart(func(_, _, d, _ int64) int64 { return d })

var timeFunctions = map[string]function{
	"year":         datePart(func(y, _, _, _ int64) int64 { return y }),
	"quarter":      datePart(func(_, m, _, _ int64) int64 { return (m + 2) / 3 }),
	"month":        datePart(func(_, m, _, _ int64) int64 { return m }),
	"day":          dayFunction,
	"dayofmonth":   dayFunction,
	"dayofyear":    datePart(func(y, _, _, day int64) int64 { return day - daysFromCivil(y, 1, 1) + 1 }),
	"dayofweek":    datePart(func(_, _, _, day int64) int64 { return day + 4 - floorDiv(day+4, 7)*7 + 1 }),
	"hour":         clockPart(3600*usPerSecond, 24),
	"minute":       clockPart(60*usPerSecond, 60),
	"second":       clockPart(usPerSecond, 60),
	"to_date":      {1, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.toTime(a, n, schema.Date) }},
	"to_timestamp": {1, 2, func(b *binder, a []*bnode, n *node) *bnode { return b.toTime(a, n, schema.Timestamp) }},
	"to_timestamp_ntz": {1, 2, func(b *binder, a []*bnode, n *node) *bnode {
		return b.toTime(a, n, schema.TimestampNTZ)
	}},
	"timestamp_seconds": epoch(usPerSecond, true), "timestamp_millis": epoch(1000, true), "timestamp_micros": epoch(1, true),
	"unix_seconds": epoch(usPerSecond, false), "unix_millis": epoch(1000, false), "unix_micros": epoch(1, false),
	"date_add": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		return b.addDays(b.toType(a[0], schema.Date, n), a[1], false, n.pos)
	}},
	"date_sub": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		return b.addDays(b.toType(a[0], schema.Date, n), a[1], true, n.pos)
	}},
	"datediff": {2, 2, func(b *binder, a []*bnode, n *node) *bnode {
		args := []*bnode{b.toType(a[0], schema.Date, n), b.toType(a[1], schema.Date, n)}
		return b.scalar(schema.Integer, n.pos, args, func(out *vector, i int, in []*vector) error {
			out.i[i] = in[0].int(i) - in[1].int(i)
			return nil
		})
	}},
	"date_trunc": {2, 2, bindDateTrunc},
	"trunc":      {2, 2, bindTrunc},
}

// toType converts an argument implicitly: a string, or another date or time.
func (b *binder) toType(x *bnode, t schema.Type, n *node) *bnode {
	if x.typ == schema.String || x.typ == schema.Void || isTime(x.typ) {
		return b.cast(x, t, n.pos, false)
	}
	return b.cast(b.problem(n.pos, CodeTypeMismatch, fmt.Sprintf("%s needs a %s, found %s", n.name, t, x.typ)), t, n.pos, false)
}

func (b *binder) addDays(x, days *bnode, sub bool, pos Pos) *bnode {
	args := []*bnode{x, b.integer(days, "date arithmetic")}
	return b.scalar(schema.Date, pos, args, func(out *vector, i int, in []*vector) error {
		k := in[1].int(i)
		if k > math.MaxInt32 || k < math.MinInt32 {
			return overflow(pos, schema.Date)
		}
		if sub {
			k = -k
		}
		if out.i[i] = in[0].int(i) + k; !fitsInt(out.i[i], schema.Integer) {
			return overflow(pos, schema.Date)
		}
		return nil
	})
}

// truncateDate is the first day of the unit that a day is in.
func truncateDate(unit string, day int64) (int64, bool) {
	y, m, _ := civilFromDays(day)
	switch unit {
	case "YEAR", "YYYY", "YY":
		return daysFromCivil(y, 1, 1), true
	case "QUARTER":
		return daysFromCivil(y, (m-1)/3*3+1, 1), true
	case "MONTH", "MM", "MON":
		return daysFromCivil(y, m, 1), true
	case "WEEK":
		return day - (day + 3 - floorDiv(day+3, 7)*7), true
	}
	return 0, false
}

var clockUnits = map[string]int64{
	"DAY": usPerDay, "DD": usPerDay, "HOUR": 3600 * usPerSecond, "MINUTE": 60 * usPerSecond,
	"SECOND": usPerSecond, "MILLISECOND": 1000, "MICROSECOND": 1,
}

// unit reads a literal unit name.
func (b *binder) unit(x *bnode, n *node) (string, bool) {
	if x.op != opLiteral || x.typ != schema.String || x.lit.isNull(0) {
		b.problem(x.pos, CodeNotAllowed, "the unit of "+n.name+" must be a string literal")
		return "", false
	}
	u := strings.ToUpper(x.lit.s[0])
	_, date := truncateDate(u, 0)
	if _, clock := clockUnits[u]; !date && (!clock || n.name == "trunc") {
		b.problem(x.pos, CodeInvalidArgument, fmt.Sprintf("%s does not know the unit '%s'", n.name, clip(x.lit.s[0])))
		return "", false
	}
	return u, true
}

func bindDateTrunc(b *binder, a []*bnode, n *node) *bnode {
	u, ok := b.unit(a[0], n)
	if !ok {
		return b.null(n.pos)
	}
	x := a[1]
	if x.typ != schema.TimestampNTZ {
		x = b.toType(x, schema.Timestamp, n)
	}
	zone := b.opts.Zone
	if x.typ == schema.TimestampNTZ {
		zone = time.UTC
	}
	return b.scalar(x.typ, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		local := toLocal(in[0].int(i), zone)
		if size := clockUnits[u]; size > 0 {
			local = floorDiv(local, size) * size
		} else {
			day, _ := truncateDate(u, floorDiv(local, usPerDay))
			local = day * usPerDay
		}
		out.i[i] = local
		if zone != time.UTC {
			out.i[i] = fromLocal(local, zone)
		}
		return nil
	})
}

func bindTrunc(b *binder, a []*bnode, n *node) *bnode {
	u, ok := b.unit(a[1], n)
	if !ok {
		return b.null(n.pos)
	}
	x := b.toType(a[0], schema.Date, n)
	return b.scalar(schema.Date, n.pos, []*bnode{x}, func(out *vector, i int, in []*vector) error {
		out.i[i], _ = truncateDate(u, in[0].int(i))
		return nil
	})
}

// toTime binds to_date and to_timestamp, with an optional literal format.
func (b *binder) toTime(a []*bnode, n *node, t schema.Type) *bnode {
	if len(a) == 1 || a[0].typ != schema.String {
		x := a[0]
		if t == schema.Timestamp && isNumeric(x.typ) {
			return b.cast(x, t, n.pos, true)
		}
		if x.typ == schema.String {
			return b.cast(x, t, n.pos, true)
		}
		return b.toType(x, t, n)
	}
	if a[1].op != opLiteral || a[1].typ != schema.String || a[1].lit.isNull(0) {
		return b.problem(a[1].pos, CodeNotAllowed, "the format of "+n.name+" must be a string literal")
	}
	format, err := compileFormat(a[1].lit.s[0])
	if err != nil {
		return b.problem(a[1].pos, CodeInvalidArgument, err.Error())
	}
	zone := b.opts.Zone
	if t != schema.Timestamp {
		zone = nil
	}
	return b.scalar(t, n.pos, []*bnode{a[0]}, func(out *vector, i int, in []*vector) error {
		us, ok := format.parse(in[0].str(i), zone)
		if !ok {
			return castOptions{pos: n.pos}.invalid(in[0].str(i), t)
		}
		if out.i[i] = us; t == schema.Date {
			out.i[i] = floorDiv(us, usPerDay)
		}
		return nil
	})
}

// timeFormat is a compiled date-time pattern: y M d H m s S, X for a zone, and
// literal text.
type timeFormat []formatPart

type formatPart struct {
	letter byte // 0: literal
	width  int
	text   string
}

func compileFormat(s string) (timeFormat, error) {
	var out timeFormat
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("format '%s' has an open quote", clip(s))
			}
			text := s[i+1 : i+1+end]
			if end == 0 {
				text = "'"
			}
			out = append(out, formatPart{text: text})
			i += end + 2
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			j := i
			for j < len(s) && s[j] == c {
				j++
			}
			if !strings.ContainsRune("yuMdHmsSXxZz", rune(c)) || c == 'M' && j-i > 2 {
				return nil, fmt.Errorf("format letter '%s' is not supported", clip(s[i:j]))
			}
			out = append(out, formatPart{letter: c, width: j - i})
			i = j
		default:
			out = append(out, formatPart{text: string(c)})
			i++
		}
	}
	return out, nil
}

// parse reads text as microseconds. Without a zone in the text the wall clock is
// in zone; a nil zone means that the wall clock itself is wanted.
func (f timeFormat) parse(s string, zone *time.Location) (int64, bool) {
	c := scanner{s}
	v := map[byte]int64{'y': 1970, 'M': 1, 'd': 1}
	offset, zoned := int64(0), false
	for k, p := range f {
		switch p.letter {
		case 0:
			if !strings.HasPrefix(c.s, p.text) {
				return 0, false
			}
			c.s = c.s[len(p.text):]
		case 'X', 'x', 'Z', 'z':
			end := len(c.s)
			if k+1 < len(f) {
				return 0, false
			}
			rest := scanner{c.s[:end]}
			o, named, ok := rest.zone()
			if !ok || named != nil {
				return 0, false
			}
			offset, zoned, c.s = o, true, ""
		case 'S':
			before := len(c.s)
			d, ok := c.digits(1, min(p.width, 9))
			if !ok {
				return 0, false
			}
			for n := before - len(c.s); n < 6; n++ {
				d *= 10
			}
			for n := before - len(c.s); n > 6; n-- {
				d /= 10
			}
			v['S'] = d
		default:
			least, most := 1, 2
			if p.letter == 'y' || p.letter == 'u' {
				least, most = 4, 4
			}
			if p.width >= 2 && most == 2 {
				least = 2
			}
			d, ok := c.digits(least, most)
			if !ok {
				return 0, false
			}
			if p.letter == 'u' {
				p.letter = 'y'
			}
			v[p.letter] = d
		}
	}
	if c.s != "" || v['M'] < 1 || v['M'] > 12 || v['d'] < 1 || v['d'] > daysInMonth(v['y'], v['M']) || v['H'] > 23 || v['m'] > 59 || v['s'] > 59 {
		return 0, false
	}
	local := daysFromCivil(v['y'], v['M'], v['d'])*usPerDay + ((v['H']*60+v['m'])*60+v['s'])*usPerSecond + v['S']
	switch {
	case zone == nil || zone == time.UTC && !zoned:
		return local, true
	case zoned:
		return local - offset*usPerSecond, true
	}
	return fromLocal(local, zone), true
}
