//go:build linux

package servers

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const crashEnv = "SLUICE_TEST_SERVERS_CRASH"

func TestMain(m *testing.M) {
	if log := os.Getenv(crashEnv); log != "" {
		p, err := Start(exec.Command("sleep", "600"), log)
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		panic("as a test does")
	}
	os.Exit(m.Run())
}

// A server does not outlive a test binary that dies of a panic.
func TestProcess_EndsWithThePanic(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crashEnv+"="+filepath.Join(t.TempDir(), "log"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the binary did not die")
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d lives on", pid)
		}
	}
}

// zombie says whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "Z")
}
