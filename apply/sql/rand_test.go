package sql

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// writing draws statements as people write them: any clause order, case, spelling
// of lists and quotes, with comments and blanks anywhere between tokens.
type writing struct{ t *rapid.T }

func (w writing) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(w.t, label)
}

func (w writing) yes(label string) bool { return rapid.Bool().Draw(w.t, label) }

func (w writing) gap() string {
	return w.one("gap", " ", " ", " ", "\n", "\t ", "\n\n  ", " -- why; KEYS (x)\n", " /* a 'b */ ", "\n-- own line\n", " --\n", "/* two\nlines */")
}

// join writes tokens, words in any case.
func (w writing) join(tokens ...string) string {
	var b strings.Builder
	for _, s := range tokens {
		if s == strings.ToUpper(s) && !strings.ContainsAny(s, "'\"`") {
			s = w.one("case", s, strings.ToLower(s), strings.ToUpper(s))
		}
		b.WriteString(s + w.gap())
	}
	return b.String()
}

var identPool = []string{"id", "region", "name", "a.b", "q`q", "to", "Keys", "columns", "sequence", "some name", "über", "end", "select", "live", "if", "constraint", "stored", "with"}

func (w writing) rawIdent() string { return w.one("ident", identPool...) }

// ident quotes where the grammar or an expression needs it, sometimes without need.
func (w writing) ident() string {
	raw := w.rawIdent()
	plain := schema.QuoteName(raw) == raw
	switch raw {
	case "to", "end", "select", "live", "if", "constraint", "with":
		plain = false
	}
	if plain && w.yes("bare") {
		return raw
	}
	return "`" + strings.ReplaceAll(raw, "`", "``") + "`"
}

func (w writing) idents() []string {
	n := rapid.IntRange(1, 3).Draw(w.t, "columns")
	out := make([]string, n)
	for i := range out {
		out[i] = w.ident()
	}
	return out
}

func (w writing) list(bare bool) string {
	text := strings.Join(w.idents(), w.one("comma", ",", ", ", " , ", ",\n"))
	if bare && w.yes("bare list") {
		return text
	}
	return "(" + text + ")"
}

func (w writing) set(clause ...string) string {
	if w.yes("except") {
		return w.join(append(clause, "*", "EXCEPT", w.list(false))...)
	}
	return w.join(append(clause, w.list(true))...)
}

func (w writing) expr(depth int) string {
	if depth == 0 {
		return w.one("leaf", "id", "columns", "`a.b`", "sequence", "'; STORED AS'", `"D"`, "1", "2.5", "-3", "NULL", "TRUE", "stored.x", "keys[0]", "'it''s'", `'a\'b'`, "DATE '2020-01-01'")
	}
	x, y := w.expr(depth-1), w.expr(depth-1)
	switch w.one("op", "call", "case", "and", "cmp", "in", "is", "par", "between", "cast") {
	case "call":
		return fmt.Sprintf("coalesce(%s, %s)", x, y)
	case "case":
		return fmt.Sprintf("CASE WHEN %s THEN %s ELSE columns END", x, y)
	case "and":
		return fmt.Sprintf("(%s) %s NOT (%s)", x, w.one("and", "AND", "or"), y)
	case "cmp":
		return fmt.Sprintf("(%s) %s (%s)", x, w.one("cmp", "=", "<>", "<=>", ">=", "+", "||", "%"), y)
	case "in":
		return fmt.Sprintf("(%s) IN (%s, columns)", x, y)
	case "is":
		return fmt.Sprintf("(%s) IS NOT %s", x, w.one("what", "NULL", "TRUE", "DISTINCT FROM columns"))
	case "between":
		return fmt.Sprintf("(%s) BETWEEN (%s) AND sequence", x, y)
	case "cast":
		return fmt.Sprintf("CAST(%s AS DECIMAL(10,2))", x)
	}
	return "(" + x + ")"
}

func (w writing) str() string {
	return w.one("str", "''", "'x'", `"x ' y"`, `'a\\b'`, "'line\nbreak'", `'it''s; CREATE'`, `r'raw\n'`)
}

func (w writing) name() string {
	parts := []string{w.ident()}
	for w.yes("qualified") && len(parts) < 3 {
		parts = append(parts, w.ident())
	}
	if w.yes("live") {
		parts = append([]string{"LIVE"}, parts...)
	}
	return strings.Join(parts, ".")
}

