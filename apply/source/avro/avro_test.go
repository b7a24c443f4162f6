package avro

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply/event"
)

func parse(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := ParseSchema([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestValue_F2_B_UnionOrders(t *testing.T) {
	first := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}`)
	second := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":[{"type":"int","connect.default":5},"null"],"default":5}]}`)
	for _, c := range []struct {
		s    *Schema
		body string
		want string
	}{
		{first, "\x00", `{"a":null}`}, {first, "\x02\x0e", `{"a":7}`},
		{second, "\x02", `{"a":null}`}, {second, "\x00\x0e", `{"a":7}`},
	} {
		got, err := Value(c.s, []byte(c.body), false)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %s, %v, want %s", c.body, got, err, c.want)
		}
	}
}

func TestValue_Types(t *testing.T) {
	for _, c := range []struct{ schema, body, want, natural string }{
		{`"long"`, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "-9223372036854775808", ""},
		{`"double"`, "\x00\x00\x00\x00\x00\x00\xf8\x7f", `"NaN"`, ""},
		{`"float"`, "\x00\x00\x80\xff", `"-Infinity"`, ""},
		{`"boolean"`, "\x01", "true", ""},
		{`"string"`, "\x06a\"b", `"a\"b"`, ""},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, "\x02\xcf", `"zw=="`, "-0.49"},
		{`{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":4,"scale":0}`, "\x01\x00", `"AQA="`, "256"},
		{`{"type":"enum","name":"E","symbols":["A","B"]}`, "\x02", `"B"`, ""},
		{`{"type":"array","items":"int"}`, "\x04\x02\x04\x01\x02\x06\x00", "[1,2,3]", ""},
		{`{"type":"map","values":"int"}`, "\x02\x02k\x02\x00", `{"k":1}`, ""},
		{`{"type":"int","logicalType":"date"}`, "\x02", "1", `"1970-01-02"`},
		{`{"type":"long","logicalType":"timestamp-millis"}`, "\x02", `"1970-01-01T00:00:00.001Z"`, ""},
		{`{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}`, "\x02", "1", `"1970-01-01T00:00:00.000001"`},
	} {
		s := parse(t, c.schema)
		got, err := Value(s, []byte(c.body), false)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.schema, got, err, c.want)
		}
		if c.natural == "" {
			c.natural = c.want
		}
		if got, err = Value(s, []byte(c.body), true); err != nil || string(got) != c.natural {
			t.Errorf("%s: natural %s, %v, want %s", c.schema, got, err, c.natural)
		}
	}
}

func TestValue_F2_G_Refused(t *testing.T) {
	long := make([]byte, binary.MaxVarintLen64)
	n := binary.PutVarint(long, 1<<40)
	for _, c := range []struct{ schema, body, want string }{
		{`"int"`, "\x02\x02", "left over"},
		{`"int"`, "", "too early"},
		{`"int"`, string(long[:n]), "an int of"},
		{`"string"`, string(long[:n]), "too early"},
		{`{"type":"array","items":"null"}`, string(long[:n]), "elements in so few bytes"},
		{`["null","int"]`, "\x04", "branch 2"},
		{`{"type":"enum","name":"E","symbols":["A"]}`, "\x03", "symbol -2"},
		{`"boolean"`, "\x05", "a boolean of 5"},
	} {
		_, err := Value(parse(t, c.schema), []byte(c.body), false)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q: %v, want %q", c.schema, c.body, err, c.want)
		}
	}
	for _, bad := range []string{``, `5`, `"nothing"`, `[]`, `{"type":"record","name":"R","fields":[{"type":"int"}]}`, `{"type":"fixed","name":"F","size":1e9}`, strings.Repeat(`{"type":"array","items":`, 100) + `"int"` + strings.Repeat("}", 100)} {
		if s, err := ParseSchema([]byte(bad)); err == nil {
			t.Errorf("%.60s: %+v", bad, s)
		}
	}
}

func TestParseSchema_NamesOfOneDocument(t *testing.T) {
	one := parse(t, `{"type":"record","name":"Envelope","namespace":"a.b","fields":[{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"x","type":"int"}]}]},{"name":"after","type":["null","Value"]}]}`)
	two := parse(t, `{"type":"record","name":"Envelope","namespace":"a.b","fields":[{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"y","type":"string"}]}]},{"name":"after","type":["null","Value"]}]}`)
	if f := one.field("after").Branches[1].Fields[0].Name; f != "x" {
		t.Errorf("the first document's Value has field %s", f)
	}
	if f := two.field("after").Branches[1].Fields[0].Name; f != "y" {
		t.Errorf("the second document's Value has field %s", f)
	}
}

