package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/storagetest"
)

// tempFiles are the files in dir that are hidden from List.
func tempFiles(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".") && strings.HasSuffix(d.Name(), ".tmp") {
			out = append(out, p)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

func TestLocal_LeavesNothingBehind(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s := local(t, dir)
	must(t, s.Create(ctx, "a/k", []byte("1")))
	must(t, s.Put(ctx, "a/k", []byte("2")))
	if err := s.Create(ctx, "a/k", nil); !errors.Is(err, storage.ErrExists) {
		t.Fatal(err)
	}
	for _, end := range []func(storage.Writer){storage.Writer.Abort, func(w storage.Writer) { w.Close() }} {
		w, err := s.NewWriter(ctx, "a/k") // exists: Close is refused
		must(t, err)
		_, err = w.Write(make([]byte, 10_000))
		must(t, err)
		if len(tempFiles(t, dir)) != 1 {
			t.Fatal("the bytes of a writer are not in a temporary file beside the target")
		}
		end(w)
	}
	cctx, cancel := context.WithCancel(ctx)
	w, err := s.NewWriter(cctx, "a/l")
	must(t, err)
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left := tempFiles(t, dir); len(left) > 0 {
		t.Fatalf("temporary files left over: %v", left)
	}
}

func TestLocal_ReadingWritesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	s := local(t, dir)
	if _, err := s.Head(t.Context(), "_delta_log/0"); !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	if keys := storagetest.Keys(t, s, "", ""); keys != nil {
		t.Fatal(keys)
	}
	must(t, s.Delete(t.Context(), "x/y"))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the root was made by reading: %v", err)
	}
}

// TestLocal_ListHidesOwnTemporaryFiles: names that only look similar are shown.
func TestLocal_ListHidesOwnTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	s := local(t, dir)
	for _, n := range []string{".k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp", ".k.tmp", "k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp",
		".k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a1x.tmp", ".00.json.crc"} {
		must(t, os.WriteFile(filepath.Join(dir, n), nil, 0o666))
	}
	want := []string{".00.json.crc", ".k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a1x.tmp", ".k.tmp", "k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp"}
	if got := storagetest.Keys(t, s, "", ""); !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}
	for _, st := range []storage.Store{s, storage.NewMemory("m")} {
		err := st.Create(t.Context(), "d/.k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp", nil)
		if !errors.Is(err, storage.ErrInvalidKey) {
			t.Fatalf("an object that would be hidden: %v", err)
		}
	}
}

func TestLocal_RootIsNormalised(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(base, "real", "t"), 0o777))
	must(t, os.Symlink("real", filepath.Join(base, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(base, "dangling")))
	must(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o666))
	direct := local(t, filepath.Join(base, "real", "t"))
	for _, p := range []string{"link/t", "real/../link/t/", "./real/t", "link/./t"} {
		if got := local(t, base+"/"+p).URL(); got != direct.URL() {
			t.Errorf("%s is %s, want %s", p, got, direct.URL())
		}
	}
	if got := local(t, base+"/link/new/deep").Dir(); got != filepath.Join(base, "real", "new", "deep") {
		t.Errorf("a root that does not exist yet: %s", got)
	}
	for _, p := range []string{"dangling", "dangling/t", "file", ""} {
		dir := p
		if p != "" {
			dir = filepath.Join(base, p)
		}
		if _, err := storage.NewLocal(dir, storage.LocalOptions{}); err == nil {
			t.Errorf("root %q was accepted", p)
		}
	}
	if got := local(t, filepath.Join(base, "a b#?ü%")).URL(); !strings.HasSuffix(got, "/a%20b%23%3F%C3%BC%25/") {
		t.Errorf("special characters in a URL: %s", got)
	}
	t.Chdir(base)
	if got := local(t, "link/t").URL(); got != direct.URL() {
		t.Errorf("relative root: %s", got)
	}
}

