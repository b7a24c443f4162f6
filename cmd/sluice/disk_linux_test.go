package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mount gives a small file system of its own; only root can.
func mount(t *testing.T, size string) (dir string, remount func(flags uintptr)) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadDisk_Full(t *testing.T) {
	dir, _ := mount(t, "256k")
	must(t, dir, "create", "t", "--schema", "id BIGINT, text STRING", "--property", "delta.enableChangeDataFeed=true")
	mustIn(t, dir, "id\n1\n", "append", "t", "--from", "-", "--format", "csv")
	var rows strings.Builder
	for i := range 20000 { // does not compress
		fmt.Fprintf(&rows, "%d,%x\n", i, uint64(i)*0x9e3779b97f4a7c15)
	}
	r := sluiceIn(t, dir, "id,text\n"+rows.String(), "append", "t", "--from", "-", "--format", "csv")
	refused(t, r, exitFailed, "NO_SPACE")
	if got := must(t, dir, "cat", "t"); got != "{\"id\":1,\"text\":null}\n" {
		t.Errorf("the table after that: %s", got)
	}
	// The next write, which fits, goes through: what failed left no hole behind it.
	mustIn(t, dir, "id\n2\n", "append", "t", "--from", "-", "--format", "csv")
	if got := must(t, dir, "cat", "t", "--count"); got != "{\"count\":2}\n" {
		t.Errorf("count: %s", got)
	}
}

func TestBadDisk_ReadOnly(t *testing.T) {
	dir, remount := mount(t, "4m")
	must(t, dir, "create", "t", "--schema", "id BIGINT")
	mustIn(t, dir, "id\n1\n", "append", "t", "--from", "-", "--format", "csv")
	remount(syscall.MS_RDONLY)
	for _, args := range [][]string{
		{"append", "t", "--from", "-", "--format", "csv"}, {"delete", "t"}, {"update", "t", "--set", "id = 2"}, {"checkpoint", "t"},
		{"create", "new", "--schema", "id INT"}, {"apply", "--into", "t2", "--from", "-", "--format", "rows", "--keys", "id", "--sequence-by", "id"},
	} {
		in := "id\n2\n"
		if args[0] == "apply" {
			in = "{\"id\":1,\"op\":\"I\"}\n"
		}
		refused(t, sluiceIn(t, dir, in, args...), exitFailed, "PERMISSION_DENIED")
	}
	if got := must(t, dir, "cat", "t"); got != "{\"id\":1}\n" { // reading writes nothing
		t.Errorf("got %s", got)
	}
	remount(0)
}
