package engines

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// SameRows fails the test unless got and want hold the same rows, each as often,
// in any order. Rows are JSON objects; the order of their fields does not
// matter, and numbers are compared by their exact value (1.50 is 1.5, 0.1 is not
// 0.1000001).
func SameRows(tb testing.TB, got, want []string) {
	tb.Helper()
	if diff := DiffRows(got, want); diff != "" {
		tb.Errorf("rows differ (%d got, %d wanted):\n%s", len(got), len(want), diff)
	}
}

// DiffRows is "" if SameRows would pass, else the difference for a reader: rows
// only in one of the two, and for a row that has a close counterpart in the
// other the fields that differ.
func DiffRows(got, want []string) string {
	g, w, bad := count(got), count(want), ""
	for _, side := range []map[string]*row{g, w} {
		for _, r := range side {
			if r.err != nil {
				bad += fmt.Sprintf("  not a row: %s: %v\n", r.text, r.err)
			}
		}
	}
	if bad != "" {
		return bad
	}
	extra, missing := minus(g, w), minus(w, g)
	if len(extra)+len(missing) == 0 {
		return ""
	}
	var b strings.Builder
	const most = 20
	for i, m := range missing {
		if i == most {
			fmt.Fprintf(&b, "  ... and %d more missing\n", len(missing)-most)
			break
		}
		fmt.Fprintf(&b, "  missing %s\n", m)
		if near, fields := closest(m, extra); near != nil {
			fmt.Fprintf(&b, "      got %s\n      differs in %s\n", near.text, strings.Join(fields, "; "))
		}
	}
	for i, e := range extra {
		if i == most {
			fmt.Fprintf(&b, "  ... and %d more not wanted\n", len(extra)-most)
			break
		}
		fmt.Fprintf(&b, "  not wanted %s\n", e)
	}
	return b.String()
}

// row is one distinct row and how often it is there.
type row struct {
	text   string            // as it came
	fields map[string]string // canonical text of each value
	n      int
	err    error
}

func (r *row) String() string {
	if r.n > 1 {
		return fmt.Sprintf("%d times %s", r.n, r.text)
	}
	return r.text
}

func count(rows []string) map[string]*row {
	out := map[string]*row{}
	for _, text := range rows {
		r := parse(text)
		key := text
		if r.err == nil {
			var b strings.Builder
			for _, k := range slices.Sorted(maps.Keys(r.fields)) {
				fmt.Fprintf(&b, "%q:%s,", k, r.fields[k])
			}
			key = b.String()
		}
		if have := out[key]; have != nil {
			have.n++
			continue
		}
		out[key] = r
	}
	return out
}

func parse(text string) *row {
	r := &row{text: text, n: 1, fields: map[string]string{}}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var fields map[string]any
	if r.err = dec.Decode(&fields); r.err != nil {
		return r
	}
	if _, err := dec.Token(); err != io.EOF {
		r.err = fmt.Errorf("more than one JSON value")
		return r
	}
	for k, v := range fields {
		r.fields[k] = canonical(v)
	}
	return r
}

// canonical is one text for all spellings of a JSON value.
func canonical(v any) string {
	switch v := v.(type) {
	case json.Number:
		rat, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return v.String()
		}
		if rat.Sign() == 0 && strings.HasPrefix(v.String(), "-") {
			return "-0"
		}
		return rat.RatString()
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, fmt.Sprintf("%q:%s", k, canonical(v[k])))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, canonical(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}

// minus is what a has more of than b, in a stable order.
func minus(a, b map[string]*row) []*row {
	var out []*row
	for _, k := range slices.Sorted(maps.Keys(a)) {
		n := a[k].n
		if b[k] != nil {
			n -= b[k].n
		}
		if n > 0 {
			r := *a[k]
			r.n = n
			out = append(out, &r)
		}
	}
	return out
}

// closest finds the row that agrees with r in most fields, at least half.
func closest(r *row, among []*row) (*row, []string) {
	var best *row
	bestFields := make([]string, 0)
	for _, c := range among[:min(len(among), 200)] {
		var differ []string
		keys := maps.Clone(r.fields)
		maps.Copy(keys, c.fields)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			want, inWant := r.fields[k]
			got, inGot := c.fields[k]
			switch {
			case !inGot:
				differ = append(differ, fmt.Sprintf("%s: absent, want %s", k, want))
			case !inWant:
				differ = append(differ, fmt.Sprintf("%s: got %s, want no such field", k, got))
			case got != want:
				differ = append(differ, fmt.Sprintf("%s: got %s, want %s", k, got, want))
			}
		}
		if 2*len(differ) <= len(keys) && (best == nil || len(differ) < len(bestFields)) {
			best, bestFields = c, differ
		}
	}
	return best, bestFields
}
