package servers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-data/sluice/internal/testenv"
)

// Dir is the folder in which programs of that name were set up; the test ends here where
// they were not. what names them in messages.
func Dir(tb testing.TB, name, what string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip(what + ": not started under -short")
	}
	base := os.Getenv("SLUICE_ENGINES")
	if base == "" {
		base = filepath.Join(testenv.RepoRoot(tb), "build", "engines")
	}
	dir := filepath.Join(base, name)
	if _, err := os.Stat(filepath.Join(dir, "versions.stamp")); err != nil {
		Missing(tb, what+": not set up: run `make setup-engines`")
	}
	return dir
}

// Missing skips a test whose program is not there, or fails it where that is asked for.
func Missing(tb testing.TB, text string) {
	tb.Helper()
	if os.Getenv("SLUICE_REQUIRE_ENGINES") == "1" {
		tb.Fatal(text)
	}
	tb.Skip(text)
}

// FreePorts are ports of 127.0.0.1 that nobody has, all different.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close() // after all were taken
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// Process is one program.
type Process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // once ended is closed
}

// Start starts a program whose output is added to the file log. Whoever starts it ends it.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	bind(cmd)
	p := &Process{cmd: cmd, log: log, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The signal of bind comes when the thread ends that started the program, so one
		// thread is kept for each.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.ended)
	}()
	return p, <-started
}

// Ready waits until the check passes.
func (p *Process) Ready(patience time.Duration, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		one, stop := context.WithTimeout(ctx, 5*time.Second)
		err := check(one)
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %v\n%s", p.err, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w\n%s", err, p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends it as a power cut would.
func (p *Process) Kill() { p.Signal(os.Kill) }

// Signal sends a signal and waits until the program has ended.
func (p *Process) Signal(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.ended
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the end of what it printed.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-4000):])
}