func (w writing) feed() string {
	depth := func() int { return rapid.IntRange(0, 3).Draw(w.t, "depth") }
	if w.one("feed", "stream", "stream", "stream", "snapshot") == "snapshot" {
		b := w.join("FROM", "SNAPSHOT", "("+w.one("query", "SELECT * FROM src", "SELECT a, (b) FROM (SELECT ')' AS x) -- c\n", "WITH x AS (SELECT 1) SELECT * FROM x")+")")
		if w.yes("version") {
			b += w.join("WITH", "VERSION", "(SELECT max(v) FROM src)")
		}
		b += w.join("KEYS", w.list(false))
		if w.yes("stored") {
			b += w.join("STORED", "AS", "SCD", "TYPE", w.one("type", "1", "2"))
		}
		if w.yes("track") {
			b += w.set("TRACK", "HISTORY", "ON")
		}
		return b
	}
	b := w.join("FROM", "STREAM")
	if w.yes("paren") {
		b += "(" + w.name() + ")"
	} else {
		b += " `s`." + w.ident() + " "
	}
	b += w.join("KEYS", w.list(false))
	clauses := []string{w.join("SEQUENCE", "BY", w.expr(depth()))}
	add := func(label string, text func() string) {
		if w.yes(label) {
			clauses = append(clauses, text())
		}
	}
	add("ignore", func() string {
		if w.yes("all") {
			return w.join("IGNORE", "NULL", "UPDATES")
		}
		return w.set("IGNORE", "NULL", "UPDATES", "ON")
	})
	add("delete", func() string { return w.join("APPLY", "AS", "DELETE", "WHEN", w.expr(depth())) })
	add("truncate", func() string { return w.join("APPLY", "AS", "TRUNCATE", "WHEN", w.expr(depth())) })
	add("system", func() string { return w.join("SYSTEM", "SEQUENCE", "BY", w.expr(depth())) })
	add("columns", func() string { return w.set("COLUMNS") })
	add("stored", func() string {
		return w.join("STORED", "AS", w.one("as", "SCD TYPE 1", "SCD TYPE 2", "BITEMPORAL"))
	})
	add("track", func() string { return w.set("TRACK", "HISTORY", "ON") })
	add("update", func() string { return w.join("COLUMNS", "TO", "UPDATE", w.ident()) })
	for _, c := range rapid.Permutation(clauses).Draw(w.t, "order") {
		b += c
	}
	return b
}

func (w writing) table() string {
	b := w.join("CREATE")
	if w.yes("refresh") {
		b += w.join("OR", "REFRESH")
	}
	b += w.join("STREAMING", "TABLE", w.name())
	if w.yes("elements") {
		var e []string
		for range rapid.IntRange(1, 4).Draw(w.t, "elements") {
			if w.yes("constraint") {
				e = append(e, w.join("CONSTRAINT", w.ident(), "EXPECT", "("+w.expr(2)+")")+w.one("on", "", "ON VIOLATION DROP ROW ", "on violation fail update"))
				continue
			}
			e = append(e, w.join(w.ident(), w.one("type", "BIGINT", "decimal(10, 2)", "STRUCT<a: INT COMMENT 'x', `b c`: ARRAY<STRING> NOT NULL>", "MAP<STRING, INT>", "VARCHAR(3)", "array<map<int,date>>"))+
				w.one("null", "", " NOT NULL ")+w.one("comment", "", " COMMENT "+w.str()))
		}
		text := strings.Join(e, w.gap()+","+w.gap())
		b += "(" + text + ")" + w.gap()
	}
	var clauses []string
	for _, c := range []func() string{
		func() string { return w.join("COMMENT", w.str()) },
		func() string {
			return w.join("TBLPROPERTIES", "('a.b'"+w.one("eq", "=", " ")+w.str()+", delta.x = "+w.one("v", "1", "-2.5", "TRUE")+")")
		},
		func() string { return w.join("USING", "DELTA") },
		func() string {
			if w.yes("partition") {
				return w.join("PARTITIONED", "BY", w.list(false))
			}
			return w.join("CLUSTER", "BY", w.one("by", "AUTO", "NONE", w.list(false)))
		},
	} {
		if w.yes("clause") {
			clauses = append(clauses, c())
		}
	}
	for _, c := range rapid.Permutation(clauses).Draw(w.t, "order") {
		b += c
	}
	if w.yes("inline") {
		b += w.join("FLOW", "AUTO", "CDC") + w.one("once", "", "ONCE ") + w.feed()
	}
	return b
}

func (w writing) statement() string {
	switch w.one("statement", "table", "flow", "apply", "source") {
	case "table":
		return w.table()
	case "flow":
		return w.join("CREATE", "FLOW", w.ident()) + w.one("comment", "", "COMMENT "+w.str()+" ") + w.join("AS") +
			w.one("words", "AUTO CDC ", "auto cdc once ", "APPLY CHANGES ") + w.join("INTO", w.name()) + w.feed()
	case "apply":
		return w.join("APPLY", "CHANGES", "INTO", w.name()) + w.feed()
	}
	b := w.join("CREATE", "SOURCE", w.name(), "FROM", w.str(), ",", "'b'")
	if w.yes("format") {
		b += w.join("FORMAT", w.one("format", "rows", "debezium-unwrapped", "'auto'"))
	}
	if w.yes("schema") {
		b += w.join("SCHEMA", "(id BIGINT, v STRING)")
	}
	return b
}

