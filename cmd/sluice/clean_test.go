package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestApply_CleanSource: files go after the commit that has their rows, never before, and
// the state forgets them.
func TestApply_CleanSource(t *testing.T) {
	for _, into := range []string{"t", "lake/{table}"} {
		t.Run(into, func(t *testing.T) {
			dir := t.TempDir()
			old := time.Now().Add(-time.Hour)
			put := func(name, text string) {
				t.Helper()
				p := filepath.Join(dir, "in", name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(p, old, old); err != nil {
					t.Fatal(err)
				}
			}
			row := func(id int) string {
				return fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"key":null,"value":{"id":%d,"ts":1}}`+"\n", id, id)
			}
			left := func() int {
				list, err := filepath.Glob(filepath.Join(dir, "in", "*.jsonl"))
				if err != nil {
					t.Fatal(err)
				}
				return len(list)
			}
			args := []string{"apply", "--into", into, "--from", "in", "--format", "rows", "--keys", "id", "--sequence-by", "ts",
				"--option", "clean_source=archive", "--option", "archive=read", "--on-poison", "fail"}
			put("1.jsonl", row(1))
			put("2.jsonl", row(2)+"{broken\n")
			if r := sluice(t, dir, args...); r.code == 0 || left() != 2 {
				t.Fatalf("exit %d, %d files are left: %s", r.code, left(), r.stderr)
			}
			put("2.jsonl", row(2))
			must(t, dir, args...)
			if left() != 0 {
				t.Fatalf("%d files are left", left())
			}
			put("3.jsonl", row(3))
			must(t, dir, args...)
			must(t, dir, args...)
			table := strings.Replace(into, "{table}", "t", 1)
			if got := must(t, dir, "cat", table, "--count"); got != "{\"count\":3}\n" || left() != 0 {
				t.Errorf("%s, %d files are left", got, left())
			}
			if text := must(t, dir, "inspect", table, "-o", "json"); strings.Contains(text, "1.jsonl") {
				t.Errorf("the state holds the positions of files that are gone: %s", text)
			}
			got, err := filepath.Glob(filepath.Join(dir, "read", "*.jsonl"))
			if err != nil || len(got) != 3 {
				t.Errorf("archive %q, %v", got, err)
			}
			refused(t, sluice(t, dir, append(args, "--option", "clean_after=long")...), exitUsage, "BAD_OPTION")
		})
	}
}
