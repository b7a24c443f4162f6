package conformance_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/conformance/engines"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/rowio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/compatibility.md")

// step is one operation in words that every writer understands; sql is Spark's alone,
// {t} being the table.
type step struct {
	do         string
	rows       []string
	set, value string
	where      string
	version    int64
	sql        string
}

// matrixCase is a kind of table and what is done to it.
type matrixCase struct {
	name      string
	ddl       string
	parts     []string
	props     map[string]string
	feed      bool // from version 0
	feedFrom  int64
	steps     []step
	sparkOnly []step // instead of create and steps; then sluice changes a copy
	then      []step // what sluice does to the copy
}

func appends(rows ...string) step { return step{do: "append", rows: rows} }
func updates(set, value, where string) step {
	return step{do: "update", set: set, value: value, where: where}
}
func deletes(where string) step  { return step{do: "delete", where: where} }
func merges(rows ...string) step { return step{do: "merge", rows: rows} }
func statements(texts ...string) (s []step) {
	for _, t := range texts {
		s = append(s, step{do: "sql", sql: t})
	}
	return s
}

const matrixDDL = "id BIGINT, v STRING, p STRING, n DECIMAL(12,2)"

var matrixSteps = []step{
	appends(`{"id":1,"v":"one","p":"a","n":1.50}`, `{"id":2,"v":"two","p":"b c","n":null}`, `{"id":3,"v":null,"p":null,"n":3.00}`, `{"id":4,"v":"four","p":"a","n":4.00}`, `{"id":5,"v":"five","p":"US/East","n":5.00}`, `{"id":6,"v":"six","p":"100%","n":6.00}`),
	updates("v", "upper(v)", "id <= 2"),
	deletes("id = 4 OR id = 6"),
	appends(`{"id":7,"v":"seven","p":"x:y","n":7.25}`, `{"id":8,"v":"eight","p":"a","n":null}`),
	updates("n", "n * 2", "id = 7 OR id = 1"),
}

func with(steps []step, more ...step) []step { return append(steps[:len(steps):len(steps)], more...) }

var feedOn = map[string]string{"delta.enableChangeDataFeed": "true"}

