package variant

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
)

func TestParseJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b": 1, "a": [1, 2.50, null, true], "c": {"d": "x\ny\u0001é😀"}}`: `{"a":[1,2.5,null,true],"b":1,"c":{"d":"x\ny\u0001é😀"}}`,
		`12345678901234567890`:                   `12345678901234567890`,
		`-9223372036854775808`:                   `-9223372036854775808`,
		`0.1`:                                    `0.1`,
		`-0.10`:                                  `-0.1`,
		`1e3`:                                    `1000.0`,
		`1.5e300`:                                `1.5E300`,
		`1E-7`:                                   `1.0E-7`,
		`99999999999999999999999999999999999999`: `99999999999999999999999999999999999999`,
		`999999999999999999999999999999999999999`: `1.0E39`,
		`128`:                                `128`,
		`-32769`:                             `-32769`,
		`"` + strings.Repeat("é", 100) + `"`: `"` + strings.Repeat("é", 100) + `"`,
		`[]`:                                 `[]`,
		`{}`:                                 `{}`,
		`null`:                               `null`,
	} {
		t.Run("R-841 "+in[:min(len(in), 24)], func(t *testing.T) {
			m, v, err := ParseJSON([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := AppendJSON(nil, m, v)
			if err != nil || string(got) != want {
				t.Errorf("got %s %v, want %s", got, err, want)
			}
			if n, err := size(v); err != nil || n != len(v) {
				t.Errorf("size %d %v, want %d", n, err, len(v))
			}
		})
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `[1,]`, `1 2`, `nul`, "\"\xff\"", `1e999`, strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
		if _, _, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("%.30q parsed", bad)
		}
	}
	var b strings.Builder
	for i := range 300 {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0] + `"k` + strings.Repeat("x", i) + `":` + strings.Repeat("1", i%17+1))
	}
	m, v, err := ParseJSON([]byte(b.String() + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := AppendJSON(nil, m, v); err != nil || len(got) != b.Len()+1 {
		t.Errorf("R-841 a large object: %d bytes of %d, %v", len(got), b.Len()+1, err)
	}
}

func TestGet(t *testing.T) {
	m, v, err := ParseJSON([]byte(`{"a":{"b c":[10,{"d":"x"}]},"n":null}`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"$": `{"a":{"b c":[10,{"d":"x"}]},"n":null}`, "$.a['b c'][0]": "10", `$.a["b c"][1].d`: `"x"`, "$.n": "null", "$.x": "", "$.a[0]": "", "$.a['b c'][2]": ""} {
		steps, err := ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		at, err := Get(m, v, steps)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if at != nil {
			b, err := AppendJSON(nil, m, at)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != want {
			t.Errorf("R-841 %s: got %s, want %s", path, got, want)
		}
	}
	for _, bad := range []string{"", "a", "$.", "$[", "$[x]", "$['", "$['']", "$[1", "$a"} {
		if _, err := ParsePath(bad); err == nil {
			t.Errorf("path %q parsed", bad)
		}
	}
}

// TestAppendJSON_Hostile: R-841, no bytes panic or cost more than their length.
func TestAppendJSON_Hostile(t *testing.T) {
	m, v, err := ParseJSON([]byte(`{"a":[1,2,{"b":"c"}],"d":1.5,"e":"` + strings.Repeat("x", 70) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Check(t, func(rt *rapid.T) {
		m, v := append([]byte(nil), m...), append([]byte(nil), v...)
		for range rapid.IntRange(1, 6).Draw(rt, "n") {
			if rapid.Bool().Draw(rt, "which") {
				m[rapid.IntRange(0, len(m)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "b")
			} else {
				v[rapid.IntRange(0, len(v)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "b")
			}
		}
		if rapid.Bool().Draw(rt, "cut") {
			v = v[:rapid.IntRange(0, len(v)).Draw(rt, "to")]
		}
		out, err := AppendJSON(nil, m, v)
		if err == nil && len(out) > 100*(len(v)+len(m)) {
			rt.Fatalf("%d bytes of JSON", len(out))
		}
		_, _, _ = Fields(m, v)
		_, _ = Get(m, v, []Step{{Name: "a"}, {Index: 2}})
	})
	// An array that points at itself again and again.
	loop := []byte{0x03, 2, 0, 0, 2}
	for range 12 {
		loop, _ = (&Builder{}).Array([][]byte{loop, loop})
		loop[2], loop[3] = 0, 0
	}
	if out, err := AppendJSON(nil, m, loop); err == nil && len(out) > 1<<20 {
		t.Error("no bound on repeated children")
	}
}

func FuzzAppendJSON(f *testing.F) {
	m, v, _ := ParseJSON([]byte(`{"a":[1,2,{"b":"c"}],"d":1.5}`))
	f.Add(m, v)
	f.Fuzz(func(t *testing.T, m, v []byte) {
		out, err := AppendJSON(nil, m, v)
		if err == nil {
			if m2, v2, err := ParseJSON(out); err == nil {
				if _, err := AppendJSON(nil, m2, v2); err != nil {
					t.Errorf("%s: %v", out, err)
				}
			}
		}
	})
}

// FuzzParseJSON: a value made of JSON text prints to text that can be read again. The
// second time round nothing changes any more: a double of few digits comes back as a decimal (0e4 is 0.0, then 0).
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2,{"b":"c"}],"d":1.5}`, `1e400`, `-0`, `0e4`, `123456789012345678901234567890.5`, `{"a":1,"a":2}`, `"\ud800"`, `[[[[]]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var printed []string
		for len(printed) < 3 {
			m, v, err := ParseJSON(text)
			if err != nil {
				if len(printed) > 0 {
					t.Fatalf("printed %q: %v", printed, err)
				}
				return
			}
			if text, err = AppendJSON(nil, m, v); err != nil {
				t.Fatalf("printed %q: %v", printed, err)
			}
			printed = append(printed, string(text))
		}
		if printed[1] != printed[2] {
			t.Fatalf("printed %q", printed)
		}
	})
}

// FuzzParsePath: no text panics, and the steps of a path that is read are not empty.
func FuzzParsePath(f *testing.F) {
	f.Add("$.a.b[0]['c d']")
	f.Add("$[9999999999999]")
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := ParsePath(text)
		if err != nil {
			return
		}
		if len(steps) > len(text) {
			t.Fatalf("%q has %d steps", text, len(steps))
		}
	})
}
