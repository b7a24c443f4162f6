//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/faultstore"
)

// onDisk are the operations that run on disks that fail.
func onDisk() []operation {
	return named("append", "overwrite", "update", "merge with deletion vectors", "optimize", "vacuum", "checkpoint", "clone", "apply, type 1", "apply, type 2")
}

// tmpfs mounts a disk of a size in a folder until the test ends.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small disk is mounted by root only")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// onLocal is a bench over a folder with a prepared table, and the reference.
func onLocal(t *testing.T, op operation, dir string) (*bench, *reference) {
	t.Helper()
	calm := newBench(storage.NewMemory("m"), t.TempDir())
	if err := op.prepare(calm); err != nil {
		t.Fatal(err)
	}
	want := refer(t, op, calm)
	s, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(s, t.TempDir())
	if err := op.prepare(b); err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return b, want
}

// fill writes a file that leaves so many KiB free.
func fill(t *testing.T, dir string, free int64) (file string) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "filler")
	if err := os.WriteFile(file, make([]byte, max(0, int64(st.Bavail)*st.Bsize-free<<10)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOperations_FullDisk: an operation that meets a full disk says so and leaves its table
// as invariant 2 has it, however far it came.
func TestOperations_FullDisk(t *testing.T) {
	for _, op := range onDisk() {
		t.Run("law 8 "+op.name, func(t *testing.T) {
			full := 0
			for _, free := range []int64{0, 4, 8, 12, 20, 32, 48, 64, 96, 128} {
				dir := tmpfs(t, "4m")
				root := filepath.Join(dir, "root")
				b, want := onLocal(t, op, root)
				filler := fill(t, dir, free)
				err := op.run(b)
				if err != nil && !errors.Is(err, storage.ErrNoSpace) {
					t.Errorf("%d KiB free: %v is not of the class of a full disk", free, err)
				}
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				if err := op.survived(b, want, err, false); err != nil {
					t.Fatalf("%d KiB free, answer %v: %v", free, err, err)
				}
				if left := temporary(t, root); len(left) > 0 {
					t.Errorf("%d KiB free: left %v", free, left)
				}
				if err != nil {
					full++
				}
			}
			if full == 0 {
				t.Error("the disk was never full")
			}
			survived("disk: full", op.name, full)
		})
	}
}

// TestOperations_ReadOnlyInTheMiddle mounts the disk read-only while an operation works,
// at one call after the other.
func TestOperations_ReadOnlyInTheMiddle(t *testing.T) {
	step := 7
	if long() {
		step = 1
	}
	for _, op := range onDisk() {
		t.Run("law 8 "+op.name, func(t *testing.T) {
			met := 0
			for n := 0; ; n += step {
				dir := tmpfs(t, "16m")
				b, want := onLocal(t, op, filepath.Join(dir, "root"))
				// A file that is being written holds the mount: it is tried at each call from n on.
				locked := false
				fs := faultstore.New(b.root, faultstore.Rule{Times: -1, Mode: faultstore.Observe, Match: func(c faultstore.Call) bool { return c.N >= n }, Hook: func(context.Context, faultstore.Call) error {
					if !locked {
						locked = exec.Command("mount", "-o", "remount,ro", dir).Run() == nil
					}
					return nil
				}})
				err := op.run(b.on(fs))
				calls := fs.Count()
				if out, err := exec.Command("mount", "-o", "remount,rw", dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if err != nil && !errors.Is(err, storage.ErrPermission) {
					t.Errorf("call %d of %d: %v is not of the class of a missing right", n, calls, err)
				}
				if err := op.survived(b, want, err, false); err != nil {
					t.Fatalf("call %d of %d: %v", n, calls, err)
				}
				if locked && err != nil {
					met++
				}
				if calls <= n {
					break
				}
			}
			if met == 0 {
				t.Error("no call met a disk that is read-only")
			}
			survived("disk: read-only in the middle", op.name, met)
		})
	}
}

// forbids takes the right to write to all folders below a location away before call n.
func forbids(s storage.Store, location string, n int) storage.Store {
	return faultstore.New(s, faultstore.Rule{Match: faultstore.Nth(n), Mode: faultstore.Observe, Hook: func(context.Context, faultstore.Call) error {
		return chmod(strings.TrimPrefix(location, "file://"), 0o555)
	}})
}

func chmod(dir string, mode os.FileMode) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, mode)
		}
		return err
	})
}

// nobody owns what is not root's: root is not bound by the rights of folders.
const nobody = 65534

// TestOperations_RightsLostInTheMiddle: a process loses the right to write to its table at
// a call of an operation.
func TestOperations_RightsLostInTheMiddle(t *testing.T) {
	step := 11
	if long() {
		step = 2
	}
	base, err := os.MkdirTemp("", "sluice-faults-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(base, "child")
	if err := errors.Join(os.Chmod(base, 0o777), os.Link(self, exe)); err != nil {
		t.Skipf("another user cannot be given this program: %v", err)
	}
	for _, op := range onDisk() {
		t.Run("law 8 "+op.name, func(t *testing.T) {
			met := 0
			for n := 1; ; n += step {
				dir := filepath.Join(base, "t", fmt.Sprint(place(op.name)), fmt.Sprint(n))
				b, want := onLocal(t, op, filepath.Join(dir, "root"))
				b.files = filepath.Join(dir, "files")
				if err := os.MkdirAll(b.files, 0o777); err != nil {
					t.Fatal(err)
				}
				c := exec.CommandContext(t.Context(), exe)
				c.Dir, c.Env = base, append(os.Environ(), fmt.Sprintf("%s=%s|file://%s|%s|%d", childEnv, op.name, filepath.Join(dir, "root"), b.files, n))
				if os.Geteuid() == 0 {
					if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
						return errors.Join(err, os.Chown(path, nobody, nobody))
					}); err != nil {
						t.Fatal(err)
					}
					c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
				}
				said, err := c.CombinedOutput()
				if err != nil && !strings.Contains(string(said), "permission denied") {
					t.Errorf("call %d: %v: %s", n, err, said)
				}
				if err := chmod(filepath.Join(dir, "root"), 0o755); err != nil {
					t.Fatal(err)
				}
				// What a child answered with an error may have been committed before it.
				if err := op.survived(b, want, nil, err != nil); err != nil {
					t.Fatalf("call %d, answer %s: %v", n, said, err)
				}
				if err == nil {
					break
				}
				met++
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			if met == 0 {
				t.Error("no call lost its right")
			}
			survived("disk: right to write lost in the middle", op.name, met)
		})
	}
}