func props(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

var thenSteps = []step{appends(`{"id":100,"v":"ours"}`), updates("v", "concat(v, '!')", "id = 100 OR id = 1"), deletes("id = 2")}

var matrix = []matrixCase{
	{name: "no feature", ddl: matrixDDL, steps: matrixSteps[:3]},
	{name: "partitions, special characters, feed", ddl: matrixDDL, parts: []string{"p"}, props: feedOn, feed: true, steps: matrixSteps[:3]},
	{name: "feed; overwrite, restore, optimize", ddl: matrixDDL, props: feedOn, feed: true, steps: with(matrixSteps, step{do: "overwrite", rows: []string{`{"id":9,"v":"nine","p":"z","n":9.00}`}}, step{do: "restore", version: 3}, step{do: "optimize"})},
	{name: "feed; merge", ddl: matrixDDL, props: feedOn, feed: true, steps: []step{matrixSteps[0], merges(`{"id":1,"v":"merged","p":"a","n":0.50}`, `{"id":10,"v":"new","p":null,"n":null}`)}},
	{name: "deletion vectors, feed", ddl: matrixDDL, props: props("delta.enableDeletionVectors", "true", "delta.enableChangeDataFeed", "true"), feed: true, steps: with(matrixSteps[:4], step{do: "restore", version: 3})},
	{name: "every type, feed, checkpoint", ddl: wideDDL, props: feedOn, feed: true, steps: []step{appends(wideRows[:3]...), updates("i", "5", "id = 3"), {do: "checkpoint"}, deletes("id = 2")}},
	{name: "column mapping by name, partitions, feed", ddl: matrixDDL, parts: []string{"p"}, props: props("delta.columnMapping.mode", "name", "delta.enableChangeDataFeed", "true"), feed: true, steps: matrixSteps[:3]},
	{name: "column mapping by id, V2 checkpoint", ddl: matrixDDL, props: props("delta.columnMapping.mode", "id", "delta.checkpointPolicy", "v2"), steps: []step{matrixSteps[0], matrixSteps[1], {do: "checkpoint"}}},
	{name: "row tracking, in-commit timestamps", ddl: matrixDDL, props: props("delta.enableRowTracking", "true", "delta.enableInCommitTimestamps", "true"), steps: matrixSteps[:3]},
	{name: "renamed and dropped columns, vectors, feed", feedFrom: 4, feed: true, sparkOnly: statements(
		"CREATE TABLE {t} (id BIGINT, w STRING, gone INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode'='name','delta.enableChangeDataFeed'='true','delta.enableDeletionVectors'='true')",
		"INSERT INTO {t} VALUES (1,'a',1,'x'),(2,'b',2,'y'),(3,'c',3,NULL)", "ALTER TABLE {t} RENAME COLUMN w TO v", "ALTER TABLE {t} DROP COLUMN gone",
		"ALTER TABLE {t} ADD COLUMN gone STRING", "UPDATE {t} SET gone = 'back' WHERE id = 3"), then: thenSteps},
	{name: "type widening", sparkOnly: statements(
		"CREATE TABLE {t} (id INT, v STRING, f FLOAT) USING delta TBLPROPERTIES ('delta.enableTypeWidening'='true')",
		"INSERT INTO {t} VALUES (1,'a',1.5),(2,'b',2.5)", "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT", "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE", "INSERT INTO {t} VALUES (3000000000,'c',1e300)"), then: thenSteps},
	{name: "CHECK, NOT NULL, generated, default", sparkOnly: statements(
		"CREATE TABLE {t} (id BIGINT NOT NULL, v STRING DEFAULT 'd', twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')",
		"ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)", "INSERT INTO {t} (id, v) VALUES (1,'a'),(2,'b'),(3,'c')"), then: thenSteps},
	{name: "clustered", sparkOnly: statements(
		"CREATE TABLE {t} (id BIGINT, v STRING) USING delta CLUSTER BY (id)", "INSERT INTO {t} VALUES (1,'a'),(2,'b'),(3,'c')", "OPTIMIZE {t}"), then: thenSteps},
}

// requests are the creation of a table and its steps for an engine.
func (c matrixCase) requests(path string) ([]engines.Request, error) {
	var out []engines.Request
	steps := c.sparkOnly
	if len(steps) == 0 {
		s, err := schema.ParseDDL(c.ddl)
		if err != nil {
			return nil, err
		}
		parts := c.parts
		if parts == nil {
			parts = []string{}
		}
		out = append(out, engines.Request{"op": "create", "path": path, "schema": s.JSON(), "partition_by": parts, "properties": c.props})
		steps = c.steps
	}
	for _, s := range steps {
		r := engines.Request{"op": s.do, "path": path}
		switch s.do {
		case "append", "overwrite":
			r["op"], r["rows"], r["overwrite"] = "append", s.rows, s.do == "overwrite"
		case "update":
			r["set"], r["where"] = map[string]string{s.set: s.value}, s.where
		case "delete":
			r["where"] = s.where
		case "merge":
			r["rows"], r["on"] = s.rows, "t.id = s.id"
		case "restore":
			r["version"] = s.version
		case "sql":
			r["op"], r["text"] = "statement", s.sql
		}
		out = append(out, r)
	}
	return out, nil
}

// make creates a table of ours and does the steps.
func (c matrixCase) make(t *testing.T, path string) error {
	s, err := schema.ParseDDL(c.ddl)
	if err != nil {
		return err
	}
	if _, err = delta.Create(ctx, at(t, path), delta.CreateOptions{Schema: s, PartitionBy: c.parts, Properties: c.props}, delta.Options{}); err != nil {
		return err
	}
	return ourSteps(t, path, c.steps)
}

func ourSteps(t *testing.T, path string, steps []step) error {
	for i, s := range steps {
		if err := ourStep(t, path, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.do, err)
		}
	}
	return nil
}

