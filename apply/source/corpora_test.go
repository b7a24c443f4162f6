package source_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

func loadCorpus(t *testing.T, dir string) *corpus {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := &corpus{}
	if err := json.Unmarshal(raw, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func eventsFile(t *testing.T, dir string) string {
	t.Helper()
	m, _ := filepath.Glob(filepath.Join(dir, "events.jsonl*"))
	if len(m) != 1 {
		t.Fatalf("events of %s: %v", dir, m)
	}
	return m[0]
}

// decodeAll reads a source to its end, flushing every n records (0: once).
func decodeAll(t *testing.T, spec source.Spec, n int) ([]*event.Batch, *event.Decoded) {
	t.Helper()
	o, err := source.Open(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Source.Close()
	d := o.NewDecoder()
	all := &event.Decoded{Controls: map[event.ControlKind]int64{}}
	flush := func() {
		out, err := d.Flush()
		if err != nil {
			t.Fatal(err)
		}
		all.Batches = append(all.Batches, out.Batches...)
		all.Poison = append(all.Poison, out.Poison...)
		all.Warnings = append(all.Warnings, out.Warnings...)
		for k, v := range out.Controls {
			all.Controls[k] += v
		}
	}
	count := 0
	for rec, err := range o.Source.Records(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Add(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
		if count++; n > 0 && count%n == 0 {
			flush()
			// A decoder that starts anew from its state goes on in the same way.
			fresh := o.NewDecoder()
			if err := fresh.Restore(d.State()); err != nil {
				t.Fatal(err)
			}
			d = fresh
		}
	}
	flush()
	for _, b := range all.Batches {
		checkBatch(t, b)
	}
	return all.Batches, all
}

// checkBatch holds the contract of event.Batch.
func checkBatch(t *testing.T, b *event.Batch) {
	t.Helper()
	n := int(b.Rows.NumRows())
	if len(b.Ops) != n || len(b.Offsets) != n || len(b.Lines) != n || len(b.Unauthored) != len(b.Columns.Fields) {
		t.Fatalf("batch of %s: %d rows, %d ops, %d offsets, %d lines", b.Table.Name, n, len(b.Ops), len(b.Offsets), len(b.Lines))
	}
	want, err := schema.ArrowSchema(b.Columns)
	if err != nil {
		t.Fatal(err)
	}
	if !want.Equal(b.Rows.Schema()) {
		t.Fatalf("batch of %s: schema %s, want %s", b.Table.Name, b.Rows.Schema(), want)
	}
	if b.Seq != nil && (b.Seq.Len() != n || b.Seq.NullN() > 0) {
		t.Fatalf("batch of %s: %d sequences, %d null", b.Table.Name, b.Seq.Len(), b.Seq.NullN())
	}
	if b.Rescued != nil && len(b.Rescued) != n {
		t.Fatalf("batch of %s: %d rescued", b.Table.Name, len(b.Rescued))
	}
	for _, k := range b.Keys {
		col := b.Rows.Column(b.Columns.Index(k))
		for i := range n {
			if col.IsNull(i) && b.Ops[i] != event.Truncate {
				t.Fatalf("batch of %s: null key %s in row %d", b.Table.Name, k, i)
			}
		}
	}
}

// hints is the schema and options a user of a schema-less stream gives.
func hints(c *corpus, table string) (*schema.Struct, map[string]string) {
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

func readRows(t *testing.T, path string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for sc := bufio.NewScanner(openPlain(t, path)); ; {
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
		return out
	}
}

// differs lists what the README says the stream does not carry: per corpus and
// table the columns ("*": the rows). Those are judged by what the events say.
var differs = map[string]map[string][]string{
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

// table is canonical rows by key.
type table map[string]map[string]string

func byKey(keys []string, in []map[string]string) table {
	out := table{}
	for _, r := range in {
		var parts []string
		for _, k := range keys {
			parts = append(parts, r[k])
		}
		out[strings.Join(parts, "|")] = r
	}
	return out
}

// sameRows compares the columns that want has.
func sameRows(t *testing.T, what string, got, want table) {
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

func TestDecoder_Corpora(t *testing.T) {
	base := testenv.SharedDir(t, "corpora", "debezium")
	dirs, _ := filepath.Glob(filepath.Join(base, "*", "corpus.json"))
	for _, p := range dirs {
		dir := filepath.Dir(p)
		name := filepath.Base(dir)
		if name == "pg-wal2json" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if name == "pg-large" && testing.Short() {
				t.Skip("large")
			}
			c := loadCorpus(t, dir)
			for _, table := range slices.Sorted(maps.Keys(c.Tables)) {
				if len(c.Tables[table].Key) == 0 {
					continue
				}
				t.Run(table, func(t *testing.T) { corpusTable(t, c, dir, table) })
			}
		})
	}
}

func corpusTable(t *testing.T, c *corpus, dir, table string) {
	s, opts := hints(c, table)
	spec := source.Spec{Format: source.Auto, From: []string{eventsFile(t, dir)}, Tables: []string{table}, Options: opts, Schema: s}
	if table == "ri_index" {
		spec.Keys = []string{"code"}
	}
	if c.Schemas {
		spec.Schema = nil
	}
	if c.Unwrapped {
		spec.Format = source.DebeziumPlain
	}
	batches, all := decodeAll(t, spec, 0)
	for _, p := range all.Poison {
		t.Errorf("line %d: %s %s: %s", p.Record.Line, p.Class, p.Code, p.Reason)
	}
	var list []change
	for _, b := range batches {
		list = append(list, changes(b)...)
	}
	want := expectedRows(t, c, dir, table)
	check := func(what string, list []change) {
		t.Helper()
		sameRows(t, what, canonRows(c, table, fold(list)[table].images()), want)
	}
	check("in stream order", list)
	if only := differs[c.Name][table]; len(only) > 0 && !slices.Contains(only, "*") {
		sameRows(t, "columns that differ, against the raw events", canonColumns(c, table, fold(list)[table].images(), only, canonOut),
			canonColumns(c, table, rawFold(t, eventsFile(t, dir), table), only, canonRaw))
	}
	for _, n := range []int{1, 7} {
		if c.Name == "pg-large" {
			break
		}
		var cut []change
		parts, _ := decodeAll(t, spec, n)
		for _, b := range parts {
			cut = append(cut, changes(b)...)
		}
		check(fmt.Sprintf("cut every %d records", n), cut)
	}
	if c.Name == "pg-toast" {
		return
	}
	rng := rand.New(rand.NewSource(1))
	shuffles := 3
	if len(list) > 50_000 {
		shuffles = 1
	}
	for range shuffles {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		check("shuffled", list)
	}
}

// canonColumns is some columns beside the keys, by a canonical form.
func canonColumns(c *corpus, name string, rows []map[string]any, only []string, canon func(string, map[string]string, any) string) table {
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
	return byKey(c.Tables[name].Key, out)
}

// skipColumn tells whether a column of the table is not compared with the database.
func skipColumn(c *corpus, table, col string) bool {
	_, gone := c.Tables[table].Columns[col]
	return !gone || kindOf(c.Tables[table].Columns[col]) == "skip" || slices.Contains(differs[c.Name][table], col) ||
		(c.Modes["decimal"] == "double" && (kindOf(c.Tables[table].Columns[col]) == "num" || kindOf(c.Tables[table].Columns[col]) == "money")) ||
		(c.Modes["time"] == "connect" && (kindOf(c.Tables[table].Columns[col]) == "ntz" || kindOf(c.Tables[table].Columns[col]) == "time")) ||
		!c.Schemas && c.Modes["decimal"] == "precise" && kindOf(c.Tables[table].Columns[col]) == "num" && noHint(c, table, col) ||
		!c.Schemas && c.Modes["decimal"] == "precise" && kindOf(c.Tables[table].Columns[col]) == "money" ||
		!c.Schemas && kindOf(c.Tables[table].Columns[col]) == "bits" && c.Modes["binary"] != "bytes"
}

func noHint(c *corpus, table, col string) bool {
	h, _ := hintOf(c.Tables[table].Columns[col], c.Modes)
	return h == nil
}

func canonRows(c *corpus, name string, rows []map[string]any) table {
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
	return byKey(c.Tables[name].Key, out)
}

// expectedRows is what the database held or, where rows differ by README, what a
// plain fold of the raw events says. A column that the database no longer has is
// not compared: it keeps its last value, as nothing authors it any more.
func expectedRows(t *testing.T, c *corpus, dir, name string) table {
	t.Helper()
	canon := canonDB
	var rows []map[string]any
	if slices.Contains(differs[c.Name][name], "*") {
		rows = rawFold(t, eventsFile(t, dir), name)
		canon = func(typ string, v any) string { return canonRaw(typ, c.Modes, v) }
	} else {
		m, _ := filepath.Glob(filepath.Join(dir, "expected", name+".jsonl*"))
		if len(m) != 1 {
			t.Skip("the database no longer has the table")
		}
		rows = readRows(t, m[0])
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
	return byKey(c.Tables[name].Key, out)
}
