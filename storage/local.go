package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// LocalOptions configures NewLocal. The zero value is safe for production.
type LocalOptions struct {
	// NoSync leaves out every fsync. Invariant 3 of the package then no longer
	// holds after a crash of the machine; a crash of the process loses nothing.
	// For tests and throw-away tables.
	NoSync bool
	// NewID names temporary files; it must not repeat. Default: random UUIDs. A
	// name that is not a UUID makes leftovers visible to List.
	NewID func() string
}

// Local is a Store in a directory of a local (or mounted) file system.
//
// How a new object comes to be: bytes go to a temporary file in the directory
// of the final name, the file is fsynced, link(2) gives it the final name (which
// fails if that name is taken, atomically, for all processes), the temporary
// name goes away and the directory is fsynced. File systems without hard links
// get a rename that refuses to replace. There is no moment at which another
// process sees a part of the object, and a crash leaves at most a temporary
// file, which List does not show.
//
// Directories are not objects: Head of one is ErrNotFound, Delete leaves it.
// Symbolic links in the tree are followed, as other engines do.
type Local struct {
	root string // absolute, symlinks resolved, no trailing separator
	url  string
	opts LocalOptions

	durable sync.Map // directories whose names are known to be on disk, see mkdirAll
}

// NewLocal gives the store in dir, which need not exist yet: nothing is written
// before the first write. Symbolic links in dir are resolved once, here.
func NewLocal(dir string, opts LocalOptions) (*Local, error) {
	if dir == "" {
		return nil, fmt.Errorf("open local store: %w: empty directory name", ErrInvalidKey)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open local store %s: %w", dir, err)
	}
	root, err := resolveExisting(abs)
	if err != nil {
		return nil, wrapOS("open", fileURL(abs), "", err)
	}
	if opts.NewID == nil {
		opts.NewID = uuid.NewString
	}
	return &Local{root: root, url: fileURL(root), opts: opts}, nil
}

// resolveExisting resolves the symbolic links of the part of the path that
// exists and keeps the rest, so that one table has one URL.
func resolveExisting(abs string) (string, error) {
	rest := ""
	for p := abs; ; p = filepath.Dir(p) {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			if fi, err := os.Stat(real); err == nil && !fi.IsDir() {
				return "", &fs.PathError{Op: "open", Path: real, Err: fmt.Errorf("%w: it is a file, and a table is a folder", ErrNotFolder)}
			}
			return filepath.Join(real, rest), nil
		}
		// A dangling link also says "not exist"; it must not be taken for a
		// name that a first write may create.
		if _, lerr := os.Lstat(p); lerr == nil || !errors.Is(err, fs.ErrNotExist) || p == filepath.Dir(p) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

func fileURL(abs string) string {
	p := filepath.ToSlash(abs)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x
	}
	if !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

// URL is the root as a file URL.
func (s *Local) URL() string { return s.url }

// Dir is the root as a path of the operating system.
func (s *Local) Dir() string { return s.root }

func (s *Local) fail(op, key string, err error) error { return wrapOS(op, s.url, key, err) }

// path checks key and ctx and gives the file's path.
func (s *Local) path(ctx context.Context, op, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := ValidateKey(key); err != nil {
		return "", s.fail(op, key, err)
	}
	p := filepath.FromSlash(key)
	if !filepath.IsLocal(p) || filepath.ToSlash(p) != key || osForbids(key) {
		return "", s.fail(op, key, fmt.Errorf("%w: not a file name on this system", ErrInvalidKey))
	}
	return filepath.Join(s.root, p), nil
}

// Head implements Store.
func (s *Local) Head(ctx context.Context, key string) (Object, error) {
	p, err := s.path(ctx, "head", key)
	if err != nil {
		return Object{}, err
	}
	fi, err := os.Stat(p)
	if err == nil {
		err = wantRegular(fi)
	}
	if err != nil {
		return Object{}, s.fail("head", key, err)
	}
	return object(key, fi), nil
}

func wantRegular(fi fs.FileInfo) error {
	switch {
	case fi.IsDir():
		return fmt.Errorf("%w: it is a directory", ErrNotFound)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a regular file", ErrInvalidKey)
	}
	return nil
}

func object(key string, fi fs.FileInfo) Object {
	return Object{Key: key, Size: fi.Size(), ModTime: fi.ModTime(), ETag: etag(fi)}
}

// Open implements Store. The Reader keeps seeing the bytes it was opened on,
// even if the key is replaced or deleted meanwhile.
func (s *Local) Open(ctx context.Context, key string) (Reader, error) {
	p, err := s.path(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	// Asking first keeps open(2) from waiting for ever on a named pipe.
	fi, err := os.Stat(p)
	if err == nil {
		err = wantRegular(fi)
	}
	if err != nil {
		return nil, s.fail("open", key, err)
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, s.fail("open", key, err)
	}
	if fi, err = f.Stat(); err != nil {
		f.Close()
		return nil, s.fail("open", key, err)
	}
	return &localReader{s: s, ctx: ctx, key: key, f: f, size: fi.Size()}, nil
}

// localReader carries the context of Open because io.ReaderAt has no place for
// one and the contract says that it bounds the reads.
type localReader struct {
	s    *Local
	ctx  context.Context
	key  string
	f    *os.File
	size int64
}

func (r *localReader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.f.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = r.s.fail("read", r.key, err)
	}
	return n, err
}

func (r *localReader) Size() int64 { return r.size }

func (r *localReader) Close() error {
	return r.s.fail("close", r.key, r.f.Close())
}

// Delete implements Store. The removal is visible at once; after a crash of the
// machine the object may be back.
func (s *Local) Delete(ctx context.Context, key string) error {
	p, err := s.path(ctx, "delete", key)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(p)
	if err == nil && !fi.IsDir() {
		err = os.Remove(p)
	}
	err = s.fail("delete", key, err)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
