package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	peopleEvents = `{"id":1,"name":"Ada","op":"I","ts":1}
{"id":2,"name":"Bob","op":"I","ts":2}
{"id":1,"name":"Ada L.","op":"U","ts":3}
{"id":2,"name":null,"op":"D","ts":4}
`
	peopleSQL = `CREATE SOURCE people_cdc FROM 'people.jsonl' FORMAT rows;
create or refresh streaming table LIVE.people;
apply changes into live.people from stream(live.people_cdc) keys (id)
  stored as scd type 1 columns * except (op, ts) sequence by ts apply as delete when op = "D"; -- done
`
)

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFmt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "flow.sql", peopleSQL)
	want := `CREATE SOURCE people_cdc
FROM 'people.jsonl'
FORMAT 'rows';

CREATE OR REFRESH STREAMING TABLE people;

APPLY CHANGES INTO people
FROM STREAM(people_cdc)
KEYS (id)
APPLY AS DELETE WHEN op = 'D'
SEQUENCE BY ts
COLUMNS * EXCEPT (op, ts)
STORED AS SCD TYPE 1; -- done
`
	if got := must(t, dir, "fmt", "flow.sql"); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := mustIn(t, dir, peopleSQL, "fmt", "-"); got != want {
		t.Errorf("got\n%s", got)
	}
	must(t, dir, "fmt", "--write", "flow.sql")
	if raw, err := os.ReadFile(filepath.Join(dir, "flow.sql")); err != nil || string(raw) != want {
		t.Errorf("%v\n%s", err, raw)
	}
	before := tree(t, dir)
	must(t, dir, "fmt", "-w", "flow.sql")
	if tree(t, dir) != before {
		t.Error("a canonical file was written again")
	}
	write(t, dir, "bad.sql", "CREATE STREAMING TABLE t;\nAPPLY CHANGES INTO t FROM STREAM(s) SEQUENCE BY ts")
	r := sluice(t, dir, "fmt", "-w", "bad.sql")
	refused(t, r, exitUsage, "PARSE_SYNTAX_ERROR")
	if !strings.Contains(r.stderr, "bad.sql:2:37") {
		t.Errorf("no place: %s", r.stderr)
	}
	refused(t, sluice(t, dir, "fmt", "none.sql"), exitNotFound, "FILE_NOT_FOUND")
	refused(t, sluice(t, dir, "fmt"), exitUsage, "INVALID_ARGUMENTS")
}

// TestApplyStatements: SQL, YAML and flags make the same table, and a second run
// goes on where the first one ended.
func TestApplyStatements(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.jsonl", peopleEvents)
	write(t, dir, "flow.sql", peopleSQL)
	write(t, dir, "flow.yaml", `target: people
source: people_cdc
keys: [id]
sequence_by: ts
apply_as_deletes: op = 'D'
except_column_list: [op, ts]
stored_as_scd_type: 1
`)
	must(t, dir, "apply", "--into", "byflags", "--from", "people.jsonl", "--keys", "id", "--sequence-by", "ts", "--except-columns", "op,ts", "--apply-as-deletes", "op = 'D'")
	want := must(t, dir, "cat", "byflags", "--order-by", "id")
	if !strings.Contains(want, "Ada L.") || strings.Contains(want, "Bob") {
		t.Fatal(want)
	}
	for _, args := range [][]string{
		{"apply", "-f", "flow.sql", "--into", "bysql"},
		{"apply", "-f", "flow.yaml", "--into", "byyaml", "--source", "people_cdc=people.jsonl"},
	} {
		var first struct {
			Version int64
			Events  struct{ Read int64 }
		}
		if err := json.Unmarshal([]byte(must(t, dir, args...)), &first); err != nil || first.Events.Read != 4 {
			t.Errorf("%v %+v", err, first)
		}
		if got := must(t, dir, "cat", filepath.Join(args[4], "people"), "--order-by", "id"); got != want {
			t.Errorf("%v gave\n%s", args, got)
		}
		if out := must(t, dir, args...); !strings.Contains(out, `"read":0`) {
			t.Errorf("a second run reads again: %s", out)
		}
	}
}

