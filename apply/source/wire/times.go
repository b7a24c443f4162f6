package wire

import (
	"math"
	"strconv"
	"time"
)

// PostgreSQL's infinities as Debezium prints them, in microseconds.
const (
	posInfinity = 9223372036825200000
	negInfinity = -9223372036832400000
)

const (
	dayMicros = 86_400_000_000
	// maxDay is the last day whose microseconds fit 64 bits: a day count beyond
	// it is an infinity that wrapped (days near ±2.1 billion), never a date.
	maxDay = math.MaxInt64 / dayMicros
)

// floorDiv divides rounding down, so that times before 1970 stay in their unit.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// micros turns an epoch count into microseconds; ok is false for what stands
// for an infinity or leaves 64 bits. unit is the number of counts per second.
func micros(v int64, unit Unit) (int64, bool) {
	switch unit {
	case Millis:
		if v > math.MaxInt64/1000 || v < math.MinInt64/1000 {
			return 0, false
		}
		v *= 1000
	case Nanos:
		if v == math.MaxInt64 || v == math.MinInt64 {
			return 0, false
		}
		return floorDiv(v, 1000), true
	}
	return v, finite(v)
}

// finite refuses the infinities and the rest of their second.
func finite(us int64) bool {
	return us < posInfinity-posInfinity%1_000_000 && us > negInfinity-negInfinity%1_000_000
}

