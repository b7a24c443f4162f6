package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/demodata"
)

// wait calls ok until it answers true; a minute is long enough for any machine.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestApply_Follow: the file grows under a running apply, which commits what it
// finds, tells of itself, and ends cleanly when it is asked to.
func TestApply_Follow(t *testing.T) {
	dir := t.TempDir()
	writeEvents(t, dir, demodata.SnapshotLines)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "apply", "--into", "orders", "--from", "events.jsonl", "--table", "orders", "--follow", "--batch-interval", "100ms", "--listen", addr)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, ""
		}
		return resp.StatusCode, string(body)
	}
	wait(t, "ready", func() bool { code, _ := get("/ready"); return code == http.StatusOK })
	if code, _ := get("/ping"); code != http.StatusOK {
		t.Errorf("/ping answers %d", code)
	}
	count := func() string { return must(t, dir, "cat", "orders", "--count") }
	before := count()
	writeEvents(t, dir, 0)
	want, err := demodata.Expected("orders")
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the rest", func() bool { return strings.Count(must(t, dir, "log", "orders"), "\n") >= 3 })
	sameRows(t, "orders", must(t, dir, "cat", "orders"), string(want))
	var metrics string
	wait(t, "the metrics of the commit", func() bool { // they are counted after it
		_, metrics = get("/metrics")
		return strings.Contains(metrics, "sluice_apply_batches_total 2") && strings.Contains(metrics, `target_version{target="orders"} 2`)
	})
	for _, name := range []string{`sluice_apply_events_total{fate="applied"}`, "sluice_apply_batches_total 2", `sluice_apply_target_version{target="orders"} 2`, `sluice_apply_rounds_total{result="done"}`} {
		if !strings.Contains(metrics, name) {
			t.Errorf("no %s in\n%s", name, metrics)
		}
	}
	versions := must(t, dir, "log", "orders")
	time.Sleep(500 * time.Millisecond) // several rounds without input
	if after := must(t, dir, "log", "orders"); after != versions {
		t.Errorf("idle rounds commit: before\n%safter\n%s", versions, after)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("SIGTERM does not end it")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
	if n := strings.Count(stdout.String(), "\n"); n != 2 || !strings.Contains(stderr.String(), "2 batches") {
		t.Errorf("%d results, had %s\n%s\n%s", n, before, stdout.String(), stderr.String())
	}
}

func TestApply_FollowRefusals(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e.jsonl"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--from", "-", "--follow"}, {"--from", "e.jsonl", "--follow", "--dry-run"}, {"--from", "e.jsonl", "--listen", ":0"}, {"--from", "e.jsonl", "--follow", "--batch-interval", "0s"}} {
		r := sluice(t, dir, append([]string{"apply", "--into", "t"}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "INVALID_FLAG") {
			t.Errorf("%v: %s", args, fmt.Sprint(r))
		}
	}
}