func TestLocal_SymbolicLinksInside(t *testing.T) {
	ctx, dir, other := t.Context(), t.TempDir(), t.TempDir()
	s := local(t, dir)
	must(t, os.WriteFile(filepath.Join(other, "x"), []byte("far"), 0o666))
	must(t, os.Symlink(other, filepath.Join(dir, "far")))
	must(t, os.Symlink(dir, filepath.Join(dir, "loop")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(t, s.Create(ctx, "near", nil))
	if got := storagetest.Keys(t, s, "", ""); !slices.Equal(got, []string{"far/x", "near"}) {
		t.Fatalf("got %q", got)
	}
	if err := s.Create(ctx, "dangling", nil); !errors.Is(err, storage.ErrExists) {
		t.Fatalf("create through a dangling link: %v", err)
	}
	must(t, s.Delete(ctx, "dangling"))
	must(t, s.Create(ctx, "dangling", nil))
}

func TestLocal_OddFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no named pipes in directories")
	}
	ctx, dir := t.Context(), t.TempDir()
	s := local(t, dir)
	must(t, s.Create(ctx, "file", nil))
	if out, err := exec.Command("mkfifo", filepath.Join(dir, "pipe")).CombinedOutput(); err != nil {
		t.Skipf("mkfifo: %v %s", err, out)
	}
	if _, err := s.Open(ctx, "pipe"); err == nil { // must not wait for a writer
		t.Fatal("opened a named pipe")
	}
	if got := storagetest.Keys(t, s, "", ""); !slices.Equal(got, []string{"file"}) {
		t.Fatalf("got %q", got)
	}
	if err := s.Create(ctx, "file/below", nil); err == nil || errors.Is(err, storage.ErrAmbiguous) || errors.Is(err, storage.ErrExists) {
		t.Fatalf("create below a file: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o777))
	if err := s.Create(ctx, "dir", nil); !errors.Is(err, storage.ErrExists) {
		t.Fatalf("create over a directory: %v", err)
	}
	if err := s.Put(ctx, "dir", nil); err == nil || errors.Is(err, storage.ErrAmbiguous) {
		t.Fatalf("put over a directory: %v", err)
	}
	if err := s.Create(ctx, strings.Repeat("n", 256), nil); !errors.Is(err, storage.ErrInvalidKey) {
		t.Fatalf("a name longer than the file system takes: %v", err)
	}
	if left := tempFiles(t, dir); len(left) > 0 {
		t.Fatalf("temporary files left over: %v", left)
	}
}

// TestLocal_ReadOnlyDirectory needs a directory that refuses writes. Root is
// refused by nothing but a read-only mount, so that is tried too.
func TestLocal_ReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	s := local(t, dir)
	must(t, s.Create(t.Context(), "d/k", []byte("v")))
	if os.Geteuid() != 0 {
		must(t, os.Chmod(filepath.Join(dir, "d"), 0o555))
		t.Cleanup(func() { os.Chmod(filepath.Join(dir, "d"), 0o777) })
	} else {
		mount(t, dir, "--bind", dir)
		if out, err := exec.Command("mount", "-o", "remount,bind,ro", dir).CombinedOutput(); err != nil {
			t.Skipf("no read-only mount to be had: %v %s", err, out)
		}
	}
	w, err := s.NewWriter(t.Context(), "d/w")
	if err == nil {
		err = w.Close()
	}
	for _, err := range []error{err, s.Create(t.Context(), "d/l", nil), s.Put(t.Context(), "d/k", nil), s.Create(t.Context(), "d/e/f", nil)} {
		if !errors.Is(err, storage.ErrPermission) || errors.Is(err, storage.ErrAmbiguous) {
			t.Fatalf("got %v, want %v", err, storage.ErrPermission)
		}
	}
	b, err := storage.ReadAll(t.Context(), s, "d/k")
	if err != nil || string(b) != "v" {
		t.Fatalf("read: %q, %v", b, err)
	}
}

// TestLocal_FullDisk fills a small file system: the write that does not fit says
// so, leaves nothing, and what was there stays.
func TestLocal_FullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	s := local(t, dir)
	ctx := t.Context()
	must(t, s.Create(ctx, "small", []byte("v")))
	err := s.Create(ctx, "big", make([]byte, 2<<20))
	wantNoSpace := func(err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrNoSpace) || errors.Is(err, storage.ErrAmbiguous) {
			t.Fatalf("got %v, want %v", err, storage.ErrNoSpace)
		}
	}
	wantNoSpace(err)
	wantNoSpace(s.Put(ctx, "small", make([]byte, 2<<20)))
	w, err := s.NewWriter(ctx, "stream")
	must(t, err)
	for range 100 {
		if _, err = w.Write(make([]byte, 1<<16)); err != nil {
			break
		}
	}
	wantNoSpace(err)
	wantNoSpace(w.Close())
	if got := storagetest.Keys(t, s, "", ""); !slices.Equal(got, []string{"small"}) {
		t.Fatalf("got %q", got)
	}
	if left := tempFiles(t, dir); len(left) > 0 {
		t.Fatalf("temporary files left over: %v", left)
	}
	must(t, s.Create(ctx, "fits", bytes.Repeat([]byte("x"), 100_000)))
}