// given are rows with the columns that the first of them has; the table makes the others.
func (o *ours) given(rows ...string) iter.Seq2[arrow.RecordBatch, error] {
	o.t.Helper()
	all, err := o.Schema(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(rows[0]), &first); err != nil {
		o.t.Fatal(err)
	}
	s := &schema.Struct{}
	for _, f := range all.Fields {
		if _, ok := first[f.Name]; ok {
			s.Fields = append(s.Fields, f)
		}
	}
	return rowio.Read(ctx, strings.NewReader(strings.Join(rows, "\n")), rowio.JSONL, rowio.ReadOptions{Schema: s})
}

func ourStep(t *testing.T, path string, s step) error {
	tb, err := delta.Open(ctx, at(t, path), delta.Options{})
	if err != nil {
		return err
	}
	o := &ours{t, path, tb}
	switch s.do {
	case "append":
		_, err = tb.Append(ctx, o.given(s.rows...), delta.WriteOptions{})
	case "overwrite":
		_, err = tb.Overwrite(ctx, o.input(s.rows...), delta.OverwriteOptions{})
	case "update":
		_, err = tb.Update(ctx, s.set+" = "+s.value, s.where, delta.DMLOptions{})
	case "delete":
		_, err = tb.Delete(ctx, s.where, delta.DMLOptions{})
	case "optimize":
		_, err = tb.Optimize(ctx, delta.OptimizeOptions{})
	case "checkpoint":
		_, err = tb.Checkpoint(ctx)
	case "merge":
		st, err := merge.Parse("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
		if err != nil {
			return err
		}
		columns, err := o.Schema(ctx)
		if err != nil {
			return err
		}
		_, err = merge.Into(ctx, tb, merge.Source{Schema: columns, Rows: o.input(s.rows...)}, st, merge.IntoOptions{})
		return err
	case "restore":
		_, err = tb.Restore(ctx, delta.RestoreOptions{Version: &s.version})
	default:
		err = fmt.Errorf("no step %s", s.do)
	}
	return err
}

// seen is what a reader made of a table.
type seen struct {
	rows, feed       []string
	rowsErr, feedErr error
}

// ourReading is what we see.
func ourReading(t *testing.T, path string, feedFrom, last int64) (s seen) {
	tb, err := delta.Open(ctx, at(t, path), delta.Options{})
	if err != nil {
		return seen{rowsErr: err, feedErr: err}
	}
	o := &ours{t, path, tb}
	s.rows = o.rows(-1)
	if feedFrom >= 0 {
		if _, s.feedErr = tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &feedFrom, ToVersion: &last}}); s.feedErr == nil {
			s.feed = o.changes(feedFrom, last)
		}
	}
	return s
}

// readings is what an engine sees of all tables.
func readings(t *testing.T, e *engines.Engine, tables []*matrixTable) []seen {
	var calls [][]engines.Request
	for _, m := range tables {
		calls = append(calls, []engines.Request{{"op": "rows", "path": m.path}})
		if m.feedFrom >= 0 {
			calls = append(calls, []engines.Request{{"op": "changes", "path": m.path, "start": m.feedFrom, "end": m.last}})
		}
	}
	answers := e.Many(t, calls...)
	out := make([]seen, len(tables))
	take := func(into *[]string) error {
		a := answers[0]
		answers = answers[1:]
		if a.Err != nil {
			return a.Err
		}
		return json.Unmarshal(a.Results[0], into)
	}
	for i, m := range tables {
		out[i].rowsErr = take(&out[i].rows)
		if m.feedFrom >= 0 {
			out[i].feedErr = take(&out[i].feed)
		}
	}
	return out
}

// notes number the reasons of refusals.
type notes struct{ texts []string }

func (n *notes) of(reason string) string {
	for i, t := range n.texts {
		if t == reason {
			return fmt.Sprintf("[%d]", i+1)
		}
	}
	n.texts = append(n.texts, reason)
	return fmt.Sprintf("[%d]", len(n.texts))
}

var (
	featureList  = regexp.MustCompile(`[Uu]nsupported (?:table )?features?[^\[\]]*\[[^\]]*\]|Column mapping is not supported[^\n"']*|not (?:yet )?supported[^\n]{0,60}`)
	pathInReason = regexp.MustCompile(`(?:file:)?/[^\s"'` + "`" + `]+`)
)