func (w writing) script() string {
	var b strings.Builder
	for range rapid.IntRange(0, 4).Draw(w.t, "statements") {
		b.WriteString(w.gap() + w.statement() + ";" + w.gap())
	}
	return b.String()
}

// countComments counts the comments of a text outside of queries.
func countComments(t failer, text string) int {
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.text.attach()
	n := len(s.text.rest) + len(s.text.trail)
	for _, l := range s.text.lead {
		n += len(l)
	}
	return n
}

// TestFormat_Property: what people may write parses, and its canonical form is a
// fixed point, means the same, keeps every comment and gives the same findings.
func TestFormat_Property(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		text := writing{t}.script()
		s, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		canonical := s.String()
		checkCanonical(t, canonical, s, nil)
		if a, b := countComments(t, text), countComments(t, canonical); a != b {
			t.Fatalf("%d comments became %d:\n%s\ngave\n%s", a, b, text, canonical)
		}
	})
}

// FuzzParse: no text panics; what parses has a canonical form that is a fixed
// point and means the same; problems have a place inside the text.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"testdata/good", "testdata/errors"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range files {
			raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				f.Fatal(err)
			}
			for _, part := range strings.Split(string(raw), "----") {
				for _, d := range []string{"sql\n", "feed\n", "yaml\n"} {
					if _, text, ok := strings.Cut(part, d); ok {
						f.Add(text)
						if d == "feed\n" {
							f.Add(feedPrefix + text)
						}
					}
				}
			}
		}
	}
	f.Add("\"0\r\r")
	f.Add("target: 0\nsource: 0\nkeys: 0\nsequence_by: 0\ntable_properties: {}")
	schemas := Schemas{"src": {Columns: &schema.Struct{Fields: []schema.Field{{Name: "id", Type: schema.Long}, {Name: "ts", Type: schema.Timestamp},
		{Name: "name", Type: schema.String}, {Name: "cols", Type: &schema.Array{Elem: schema.String}}, {Name: "op", Type: schema.String}}}}}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseYAML(text); err == nil {
			if _, err := Analyze(s, schemas); err == nil {
				checkCanonical(t, s.String(), s, schemas)
			}
		} else {
			checkPlaces(t, text, err)
		}
		s, err := Parse(text)
		if err != nil {
			checkPlaces(t, text, err)
			return
		}
		checkCanonical(t, s.String(), s, schemas)
	})
}

func checkPlaces(t *testing.T, text string, err error) {
	list, ok := err.(Errors)
	if !ok || len(list) == 0 {
		t.Fatalf("not a list of problems: %v", err)
	}
	lines := 1 // YAML knows more line breaks than SQL
	for _, r := range text {
		if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
			lines++
		}
	}
	for _, e := range list {
		if e.Line < 1 || e.Line > lines+1 || e.Col < 1 || e.Col > len(text)+1 {
			t.Errorf("place outside of the text: %v", e)
		}
	}
}

// TestFormat_Large: a long script takes time by its length, not by its square.
func TestFormat_Large(t *testing.T) {
	var b strings.Builder
	b.WriteString("CREATE STREAMING TABLE t (\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "  c%d BIGINT, -- column %d\n  /* and */ -- more\n", i, i)
	}
	b.WriteString("  z INT);\n")
	for i := range 2_000 {
		fmt.Fprintf(&b, "CREATE FLOW f%d AS AUTO CDC INTO t FROM STREAM(s) KEYS (c1) SEQUENCE BY c2; -- flow\n", i)
	}
	start := time.Now()
	text, err := Format(b.String())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Format(text); err != nil || again != text {
		t.Fatal("not idempotent", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

// FuzzLex: strings, names and numbers end where those of expressions end, so that
// a clause never starts inside of one.
func FuzzLex(f *testing.F) {
	for _, s := range []string{`'a\'b' 1`, "`a``b`", `r'\' x`, `'a''b'`, `"\u0027"`, "1.5e3", ".5", `'\\' --'`, "'/*' */"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		toks, _, err := lex(text)
		if err != nil {
			return
		}
		for _, k := range toks {
			if k.kind != tokString && k.kind != tokQuoted {
				continue
			}
			if _, err := expr.Parse(text[k.off:k.end]); err != nil {
				t.Errorf("%q is no literal of an expression: %v", text[k.off:k.end], err)
			}
		}
	})
}