// TestApplyStatements_Declared: declared order, NOT NULL and comments make the
// table; several flows into several tables have one result.
func TestApplyStatements_Declared(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.jsonl", peopleEvents)
	write(t, dir, "flow.sql", `CREATE STREAMING TABLE gold.named (name STRING COMMENT 'who', id BIGINT NOT NULL) COMMENT 'people'
  FLOW AUTO CDC FROM STREAM(p) KEYS (id) SEQUENCE BY ts APPLY AS DELETE WHEN op = 'D' COLUMNS (id, name);
CREATE STREAMING TABLE raw FLOW AUTO CDC FROM STREAM(p) KEYS (id) SEQUENCE BY ts;
CREATE STREAMING TABLE idle;`)
	r := sluice(t, dir, "apply", "-f", "flow.sql", "--source", "p=people.jsonl")
	if r.code != exitOK || !strings.Contains(r.stderr, "idle has no flow") {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	var result struct {
		Targets []struct{ Target string }
		Rows    struct{ Inserted int64 }
	}
	if err := json.Unmarshal([]byte(r.stdout), &result); err != nil || len(result.Targets) != 2 || result.Rows.Inserted != 3 {
		t.Errorf("%v: %s", err, r.stdout)
	}
	if got := must(t, dir, "cat", "gold/named"); got != `{"name":"Ada L.","id":1}`+"\n" {
		t.Error(got)
	}
	// Without APPLY AS DELETE a delete record is an upsert (E15).
	if got := must(t, dir, "cat", "raw", "--order-by", "id"); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"op":"D"`) {
		t.Error(got)
	}
}

func TestApplyStatements_DryRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.jsonl", peopleEvents)
	write(t, dir, "flow.sql", peopleSQL)
	before := tree(t, dir)
	out := must(t, dir, "apply", "-f", "flow.sql", "--dry-run")
	for _, want := range []string{`"schema":"id BIGINT, name STRING"`, `"keys":["id"]`, `"sequence_type":"BIGINT"`, `"creates":true`, `"inserted":1`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in %s", want, out)
		}
	}
	write(t, dir, "two.sql", strings.Replace(peopleSQL, "apply as delete", "ignore null updates apply as delete", 1))
	r := sluice(t, dir, "apply", "-f", "two.sql", "--dry-run")
	if r.code != exitOK && !strings.Contains(r.stdout, `"refused":[`) {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if err := os.Remove(filepath.Join(dir, "two.sql")); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, dir); strings.Count(after, "\n") != strings.Count(before, "\n") {
		t.Errorf("a dry run left\n%s", after)
	}
}

func TestApplyStatements_Refused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "people.jsonl", peopleEvents)
	flow := func(clauses string) string {
		return "CREATE STREAMING TABLE t;\nCREATE FLOW f AS AUTO CDC INTO t FROM STREAM(p) KEYS (id)\n" + clauses
	}
	for _, c := range []struct {
		name, text, code, place string
		args                    []string
	}{
		{"columns of the source", flow("SEQUENCE BY tss"), "AUTOCDC_COLUMNS_NOT_FOUND_IN_SCHEMA", "flow.sql:3:13", nil},
		{"types of the source", flow("SEQUENCE BY ts APPLY AS DELETE WHEN op"), "AUTOCDC_CONDITION_NOT_BOOLEAN", "flow.sql:3:37", nil},
		{"several problems", flow("SEQUENCE BY tss COLUMNS (nme)"), "AUTOCDC_KEY_NOT_IN_SELECTED_SCHEMA", "flow.sql:3:26", nil},
		{"no order", flow(""), "AUTOCDC_MISSING_SEQUENCE_BY", "flow.sql:2:1", nil},
		{"unbound source", strings.ReplaceAll(flow("SEQUENCE BY ts"), "STREAM(p)", "STREAM(q)"), "UNKNOWN_SOURCE", "", nil},
		{"a flag beside statements", flow("SEQUENCE BY ts"), "INVALID_FLAG", "", []string{"--keys", "id"}},
		{"no flow", "CREATE STREAMING TABLE t", "UNKNOWN_SOURCE", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, dir, "flow.sql", c.text)
			before := tree(t, dir)
			r := sluice(t, dir, append([]string{"apply", "-f", "flow.sql", "--source", "p=people.jsonl"}, c.args...)...)
			refused(t, r, exitUsage, c.code)
			if !strings.Contains(r.stderr, c.place) {
				t.Errorf("%s is not in %s", c.place, r.stderr)
			}
			if tree(t, dir) != before {
				t.Error("something was written")
			}
		})
	}
	write(t, dir, "flow.sql", flow("SEQUENCE BY ts"))
	refused(t, sluice(t, dir, "apply", "-f", "flow.sql"), exitUsage, "SOURCE_NOT_BOUND")
	refused(t, sluice(t, dir, "apply", "-f", "flow.sql", "--source", "p"), exitUsage, "INVALID_FLAG")
	refused(t, sluice(t, dir, "apply", "-f", "flow.sql", "--source", "p=none.jsonl"), exitNotFound, "NOT_FOUND")
}