// reason is a refusal in a few words that are the same on every machine.
func reason(who string, err error) string {
	var coded interface{ Code() string }
	var e *engines.EngineError
	switch {
	case errors.As(err, &e) && e.Condition != "":
		return who + ": " + e.Condition
	case errors.As(err, &e):
		text := featureList.FindString(e.Message)
		if text == "" {
			text, _, _ = strings.Cut(e.Message, "\n")
			text = pathInReason.ReplaceAllString(text, "PATH")
			text, _, _ = strings.Cut(text, ": Error parsing property") // of several it names any
			if len(text) > 90 {
				text = text[:90]
			}
		}
		return who + ": " + e.Class + ": " + strings.TrimSpace(text)
	case errors.As(err, &coded):
		return who + ": " + coded.Code()
	}
	return who + ": " + err.Error()
}

// cell compares what a reader saw with the reference.
func (n *notes) cell(who string, got, want seen, feed bool) string {
	switch {
	case got.rowsErr != nil:
		return "no " + n.of(reason(who, got.rowsErr))
	case engines.DiffRows(got.rows, want.rows) != "":
		return "WRONG ROWS"
	case !feed:
		return "rows"
	case got.feedErr != nil:
		return "rows; no feed " + n.of(reason(who, got.feedErr))
	case engines.DiffRows(got.feed, want.feed) != "":
		return "rows; feed differs " + n.of(who+": the feed is not that of Spark")
	}
	return "rows, feed"
}

// matrixTable is one kind of table by one writer.
type matrixTable struct {
	c              matrixCase
	writer, path   string
	err            error // why it was not written
	feedFrom, last int64
	seen           map[string]seen
}

const sparkThenUs = "Spark, then sluice"

// writeMatrix writes all tables, those of Spark several at a time.
func writeMatrix(t *testing.T, spark, deltaRS *engines.Engine) (all []*matrixTable) {
	root := t.TempDir()
	var calls [][]engines.Request
	var bySpark []*matrixTable
	for i, c := range matrix {
		for _, w := range []string{"sluice", "Spark", "delta-rs"} {
			if len(c.sparkOnly) > 0 && w != "Spark" {
				continue
			}
			m := &matrixTable{c: c, writer: w, path: filepath.Join(root, fmt.Sprintf("%s %d", w, i)), feedFrom: -1, seen: map[string]seen{}}
			if c.feed {
				m.feedFrom = c.feedFrom
			}
			all = append(all, m)
			requests, err := c.requests(m.path)
			if err != nil {
				t.Fatal(err)
			}
			switch w {
			case "sluice":
				m.err = c.make(t, m.path)
			case "Spark":
				calls, bySpark = append(calls, requests), append(bySpark, m)
			case "delta-rs":
				m.err = deltaRS.Many(t, requests)[0].Err
			}
		}
	}
	for i, s := range spark.Many(t, calls...) {
		m := bySpark[i]
		if m.err = s.Err; len(m.c.sparkOnly) == 0 || m.err != nil {
			continue
		}
		changed := *m
		changed.writer, changed.path, changed.seen = sparkThenUs, m.path+" changed", map[string]seen{}
		if err := os.CopyFS(changed.path, os.DirFS(m.path)); err != nil {
			t.Fatal(err)
		}
		changed.err = ourSteps(t, changed.path, m.c.then)
		all = append(all, &changed)
	}
	return all
}

