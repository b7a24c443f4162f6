//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/demodata"
)

// started is a running command.
type started struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, dir string, args ...string) *started {
	t.Helper()
	s := &started{cmd: exec.CommandContext(t.Context(), binary, args...)}
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// interrupt sends one Ctrl-C and waits; the exit code is -1 when a signal ended it.
func (s *started) interrupt(t *testing.T) int {
	t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil && s.cmd.ProcessState == nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		s.cmd.Process.Signal(syscall.SIGKILL)
		<-done
		t.Fatalf("still running 30 s after the interrupt: %s", s.stderr.String())
	}
	return s.cmd.ProcessState.ExitCode()
}

func TestInterrupt_WhileReadingInput(t *testing.T) {
	dir := people(t)
	for _, args := range [][]string{
		{"append", "people", "--from", "-", "--format", "jsonl"},
		{"apply", "--into", "other", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "id"},
	} {
		code, stderr := -1, ""
		for wait := 200 * time.Millisecond; code == -1 && wait < 10*time.Second; wait *= 2 { // -1: it came before the command could listen
			s := start(t, dir, args...)
			if _, err := io.WriteString(s.stdin, "{\"id\":7}\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			code, stderr = s.interrupt(t), s.stderr.String()
		}
		if code != exitInterrupted || !strings.HasPrefix(stderr, "sluice: INTERRUPTED: ") || !strings.Contains(stderr, "nothing was committed") {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	if got := must(t, dir, "cat", "people", "--count"); got != "{\"count\":1}\n" {
		t.Errorf("rows: %s", got)
	}
}

// TestInterrupt_ApplyAtAnyPoint stops a run of many small batches after ever
// longer times: the table is readable after each, and the last run completes it.
func TestInterrupt_ApplyAtAnyPoint(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, 0)
	args := []string{"apply", "--into", "out/{table}", "--from", "events.jsonl", "--batch-rows", "1"}
	stopped := 0
	for wait := 5 * time.Millisecond; wait < 4*time.Second; wait += wait/2 + time.Millisecond {
		s := start(t, dir, args...)
		time.Sleep(wait)
		code := s.interrupt(t)
		switch code {
		case exitInterrupted:
			stopped++
			lines := strings.Split(strings.TrimSpace(s.stderr.String()), "\n") // log lines may stand before
			if !strings.HasPrefix(lines[len(lines)-1], "sluice: INTERRUPTED: ") {
				t.Errorf("after %s: %q", wait, s.stderr.String())
			}
		case exitOK, -1: // done before, or stopped before the command could listen
		default:
			t.Fatalf("after %s: exit %d, %s", wait, code, s.stderr.String())
		}
		for _, table := range demodata.Tables() {
			if _, err := os.Stat(filepath.Join(dir, "out", table, "_delta_log", strings.Repeat("0", 20)+".json")); err != nil {
				continue
			}
			must(t, dir, "cat", "out/"+table)
			must(t, dir, "changes", "out/"+table, "--from-version", "0")
		}
		if code == exitOK {
			break
		}
	}
	if stopped == 0 {
		t.Error("no run was interrupted")
	}
	must(t, dir, args...)
	for _, table := range demodata.Tables() {
		want, err := demodata.Expected(table)
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, table, must(t, dir, "cat", "out/"+table), string(want))
	}
}
