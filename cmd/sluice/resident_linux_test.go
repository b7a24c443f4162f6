package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-data/sluice/apply"
)

// A batch as large as its table finishes inside the cap, into an empty table and over
// all rows of a full one, in one commit each. SLUICE_LONG has the size of W1: 10 M rows,
// 5 M events.
func TestApply_Resident(t *testing.T) {
	rows, changes := 600_000, 500_000
	if os.Getenv("SLUICE_LONG") != "" {
		rows, changes = 10_000_000, 5_000_000
	} else if testing.Short() {
		t.Skip("two batches of half a million events take a minute")
	}
	const memory, tolerance = 256 << 20, 64 << 20
	dir := t.TempDir()
	// The race detector takes memory of its own: this is the program as users get it.
	program := filepath.Join(dir, "sluice")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	run := func(from string) apply.Result {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, "apply", "--into", "t", "--from", from, "--keys", "id", "--sequence-by", "at", "--apply-as-deletes", "op = 'D'",
			"--except-columns", "op,at", "--deletion-vectors", "on", "--batch-rows", "100000000", "--batch-bytes", "1TB", "--memory", "256MiB", "-o", "json", "--progress", "none")
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		var r apply.Result
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			t.Fatal("the system does not tell the resident size")
		}
		t.Logf("%s: %d MiB resident at most, %d MiB spilled", from, used.Maxrss>>10, r.Bytes.Spilled>>20)
		if peak := used.Maxrss << 10; peak > memory+tolerance {
			t.Errorf("%d MiB were resident, the cap is %d MiB", peak>>20, memory>>20)
		}
		if r.Batches != 1 || r.Bytes.Spilled == 0 {
			t.Errorf("result %+v", r)
		}
		return r
	}
	write := func(name string, n int, line func(w *bufio.Writer, i int)) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		for i := range n {
			line(w, i)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("base.jsonl", rows, func(w *bufio.Writer, i int) {
		fmt.Fprintf(w, `{"id":%d,"text":"note-%d of the base","amount":%d.25,"op":"I","at":1}`+"\n", i, i*7919, i%1000)
	})
	if r := run("base.jsonl"); r.Rows.Inserted != int64(rows) {
		t.Errorf("rows %+v", r.Rows)
	}
	gone, fresh, updated := 0, 0, 0
	write("changes.jsonl", changes, func(w *bufio.Writer, i int) {
		id, op := i*7919%rows, "U" // 7919 is a prime: all different, in no order
		switch i % 10 {
		case 0:
			op = "D"
			gone++
		case 1:
			id += rows
			fresh++
		default:
			updated++
		}
		fmt.Fprintf(w, `{"id":%d,"text":"changed","amount":%d.5,"op":"%s","at":2}`+"\n", id, i%1000, op)
	})
	r := run("changes.jsonl")
	if want := (apply.Rows{Inserted: int64(fresh), Updated: int64(updated), Deleted: int64(gone)}); r.Rows != want {
		t.Errorf("rows %+v, want %+v", r.Rows, want)
	}
	for where, want := range map[string]int{"true": rows - gone + fresh, "text = 'changed'": updated + fresh, fmt.Sprintf("id >= %d", rows): fresh} {
		if got := strings.TrimSpace(must(t, dir, "cat", "t", "--count", "--where", where)); got != fmt.Sprintf(`{"count":%d}`, want) {
			t.Errorf("where %s: %s, want %d", where, got, want)
		}
	}
}
