package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// binary is the command as users run it; TestMain builds it once.
var binary string

// buildFlags make the binary race-checked when the tests are.
var buildFlags []string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice-cmd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sluice")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", binary, ".")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the command:", err)
		return 1
	}
	return m.Run()
}

// ran is what a run of the command left.
type ran struct {
	code           int
	stdout, stderr string
}

// sluice runs the command in dir.
func sluice(t testing.TB, dir string, args ...string) ran { return sluiceIn(t, dir, "", args...) }

func sluiceIn(t testing.TB, dir, stdin string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run sluice %s: %v", strings.Join(args, " "), err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must runs the command and fails the test unless it exits 0.
func must(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return mustIn(t, dir, "", args...)
}

func mustIn(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	r := sluiceIn(t, dir, stdin, args...)
	if r.code != exitOK {
		t.Fatalf("sluice %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused checks exit code, code and form of a failure.
func refused(t testing.TB, r ran, exit int, code string) {
	t.Helper()
	if r.code != exit {
		t.Errorf("exit %d, want %d: %s%s", r.code, exit, r.stdout, r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("a failure printed data: %s", r.stdout)
	}
	if !strings.HasPrefix(r.stderr, "sluice: "+code+": ") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("got %q, want one line with code %s", r.stderr, code)
	}
	if strings.Contains(r.stderr, "goroutine ") {
		t.Errorf("a stack trace: %s", r.stderr)
	}
}

// tree is every file below dir with its size, to show that nothing changed.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRun_Usage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code string
	}{
		{[]string{"verison"}, "UNKNOWN_COMMAND"},
		{[]string{"run", "t"}, "NOT_SUPPORTED_YET"},
		{[]string{"cat"}, "INVALID_ARGUMENTS"},
		{[]string{"cat", "a", "b"}, "INVALID_ARGUMENTS"},
		{[]string{"cat", "t", "--nope"}, "UNKNOWN_FLAG"},
		{[]string{"cat", "t", "--limit", "x"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--limit", "-1"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--version", "-2"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--version", "1", "--timestamp", "2024-01-01"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--timestamp", "yesterday"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--order-by", "a SIDEWAYS"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "-o", "xml"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--time-zone", "Mars/Base"}, "INVALID_FLAG"},
		{[]string{"cat", "t", "--progress", "loud"}, "INVALID_FLAG"},
		{[]string{"cat", "hdfs://host/t"}, "UNSUPPORTED_STORE"},
		{[]string{"cat", "hdfs://n/t"}, "UNSUPPORTED_STORE"},
		{[]string{"log", "t", "--actions"}, "MISSING_FLAG"},
		{[]string{"changes", "t", "--from-version", "latest"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--from-version", "x"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--from-version", "-1"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--follow", "--to-version", "1"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--checkpoint", "c", "--to-timestamp", "2024-01-01"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--from-version", "0", "--max-files", "1"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--follow", "--max-files", "0"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--follow", "--max-bytes", "0"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--follow", "--poll", "2h"}, "INVALID_FLAG"},
		{[]string{"changes", "t", "--follow", "-o", "parquet"}, "INVALID_FLAG"},
		{[]string{"create", "t"}, "MISSING_FLAG"},
		{[]string{"create", "t", "--schema", "id BIGNT"}, "INVALID_SCHEMA"},
		{[]string{"create", "t", "--schema", "id INT", "-o", "csv"}, "INVALID_FLAG"},
		{[]string{"create", "t", "--schema", "id INT", "--property", "x"}, "INVALID_FLAG"},
		{[]string{"append", "t"}, "MISSING_FLAG"},
		{[]string{"append", "t", "--from", "-"}, "MISSING_FLAG"},
		{[]string{"append", "t", "--from", "x.csv", "--format", "xml"}, "INVALID_FLAG"},
		{[]string{"update", "t"}, "MISSING_FLAG"},
		{[]string{"apply"}, "INVALID_FLAG"},
		{[]string{"apply", "--into", "t", "--from", "x", "--stored-as", "3"}, "INVALID_FLAG"},
		{[]string{"apply", "--into", "{tabel}", "--from", "x"}, "INVALID_TEMPLATE"},
		{[]string{"apply", "--into", "t", "--from", "x", "--batch-bytes", "lots"}, "INVALID_FLAG"},
		{[]string{"completion", "tcsh"}, "INVALID_ARGUMENTS"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			refused(t, sluice(t, dir, c.args...), exitUsage, c.code)
		})
	}
	if left := tree(t, dir); strings.Count(left, "\n") != 1 {
		t.Errorf("usage errors wrote files:\n%s", left)
	}
}

func TestRun_JSONErrors(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"cat", "none", "-o", "json"}, {"cat", "none", "--output=jsonl"}, {"-ojson", "cat", "none"}, {"nope", "-o", "json"}, {"cat", "none", "--nope", "-o", "json"}} {
		r := sluice(t, dir, args...)
		var got struct {
			Error struct {
				Code, Message string
				Details       map[string]any
			}
		}
		if err := json.Unmarshal([]byte(r.stderr), &got); err != nil || got.Error.Code == "" || got.Error.Message == "" || got.Error.Details == nil || r.code == 0 {
			t.Errorf("%v: exit %d, %s (%v)", args, r.code, r.stderr, err)
		}
	}
}

func TestRun_VersionAndCompletion(t *testing.T) {
	dir := t.TempDir()
	if out := must(t, dir, "version"); !strings.HasPrefix(out, "sluice ") || !strings.Contains(out, "go1.") {
		t.Errorf("version: %s", out)
	}
	var b buildInfo
	if err := json.Unmarshal([]byte(must(t, dir, "version", "-o", "json")), &b); err != nil || b.Version == "" || b.Commit == "" || b.Go == "" {
		t.Errorf("version: %+v, %v", b, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := must(t, dir, "completion", shell); !strings.Contains(out, "sluice") {
			t.Errorf("%s: %.80s", shell, out)
		}
	}
}

func TestRun_Logs(t *testing.T) {
	dir := t.TempDir()
	args := []string{"apply", "--into", "t", "--from", "-", "--keys", "id", "--sequence-by", "id", "--log-level", "info"}
	r := sluiceIn(t, dir, "{\"id\":1,\"op\":\"I\"}\n", append(args, "--log-format", "json")...)
	line, _, _ := strings.Cut(r.stderr, "\n")
	var entry map[string]any
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] != "format detected" || entry["format"] != "rows" || r.code != exitOK {
		t.Errorf("exit %d, %s (%v)", r.code, r.stderr, err)
	}
	if r = sluiceIn(t, dir, "{\"id\":1,\"op\":\"I\"}\n", args[:len(args)-2]...); r.stderr != "" || r.code != exitOK {
		t.Errorf("by default: exit %d, %s", r.code, r.stderr)
	}
}