// TestMatrix writes every kind of table with every engine that can, and reads it with
// every engine, row by row (5.3). The outcome is docs/compatibility.md.
func TestMatrix(t *testing.T) {
	if _, err := os.Stat(reportPage(t)); err != nil && !*rewrite {
		t.Fatal("docs/compatibility.md does not exist: make it with -rewrite")
	}
	spark, deltaRS := engines.Spark(t), engines.DeltaRS(t)
	all := writeMatrix(t, spark, deltaRS)
	var written []*matrixTable
	for _, m := range all {
		if m.err != nil {
			continue
		}
		snap, err := open(t, m.path).Snapshot(ctx)
		if err != nil {
			t.Fatalf("%s by %s: %v", m.c.name, m.writer, err)
		}
		m.last = snap.Version
		m.seen["sluice"] = ourReading(t, m.path, m.feedFrom, m.last)
		written = append(written, m)
	}
	for _, e := range []*engines.Engine{spark, deltaRS} {
		for i, s := range readings(t, e, written) {
			written[i].seen[e.Name()] = s
		}
	}
	n := &notes{}
	tables := map[string][]string{}
	rows := map[string][]string{} // by case, of sluice's
	for _, m := range all {
		t.Run("5.3 "+m.c.name+" by "+m.writer, func(t *testing.T) {
			if m.err != nil {
				tables[m.writer] = append(tables[m.writer], "| "+m.c.name+" | not written "+n.of(reason(m.writer, m.err))+" | | |")
				if m.writer != "delta-rs" {
					t.Errorf("not written: %v", m.err)
				}
				return
			}
			tables[m.writer] = append(tables[m.writer], "| "+m.c.name+" | "+strings.Join(n.cells(t, m), " | ")+" |")
			if m.writer == "sluice" {
				rows[m.c.name] = m.seen["sluice"].rows
			} else if ours, ok := rows[m.c.name]; ok {
				if d := engines.DiffRows(m.seen["sluice"].rows, ours); d != "" {
					t.Errorf("%s and sluice do not do the same:\n%s", m.writer, d)
				}
			}
		})
	}
	compareReport(t, []string{"sluice", "Spark", sparkThenUs, "delta-rs"}, tables, n)
}

// cells are the three readers of a table. Spark's reading is the measure; where it
// refuses, ours is.
func (n *notes) cells(t *testing.T, m *matrixTable) (out []string) {
	want := m.seen["Spark"]
	if want.rowsErr != nil {
		t.Errorf("Spark cannot read it: %v", want.rowsErr)
		want.rows = m.seen["sluice"].rows
	}
	if want.feedErr != nil {
		want.feed = m.seen["sluice"].feed
	}
	for _, reader := range []string{"sluice", "Spark", "delta-rs"} {
		got := m.seen[reader]
		cell := n.cell(reader, got, want, m.feedFrom >= 0)
		if cell == "WRONG ROWS" || reader == "sluice" && (got.rowsErr != nil || m.feedFrom >= 0 && want.feedErr == nil && cell != "rows, feed") {
			t.Errorf("%s: %s\n%v %v\n%s\n%s", reader, cell, got.rowsErr, got.feedErr, engines.DiffRows(got.rows, want.rows), engines.DiffRows(got.feed, want.feed))
		}
		out = append(out, cell)
	}
	return out
}

func reportPage(t *testing.T) string {
	return filepath.Join(testenv.RepoRoot(t), "docs", "compatibility.md")
}

// compareReport holds the page against the outcome.
func compareReport(t *testing.T, writers []string, tables map[string][]string, n *notes) {
	var b strings.Builder
	b.WriteString("# Compatibility\n\nWhich engine reads what which engine wrote: rows of the newest version and, where the table has one, the change feed, compared row by\n" +
		"row with Spark's reading. Generated by `go test ./conformance -run TestMatrix -rewrite`; the test without the flag fails when this page\nis stale. Versions: `conformance/versions.env`.\n")
	for _, w := range writers {
		if len(tables[w]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## Written by %s\n\n| Table | sluice reads | Spark reads | delta-rs reads |\n|---|---|---|---|\n%s\n", w, strings.Join(tables[w], "\n"))
	}
	if len(n.texts) > 0 {
		b.WriteString("\n## Reasons\n\n")
		for i, text := range n.texts {
			fmt.Fprintf(&b, "%d. %s\n", i+1, text)
		}
	}
	page := reportPage(t)
	if *rewrite {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != b.String() && !t.Failed() {
		t.Errorf("docs/compatibility.md is stale, the outcome is now:\n%s", b.String())
	}
}
