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
		put(t, dir, "query.sql", "CREATE STREAMING TABLE daily;\nCREATE FLOW days AS AUTO CDC INTO daily FROM SNAPSHOT (SELECT id FROM exports WHERE id > 1) WITH VERSION (SELECT 1) KEYS (id);\n")
		refused(t, sluice(t, dir, "apply", "-f", "query.sql", "--into", "sql2"), exitUsage, "UNSUPPORTED_CLAUSE")
	})
}
