package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// sizeFlag is a number of bytes: 4096, 64KB, 128MB, 1GiB. Decimal units are
// powers of 1000, binary ones of 1024.
type sizeFlag int64

var sizeUnits = map[string]int64{"": 1, "B": 1,
	"K": 1e3, "KB": 1e3, "M": 1e6, "MB": 1e6, "G": 1e9, "GB": 1e9, "T": 1e12, "TB": 1e12,
	"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

func (f *sizeFlag) Set(s string) error {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, ok := sizeUnits[strings.ToUpper(strings.TrimSpace(s[len(number):]))]
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || v < 0 || math.IsNaN(v) || v*float64(unit) > math.MaxInt64/2 {
		return fmt.Errorf("expected a size such as 64KB, 128MB or 1GiB")
	}
	*f = sizeFlag(v * float64(unit))
	return nil
}

func (f *sizeFlag) Type() string   { return "size" }
func (f *sizeFlag) String() string { return formatSize(int64(*f)) }

func formatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// humanSize is for summaries: three digits and a binary unit.
func humanSize(n int64) string {
	v, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}

// durationFlag is Go's form (90s, 168h), days (7d) or ISO 8601 (P7D, PT12H).
type durationFlag time.Duration

var (
	dayDuration = regexp.MustCompile(`^(\d+)d(.*)$`)
	isoDuration = regexp.MustCompile(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)
)

func (f *durationFlag) Set(s string) error {
	d, err := parseDuration(s)
	if err != nil {
		return err
	}
	*f = durationFlag(d)
	return nil
}

func (f *durationFlag) Type() string   { return "duration" }
func (f *durationFlag) String() string { return time.Duration(*f).String() }

func parseDuration(s string) (time.Duration, error) {
	wrong := fmt.Errorf("expected a duration such as 10s, 168h, 7d or P7D")
	const day = 24 * time.Hour
	var total float64
	switch {
	case isoDuration.MatchString(s):
		if strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
			return 0, wrong
		}
		for i, unit := range []time.Duration{7 * day, day, time.Hour, time.Minute, time.Second} {
			if text := isoDuration.FindStringSubmatch(s)[i+1]; text != "" {
				v, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, wrong
				}
				total += v * float64(unit)
			}
		}
	default:
		rest := s
		if m := dayDuration.FindStringSubmatch(s); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return 0, wrong
			}
			total, rest = v*float64(day), m[2]
		}
		if rest != "" {
			d, err := time.ParseDuration(rest)
			if err != nil {
				return 0, wrong
			}
			total += float64(d)
		} else if s == "" {
			return 0, wrong
		}
	}
	if total < 0 || total > float64(math.MaxInt64) {
		return 0, wrong
	}
	return time.Duration(total), nil
}

// onOff is a flag with the values on and off.
type onOff struct{ value *bool }

func (f *onOff) Set(s string) error {
	v := s == "on"
	if !v && s != "off" {
		return fmt.Errorf("expected on or off")
	}
	f.value = &v
	return nil
}

func (f *onOff) Type() string { return "on|off" }
func (f *onOff) String() string {
	switch {
	case f.value == nil:
		return ""
	case *f.value:
		return "on"
	}
	return "off"
}

// oneOf is a flag with a fixed set of values.
type oneOf struct {
	value  string
	values []string
}

func (f *oneOf) Set(s string) error {
	for _, v := range f.values {
		if s == v {
			f.value = s
			return nil
		}
	}
	return fmt.Errorf("expected one of %s", strings.Join(f.values, ", "))
}

func (f *oneOf) Type() string   { return strings.Join(f.values, "|") }
func (f *oneOf) String() string { return f.value }

// listFlag is a comma-separated list; names that hold a comma go in backticks.
type listFlag struct{ values []string }

func (f *listFlag) Set(s string) error {
	names, err := splitNames(s)
	f.values = names
	return err
}

func (f *listFlag) Type() string   { return "a,b" }
func (f *listFlag) String() string { return strings.Join(f.values, ",") }

// distinct refuses a column that a flag names twice: the rows of most forms could not
// hold both.
func distinct(flag string, names []string) error {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[strings.ToLower(n)] {
			return usage("INVALID_FLAG", "--%s: column %s is named twice", flag, n)
		}
		seen[strings.ToLower(n)] = true
	}
	return nil
}

// allColumns is the value of a columns flag without one.
const allColumns = "*"

// columnsFlag is a set of columns: all, on:a,b (or a,b) or except:a,b.
type columnsFlag struct {
	all        bool
	on, except []string
}

func (f *columnsFlag) Set(s string) error {
	*f = columnsFlag{}
	if s == allColumns {
		f.all = true
		return nil
	}
	list, except := strings.CutPrefix(s, "except:")
	names, err := splitNames(strings.TrimPrefix(list, "on:"))
	if err != nil {
		return err
	}
	if names == nil {
		names = []string{}
	}
	if except {
		f.except = names
	} else {
		f.on = names
	}
	return nil
}

func (f *columnsFlag) Type() string { return "on:a,b|except:a,b" }

func (f *columnsFlag) String() string {
	switch {
	case f.all:
		return allColumns
	case f.except != nil:
		return "except:" + strings.Join(f.except, ",")
	case f.on != nil:
		return "on:" + strings.Join(f.on, ",")
	}
	return ""
}

func splitNames(s string) ([]string, error) {
	var out []string
	for {
		s = strings.TrimSpace(s)
		var name string
		if quoted, ok := strings.CutPrefix(s, "`"); ok {
			i := 0
			for i < len(quoted) && (quoted[i] != '`' || strings.HasPrefix(quoted[i:], "``")) {
				if quoted[i] == '`' {
					i++
				}
				i++
			}
			if i >= len(quoted) {
				return nil, fmt.Errorf("the closing backtick is missing")
			}
			name, s = strings.ReplaceAll(quoted[:i], "``", "`"), strings.TrimSpace(quoted[i+1:])
		} else {
			i := strings.IndexByte(s+",", ',')
			name, s = strings.TrimSpace(s[:i]), s[i:]
		}
		if name == "" {
			return nil, fmt.Errorf("an empty name in the list")
		}
		out = append(out, name)
		if s == "" {
			return out, nil
		}
		if s[0] != ',' {
			return nil, fmt.Errorf("expected a comma before %q", s)
		}
		s = s[1:]
	}
}

// propertyFlag collects k=v.
type propertyFlag struct{ values map[string]string }

func (f *propertyFlag) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return fmt.Errorf("expected key=value")
	}
	if f.values == nil {
		f.values = map[string]string{}
	}
	if _, twice := f.values[k]; twice {
		return fmt.Errorf("%s is given twice", k)
	}
	f.values[k] = v
	return nil
}

func (f *propertyFlag) Type() string   { return "k=v" }
func (f *propertyFlag) String() string { return "" }
