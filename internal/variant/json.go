package variant

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the JSON text of a value, as Spark prints it: decimals without
// trailing zeros, dates, times, NaN and infinities as strings, binary as base64.
func AppendJSON(dst, metadata, value []byte) ([]byte, error) {
	d, err := parseNames(metadata)
	if err != nil {
		return dst, err
	}
	p := printer{d: d, budget: len(value) + 1, out: dst}
	if err := p.value(value, 0); err != nil {
		return dst, err
	}
	return p.out, nil
}

// Text is the value as text: a string bare, anything else as JSON.
func Text(metadata, value []byte) (string, error) {
	v, err := Decode(value)
	if err != nil {
		return "", err
	}
	if v.Kind == String {
		return string(v.Bytes), nil
	}
	b, err := AppendJSON(nil, metadata, value)
	if err != nil {
		return "", err
	}
	if v.Kind != Object && v.Kind != Array && len(b) > 1 && b[0] == '"' {
		b = b[1 : len(b)-1] // dates and times: nothing in them is escaped
	}
	return string(b), nil
}

type printer struct {
	d      names
	budget int
	out    []byte
}

func (p *printer) value(b []byte, depth int) error {
	if depth > MaxDepth {
		return corrupt("nested deeper than %d", MaxDepth)
	}
	if p.budget--; p.budget < 0 {
		return corrupt("more values than bytes")
	}
	v, err := Decode(b)
	if err != nil {
		return err
	}
	switch v.Kind {
	case Object:
		p.out = append(p.out, '{')
		for i := range v.count {
			if i > 0 {
				p.out = append(p.out, ',')
			}
			name, err := p.d.name(v.fieldID(i))
			if err != nil {
				return err
			}
			p.out = append(appendString(p.out, name), ':')
			e, err := v.element(i)
			if err != nil {
				return err
			}
			if err := p.value(e, depth+1); err != nil {
				return err
			}
		}
		p.out = append(p.out, '}')
	case Array:
		p.out = append(p.out, '[')
		for i := range v.count {
			if i > 0 {
				p.out = append(p.out, ',')
			}
			e, err := v.element(i)
			if err != nil {
				return err
			}
			if err := p.value(e, depth+1); err != nil {
				return err
			}
		}
		p.out = append(p.out, ']')
	case String:
		if !utf8.Valid(v.Bytes) {
			return corrupt("string is not UTF-8")
		}
		p.out = appendString(p.out, v.Bytes)
	default:
		p.out = v.appendScalar(p.out)
	}
	return nil
}

func (v Value) appendScalar(out []byte) []byte {
	quoted := func(s string) []byte { return append(append(append(out, '"'), s...), '"') }
	switch v.Kind {
	case Bool:
		return strconv.AppendBool(out, v.Bool)
	case Int:
		return strconv.AppendInt(out, v.Int, 10)
	case Double, Float:
		bits := 64
		if v.Kind == Float {
			bits = 32
		}
		if math.IsNaN(v.Float) {
			return quoted("NaN")
		}
		if math.IsInf(v.Float, 0) {
			return quoted(strings.TrimPrefix(map[bool]string{true: "Infinity", false: "-Infinity"}[v.Float > 0], "+"))
		}
		return append(out, javaFloat(v.Float, bits)...)
	case Decimal:
		return append(out, plainDecimal(v.Unscaled, v.Scale)...)
	case Date:
		return quoted(time.Unix(v.Int*86400, 0).UTC().Format("2006-01-02"))
	case Timestamp:
		return quoted(time.UnixMicro(v.Int).UTC().Format("2006-01-02 15:04:05.999999") + "+00:00")
	case TimestampNTZ:
		return quoted(time.UnixMicro(v.Int).UTC().Format("2006-01-02 15:04:05.999999"))
	case TimestampNanos:
		return quoted(time.Unix(0, v.Int).UTC().Format("2006-01-02 15:04:05.999999999") + "+00:00")
	case TimestampNTZNanos:
		return quoted(time.Unix(0, v.Int).UTC().Format("2006-01-02 15:04:05.999999999"))
	case Time:
		return quoted(time.UnixMicro(v.Int).UTC().Format("15:04:05.999999"))
	case Binary:
		return quoted(base64.StdEncoding.EncodeToString(v.Bytes))
	case UUID:
		h := hex.EncodeToString(v.Bytes)
		return quoted(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
	}
	return append(out, "null"...)
}

// plainDecimal is unscaled * 10^-scale without trailing zeros after the point.
func plainDecimal(unscaled *big.Int, scale int) string {
	s := new(big.Int).Abs(unscaled).String()
	if scale > 0 {
		if len(s) <= scale {
			s = strings.Repeat("0", scale-len(s)+1) + s
		}
		s = strings.TrimRight(s[:len(s)-scale]+"."+s[len(s)-scale:], "0")
		s = strings.TrimSuffix(s, ".")
	}
	if unscaled.Sign() < 0 && s != "0" {
		return "-" + s
	}
	return s
}

// javaFloat is the shortest text in the form of Java: 1.0, 1.0E10, 1.0E-4.
func javaFloat(f float64, bits int) string {
	if a := math.Abs(f); a != 0 && (a < 1e-3 || a >= 1e7) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, bits), "e")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return mantissa
		}
		return mantissa + "E" + strconv.Itoa(n)
	}
	s := strconv.FormatFloat(f, 'f', -1, bits)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func appendString(out, s []byte) []byte {
	out = append(out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		case '\b':
			out = append(out, '\\', 'b')
		case '\f':
			out = append(out, '\\', 'f')
		default:
			if c < 0x20 {
				out = fmt.Appendf(out, `\u%04x`, c)
			} else {
				out = append(out, c)
			}
		}
		i++
	}
	return append(out, '"')
}
