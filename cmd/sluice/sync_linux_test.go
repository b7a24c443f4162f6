package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	tracedCall  = regexp.MustCompile(`(fsync|linkat)\((.*)\) = 0$`)
	tracedBegin = regexp.MustCompile(`^(\d+) +(fsync|linkat)\((.*) <unfinished \.\.\.>$`)
	tracedEnd   = regexp.MustCompile(`^(\d+) +<\.\.\. (fsync|linkat) resumed>.*\) = (-?\d+)`)
)

// traced runs the command under strace and lists its fsync and link calls in order:
// "sync PATH" and "link FROM TO", temporary names ending in .tmp.
func traced(t *testing.T, dir, stdin string, args ...string) []string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("system calls are watched with strace, which is not installed")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, strace, append([]string{"-f", "-y", "-s", "4096", "-e", "trace=fsync,linkat", "-o", trace, binary}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("this machine does not let processes be traced: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	under := map[string]int{} // by thread: the call it is in, which others interrupt in the trace
	took := func(call, args string) string {
		if call == "fsync" {
			path := args[strings.IndexByte(args, '<')+1:]
			return "sync " + path[:strings.IndexByte(path+">", '>')]
		}
		parts := strings.Split(args, `"`)
		return "link " + parts[1] + " " + parts[3]
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if m := tracedCall.FindStringSubmatch(line); m != nil {
			calls = append(calls, took(m[1], m[2]))
		} else if m := tracedBegin.FindStringSubmatch(line); m != nil {
			under[m[1]], calls = len(calls), append(calls, took(m[2], m[3]))
		} else if m := tracedEnd.FindStringSubmatch(line); m != nil {
			// A name appears at its call's begin at the earliest, bytes are safe at its end.
			at := under[m[1]]
			call := calls[at]
			if m[3] != "0" || m[2] == "fsync" {
				calls[at] = ""
			}
			if m[3] == "0" && m[2] == "fsync" {
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// TestCommit_SyncsInOrder: before a name appears its bytes are on disk, and the
// folder is synced behind it; data files are durable before the commit is.
func TestCommit_SyncsInOrder(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "t", "--schema", "id INT")
	calls := traced(t, dir, "{\"id\":1}\n", "append", "t", "--from", "-", "--format", "jsonl")
	at := func(call string) int {
		for i, c := range calls {
			if c == call {
				return i
			}
		}
		return -1
	}
	commit, data := -1, -1
	for i, c := range calls {
		from, to, ok := strings.Cut(strings.TrimPrefix(c, "link "), " ")
		if !strings.HasPrefix(c, "link ") || !ok {
			continue
		}
		bytes, folder := at("sync "+from), -1
		for j := i + 1; j < len(calls) && folder < 0; j++ {
			if calls[j] == "sync "+filepath.Dir(to) {
				folder = j
			}
		}
		if bytes < 0 || bytes > i || folder < 0 {
			t.Errorf("%s: its bytes were synced at call %d, it appeared at %d, its folder was synced at %d", to, bytes, i, folder)
		}
		switch {
		case strings.HasSuffix(to, ".parquet"):
			data = folder
		case strings.HasSuffix(to, "00000000000000000001.json"):
			commit = i
		}
	}
	if data < 0 || commit < 0 || data > commit {
		t.Errorf("the data file was durable at call %d, the commit appeared at %d\n%s", data, commit, strings.Join(calls, "\n"))
	}
}
