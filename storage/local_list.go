package storage

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// List implements Store. One directory at a time is held in memory; a directory
// that cannot hold a key in question is not read.
//
// The order is that of whole keys, not of file names: "a-b" comes before "a/b"
// because '-' sorts before '/'. Sorting each directory with "/" appended to the
// names of its directories, and walking in that order, gives exactly this.
func (s *Local) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := validatePrefix(prefix); err != nil {
			yield(Object{}, s.fail("list", prefix, err))
			return
		}
		w := lister{s: s, ctx: ctx, prefix: prefix, after: startAfter, yield: yield}
		w.walk(prefix[:strings.LastIndexByte(prefix, '/')+1], nil)
	}
}

// Unfinished implements [Leftovers]: the temporary files of writes that are under way
// or whose process ended in the middle.
func (s *Local) Unfinished(ctx context.Context) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		w := lister{s: s, ctx: ctx, temp: true, yield: yield}
		w.walk("", nil)
	}
}

type lister struct {
	s      *Local
	temp   bool // temporary files, instead of objects
	ctx    context.Context
	prefix string
	after  string
	yield  func(Object, error) bool
}

// wants says whether any key that begins with dir (which ends in "/" or is "")
// can be in the answer.
func (w *lister) wants(dir string) bool {
	if !strings.HasPrefix(dir, w.prefix) && !strings.HasPrefix(w.prefix, dir) {
		return false
	}
	return dir > w.after || strings.HasPrefix(w.after, dir)
}

// walk lists dir; it reports whether the walk goes on. above holds the
// directories it came through, to notice a symbolic link that leads in a circle.
func (w *lister) walk(dir string, above []fs.FileInfo) bool {
	if err := w.ctx.Err(); err != nil {
		w.yield(Object{}, err)
		return false
	}
	osDir := filepath.Join(w.s.root, filepath.FromSlash(dir))
	fi, err := os.Stat(osDir)
	if err == nil && !fi.IsDir() {
		return true
	}
	var entries []fs.DirEntry
	if err == nil {
		if slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, fi) }) {
			return true
		}
		above = append(above, fi)
		entries, err = os.ReadDir(osDir)
	}
	if err != nil {
		if err = w.s.fail("list", dir, err); errors.Is(err, ErrNotFound) {
			return true // no such directory, or gone since its parent was read
		}
		w.yield(Object{}, err)
		return false
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if n, ok := w.candidate(osDir, dir, e); ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if strings.HasSuffix(n, "/") {
			if !w.walk(dir+n, above) {
				return false
			}
			continue
		}
		fi, err := os.Stat(filepath.Join(osDir, n))
		if err != nil {
			if err = w.s.fail("list", path.Join(dir, n), err); errors.Is(err, ErrNotFound) {
				continue
			}
			w.yield(Object{}, err)
			return false
		}
		if fi.Mode().IsRegular() && !w.yield(object(dir+n, fi), nil) {
			return false
		}
	}
	return true
}

// candidate gives the name of an entry, with "/" if it is a directory, unless
// nothing of it can be in the answer.
func (w *lister) candidate(osDir, dir string, e fs.DirEntry) (string, bool) {
	name, isDir := e.Name(), e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		fi, err := os.Stat(filepath.Join(osDir, name))
		if err != nil {
			return "", false // dangling: there is no object behind it
		}
		isDir = fi.IsDir()
	}
	if isDir {
		name += "/"
		return name, w.wants(dir + name)
	}
	key := dir + name
	return name, strings.HasPrefix(key, w.prefix) && key > w.after && isTemp(name) == w.temp
}
