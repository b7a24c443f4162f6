package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// Create implements Store.
func (s *Local) Create(ctx context.Context, key string, data []byte) error {
	p, err := s.path(ctx, "create", key)
	if err != nil {
		return err
	}
	// A loser of a race is told without writing and syncing a file for nothing.
	// This is only a short cut: link(2) decides.
	if _, err := os.Lstat(p); err == nil {
		return s.fail("create", key, ErrExists)
	}
	w, err := s.begin(ctx, "create", key, p)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.finish(false)
}

// Put implements Store.
func (s *Local) Put(ctx context.Context, key string, data []byte) error {
	p, err := s.path(ctx, "put", key)
	if err != nil {
		return err
	}
	w, err := s.begin(ctx, "put", key, p)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.finish(true)
}

// NewWriter implements Store. The bytes are on disk, unnamed, as they are
// written; memory use does not grow with the object.
func (s *Local) NewWriter(ctx context.Context, key string) (Writer, error) {
	p, err := s.path(ctx, "write", key)
	if err != nil {
		return nil, err
	}
	w, err := s.begin(ctx, "write", key, p)
	if err != nil {
		return nil, err // not a nil pointer that is no nil Writer
	}
	return w, nil
}

// localWriter is one temporary file on its way to its final name. It carries
// ctx because io.Writer has no place for one.
type localWriter struct {
	s     *Local
	ctx   context.Context
	op    string
	key   string
	path  string
	tmp   string
	f     *os.File // nil once closed
	err   error    // sticky
	ended bool
}

// begin makes the directories of path and an empty temporary file in the last.
func (s *Local) begin(ctx context.Context, op, key, path string) (*localWriter, error) {
	dir, name := filepath.Split(path)
	if isTemp(name) {
		return nil, s.fail(op, key, fmt.Errorf("%w: reserved for temporary files", ErrInvalidKey))
	}
	tmp := filepath.Join(dir, tempName(name, s.opts.NewID()))
	var f *os.File
	for try := 1; ; try++ {
		err := s.mkdirAll(filepath.Clean(dir))
		if err == nil {
			f, err = os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		}
		if err == nil {
			break
		}
		// Between the two steps somebody may have removed the folder as an empty one.
		// From here on it is not empty.
		if try == folderTries || !errors.Is(err, fs.ErrNotExist) {
			return nil, s.failWrite(op, key, err)
		}
	}
	return &localWriter{s: s, ctx: ctx, op: op, key: key, path: path, tmp: tmp, f: f}, nil
}

// folderTries bounds how often a writer makes a folder that others remove.
const folderTries = 100

// failWrite is fail for the steps before an object gets its name. A missing or
// existing directory or temporary file there says nothing about the key.
func (s *Local) failWrite(op, key string, err error) error {
	err = s.fail(op, key, err)
	var e *Error
	if errors.As(err, &e) && (e.Class == ErrNotFound || e.Class == ErrExists) {
		e.Class = nil
	}
	return err
}

func (w *localWriter) Write(p []byte) (int, error) {
	if w.err == nil && w.ended {
		w.err = w.s.fail(w.op, w.key, fs.ErrClosed)
	}
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.f.Write(p)
	if err != nil {
		w.err = w.s.failWrite(w.op, w.key, err)
	}
	return n, w.err
}

func (w *localWriter) Close() error {
	if w.ended {
		return w.s.fail("close", w.key, fs.ErrClosed)
	}
	defer w.Abort()
	if w.err != nil {
		return w.err
	}
	w.op = "close"
	return w.finish(false)
}

func (w *localWriter) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
	os.Remove(w.tmp)
}

// finish gives the temporary file its final name. Up to that step an error
// leaves nothing behind; after it, an error can only be ErrAmbiguous.
func (w *localWriter) finish(replace bool) error {
	if !w.s.opts.NoSync {
		if err := w.f.Sync(); err != nil {
			return w.s.failWrite(w.op, w.key, err)
		}
	}
	// Deferred write errors of network file systems come out of close.
	err := w.f.Close()
	w.f = nil
	if err != nil {
		return w.s.failWrite(w.op, w.key, err)
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if replace {
		err = os.Rename(w.tmp, w.path)
	} else {
		err = w.name()
	}
	if err != nil {
		err = w.s.fail(w.op, w.key, err)
		if errors.Is(err, ErrNotFound) { // the directory went away under us
			err = w.s.failWrite(w.op, w.key, err)
		}
		return err
	}
	w.ended = true
	if err := w.s.syncDir(filepath.Dir(w.path)); err != nil {
		return &Error{Op: w.op, Root: w.s.url, Key: w.key, Class: ErrAmbiguous,
			Err: fmt.Errorf("sync directory: %w", err)}
	}
	return nil
}

// name is the decision of invariant 1: link, else rename without replacing.
func (w *localWriter) name() error {
	err := os.Link(w.tmp, w.path)
	if err == nil {
		// The object exists from here on. A leftover name is hidden and harmless.
		os.Remove(w.tmp)
		return nil
	}
	if linkUnsupported(err) {
		err = renameNoReplace(w.tmp, w.path)
		if err == nil {
			return nil
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("the file system has neither hard links nor an exclusive rename, so two writers could overwrite each other: %w", err)
		}
	}
	// Over a network the answer can be wrong: a link that was made, lost its
	// answer and was asked for again comes back as "exists".
	mine, serr := os.Stat(w.tmp)
	there, terr := os.Stat(w.path)
	switch {
	case serr == nil && terr == nil && os.SameFile(mine, there):
		os.Remove(w.tmp)
		return nil
	case classify(err) != nil, serr == nil && errors.Is(terr, fs.ErrNotExist):
		return err
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// mkdirAll makes dir and its missing parents, each durable before it is used.
//
// A directory that is there may have been made a moment ago by another process
// that has not come to its fsync yet, so the first use of a directory in or of
// the root syncs its parent; durable remembers that it was done.
func (s *Local) mkdirAll(dir string) error {
	if _, ok := s.durable.Load(dir); ok {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return nil
		}
	}
	parent, inside := filepath.Dir(dir), strings.HasPrefix(dir, s.root)
	fi, err := os.Stat(dir)
	switch {
	case err == nil && !fi.IsDir():
		return fmt.Errorf("%s is not a directory", filepath.Base(dir))
	case err == nil && !inside:
		return nil
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || parent == dir):
		return err
	}
	if parent != dir {
		if err := s.mkdirAll(parent); err != nil {
			return err
		}
	}
	if err != nil {
		if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	err = s.syncDir(parent)
	if err != nil && fi != nil && errors.Is(err, fs.ErrPermission) {
		err = nil // the parent of an old root may be closed to us; it is not ours to sync
	}
	if err == nil {
		s.durable.Store(dir, struct{}{})
	}
	return err
}

func (s *Local) syncDir(dir string) error {
	if s.opts.NoSync {
		return nil
	}
	return syncDir(dir)
}

const tempSuffix = ".tmp"

// tempName is the name of the temporary file for name. It fits into the 255
// bytes of a file name even if name itself fills them.
func tempName(name, id string) string {
	const room = 255 - len("..") - len(tempSuffix) - 36
	if len(name) > room {
		name = strings.ToValidUTF8(name[:room], "")
	}
	return "." + name + "." + id + tempSuffix
}

// isTemp tells our temporary files from everything else: .<name>.<uuid>.tmp.
func isTemp(name string) bool {
	body, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || !strings.HasPrefix(name, ".") || len(body) < 38 || body[len(body)-37] != '.' {
		return false
	}
	return uuid.Validate(body[len(body)-36:]) == nil
}
