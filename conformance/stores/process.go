package stores

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/testenv"
)

// dir is where the servers are set up; the test ends here if they are not.
func dir(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("object stores are not started under -short")
	}
	base := os.Getenv("SLUICE_ENGINES")
	if base == "" {
		base = filepath.Join(testenv.RepoRoot(tb), "build", "engines")
	}
	base = filepath.Join(base, "stores")
	if _, err := os.Stat(filepath.Join(base, "versions.stamp")); err != nil {
		if os.Getenv("SLUICE_REQUIRE_ENGINES") == "1" {
			tb.Fatal("object stores are not set up: run `make setup-engines`")
		}
		tb.Skip("object stores are not set up: run `make setup-engines`")
	}
	return base
}

// start runs a server until the test ends. command gets a free port; ready says
// whether it answers there. A port that somebody else took in between is tried
// again with another.
func start(tb testing.TB, name string, command func(port string) *exec.Cmd, ready func(addr string) error) string {
	tb.Helper()
	var last error
	for range 3 {
		addr, err := try(tb, name, command, ready)
		if err == nil {
			return addr
		}
		last = err
	}
	tb.Fatalf("start %s: %v", name, last)
	return ""
}

func try(tb testing.TB, name string, command func(port string) *exec.Cmd, ready func(addr string) error) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	// A file, not a pipe: whoever holds a pipe of this binary keeps it alive.
	log, err := os.CreateTemp(tb.TempDir(), name+"-*.log")
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := command(port)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var answer error
	for {
		select {
		case err := <-ended:
			return "", fmt.Errorf("it ended: %v\n%s", err, tail(log.Name()))
		case <-deadline:
			stop()
			return "", fmt.Errorf("it does not answer: %w\n%s", answer, tail(log.Name()))
		case <-tick.C:
		}
		if answer = ready(addr); answer == nil {
			tb.Cleanup(stop)
			return addr, nil
		}
	}
}

// tail is the end of a server's log.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-2000):])
}

// environ is this process's environment without what would name a real cloud.
func environ(more ...string) []string {
	var out []string
	for _, kv := range os.Environ() {
		cloud := false
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST"} {
			cloud = cloud || strings.HasPrefix(kv, prefix)
		}
		if !cloud {
			out = append(out, kv)
		}
	}
	return append(out, more...)
}
