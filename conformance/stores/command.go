package stores

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-data/sluice/internal/testenv"
)

// Command is the command, built once. Everything that runs of it print is kept for
// the canary.
type Command struct {
	T    *testing.T
	path string
	said bytes.Buffer
	mu   sync.Mutex
}

// NewCommand builds the command.
func NewCommand(t *testing.T) *Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/sluice")
	cmd.Dir = testenv.RepoRoot(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return &Command{T: t, path: path}
}

// For is the command for a test below the one that it was built for.
func (x *Command) For(t *testing.T) *Command { return &Command{T: t, path: x.path} }

// Said is everything that runs printed.
func (x *Command) Said() []byte { return x.said.Bytes() }

// Try runs a command line with all logs on.
func (x *Command) Try(args ...string) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	cmd := exec.Command(x.path, append(args, "--log-level", "debug")...)
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said.Write(o.Bytes())
	x.said.Write(e.Bytes())
	return o.String(), e.String(), err
}

// Run is Try for a command that must succeed; it gives what it printed.
func (x *Command) Run(args ...string) string {
	x.T.Helper()
	o, e, err := x.Try(args...)
	if err != nil {
		x.T.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, e)
	}
	return o
}

// Sorted are the lines of an output in order.
func Sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// WriteFile writes lines to a file of that name in a folder of the test.
func WriteFile(t *testing.T, name string, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
