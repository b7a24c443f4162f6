package conformance_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrerequisites: on a machine that has nothing, each missing program is named
// with the line that installs it.
func TestPrerequisites(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	uname, err := exec.LookPath("uname")
	if err != nil {
		t.Fatal(err)
	}
	bare := t.TempDir()
	if err := os.Symlink(uname, filepath.Join(bare, "uname")); err != nil {
		t.Fatal(err)
	}
	programs := []string{"go", "git", "gcc", "make", "python3", "java", "mvn", "node"}
	cmd := exec.Command(bash, append([]string{"prerequisites.sh"}, programs...)...)
	cmd.Env = []string{"PATH=" + bare}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf("got %v, want exit 2\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(programs) {
		t.Fatalf("%d lines for %d programs\n%s", len(lines), len(programs), out)
	}
	for i, p := range programs {
		if rest, ok := strings.CutPrefix(lines[i], "missing: "+p+"; install it with: "); !ok || len(rest) < 10 {
			t.Errorf("%s: %q", p, lines[i])
		}
	}
}
