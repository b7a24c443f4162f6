package rowio

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 86_400 * microsPerSecond
)

// floorDivMod divides so that the remainder is never negative (instants before 1970).
func floorDivMod(a, b int64) (q, r int64) {
	q, r = a/b, a%b
	if r < 0 {
		q, r = q-1, r+b
	}
	return q, r
}

// civil is the proleptic Gregorian date of a day number (0 = 1970-01-01).
func civil(days int64) (year int64, month, day int) {
	z := days + 719468 // days since 0000-03-01
	era, doe := floorDivMod(z, 146097)
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp + 3)
	if month > 12 {
		month -= 12
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// dayNumber is the inverse of civil; the date must exist.
func dayNumber(year int64, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era, yoe := floorDivMod(year, 400)
	mp := int64(month+9) % 12
	doy := (153*mp+2)/5 + int64(day) - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// appendDigits writes v; if width > 0, v is not negative and gets leading zeros.
func appendDigits(b []byte, v int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if v < limit {
			for pad := width; pad > 1; pad-- {
				b = append(b, '0')
			}
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(b, v, 10)
}

// appendDate writes 2024-05-01; years outside 0 to 9999 carry a sign (ISO 8601).
func appendDate(b []byte, days int64) []byte {
	y, m, d := civil(days)
	switch {
	case y < 0:
		b, y = append(b, '-'), -y
	case y > 9999:
		b = append(b, '+')
	}
	b = append(appendDigits(b, y, 4), '-')
	b = append(appendDigits(b, int64(m), 2), '-')
	return appendDigits(b, int64(d), 2)
}

// appendTimestamp writes 2024-05-01T10:00:00.123456, with Z for an instant.
func appendTimestamp(b []byte, micros int64, instant bool) []byte {
	days, rest := floorDivMod(micros, microsPerDay)
	b = append(appendDate(b, days), 'T')
	b = append(appendDigits(b, rest/(3600*microsPerSecond), 2), ':')
	b = append(appendDigits(b, rest/(60*microsPerSecond)%60, 2), ':')
	b = append(appendDigits(b, rest/microsPerSecond%60, 2), '.')
	b = appendDigits(b, rest%microsPerSecond, 6)
	if instant {
		b = append(b, 'Z')
	}
	return b
}

// cursor walks a short text.
type cursor struct{ s string }

func (c *cursor) accept(ch byte) bool {
	if c.s != "" && c.s[0] == ch {
		c.s = c.s[1:]
		return true
	}
	return false
}

// number reads lo to hi digits.
func (c *cursor) number(lo, hi int) (v int64, n int, ok bool) {
	for n < len(c.s) && n < hi && c.s[n] >= '0' && c.s[n] <= '9' {
		v = v*10 + int64(c.s[n]-'0')
		n++
	}
	c.s = c.s[n:]
	return v, n, n >= lo
}

var errDate = errors.New("expected a date such as 2024-05-01")

func (c *cursor) date() (days int64, err error) {
	neg, plus := c.accept('-'), false
	if !neg {
		plus = c.accept('+')
	}
	wide := 4
	if neg || plus {
		wide = 6 // an int64 of microseconds ends in year 294247
	}
	y, _, ok := c.number(4, wide)
	if !ok || !c.accept('-') {
		return 0, errDate
	}
	m, _, ok := c.number(2, 2)
	if !ok || !c.accept('-') {
		return 0, errDate
	}
	d, _, ok := c.number(2, 2)
	if !ok {
		return 0, errDate
	}
	if neg {
		y = -y
	}
	n := dayNumber(y, int(m), int(d))
	if m < 1 || m > 12 || d < 1 {
		return 0, fmt.Errorf("no such date")
	}
	if y2, m2, d2 := civil(n); y2 != y || m2 != int(m) || d2 != int(d) {
		return 0, fmt.Errorf("no such date")
	}
	return n, nil
}

func parseDate(s string) (int32, error) {
	c := cursor{s}
	d, err := c.date()
	if err != nil {
		return 0, err
	}
	if c.s != "" {
		return 0, errDate
	}
	if d < math.MinInt32 || d > math.MaxInt32 {
		return 0, errors.New("date out of range")
	}
	return int32(d), nil
}

var errTimestamp = errors.New("expected a timestamp such as 2024-05-01T10:00:00.123456Z")

// parseTimestamp reads date[(T| )hh:mm[:ss[.f]][zone]]. zoned tells whether the
// text carried a zone; without one micros is the wall clock as if it were UTC.
// More than six fraction digits are refused unless the rest are zeros.
func parseTimestamp(s string) (micros int64, zoned bool, err error) {
	c := cursor{s}
	days, err := c.date()
	if err != nil {
		return 0, false, err
	}
	var clock int64
	if c.s != "" {
		if !c.accept('T') && !c.accept('t') && !c.accept(' ') {
			return 0, false, errTimestamp
		}
		h, _, ok := c.number(2, 2)
		if !ok || !c.accept(':') {
			return 0, false, errTimestamp
		}
		mi, _, ok := c.number(2, 2)
		if !ok {
			return 0, false, errTimestamp
		}
		var sec, frac int64
		if c.accept(':') {
			if sec, _, ok = c.number(2, 2); !ok {
				return 0, false, errTimestamp
			}
			if c.accept('.') {
				var n int
				if frac, n, ok = c.number(1, 6); !ok {
					return 0, false, errTimestamp
				}
				for ; n < 6; n++ {
					frac *= 10
				}
				for c.s != "" && c.s[0] >= '0' && c.s[0] <= '9' {
					if c.s[0] != '0' {
						return 0, false, errors.New("more than six fraction digits: a timestamp has microseconds")
					}
					c.s = c.s[1:]
				}
			}
		}
		if h > 23 || mi > 59 || sec > 59 {
			return 0, false, errors.New("no such time of day")
		}
		clock = ((h*60+mi)*60+sec)*microsPerSecond + frac
		switch {
		case c.accept('Z') || c.accept('z'):
			zoned = true
		case c.s != "" && (c.s[0] == '+' || c.s[0] == '-'):
			neg := c.accept('-') || !c.accept('+')
			zh, _, ok := c.number(2, 2)
			if !ok {
				return 0, false, errTimestamp
			}
			c.accept(':')
			zm, n, _ := c.number(0, 2)
			if n == 1 || zh > 18 || zm > 59 {
				return 0, false, errors.New("no such zone offset")
			}
			off := (zh*60 + zm) * 60 * microsPerSecond
			if neg {
				off = -off
			}
			clock -= off
			zoned = true
		}
	}
	if c.s != "" {
		return 0, false, errTimestamp
	}
	const mostDays = math.MaxInt64/microsPerDay - 2
	if days < -mostDays || days > mostDays {
		return 0, false, errors.New("timestamp out of range")
	}
	return days*microsPerDay + clock, zoned, nil
}

// inZone turns wall-clock microseconds into the instant that zone's clocks showed it.
func inZone(wall int64, zone *time.Location) int64 {
	if zone == nil || zone == time.UTC {
		return wall
	}
	days, rest := floorDivMod(wall, microsPerDay)
	y, m, d := civil(days)
	t := time.Date(int(y), time.Month(m), d, 0, 0, int(rest/microsPerSecond), int(rest%microsPerSecond)*1000, zone)
	return t.UnixMicro()
}

// ParseTime reads a time a user wrote: RFC 3339 or YYYY-MM-DD[ HH:MM:SS[.ffffff]],
// in zone (nil = UTC) when it carries none.
func ParseTime(s string, zone *time.Location) (time.Time, error) {
	micros, zoned, err := parseTimestamp(strings.TrimSpace(s))
	if err != nil {
		return time.Time{}, fmt.Errorf("time %q: %w", s, err)
	}
	if !zoned {
		micros = inZone(micros, zone)
	}
	return time.UnixMicro(micros).UTC(), nil
}

func appendFloat(b []byte, v float64, bits int) ([]byte, bool) {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...), false
	case math.IsInf(v, 1):
		return append(b, "Infinity"...), false
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...), false
	}
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v, format, -1, bits), true
}

