package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOperations_CommandLine: results, refusals and exit codes of the operations of
// cli.md 3.
func TestOperations_CommandLine(t *testing.T) {
	dir := t.TempDir()
	run := func(stdin string, args ...string) map[string]any {
		t.Helper()
		r := sluiceIn(t, dir, stdin, args...)
		if r.code != exitOK {
			t.Fatalf("%v: exit %d: %s", args, r.code, r.stderr)
		}
		out := map[string]any{}
		if err := json.Unmarshal([]byte(r.stdout), &out); err != nil && !strings.HasPrefix(args[0], "diff") {
			t.Fatalf("%v: %v: %s", args, err, r.stdout)
		}
		return out
	}
	metric := func(out map[string]any, name string) float64 {
		t.Helper()
		n, ok := out["metrics"].(map[string]any)[name].(float64)
		if !ok {
			t.Fatalf("no %s in %v", name, out)
		}
		return n
	}
	run("", "create", "t", "--schema", "id BIGINT, p INT", "--partition-by", "p")
	for _, row := range []string{`{"id":1,"p":1}`, `{"id":2,"p":1}`, `{"id":3,"p":2}`} {
		run(row, "append", "t", "--from", "-", "--format", "jsonl")
	}
	if out := run("", "optimize", "t", "--where", "p = 1"); metric(out, "files_removed") != 2 || out["version"] != 4.0 {
		t.Errorf("optimize: %v", out)
	}
	if out := run("", "optimize", "t"); out["committed"] != false {
		t.Errorf("a second optimize: %v", out)
	}
	if out := run("", "restore", "t", "--version", "2"); metric(out, "restored_version") != 2 || metric(out, "files_removed") != 2 {
		t.Errorf("restore: %v", out)
	}
	if r := sluiceIn(t, dir, "", "diff", "t", "--from", "5", "--to", "4"); r.code != exitOK || r.stdout != `{"id":3,"p":2,"_change_type":"insert"}`+"\n" {
		t.Errorf("diff: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if out := run("", "clone", "t", "copy", "--version", "3"); metric(out, "files_copied") != 3 {
		t.Errorf("clone: %v", out)
	}
	if r := sluiceIn(t, dir, "", "vacuum", "t", "--retain", "0s", "--allow-short-retention", "--dry-run"); r.code != exitOK || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("dry run: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if out := run("", "vacuum", "t", "--retain", "0s", "--allow-short-retention"); metric(out, "files_deleted") != 2 {
		t.Errorf("vacuum: %v", out)
	}
	files := filepath.Join(dir, "files")
	if err := os.CopyFS(files, os.DirFS(filepath.Join(dir, "copy"))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(files, "_delta_log")); err != nil {
		t.Fatal(err)
	}
	if out := run("", "convert", "files"); metric(out, "rows") != 3 || metric(out, "files_added") != 3 {
		t.Errorf("convert: %v", out)
	}
	for _, c := range []struct {
		args []string
		code string
		exit int
	}{
		{[]string{"optimize", "t", "--where", "id = 1"}, "DELTA_NON_PARTITION_COLUMN_SPECIFIED", exitRefused},
		{[]string{"optimize", "t", "--zorder", "p"}, "DELTA_ZORDERING_ON_PARTITION_COLUMN", exitRefused},
		{[]string{"optimize", "t", "--zorder", "nope"}, "UNRESOLVED_COLUMN", exitUsage},
		{[]string{"optimize", "t", "--full"}, "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED", exitRefused},
		{[]string{"vacuum", "t", "--retain", "1h"}, "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT", exitRefused},
		{[]string{"vacuum", "t", "--retain", "x"}, "INVALID_FLAG", exitUsage},
		{[]string{"vacuum", "nope"}, "DELTA_TABLE_NOT_FOUND", exitNotFound},
		{[]string{"restore", "t"}, "MISSING_FLAG", exitUsage},
		{[]string{"restore", "t", "--version", "99"}, "DELTA_VERSION_NOT_FOUND", exitNotFound},
		{[]string{"restore", "t", "--version", "4"}, "RESTORE_FILES_MISSING", exitNotFound},
		{[]string{"restore", "t", "--timestamp", "soon"}, "INVALID_FLAG", exitUsage},
		{[]string{"clone", "t"}, "INVALID_ARGUMENTS", exitUsage},
		{[]string{"clone", "t", "copy"}, "DELTA_TABLE_ALREADY_EXISTS", exitRefused},
		{[]string{"convert", "t"}, "DELTA_TABLE_ALREADY_EXISTS", exitRefused},
		{[]string{"convert", "empty"}, "DELTA_CONVERSION_NO_FILES", exitRefused},
		{[]string{"diff", "t"}, "MISSING_FLAG", exitUsage},
		{[]string{"diff", "t", "--from", "99"}, "DELTA_VERSION_NOT_FOUND", exitNotFound},
	} {
		r := sluiceIn(t, dir, "", append(c.args, "-o", "json")...)
		if r.code != c.exit || !strings.Contains(r.stderr, `"code":"`+c.code) {
			t.Errorf("%v: exit %d, want %d: %s", c.args, r.code, c.exit, r.stderr)
		}
	}
}
