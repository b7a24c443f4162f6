package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply"
)

// A batch that does not fit is one commit with the rows that it has elsewhere.
func TestApply_Memory(t *testing.T) {
	dir := t.TempDir()
	var events strings.Builder
	const n = 60000
	for i := range n {
		id := i * 7919 % n
		fmt.Fprintf(&events, `{"id":%d,"text":"row %d of %d","op":"I","at":%d}`+"\n", id, id, n, i)
		if i%3 == 0 {
			fmt.Fprintf(&events, `{"id":%d,"text":"late","op":"U","at":-1}`+"\n", id)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(events.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	apply1 := func(into string, more ...string) apply.Result {
		t.Helper()
		out := must(t, dir, append([]string{"apply", "--into", into, "--from", "in.jsonl", "--keys", "id", "--sequence-by", "at",
			"--except-columns", "op,at", "--batch-rows", "1000000", "-o", "json"}, more...)...)
		var r apply.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	small := apply1("small", "--memory", "128MiB", "--spill-dir", "tmp")
	large := apply1("large", "--memory", "4GiB")
	if small.Bytes.Spilled == 0 || large.Bytes.Spilled != 0 {
		t.Errorf("spilled %d and %d bytes", small.Bytes.Spilled, large.Bytes.Spilled)
	}
	if small.Version != 1 || small.Batches != 1 || small.Events != large.Events || small.Rows != large.Rows {
		t.Errorf("results differ:\n%+v\n%+v", small, large)
	}
	if must(t, dir, "cat", "small") != must(t, dir, "cat", "large") {
		t.Error("the rows, or their order, differ")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	args := []string{"apply", "--into", "none", "--from", "in.jsonl", "--keys", "id", "--sequence-by", "at"}
	for _, wrong := range [][]string{{"--memory", "100MiB", "at least 128MiB"}, {"--spill-dir", "nowhere", "nowhere is not a directory"}} {
		r := sluice(t, dir, append(args, wrong[:2]...)...)
		refused(t, r, exitUsage, "INVALID_FLAG")
		if !strings.Contains(r.stderr, wrong[2]) {
			t.Errorf("got %q", r.stderr)
		}
	}
}