// specialFloat reads the three values that JSON numbers cannot express.
func specialFloat(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

func appendDecimal(b []byte, n decimal128.Num, scale int) []byte {
	digits := ""
	if lo := int64(n.LowBits()); n.HighBits() == lo>>63 && lo != math.MinInt64 {
		if lo < 0 {
			b, lo = append(b, '-'), -lo
		}
		digits = strconv.FormatInt(lo, 10)
	} else {
		v := n.BigInt()
		if v.Sign() < 0 {
			b = append(b, '-')
			v.Neg(v)
		}
		digits = v.String()
	}
	if scale <= 0 {
		return append(b, digits...)
	}
	for len(digits) <= scale {
		digits = "0" + digits
	}
	b = append(b, digits[:len(digits)-scale]...)
	b = append(b, '.')
	return append(b, digits[len(digits)-scale:]...)
}

// parseDecimal reads number text (JSON number grammar) exactly.
func parseDecimal(text string, precision, scale int) (decimal128.Num, error) {
	mant, expText, hasExp := strings.Cut(strings.ReplaceAll(text, "E", "e"), "e")
	exp := 0
	if hasExp {
		e, err := strconv.Atoi(expText)
		if err != nil || e > 1000 || e < -1000 {
			return decimal128.Num{}, fmt.Errorf("%s: exponent out of range", text)
		}
		exp = e
	}
	whole, frac, _ := strings.Cut(mant, ".")
	neg := strings.HasPrefix(whole, "-")
	digits := strings.TrimLeft(strings.TrimPrefix(whole, "-")+frac, "0")
	point := len(frac) - exp // digits after the point
	for point > scale && strings.HasSuffix(digits, "0") {
		digits, point = digits[:len(digits)-1], point-1
	}
	if digits == "" {
		return decimal128.Num{}, nil
	}
	if point > scale {
		return decimal128.Num{}, fmt.Errorf("%s has more than %d digits after the point", text, scale)
	}
	if len(digits)+scale-point > precision {
		return decimal128.Num{}, fmt.Errorf("%s does not fit DECIMAL(%d,%d)", text, precision, scale)
	}
	digits += strings.Repeat("0", scale-point)
	v, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return decimal128.Num{}, fmt.Errorf("%s is not a number", text)
	}
	if neg {
		v.Neg(v)
	}
	return decimal128.FromBigInt(v), nil
}