func TestUnframe_F2_G(t *testing.T) {
	h := func(key string, v ...byte) []event.Header { return []event.Header{{Key: key, Value: v}} }
	for _, c := range []struct {
		name    string
		b       string
		headers []event.Header
		want    Ref
		body    string
		bad     bool
	}{
		{name: "Confluent", b: "\x00\x00\x00\x00\x2ax", want: Ref{"id", "42"}, body: "x"},
		{name: "Apicurio's 8 bytes", b: "\x00\x00\x00\x00\x00\x00\x00\x00\x2ax", want: Ref{"globalId", "42"}, body: "x"},
		{name: "GUID", b: "\x01" + strings.Repeat("\xab", 16) + "x", want: Ref{"guid", "abababab-abab-abab-abab-abababababab"}, body: "x"},
		{name: "header", b: "x", headers: h("__value_schema_id", append([]byte{1}, []byte(strings.Repeat("\xab", 16))...)...), want: Ref{"guid", "abababab-abab-abab-abab-abababababab"}, body: "x"},
		{name: "header of Apicurio", b: "x", headers: h("apicurio.value.contentId", 0, 0, 0, 0, 0, 0, 0, 7), want: Ref{"contentId", "7"}, body: "x"},
		{name: "header of the key", b: "\x00\x00\x00\x00\x2ax", headers: h("apicurio.key.contentId", 0, 0, 0, 0, 0, 0, 0, 7), want: Ref{"id", "42"}, body: "x"},
		{name: "Glue", b: "\x03\x00" + strings.Repeat("\xab", 16) + "x", want: Ref{"glue", "abababab-abab-abab-abab-abababababab"}, body: "x"},
		{name: "Glue, zlib", b: "\x03\x05" + strings.Repeat("\xab", 16) + "\x78\x9c\xab\x00\x00\x00\x79\x00\x79", want: Ref{"glue", "abababab-abab-abab-abab-abababababab"}, body: "x"},
		{name: "Glue, cut short", b: "\x03\x05" + strings.Repeat("\xab", 16) + "\x78\x9c\xab", bad: true},
		{name: "Glue, another compression", b: "\x03\x07" + strings.Repeat("\xab", 16) + "x", bad: true},
		{name: "no framing", b: "{}", bad: true},
		{name: "id 0", b: "\x00\x00\x00\x00\x00", bad: true},
		{name: "negative", b: "\x00\xff\x00\x00\x00", bad: true},
		{name: "header cut short", b: "x", headers: h("apicurio.value.globalId", 1), bad: true},
	} {
		ref, body, err := unframe([]byte(c.b), c.headers, "value", "id")
		if (err != nil) != c.bad || !c.bad && (ref != c.want || string(body) != c.body) {
			t.Errorf("%s: %v %q %v", c.name, ref, body, err)
		}
	}
}

func TestRegistry_F2_G_Retries(t *testing.T) {
	var asked []string
	fail := 2
	status := http.StatusServiceUnavailable
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if len(asked) <= fail {
			w.WriteHeader(status)
			return
		}
		if strings.Contains(r.URL.Path, "/ids/globalIds/") {
			fmt.Fprint(w, `"int"`)
			return
		}
		fmt.Fprint(w, `{"schema":"\"long\""}`)
	}))
	defer srv.Close()
	g := &Registry{URL: srv.URL + "/", Sleep: func(context.Context, time.Duration) error { return nil }}
	text, err := g.Schema(context.Background(), Ref{"id", "5"})
	if err != nil || string(text) != `"long"` || len(asked) != 3 || asked[0] != "/schemas/ids/5" {
		t.Errorf("%s %v, asked %v", text, err, asked)
	}
	if _, err = g.Schema(context.Background(), Ref{"id", "5"}); err != nil || len(asked) != 3 {
		t.Errorf("what was answered is asked for again: %v, %v", asked, err)
	}
	if text, err = g.Schema(context.Background(), Ref{"globalId", "5"}); err != nil || string(text) != `"int"` {
		t.Errorf("%s %v", text, err)
	}
	for want, s := range map[string]int{"SCHEMA_UNKNOWN": 404, "REGISTRY_UNREACHABLE": 500, "REGISTRY_REFUSED": 401} {
		asked, fail, status = nil, 100, s
		_, err := g.Schema(context.Background(), Ref{"id", "9"})
		var e *Error
		if !errors.As(err, &e) || e.Code != want || s == 401 && len(asked) != 1 || s != 401 && len(asked) != 6 {
			t.Errorf("%d: %v after %d attempts, want %s", s, err, len(asked), want)
		}
	}
}

func FuzzValue(f *testing.F) {
	const schema = `{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]},{"name":"b","type":{"type":"array","items":["null",{"type":"map","values":"bytes"}]}},{"name":"s","type":"string"}]}`
	s, err := ParseSchema([]byte(schema))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\x00\x00\x02a"))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := Value(s, body, true)
		if err == nil && len(out) > 1000+200*len(body) {
			t.Errorf("%d bytes became %d", len(body), len(out))
		}
	})
}

func FuzzParseSchema(f *testing.F) {
	f.Add(`{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchema([]byte(text))
		if err == nil {
			_, _ = connectSchema(s)
		}
	})
}
