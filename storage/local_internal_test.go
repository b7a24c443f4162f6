package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRenameNoReplace is the way of file systems without hard links.
func TestRenameNoReplace(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, []byte("1"), 0o666); err != nil {
		t.Fatal(err)
	}
	err := renameNoReplace(from, to)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the file system has no exclusive rename")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from, []byte("2"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := renameNoReplace(from, to); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second rename: %v", err)
	}
	if b, _ := os.ReadFile(to); string(b) != "1" {
		t.Fatalf("replaced: %q", b)
	}
}

func TestTempName(t *testing.T) {
	const id = "0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11"
	for _, n := range []string{"k", "00000000000000000000.json", strings.Repeat("n", 255), strings.Repeat("ü", 127)} {
		tmp := tempName(n, id)
		if len(tmp) > 255 || !isTemp(tmp) {
			t.Errorf("temporary name of %.20q has %d bytes: %s", n, len(tmp), tmp)
		}
	}
}

// TestError_Message: what a user sees names no temporary file, and the cause
// stays reachable.
func TestError_Message(t *testing.T) {
	_, cause := os.Open(filepath.Join(t.TempDir(), ".k.tmp"))
	err := wrapOS("open", "file:///t/", "k", cause)
	if got := err.Error(); strings.Contains(got, ".k.tmp") || !strings.HasPrefix(got, "open file:///t/k: not found") {
		t.Errorf("message %q", got)
	}
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, syscall.ENOENT) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("classes of %v", err)
	}
	if again := wrapOS("read", "file:///t/", "k", err); again != err {
		t.Errorf("wrapped twice: %v", again)
	}
}