// daysFromCivil counts days from 1970-01-01 in the proleptic Gregorian calendar.
func daysFromCivil(y int64, m, d int) int64 {
	if m <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	mp := int64(m+9) % 12
	doy := (153*mp+2)/5 + int64(d) - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

func daysIn(y int64, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// two reads two digits at i.
func two(s []byte, i int) (int, bool) {
	if i+2 > len(s) || s[i] < '0' || s[i] > '9' || s[i+1] < '0' || s[i+1] > '9' {
		return 0, false
	}
	return int(s[i]-'0')*10 + int(s[i+1]-'0'), true
}

// parseDate reads [+-]YYYY-MM-DD with at least four year digits at the start of
// s and returns the day and the index behind it.
func parseDate(s []byte) (day int64, next int, ok bool) {
	i, neg := 0, false
	if len(s) > 0 && (s[0] == '+' || s[0] == '-') {
		neg = s[0] == '-'
		i++
	}
	start := i
	var y int64
	for i < len(s) && s[i] >= '0' && s[i] <= '9' && i-start < 9 {
		y = y*10 + int64(s[i]-'0')
		i++
	}
	if i-start < 4 || i >= len(s) || s[i] != '-' {
		return 0, 0, false
	}
	m, ok1 := two(s, i+1)
	d, ok2 := two(s, i+4)
	if !ok1 || !ok2 || s[i+3] != '-' || m < 1 || m > 12 {
		return 0, 0, false
	}
	if neg {
		y = -y
	}
	if d < 1 || d > daysIn(y, m) {
		return 0, 0, false
	}
	day = daysFromCivil(y, m, d)
	return day, i + 6, day <= maxDay && day >= -maxDay
}

// parseClock reads HH:MM[:SS[.f]] with 1 to 9 fraction digits; hours may exceed
// 24 (MySQL TIME) up to maxHour. Micros are cut, not rounded.
func parseClock(s []byte, maxHour int) (us int64, next int, ok bool) {
	i, h := 0, 0
	for i < len(s) && i < 3 && s[i] >= '0' && s[i] <= '9' {
		h = h*10 + int(s[i]-'0')
		i++
	}
	if i < 2 || i >= len(s) || s[i] != ':' || h > maxHour {
		return 0, 0, false
	}
	m, ok := two(s, i+1)
	if !ok || m > 59 {
		return 0, 0, false
	}
	i += 3
	sec := 0
	var frac int64
	if i < len(s) && s[i] == ':' {
		if sec, ok = two(s, i+1); !ok || sec > 59 {
			return 0, 0, false
		}
		i += 3
		if i < len(s) && s[i] == '.' {
			i++
			n := 0
			for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
				if n < 6 {
					frac = frac*10 + int64(s[i]-'0')
				}
				n++
			}
			if n == 0 || n > 9 {
				return 0, 0, false
			}
			for ; n < 6; n++ {
				frac *= 10
			}
		}
	}
	return (int64(h)*3600+int64(m)*60+int64(sec))*1_000_000 + frac, i, true
}

// parseOffset reads Z, ±HH, ±HHMM or ±HH:MM[:SS] and returns seconds east.
func parseOffset(s []byte) (sec int64, next int, ok bool) {
	if len(s) == 0 {
		return 0, 0, false
	}
	if s[0] == 'Z' || s[0] == 'z' {
		return 0, 1, true
	}
	if s[0] != '+' && s[0] != '-' {
		return 0, 0, false
	}
	h, ok := two(s, 1)
	if !ok || h > 18 {
		return 0, 0, false
	}
	sec, i := int64(h)*3600, 3
	for mul := int64(60); mul >= 1 && i < len(s); mul /= 60 {
		j := i
		if s[j] == ':' {
			j++
		}
		n, ok := two(s, j)
		if !ok || n > 59 {
			break
		}
		sec, i = sec+int64(n)*mul, j+2
	}
	if s[0] == '-' {
		sec = -sec
	}
	return sec, i, true
}

// dateText reads a date, alone or decorated with a zone (isostring's Z) or a
// midnight clock.
func dateText(s []byte) (int32, bool) {
	day, i, ok := parseDate(s)
	if !ok {
		return 0, false
	}
	s = s[i:]
	if len(s) > 1 && (s[0] == 'T' || s[0] == ' ') {
		us, n, ok := parseClock(s[1:], 0)
		if !ok || us != 0 {
			return 0, false
		}
		s = s[1+n:]
	}
	if len(s) > 0 {
		if _, n, ok := parseOffset(s); !ok || n != len(s) {
			return 0, false
		}
	}
	return int32(day), true
}

// timestampText reads a date and clock. With zoned, an offset shifts to UTC and
// zone (nil: UTC) stands for a missing one; else the offset is decoration and is
// dropped.
func timestampText(s []byte, zoned bool, zone *time.Location) (int64, bool) {
	day, i, ok := parseDate(s)
	if !ok {
		return 0, false
	}
	s = s[i:]
	us := int64(0)
	if len(s) > 0 && (s[0] == 'T' || s[0] == ' ' || s[0] == 't') {
		var n int
		if us, n, ok = parseClock(s[1:], 24); !ok || us > dayMicros {
			return 0, false
		}
		s = s[1+n:]
	}
	var off int64
	local := len(s) == 0
	if !local {
		var n int
		if off, n, ok = parseOffset(s); !ok || n != len(s) {
			return 0, false
		}
	}
	if day >= maxDay-1 || day <= -maxDay+1 {
		return 0, false
	}
	us += day * dayMicros
	if zoned && local && zone != nil {
		at := time.UnixMicro(us).UTC()
		us = time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone).UnixMicro()
	} else if zoned {
		us -= off * 1_000_000
	}
	return us, finite(us)
}

// appendClock prints microseconds since midnight as [-]HH:mm:ss.ffffff; hours
// have at least two digits and may pass 24.
func appendClock(buf []byte, us int64) []byte {
	if us < 0 {
		buf = append(buf, '-')
		us = -us
	}
	h := us / 3_600_000_000
	if h < 10 {
		buf = append(buf, '0')
	}
	buf = strconv.AppendInt(buf, h, 10)
	pad := func(v int64, width int) {
		var d [6]byte
		for i := width - 1; i >= 0; i-- {
			d[i] = byte('0' + v%10)
			v /= 10
		}
		buf = append(buf, d[:width]...)
	}
	buf = append(buf, ':')
	pad(us/60_000_000%60, 2)
	buf = append(buf, ':')
	pad(us/1_000_000%60, 2)
	buf = append(buf, '.')
	pad(us%1_000_000, 6)
	return buf
}
