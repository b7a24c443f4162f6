package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMerge_StatementAndFlags(t *testing.T) {
	put := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const after = `{"id":1,"name":"Ada L.","score":9007199254740993.10,"born":"1815-12-10"}
{"id":2,"name":"Bob","score":null,"born":null}
`
	for _, c := range []struct {
		name, file, text string
		args             []string
	}{
		{"statement over JSON lines", "new.jsonl", `{"id":1,"name":"Ada L.","born":"1815-12-10"}` + "\n" + `{"id":2,"name":"Bob"}` + "\n",
			[]string{"--source", "new=new.jsonl", "--sql", "MERGE INTO people p USING new n ON p.id = n.id WHEN MATCHED THEN UPDATE SET name = n.name, born = n.born WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n.id, n.name)"}},
		{"statement with --from", "new.csv", "id,name,born\n1,Ada L.,1815-12-10\n2,Bob,\n",
			[]string{"--from", "new.csv", "--sql", "MERGE INTO people USING n ON people.id = n.id WHEN MATCHED THEN UPDATE SET name = n.name, born = n.born WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n.id, n.name);"}},
		{"flags", "new.jsonl", `{"id":1,"name":"Ada L.","born":"1815-12-10"}` + "\n" + `{"id":2,"name":"Bob"}` + "\n",
			[]string{"--from", "new.jsonl", "--on", "target.id = source.id", "--when-matched-update", "name = source.name, born = source.born", "--when-not-matched-insert", "id = source.id, name = source.name"}},
		{"flags that delete", "new.jsonl", `{"key":7}` + "\n",
			[]string{"--from", "new.jsonl", "--on", "target.id = source.key", "--when-matched-delete", "true", "--when-not-matched-by-source-update", "name = 'Ada L.', born = DATE '1815-12-10'", "--when-not-matched-insert", "id = 2, name = 'Bob'"}},
		{"a schema for the source", "new.jsonl", `{"id":"1","name":"Ada L.","born":"1815-12-10"}` + "\n" + `{"id":"2","name":"Bob"}` + "\n",
			[]string{"--from", "new.jsonl", "--schema", "id STRING, name STRING, born DATE", "--on", "target.id = CAST(source.id AS BIGINT)", "--when-matched-update", "name = source.name, born = source.born", "--when-not-matched-insert", "id = CAST(source.id AS BIGINT), name = source.name"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := people(t)
			put(dir, c.file, c.text)
			var r writeResult
			out := must(t, dir, append([]string{"merge", "people"}, c.args...)...)
			if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Committed || r.Operation != "merge" || r.Metrics["rows_updated"] != 1 || r.Metrics["rows_inserted"] != 1 {
				t.Errorf("%s (%v)", out, err)
			}
			if got := must(t, dir, "cat", "people", "--order-by", "id"); got != after {
				t.Errorf("rows\n%s", got)
			}
			if got := must(t, dir, "log", "people", "--limit", "1"); !strings.Contains(got, `"MERGE"`) || !strings.Contains(got, "matchedPredicates") {
				t.Errorf("W-204: %s", got)
			}
		})
	}
	for _, into := range []string{"people", "PEOPLE", "main.default.people", "target", "delta.`people`", "delta.`./people/`"} {
		t.Run("a statement that names the table "+into, func(t *testing.T) {
			dir := people(t)
			put(dir, "new.jsonl", `{"id":1}`+"\n")
			must(t, dir, "merge", "people", "--source", "s=new.jsonl", "--sql", "MERGE INTO "+into+" AS x USING s ON x.id = s.id WHEN MATCHED THEN DELETE")
			if got := must(t, dir, "cat", "people"); got != "" {
				t.Errorf("rows\n%s", got)
			}
		})
	}
	for flag, text := range map[string]string{"--on": "target.id = = source.id", "--when-matched-update": "name = = 'x'", "--when-matched-delete": "name = = 'x'", "--when-not-matched-insert": "id = = 1"} {
		t.Run("the place of a fault in "+flag, func(t *testing.T) {
			dir := people(t)
			put(dir, "new.jsonl", `{"id":1}`+"\n")
			args := []string{"merge", "people", "--from", "new.jsonl", flag, text}
			if flag != "--on" {
				args = append(args, "--on", "target.id = source.id")
			} else {
				args = append(args, "--when-matched-delete", "true")
			}
			r := sluice(t, dir, args...)
			refused(t, r, exitUsage, "PARSE_SYNTAX_ERROR")
			want := fmt.Sprintf("line 1, column %d", strings.Index(text, "= =")+3)
			if !strings.Contains(r.stderr, flag) || !strings.Contains(r.stderr, want) {
				t.Errorf("want %s and %s: %s", flag, want, r.stderr)
			}
		})
	}
	t.Run("B60 schema evolution", func(t *testing.T) {
		dir := people(t)
		put(dir, "new.jsonl", `{"id":1,"tags":["a","b"],"n":{"x":1}}`+"\n"+`{"id":5,"tags":null,"n":{"y":2.5}}`+"\n")
		must(t, dir, "merge", "people", "--from", "new.jsonl", "--on", "target.id = source.id", "--when-matched-update", "*", "--when-not-matched-insert", "*", "--schema-evolution")
		want := `{"id":1,"name":"Ada","score":9007199254740993.10,"born":null,"tags":["a","b"],"n":{"x":1,"y":null}}
{"id":5,"name":null,"score":null,"born":null,"tags":null,"n":{"x":null,"y":2.5}}
`
		if got := must(t, dir, "cat", "people", "--order-by", "id"); got != want {
			t.Errorf("rows\n%s", got)
		}
	})
	for _, c := range []struct {
		name, code string
		exit       int
		args       []string
	}{
		{"no statement", "MISSING_FLAG", exitUsage, []string{"--from", "new.jsonl"}},
		{"both forms", "INVALID_FLAG", exitUsage, []string{"--from", "new.jsonl", "--sql", "x", "--on", "true"}},
		{"no source", "MISSING_FLAG", exitUsage, []string{"--sql", "MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"}},
		{"another source", "INVALID_FLAG", exitUsage, []string{"--source", "x=new.jsonl", "--sql", "MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"}},
		{"a text that is no statement", "PARSE_SYNTAX_ERROR", exitUsage, []string{"--source", "s=new.jsonl", "--sql", "MERGE INTO people t USING s WHEN MATCHED THEN DELETE"}},
		{"a column that is not there", "DELTA_MERGE_UNRESOLVED_EXPRESSION", exitUsage, []string{"--source", "s=new.jsonl", "--sql", "MERGE INTO people t USING s ON t.nope = s.id WHEN MATCHED THEN DELETE"}},
		{"several source rows", "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", exitRefused, []string{"--source", "s=new.jsonl", "--sql", "MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'x'"}},
		{"values of two kinds", "INVALID_JSON", exitRefused, []string{"--source", "s=bad.jsonl", "--sql", "MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"}},
		{"another table", "MERGE_TARGET_MISMATCH", exitUsage, []string{"--source", "s=new.jsonl", "--sql", "MERGE INTO orders USING s ON orders.id = s.id WHEN MATCHED THEN DELETE"}},
		{"another path", "MERGE_TARGET_MISMATCH", exitUsage, []string{"--source", "s=new.jsonl", "--sql", "MERGE INTO delta.`./people2` p USING s ON p.id = s.id WHEN MATCHED THEN DELETE"}},
		{"flags without a clause", "MISSING_FLAG", exitUsage, []string{"--from", "new.jsonl", "--on", "target.id = source.id"}},
		{"a delete that leaves nothing to update", "INVALID_FLAG", exitUsage, []string{"--from", "new.jsonl", "--on", "target.id = source.id", "--when-matched-delete", "TRUE", "--when-matched-update", "*"}},
		{"no such file", "FILE_NOT_FOUND", exitNotFound, []string{"--source", "s=none.jsonl", "--sql", "MERGE INTO people t USING s ON t.id = s.id WHEN MATCHED THEN DELETE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := people(t)
			put(dir, "new.jsonl", `{"id":1}`+"\n"+`{"id":1}`+"\n")
			put(dir, "bad.jsonl", `{"id":1,"z":1}`+"\n"+`{"id":2,"z":"text"}`+"\n")
			before := tree(t, dir)
			refused(t, sluice(t, dir, append([]string{"merge", "people"}, c.args...)...), c.exit, c.code)
			if tree(t, dir) != before {
				t.Error("something was written")
			}
		})
	}
}