// parseInteger reads number text as an integer of the given width. A fraction of
// zeros is an integer (some writers print 1.0 for a column that has nulls).
func parseInteger(text string, bits int) (int64, error) {
	whole := text
	if w, frac, ok := strings.Cut(text, "."); ok && frac != "" && strings.Trim(frac, "0") == "" {
		whole = w
	}
	v, err := strconv.ParseInt(whole, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is out of range", text)
	case err != nil:
		return 0, fmt.Errorf("%s is not an integer", text)
	}
	return v, nil
}

// shortInteger reads up to 18 digits with an optional minus; ok is false for
// anything else, which parseInteger then judges. Leading zeros are left to it too.
func shortInteger(s []byte) (v int64, ok bool) {
	digits := s
	if len(s) > 0 && s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if len(digits) < len(s) {
		v = -v
	}
	return v, true
}

// shortDecimal reads a plain number of up to 18 digits at the given scale; ok is
// false for anything else, which parseDecimal then judges.
func shortDecimal(s []byte, precision, scale int) (v int64, ok bool) {
	whole, frac := s, []byte(nil)
	if i := bytes.IndexByte(s, '.'); i >= 0 {
		whole, frac = s[:i], s[i+1:]
		if len(frac) == 0 {
			return 0, false
		}
	}
	w, ok := shortInteger(whole)
	if !ok || len(frac) > scale || len(whole)+scale > 18 || len(whole)+scale > precision {
		return 0, false
	}
	f := int64(0)
	for i := range scale {
		f *= 10
		if i < len(frac) {
			if frac[i] < '0' || frac[i] > '9' {
				return 0, false
			}
			f += int64(frac[i] - '0')
		}
		w *= 10
	}
	if whole[0] == '-' {
		return w - f, true
	}
	return w + f, true
}
