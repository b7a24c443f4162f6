package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Folders is a Store whose folders exist apart from the objects in them, and stay when
// the last one goes.
type Folders interface {
	Store
	// RemoveEmptyFolders removes the folders below the root that hold nothing, deepest
	// first, and answers their keys. may is asked about a folder before it is entered;
	// false leaves it and everything in it alone. A folder that gets an object meanwhile
	// stays, and writers of this package make one anew that they lose.
	RemoveEmptyFolders(ctx context.Context, may func(dir string, modTime time.Time) bool) ([]string, error)
}

// RemoveEmptyFolders implements [Folders]. Symbolic links are not followed.
func (s *Local) RemoveEmptyFolders(ctx context.Context, may func(dir string, modTime time.Time) bool) ([]string, error) {
	w := folderWalk{s: s, ctx: ctx, may: may}
	err := w.walk("")
	return w.removed, err
}

type folderWalk struct {
	s       *Local
	ctx     context.Context
	may     func(string, time.Time) bool
	removed []string
}

// walk looks at the folders in dir, which is "" or ends in a slash.
func (w *folderWalk) walk(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(w.s.root, filepath.FromSlash(dir)))
	if err != nil {
		if err = w.s.fail("list", dir, err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		key := dir + e.Name()
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return w.s.fail("list", key, err)
		}
		if !w.may(key, fi.ModTime()) {
			continue
		}
		if err := w.walk(key + "/"); err != nil {
			return err
		}
		path := filepath.Join(w.s.root, filepath.FromSlash(key))
		switch err := os.Remove(path); {
		case err == nil:
			w.s.durable.Delete(path)
			w.removed = append(w.removed, key)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
			// gone already, or in use
		default:
			return w.s.fail("delete", key, err)
		}
	}
	return nil
}
