package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

// toAny rebuilds a value from tokens; numbers stay text.
func toAny(t Token) any {
	switch t.Kind {
	case True, False:
		return t.Kind == True
	case Number:
		return json.Number(t.Raw)
	case String:
		return string(t.Text(nil))
	case Array:
		out := []any{}
		Elements(t, func(e Token) bool { out = append(out, toAny(e)); return true })
		return out
	case Object:
		out := map[string]any{}
		Members(t, func(k, v Token) bool { out[string(k.Text(nil))] = toAny(v); return true })
		return out
	}
	return nil
}

// agree compares the tokenizer with encoding/json on any bytes.
func agree(t interface{ Fatalf(string, ...any) }, data []byte) {
	tok, end, err := Value(data, 0)
	if err == nil {
		err = End(data, end)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var want any
	wantErr := d.Decode(&want)
	valid := json.Valid(data)
	switch {
	case !utf8.Valid(data):
		return // callers check UTF-8 first
	case err == nil && !valid:
		t.Fatalf("%q is taken for JSON", data)
	case err != nil && valid:
		// Lone surrogates and very deep nesting are refused here only.
		if s := err.(*SyntaxError); s.Reason != "lone surrogate" && s.Reason != "nested too deep" {
			t.Fatalf("%q is refused: %v", data, err)
		}
	case err == nil && wantErr == nil:
		if got := toAny(tok); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, want %#v", data, got, want)
		}
	}
	if i := Skip(data, 0); i < len(data) && (data[i] == '{' || data[i] == '[') && err == nil {
		if n, err := Balanced(data, i); err != nil || Skip(data, n) != len(data) {
			t.Fatalf("%q: balanced ends at %d: %v", data, n, err)
		}
	}
	if fields, end, err := ParseObject(data, 0, nil); err == nil && End(data, end) == nil {
		if !valid {
			t.Fatalf("%q: taken for an object", data)
		}
		for _, f := range fields {
			f.Val.JSON(nil)
		}
	}
}

func TestValue_AgreesWithEncodingJSON(t *testing.T) {
	for _, s := range []string{
		"", " ", "nul", "null", "true", "tru", "0", "-0", "01", "-", "1.", ".5", "1e", "1e+5", "1E-7", "12345678901234567890.10",
		`"a"`, `"\u00e9\ud83d\ude00\n\/"`, `"\x"`, `"\u12"`, "\"a\nb\"", `"`, `{}`, `{ }`, `{"a":1}`, `{"a" : 1 , "b":[ ]}`, `{"a":1,}`, `{"a"}`, `{,}`, `{"a":1 "b":2}`,
		`[]`, `[1,2]`, `[1,]`, `[1 2]`, `[[[{"a":[{}]}]]]`, "{\"a\":\"\u2028\"}", `{"a":"12345678"}`, `{"a":"1234567\"8"}`, "\ufeff{}", `{"\u0061":1}`,
	} {
		agree(t, []byte(s))
	}
	if _, _, err := Value([]byte(strings.Repeat("[", 10_000)), 0); err == nil {
		t.Error("ten thousand brackets pass")
	}
	if _, _, err := Value([]byte(`"\ud800x"`), 0); err == nil {
		t.Error("a lone surrogate passes")
	}
}

func TestValue_Random(t *testing.T) {
	piece := rapid.SampledFrom([]string{"{", "}", "[", "]", ",", ":", `"`, `"a"`, `"b\"`, "1", "-2.5e3", "null", "true", " ", "\\", "\\u0041", "é", "\x01", "0"})
	testenv.Check(t, func(t *rapid.T) {
		agree(t, []byte(strings.Join(rapid.SliceOfN(piece, 0, 24).Draw(t, "text"), "")))
	})
	testenv.Check(t, func(t *rapid.T) {
		// Valid documents with strings of all lengths, so that each of the eight
		// bytes of a step is the first of interest once.
		n := rapid.IntRange(0, 40).Draw(t, "n")
		js, err := json.Marshal(map[string]any{"k": strings.Repeat("x", n) + rapid.String().Draw(t, "s"), "l": []any{n, strings.Repeat("y", n)}})
		if err != nil {
			t.Skipf("the reference cannot write this document: %v", err)
		}
		agree(t, js)
	})
}

func FuzzValue(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x\u00e9",null,true,-1.5e3],"b":{"c":{}}}`))
	f.Add([]byte(`"\ud83d\ude00"`))
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}
