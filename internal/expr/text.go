package expr

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	usPerSecond = int64(1_000_000)
	usPerDay    = 86_400 * usPerSecond
)

// daysFromCivil is the day number of a proleptic Gregorian date.
func daysFromCivil(y, m, d int64) int64 {
	if m <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	mp := (m + 9) % 12
	doy := (153*mp+2)/5 + d - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// civilFromDays is the inverse of daysFromCivil.
func civilFromDays(z int64) (y, m, d int64) {
	z += 719468
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = doy - (153*mp+2)/5 + 1
	m = mp + 3
	if m > 12 {
		m -= 12
	}
	y = yoe + era*400
	if m <= 2 {
		y++
	}
	return y, m, d
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func daysInMonth(y, m int64) int64 {
	switch m {
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// scanner takes fixed pieces off the front of a text.
type scanner struct{ s string }

func (c *scanner) digits(least, most int) (int64, bool) {
	n := 0
	var v int64
	for n < len(c.s) && n < most && c.s[n] >= '0' && c.s[n] <= '9' {
		v = v*10 + int64(c.s[n]-'0')
		n++
	}
	if n < least {
		return 0, false
	}
	c.s = c.s[n:]
	return v, true
}

func (c *scanner) char(b byte) bool {
	if c.s != "" && c.s[0] == b {
		c.s = c.s[1:]
		return true
	}
	return false
}

// date reads [+-]yyyy[y*][-m[m][-d[d]]]; missing parts are 1.
func (c *scanner) date() (int64, bool) {
	neg := c.char('-')
	if !neg {
		c.char('+')
	}
	y, ok := c.digits(4, 6)
	if !ok {
		return 0, false
	}
	if neg {
		y = -y
	}
	m, d := int64(1), int64(1)
	if c.char('-') {
		if m, ok = c.digits(1, 2); !ok || m < 1 || m > 12 {
			return 0, false
		}
		if c.char('-') {
			if d, ok = c.digits(1, 2); !ok || d < 1 || d > daysInMonth(y, m) {
				return 0, false
			}
		}
	}
	return daysFromCivil(y, m, d), true
}

// parseDate reads a date; a time after it is ignored, as in Spark's cast.
func parseDate(s string) (int64, bool) {
	c := scanner{strings.TrimSpace(s)}
	d, ok := c.date()
	if !ok || c.s != "" && c.s[0] != ' ' && c.s[0] != 'T' {
		return 0, false
	}
	return d, true
}

// parseTimestamp reads a timestamp to microseconds; further fraction digits are
// cut. Without a zone in the text, zone applies. ntz ignores a zone in the text.
func parseTimestamp(s string, zone *time.Location, ntz bool) (int64, bool) {
	c := scanner{strings.TrimSpace(s)}
	day, ok := c.date()
	if !ok {
		return 0, false
	}
	var us int64
	if c.char('T') || c.char(' ') {
		if us, ok = c.clock(); !ok {
			return 0, false
		}
	}
	local := day*usPerDay + us
	c.s = strings.TrimSpace(c.s)
	if c.s != "" {
		offset, named, ok := c.zone()
		switch {
		case !ok:
			return 0, false
		case ntz:
			return local, true
		case named != nil:
			return fromLocal(local, named), true
		}
		return local - offset*usPerSecond, true
	}
	if ntz || zone == time.UTC {
		return local, true
	}
	return fromLocal(local, zone), true
}

// clock reads h[h]:m[m][:s[s][.f*]].
func (c *scanner) clock() (int64, bool) {
	h, ok := c.digits(1, 2)
	if !ok || h > 23 || !c.char(':') {
		return 0, false
	}
	m, ok := c.digits(1, 2)
	if !ok || m > 59 {
		return 0, false
	}
	us := (h*60 + m) * 60 * usPerSecond
	if !c.char(':') {
		return us, true
	}
	sec, ok := c.digits(1, 2)
	if !ok || sec > 59 {
		return 0, false
	}
	us += sec * usPerSecond
	if c.char('.') {
		unit := usPerSecond / 10
		for c.s != "" && c.s[0] >= '0' && c.s[0] <= '9' {
			us += int64(c.s[0]-'0') * unit
			unit /= 10
			c.s = c.s[1:]
		}
	}
	return us, true
}

// zone reads Z, [UTC|GMT][+-]hh[[:]mm[[:]ss]] or the name of a zone, to the end.
func (c *scanner) zone() (offset int64, named *time.Location, ok bool) {
	rest := c.s
	if rest == "Z" || rest == "z" || rest == "UTC" || rest == "GMT" {
		return 0, nil, true
	}
	for _, p := range []string{"UTC", "GMT"} {
		if strings.HasPrefix(rest, p) && len(rest) > 3 && (rest[3] == '+' || rest[3] == '-') {
			c.s = rest[3:]
		}
	}
	sign := int64(1)
	switch {
	case c.char('-'):
		sign = -1
	case c.char('+'):
	default:
		loc, err := time.LoadLocation(rest)
		return 0, loc, err == nil && !strings.EqualFold(rest, "local")
	}
	h, ok := c.digits(1, 2)
	if !ok || h > 18 {
		return 0, nil, false
	}
	offset = h * 3600
	for _, unit := range []int64{60, 1} {
		colon := c.char(':')
		if c.s == "" && !colon {
			break
		}
		v, ok := c.digits(1, 2)
		if !ok || v > 59 {
			return 0, nil, false
		}
		offset += v * unit
	}
	return sign * offset, nil, c.s == ""
}

// fromLocal turns wall clock microseconds in a zone into microseconds UTC.
func fromLocal(local int64, zone *time.Location) int64 {
	sec := floorDiv(local, usPerSecond)
	t := time.Unix(sec, 0).UTC()
	t = time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, zone)
	return t.Unix()*usPerSecond + local - sec*usPerSecond
}

// toLocal is the wall clock of a moment in a zone, as microseconds.
func toLocal(us int64, zone *time.Location) int64 {
	if zone == time.UTC {
		return us
	}
	_, offset := time.Unix(floorDiv(us, usPerSecond), 0).In(zone).Zone()
	return us + int64(offset)*usPerSecond
}

func pad(b []byte, v int64, width int) []byte {
	s := strconv.FormatInt(v, 10)
	for i := len(s); i < width; i++ {
		b = append(b, '0')
	}
	return append(b, s...)
}

func appendDate(b []byte, day int64) []byte {
	y, m, d := civilFromDays(day)
	switch {
	case y < 0:
		b = append(b, '-')
		y = -y
	case y > 9999:
		b = append(b, '+')
	}
	b = append(pad(b, y, 4), '-')
	b = append(pad(b, m, 2), '-')
	return pad(b, d, 2)
}

func formatDate(day int64) string { return string(appendDate(nil, day)) }

// formatTimestamp is the text of a CAST to STRING: fraction without trailing zeros.
func formatTimestamp(local int64) string {
	day := floorDiv(local, usPerDay)
	us := local - day*usPerDay
	sec := us / usPerSecond
	b := append(appendDate(nil, day), ' ')
	b = append(pad(b, sec/3600, 2), ':')
	b = append(pad(b, sec/60%60, 2), ':')
	b = pad(b, sec%60, 2)
	if frac := us % usPerSecond; frac != 0 {
		b = append(b, '.')
		b = pad(b, frac, 6)
		b = []byte(strings.TrimRight(string(b), "0"))
	}
	return string(b)
}

// formatFloat is Java's text of a float or double: plain between 1e-3 and 1e7,
// else with E, always with a point.
func formatFloat(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, bits), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	e, _ := strconv.Atoi(exp)
	return mantissa + "E" + strconv.Itoa(e)
}

// parseFloat reads what Spark's cast reads: a number, NaN or an infinity.
func parseFloat(s string, bits int) (float64, bool) {
	s = strings.TrimSpace(s)
	switch strings.ToLower(strings.TrimLeft(s, "+")) {
	case "nan":
		return math.NaN(), true
	case "inf", "infinity":
		return math.Inf(1), true
	case "-inf", "-infinity":
		return math.Inf(-1), true
	}
	if strings.ContainsAny(s, "xX_pP") {
		return 0, false
	}
	if n := len(s); n > 1 && strings.ContainsRune("dDfF", rune(s[n-1])) {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, bits)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
