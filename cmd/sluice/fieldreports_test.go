//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func sortedLines(s string) []string {
	out := strings.Split(strings.TrimSpace(s), "\n")
	slices.Sort(out)
	return out
}

// TestFieldReports are public bug reports about pipelines, as a user would meet them.
func TestFieldReports(t *testing.T) {
	t.Run("B11 the feed of one table drives the next", func(t *testing.T) {
		dir := t.TempDir()
		must(t, dir, "create", "a", "--schema", "id BIGINT, v STRING", "--property", "delta.enableChangeDataFeed=true")
		chain := func() {
			t.Helper()
			feed := must(t, dir, "changes", "a", "--from-version", "0", "--checkpoint", "a.position", "--where", "_change_type <> 'update_preimage'", "-o", "jsonl")
			if feed == "" {
				t.Fatal("no changes")
			}
			mustIn(t, dir, feed, "apply", "--into", "b", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "_commit_version",
				"--apply-as-deletes", "_change_type = 'delete'", "--except-columns", "_change_type,_commit_version,_commit_timestamp", "--flow", "chain")
			a, b := must(t, dir, "cat", "a"), must(t, dir, "cat", "b")
			if fmt.Sprint(sortedLines(a)) != fmt.Sprint(sortedLines(b)) {
				t.Errorf("a:\n%sb:\n%s", a, b)
			}
		}
		mustIn(t, dir, "{\"id\":1,\"v\":\"x\"}\n{\"id\":2,\"v\":\"y\"}\n{\"id\":3,\"v\":\"z\"}\n", "append", "a", "--from", "-", "--format", "jsonl")
		chain()
		must(t, dir, "update", "a", "--set", "v = concat(v, '2')", "--where", "id >= 2")
		chain()
		must(t, dir, "delete", "a", "--where", "id = 1 OR id = 3")
		chain()
	})
	t.Run("B23 a topic with gaps, read again and by two workers", func(t *testing.T) {
		dir := t.TempDir()
		record := func(offset, id int) string {
			return fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"key":"{\"id\":%d}","value":"{\"op\":\"u\",\"id\":%d,\"v\":\"at %d\",\"seq\":%d}"}`+"\n", offset, id, id, offset, offset)
		}
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run := func(into string) map[string]any {
			t.Helper()
			out := must(t, dir, "apply", "--into", into, "--from", "topic.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "seq", "--except-columns", "seq,op")
			var r struct{ Events map[string]any }
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			return r.Events
		}
		first := record(40, 1) + record(43, 2)
		write("topic.jsonl", first)
		if e := run("t"); e["read"] != 2.0 || e["applied"] != 2.0 {
			t.Errorf("first run %v", e)
		}
		if e := run("t"); e["applied"] != 0.0 {
			t.Errorf("second run %v", e)
		}
		write("topic.jsonl", first+record(50, 1))
		if e := run("t"); e["applied"] != 1.0 {
			t.Errorf("third run %v", e)
		}
		if got := changeKinds(t, must(t, dir, "changes", "t", "--from-version", "0")); len(got) != 4 {
			t.Errorf("changes %q", got)
		}
		// Two workers own the partition for a moment: both read offsets 0 to 9.
		text := ""
		for i := range 10 {
			text += record(i, i)
		}
		write("topic.jsonl", text)
		var workers []*exec.Cmd
		for range 2 {
			c := exec.CommandContext(t.Context(), binary, "apply", "--into", "two", "--from", "topic.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "seq", "--except-columns", "seq,op", "--batch-rows", "3")
			c.Dir = dir
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			workers = append(workers, c)
		}
		for _, c := range workers {
			c.Wait() // one of them may lose for good
		}
		run("two")
		if got := changeKinds(t, must(t, dir, "changes", "two", "--from-version", "0")); len(got) != 10 {
			t.Errorf("%d changes, want each offset once: %q", len(got), got)
		}
	})
	t.Run("B23 killed between commit and stored offset", func(t *testing.T) {
		dir := t.TempDir()
		text := ""
		for i := range 400 {
			text += fmt.Sprintf("{\"op\":\"c\",\"id\":%d,\"seq\":%d}\n", i, i)
		}
		if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"apply", "--into", "t", "--from", "in.jsonl", "--format", "rows", "--keys", "id", "--sequence-by", "seq", "--except-columns", "seq,op", "--batch-rows", "20"}
		for wait := 20 * time.Millisecond; wait < 200*time.Millisecond; wait += 30 * time.Millisecond {
			c := exec.CommandContext(t.Context(), binary, args...)
			c.Dir = dir
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			c.Process.Kill()
			c.Wait()
		}
		must(t, dir, args...)
		if got := changeKinds(t, must(t, dir, "changes", "t", "--from-version", "0")); len(got) != 400 {
			t.Errorf("%d changes", len(got))
		}
	})
	t.Run("B55 a null in the key", func(t *testing.T) {
		dir := t.TempDir()
		for range 3 {
			r := sluiceIn(t, dir, "{\"region\":null,\"id\":5,\"seq\":1}\n{\"region\":null,\"id\":6,\"seq\":1}\n{\"region\":\"n\",\"id\":5,\"seq\":1}\n", "apply", "--into", "t", "--from", "-", "--format", "rows",
				"--keys", "region,id", "--sequence-by", "seq")
			if r.code != exitRefused || !strings.Contains(r.stderr, "NULL_KEY") || !strings.Contains(r.stderr, `key column "region" is null`) {
				t.Fatalf("exit %d, %s", r.code, r.stderr)
			}
		}
		if r := sluice(t, dir, "cat", "t", "--count"); r.code == exitOK && r.stdout != "{\"count\":0}\n" {
			t.Errorf("%s", r.stdout)
		}
	})
}
