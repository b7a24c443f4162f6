package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// changeRows is a feed without versions and times.
func changeRows(t *testing.T, dir, table, from string) string {
	t.Helper()
	return commitColumns.ReplaceAllString(must(t, dir, "changes", table, "--from-version", from, "-o", "jsonl"), "")
}

var commitColumns = regexp.MustCompile(`, ?"_commit_version": ?\d+, ?"_commit_timestamp": ?"[^"]*"`)

func TestApply_Snapshots(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "exports/2024-05-01/p.jsonl", `{"id":1,"name":"Ann"}`+"\n"+`{"id":2,"name":"Bob"}`)
	put(t, dir, "exports/2024-05-02/p.jsonl", `{"id":1,"name":"Anna"}`)
	args := []string{"apply", "--into", "t", "--from", "exports", "--snapshot", "--snapshot-version", "{version}", "--keys", "id"}
	refused(t, sluice(t, dir, append(args, "--max-delete-fraction", "0.3")...), exitRefused, "SNAPSHOT_DELETES_TOO_MUCH")
	must(t, dir, args...)
	sameRows(t, "rows", must(t, dir, "cat", "t", "-o", "jsonl"), `{"id":1,"name":"Anna"}`+"\n")
	sameRows(t, "feed", changeRows(t, dir, "t", "2"),
		`{"id":1,"name":"Ann","_change_type":"update_preimage"}
{"id":1,"name":"Anna","_change_type":"update_postimage"}
{"id":2,"name":"Bob","_change_type":"delete"}
`)
	put(t, dir, "exports/2024-05-03/p.jsonl", "")
	refused(t, sluice(t, dir, args...), exitRefused, "SNAPSHOT_EMPTY")
	must(t, dir, append(args, "--allow-empty-snapshot")...)
	sameRows(t, "empty", must(t, dir, "cat", "t", "-o", "jsonl"), "")

	t.Run("versions of a Delta table", func(t *testing.T) {
		must(t, dir, "apply", "--into", "copy", "--from", "t", "--snapshot", "--snapshot-version", "_commit_version", "--keys", "id", "--allow-empty-snapshot")
		sameRows(t, "feed", changeRows(t, dir, "copy", "1"),
			changeRows(t, dir, "t", "1"))
	})
	t.Run("flags", func(t *testing.T) {
		refused(t, sluice(t, dir, "apply", "--into", "t", "--from", "exports", "--allow-empty-snapshot"), exitUsage, "INVALID_FLAG")
		refused(t, sluice(t, dir, append(args, "--sequence-by", "id")...), exitUsage, "INVALID_FLAG")
		refused(t, sluice(t, dir, "apply", "--into", "t", "--from", "exports", "--snapshot", "--snapshot-version", "{version} {version}", "--keys", "id"), exitUsage, "BAD_OPTION")
	})
	t.Run("in statements", func(t *testing.T) {
		put(t, dir, "flow.sql", "CREATE STREAMING TABLE daily;\nCREATE FLOW days AS AUTO CDC INTO daily FROM SNAPSHOT (SELECT * FROM exports) WITH VERSION (SELECT '{version}') KEYS (id) STORED AS SCD TYPE 2;\n")
		must(t, dir, "apply", "-f", "flow.sql", "--source", "exports=exports", "--into", "sql", "--allow-empty-snapshot")
		sameRows(t, "history", must(t, dir, "cat", "sql/daily", "--columns", "id,name", "-o", "jsonl"), `{"id":1,"name":"Ann"}
{"id":1,"name":"Anna"}
{"id":2,"name":"Bob"}
`)
		flow := func(query, version string) string {
			return "CREATE STREAMING TABLE some;\nCREATE FLOW days AS AUTO CDC INTO some FROM SNAPSHOT (" + query + ") WITH VERSION (" + version + ") KEYS (id);\n"
		}
		put(t, dir, "query.sql", flow("SELECT id FROM exports WHERE id > 1", "SELECT '{version}'"))
		refused(t, sluice(t, dir, "apply", "-f", "query.sql", "--into", "sql2"), exitUsage, "SOURCE_NOT_BOUND")
		put(t, dir, "few/1.jsonl", `{"id":1,"name":"Ann","on":true}`+"\n"+`{"id":2,"name":"Bob","on":true}`+"\n"+`{"id":3,"name":"Cy","on":null}`+"\n")
		put(t, dir, "few/2.jsonl", `{"id":1,"name":"Ann","on":false}`+"\n"+`{"id":2,"name":"Bo","on":true}`+"\n"+`{"id":3,"name":"Cy","on":true}`+"\n")
		put(t, dir, "some.sql", flow("SELECT name, `id` FROM few WHERE `on`", "SELECT '{version}.jsonl'"))
		must(t, dir, "apply", "-f", "some.sql", "--source", "few=few", "--into", "sql2")
		sameRows(t, "filtered", must(t, dir, "cat", "sql2/some", "-o", "jsonl"), `{"id":2,"name":"Bo"}`+"\n"+`{"id":3,"name":"Cy"}`+"\n")
		for code, query := range map[string]string{"UNSUPPORTED_CLAUSE": "SELECT id, upper(name) FROM few", "AUTOCDC_CONDITION_NOT_BOOLEAN": "SELECT * FROM few WHERE id",
			"UNRESOLVED_COLUMN": "SELECT * FROM few WHERE missing = 1", "AUTOCDC_KEY_NOT_IN_SELECTED_SCHEMA": "SELECT name FROM few"} {
			put(t, dir, "bad.sql", flow(query, "SELECT '{version}.jsonl'"))
			refused(t, sluice(t, dir, "apply", "-f", "bad.sql", "--source", "few=few", "--into", "sql3"), exitUsage, code)
		}
	})
}
