package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Classes of errors. Test with errors.Is; details are in the wrapping error.
var (
	// ErrNotFound: no object with that key.
	ErrNotFound = errors.New("not found")
	// ErrExists: Create or an exclusive Writer met an object with that key.
	ErrExists = errors.New("already exists")
	// ErrAmbiguous: the write may or may not have been applied.
	ErrAmbiguous = errors.New("outcome unknown")
	// ErrTransient: the call may succeed if it is tried again. On a write it also
	// says that nothing was applied, unless the error is ErrAmbiguous as well.
	ErrTransient = errors.New("transient fault")
	// ErrInvalidKey: the key is empty, absolute, or has an element ".", ".." or "".
	ErrInvalidKey = errors.New("invalid key")
	// ErrPermission: the store refuses this caller (read-only folder, missing right).
	ErrPermission = errors.New("permission denied")
	// ErrNoSpace: the store is full.
	ErrNoSpace = errors.New("no space left")
)

// ErrNotFolder is an ErrInvalidKey: the root of a local store is a file.
var ErrNotFolder = fmt.Errorf("%w", ErrInvalidKey)

// Object describes one stored object.
type Object struct {
	Key     string
	Size    int64     // bytes
	ModTime time.Time // as the store reports it
	// ETag changes when the bytes do; for local files it is made of device,
	// inode, size and modification time. Empty if the store has none.
	ETag string
}

// Store is one rooted place for objects. Every method is safe for concurrent use.
type Store interface {
	// URL is the canonical root, ending in "/": file:///data/t/, s3://b/p/, mem://name/.
	URL() string
	// Head describes the object or fails with ErrNotFound.
	Head(ctx context.Context, key string) (Object, error)
	// Open gives random access to one object. The caller closes the Reader; ctx
	// bounds the reads as well as the call.
	Open(ctx context.Context, key string) (Reader, error)
	// Create writes a small object if the key is absent (invariant 1).
	Create(ctx context.Context, key string, data []byte) error
	// Put writes a small object, atomically replacing one that is there.
	Put(ctx context.Context, key string, data []byte) error
	// NewWriter streams a new object (invariant 2). It is exclusive: if the key
	// exists at Close, Close fails with ErrExists.
	NewWriter(ctx context.Context, key string) (Writer, error)
	// List yields the objects whose key has the prefix (plain string prefix, all
	// levels below) in byte order, strictly after startAfter if that is not "".
	// A prefix that matches nothing yields nothing. The first error ends the walk.
	// Files a store needs for its own work (unfinished writes) are never listed.
	List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error]
	// Delete removes the object; an absent key is not an error.
	Delete(ctx context.Context, key string) error
}

// Leftovers is a Store that can name what writes leave that never ended, and that List
// does not show. Delete takes such a key away.
type Leftovers interface {
	// Unfinished yields them; some may still be written: their ModTime tells.
	Unfinished(ctx context.Context) iter.Seq2[Object, error]
}

// UnfinishedIn are those of a store, none where it leaves none.
func UnfinishedIn(ctx context.Context, s Store) iter.Seq2[Object, error] {
	if l, ok := s.(Leftovers); ok {
		return l.Unfinished(ctx)
	}
	return func(func(Object, error) bool) {}
}

// Reader is random access to one object; ReadAt is safe for concurrent use.
type Reader interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Writer streams one object; it is used by one goroutine at a time. Close or
// Abort ends it; Abort after Close does nothing, so it can be deferred. A Write
// that failed, or a context that ended, makes Close fail and drop the object.
type Writer interface {
	io.Writer
	// Close makes the object durable and visible.
	Close() error
	// Abort drops what was written.
	Abort()
}

// ReadAll reads the whole object.
func ReadAll(ctx context.Context, s Store, key string) (_ []byte, err error) {
	r, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	b := make([]byte, r.Size())
	if n, err := r.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}
