package spill

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// A full disk is told with its directory, and what was written before stays readable.
func TestFile_FullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var counted int64
	f, err := Create(Options{Dir: dir, Count: func(n int64) { counted += n }})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := rowsOf([]int64{1, 2, 3})
	first, err := f.Append(b)
	for err == nil {
		_, err = f.Append(b)
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("full: %v", err)
	}
	if counted == 0 || counted > 64<<10 {
		t.Errorf("%d bytes counted", counted)
	}
	if got, err := f.Read(first); err != nil || got.NumRows() != 3 {
		t.Errorf("after that: %v %v", got, err)
	}
}
