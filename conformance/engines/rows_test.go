package engines_test

import (
	"strings"
	"testing"

	"github.com/sluice-data/sluice/conformance/engines"
)

func TestDiffRows_Same(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []string
	}{
		{"Empty", nil, nil},
		{"AnyOrder", []string{`{"a":1}`, `{"a":2}`, `{"a":1}`}, []string{`{"a":2}`, `{"a":1}`, `{"a":1}`}},
		{"FieldOrder", []string{`{"a":1,"b":{"x":1,"y":[1,null]}}`}, []string{`{"b":{"y":[1,null],"x":1},"a":1}`}},
		{"NumberSpelling", []string{`{"a":1.50,"b":1e2,"c":-0.0}`}, []string{`{"a":1.5,"b":100.0,"c":-0}`}},
		{"StringSpelling", []string{`{"a":"\u00fc\n"}`}, []string{"{\"a\":\"ü\\n\"}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := engines.DiffRows(c.got, c.want); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDiffRows_Different(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []string
		says      []string
	}{
		{"Missing", nil, []string{`{"a":1}`}, []string{`missing {"a":1}`}},
		{"Twice", []string{`{"a":1}`, `{"a":1}`}, []string{`{"a":1}`}, []string{`not wanted {"a":1}`}},
		{"OneDigit", []string{`{"k":7,"a":12345678901234567890.12}`}, []string{`{"k":7,"a":12345678901234567890.13}`}, []string{"missing", "differs in a: got", "not wanted"}},
		{"NullOrAbsent", []string{`{"a":1,"b":null}`}, []string{`{"a":1}`}, []string{"b: got <nil>, want no such field"}},
		{"StringOrNumber", []string{`{"a":"1"}`}, []string{`{"a":1}`}, []string{"missing"}},
		{"MinusZero", []string{`{"a":-0.0}`}, []string{`{"a":0}`}, []string{"missing"}},
		{"NoRow", []string{`{"a":`}, nil, []string{"not a row"}},
		{"TwoValues", []string{`{} {}`}, nil, []string{"not a row"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := engines.DiffRows(c.got, c.want)
			for _, s := range c.says {
				if !strings.Contains(d, s) {
					t.Errorf("%q is not in:\n%s", s, d)
				}
			}
		})
	}
}