// TestLocal_ContractTmpfs runs the suite on a file system of another kind.
func TestLocal_ContractTmpfs(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "-t", "tmpfs", "-o", "size=64m", "tmpfs")
	storagetest.Run(t, storagetest.Config{URLPrefix: "file://" + filepath.ToSlash(dir), New: func(t *testing.T) storage.Store {
		sub, err := os.MkdirTemp(dir, "t")
		must(t, err)
		return local(t, sub)
	}})
}

// mount mounts on dir until the end of the test, or skips it with the reason.
func mount(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
		t.Skipf("mount %s: %v %s", strings.Join(args, " "), err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A Writer that could not be begun is nil, not an interface that holds a nil pointer.
func TestLocal_NewWriterThatFails(t *testing.T) {
	st, err := storage.NewLocal(t.TempDir(), storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"../k", ".k.0b5c6f2e-7d1a-4c51-9d6e-1f6f0d0c0a11.tmp"} {
		if w, err := st.NewWriter(t.Context(), key); err == nil || w != nil {
			t.Errorf("%s: %v, %v", key, w, err)
		}
	}
}

// Unfinished names the temporary files that List hides, also through the stores around it.
func TestLocal_Unfinished(t *testing.T) {
	dir := t.TempDir()
	st, err := storage.NewLocal(dir, storage.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := st.NewWriter(t.Context(), "a/b/k")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := st.Put(t.Context(), "a/b/done", nil); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]storage.Store{"a/b/": st, "b/": storage.WithRetry(storage.Sub(st, "a"), storage.RetryOptions{})} {
		n := 0
		for o, err := range storage.UnfinishedIn(t.Context(), s) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; !strings.HasPrefix(o.Key, name+".k.") || !strings.HasSuffix(o.Key, ".tmp") {
				t.Errorf("%s below %s", o.Key, name)
			}
		}
		if n != 1 {
			t.Errorf("%d files below %s", n, name)
		}
	}
	for o := range storage.UnfinishedIn(t.Context(), storage.Sub(st, "other")) {
		t.Errorf("%s is not in that folder", o.Key)
	}
	for o := range storage.UnfinishedIn(t.Context(), storage.NewMemory("m")) {
		t.Errorf("%s in memory", o.Key)
	}
}

// TestLocal_RemoveEmptyFolders: what is empty goes, deepest first, what may not be
// entered stays, and so does a folder with a file that is being written.
func TestLocal_RemoveEmptyFolders(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a=1/b=2", "a=1/b=3", "_delta_log/empty", "used", "open/deep"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Create(t.Context(), "used/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWriter(t.Context(), "open/deep/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "used"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := s.RemoveEmptyFolders(t.Context(), func(d string, _ time.Time) bool { return d != "_delta_log" })
	if err != nil || !slices.Equal(got, []string{"a=1/b=2", "a=1/b=3", "a=1"}) {
		t.Errorf("removed %v, %v", got, err)
	}
	if _, err := w.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"_delta_log/empty", "used/f", "open/deep/f", "link/f"} {
		if _, err := os.Stat(filepath.Join(dir, d)); err != nil {
			t.Error(err)
		}
	}
}

// TestLocal_RemoveEmptyFolders_Race: writers whose folders go away under them lose nothing.
func TestLocal_RemoveEmptyFolders_Race(t *testing.T) {
	dir := t.TempDir()
	open := func() *storage.Local {
		s, err := storage.NewLocal(dir, storage.LocalOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	remover, done := open(), make(chan struct{})
	var gone atomic.Int64
	var wg, all sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-done:
				return
			default:
			}
			r, err := remover.RemoveEmptyFolders(t.Context(), func(string, time.Time) bool { return true })
			if err != nil {
				t.Error(err)
				return
			}
			gone.Add(int64(len(r)))
		}
	}()
	for n := range 4 {
		s := open()
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 300 {
				key := fmt.Sprintf("p=%d/q=%d/f%d", i%3, n, i)
				if err := s.Create(t.Context(), key, []byte("x")); err != nil {
					t.Error(err)
					return
				}
				if o, err := s.Head(t.Context(), key); err != nil || o.Size != 1 {
					t.Errorf("%s: %v", key, err)
					return
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
	close(done)
	wg.Wait()
	if gone.Load() == 0 {
		t.Error("no folder was removed: nothing was tried")
	}
}
