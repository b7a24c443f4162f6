package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// build compiles a program of a folder.
func build(t *testing.T, name string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return bin
}

func TestExamples(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not in PATH")
	}
	dir := filepath.Join(t.TempDir(), "table")
	run := func(name string) string {
		t.Helper()
		out, err := exec.Command(build(t, name), dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	if got := run("create"); got != "created "+dir+"\n" {
		t.Errorf("create: %q", got)
	}
	if got := run("append"); got != "version 1: 3 rows\n" {
		t.Errorf("append: %q", got)
	}
	got := run("changes")
	for _, want := range []string{"1 Ada 2024-05-01T10:00:00Z insert 1 ", "2 Brin (null) insert 1 ", "3 Cy (null) insert 1 "} {
		if !strings.Contains(got, want) {
			t.Errorf("changes: no %q in\n%s", want, got)
		}
	}
	t.Run("stream", func(t *testing.T) {
		if got := run("stream"); got != "3 changes of versions 1 to 1\n" {
			t.Errorf("the first run: %q", got)
		}
		if got := run("stream"); got != "" {
			t.Errorf("the second run: %q", got)
		}
	})
	t.Run("follow", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, build(t, "follow"), dir)
		var out syncBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait := func(n int) {
			for strings.Count(out.String(), "3 changes") < n {
				if ctx.Err() != nil {
					t.Fatalf("follow: %s", out.String())
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		wait(1)
		run("append")
		wait(2)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("follow: %v\n%s", err, out.String())
		}
	})
}

// syncBuffer is a bytes.Buffer that one goroutine writes while the test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
