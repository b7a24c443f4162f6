package corpora

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

func Load(t testing.TB, dir string) *Corpus {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Corpus{}
	if err := json.Unmarshal(raw, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func EventsFile(t testing.TB, dir string) string {
	t.Helper()
	m, _ := filepath.Glob(filepath.Join(dir, "events.jsonl*"))
	if len(m) != 1 {
		t.Fatalf("events of %s: %v", dir, m)
	}
	return m[0]
}

// Hints is the schema and options a user of a schema-less stream gives.
func Hints(c *Corpus, table string) (*schema.Struct, map[string]string) {
	opts := map[string]string{}
	for _, o := range []string{"decimal", "time"} {
		opts[o] = c.Modes[o]
	}
	opts["binary"] = c.Modes["binary"]
	s := &schema.Struct{}
	for _, col := range slices.Sorted(maps.Keys(c.Tables[table].Columns)) {
		typ, unit := hintOf(c.Tables[table].Columns[col], c.Modes)
		if typ == nil {
			continue
		}
		s.Fields = append(s.Fields, schema.Field{Name: col, Type: typ, Nullable: true})
		if unit != "" {
			opts["time."+col] = unit
		}
		if c.Modes["bigint_unsigned"] == "precise" && strings.HasPrefix(c.Tables[table].Columns[col], "bigint(20) unsigned") {
			opts["decimal."+col] = "precise"
		}
	}
	return s, opts
}

func ReadRows(t *testing.T, path string) []map[string]any {
	t.Helper()
	var out []map[string]any
	sc := bufio.NewScanner(openPlain(t, path))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		d := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		d.UseNumber()
		row := map[string]any{}
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Differs lists what the README says the stream does not carry: per corpus and
// table the columns ("*": the rows). Those are judged by what the events say.
var Differs = map[string]map[string][]string{
	"mysql-fk-cascade":          {"child": {"*"}},
	"mysql-schema-change":       {"lazy": {"*"}, "fresh2": {"*"}},
	"pg-schema-change":          {"lazy": {"*"}, "item": {"created"}},
	"pg-schema-change-noschema": {"lazy": {"*", "color"}}, // color was text before it was dropped and added again
	"pg-generated-partitioned":  {"inv": {"total", "note"}},
	"pg-restart-snapshot":       {"wallet": {"*"}},
	"pg-truncate-skipped":       {"a": {"*"}, "b": {"*"}, "c": {"*"}},
	"pg-types":                  {"types": {"c_name", "c_date", "c_ts", "c_ts3", "a_ts", "a_int", "def_text"}},
	"pg-types-noschema":         {"types": {"c_name", "c_date", "c_ts", "c_ts3", "a_ts", "a_int", "def_text"}},
	"pg-types-iso":              {"types": {"c_name", "c_date", "c_ts", "c_ts3", "a_ts", "a_int", "c_time", "c_time3"}},
	"pg-types-us":               {"types": {"c_name", "c_date", "c_ts", "c_ts3", "a_ts", "a_int"}},
	"pg-types-connect":          {"types": {"c_name", "c_date", "c_ts", "c_ts3", "a_ts", "a_int", "def_text"}},
	"mysql-types":               {"types": {"def_text", "t_ubig", "t_year", "t_float", "t_dt6"}, "zeros": {"*"}},
	"mysql-types-noschema":      {"types": {"def_text", "t_ubig", "t_year", "t_float", "t_dt6"}, "zeros": {"*"}},
	"mysql-types-precise":       {"types": {"t_year", "t_float", "t_dt6", "t_time", "t_time3", "t_time6", "t_bool"}, "zeros": {"*"}},
}

// Table is canonical rows by key.
type Table map[string]map[string]string

func ByKey(keys []string, in []map[string]string) Table {
	out := Table{}
	for _, r := range in {
		var parts []string
		for _, k := range keys {
			parts = append(parts, r[k])
		}
		out[strings.Join(parts, "|")] = r
	}
	return out
}

// SameRows compares the columns that want has.
func SameRows(t *testing.T, what string, got, want Table) {
	t.Helper()
	n := 0
	fail := func(format string, args ...any) {
		t.Helper()
		if n++; n < 12 {
			t.Errorf(what+": "+format, args...)
		}
	}
	for k, w := range want {
		g, ok := got[k]
		if !ok {
			fail("row %s is missing", k)
		}
		for c := range w {
			if ok && g[c] != w[c] {
				fail("row %s column %s: %.80q, want %.80q", k, c, g[c], w[c])
			}
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			fail("row %s is not expected", k)
		}
	}
	if n > 0 {
		t.FailNow()
	}
}

// CanonColumns is some columns beside the keys in canonical form: of decoded rows,
// or, with raw, of rows as they stood on the wire.
func CanonColumns(c *Corpus, name string, rows []map[string]any, only []string, raw bool) Table {
	canon := canonOut
	if raw {
		canon = canonRaw
	}
	var out []map[string]string
	for _, r := range rows {
		m := map[string]string{}
		for _, col := range append(slices.Clone(only), c.Tables[name].Key...) {
			if typ, ok := c.Tables[name].Columns[col]; ok {
				m[col] = canon(typ, c.Modes, r[col])
			}
		}
		out = append(out, m)
	}
	return ByKey(c.Tables[name].Key, out)
}

// skipColumn tells whether a column of the table is not compared with the database.
func skipColumn(c *Corpus, table, col string) bool {
	_, gone := c.Tables[table].Columns[col]
	return !gone || kindOf(c.Tables[table].Columns[col]) == "skip" || slices.Contains(Differs[c.Name][table], col) ||
		(c.Modes["decimal"] == "double" && (kindOf(c.Tables[table].Columns[col]) == "num" || kindOf(c.Tables[table].Columns[col]) == "money")) ||
		(c.Modes["time"] == "connect" && (kindOf(c.Tables[table].Columns[col]) == "ntz" || kindOf(c.Tables[table].Columns[col]) == "time")) ||
		!c.Schemas && c.Modes["decimal"] == "precise" && kindOf(c.Tables[table].Columns[col]) == "num" && noHint(c, table, col) ||
		!c.Schemas && c.Modes["decimal"] == "precise" && kindOf(c.Tables[table].Columns[col]) == "money" ||
		!c.Schemas && kindOf(c.Tables[table].Columns[col]) == "bits" && c.Modes["binary"] != "bytes"
}

func noHint(c *Corpus, table, col string) bool {
	h, _ := hintOf(c.Tables[table].Columns[col], c.Modes)
	return h == nil
}

func CanonRows(c *Corpus, name string, rows []map[string]any) Table {
	var out []map[string]string
	for _, r := range rows {
		m := map[string]string{}
		for col, typ := range c.Tables[name].Columns {
			if !skipColumn(c, name, col) {
				m[col] = canonOut(typ, c.Modes, r[col])
			}
		}
		out = append(out, m)
	}
	return ByKey(c.Tables[name].Key, out)
}

// ExpectedRows is what the database held or, where rows differ by README, what a
// plain fold of the raw events says. A column that the database no longer has is
// not compared: it keeps its last value, as nothing authors it any more.
func ExpectedRows(t *testing.T, c *Corpus, dir, name string) Table {
	t.Helper()
	canon := canonDB
	var rows []map[string]any
	if slices.Contains(Differs[c.Name][name], "*") {
		rows = RawFold(t, EventsFile(t, dir), name)
		canon = func(typ string, v any) string { return canonRaw(typ, c.Modes, v) }
	} else {
		m, _ := filepath.Glob(filepath.Join(dir, "expected", name+".jsonl*"))
		if len(m) != 1 {
			t.Skip("the database no longer has the table")
		}
		rows = ReadRows(t, m[0])
	}
	var out []map[string]string
	for _, r := range rows {
		m := map[string]string{}
		for col, v := range r {
			typ, known := c.Tables[name].Columns[col]
			if known && !skipColumn(c, name, col) {
				m[col] = canon(typ, v)
			}
		}
		out = append(out, m)
	}
	return ByKey(c.Tables[name].Key, out)
}

// Skips tells whether a column of the table is not compared.
func Skips(c *Corpus, table string) bool {
	for col := range c.Tables[table].Columns {
		if skipColumn(c, table, col) {
			return true
		}
	}
	return false
}

// CanonDB is rows as the database prints them in canonical form, by key.
func CanonDB(c *Corpus, name string, rows []map[string]any) Table {
	var out []map[string]string
	for _, r := range rows {
		m := map[string]string{}
		for col, typ := range c.Tables[name].Columns {
			if !skipColumn(c, name, col) {
				m[col] = canonDB(typ, r[col])
			}
		}
		out = append(out, m)
	}
	return ByKey(c.Tables[name].Key, out)
}

// Tables are the tables of a corpus that have a key, sorted.
func Tables(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	for name, table := range Load(t, dir).Tables {
		if len(table.Key) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
