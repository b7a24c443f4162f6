package blobstore

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-data/sluice/storage"
)

// Options of [New]; the zero value is the default.
type Options struct {
	// Guard is shared by all stores on one bucket in a process; nil: an own one.
	Guard *Guard
	// PartSize is the size of a part of an upload, in bytes. Default 8 MiB.
	PartSize int
	// ReadBuffer bounds what a Reader keeps, in bytes. Default 16 MiB.
	ReadBuffer int
	// Timeout bounds one request; a second for every 64 KiB that it moves is
	// added. Default 60 s.
	Timeout time.Duration
	// Retry is for the parts of an upload; all other calls fail at once, for
	// storage.WithRetry to try again.
	Retry storage.RetryOptions
	// NewID names writes and probes. Default uuid.NewString.
	NewID func() string
}

const (
	firstRead = 64 << 10 // bytes that Open brings along
	maxList   = 2        // pages of a listing that are held at once
)

func (o Options) withDefaults() Options {
	if o.Guard == nil {
		o.Guard = &Guard{}
	}
	if o.PartSize <= 0 {
		o.PartSize = 8 << 20
	}
	if o.ReadBuffer <= 0 {
		o.ReadBuffer = 16 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return o
}

// Store is a storage.Store below a prefix of a bucket.
type Store struct {
	d      Driver
	prefix string // "" or ending in "/"
	url    string
	o      Options
}

var _ storage.Store = (*Store)(nil)

// New makes the store below prefix; it does no I/O.
func New(d Driver, prefix string, o Options) *Store {
	s := &Store{d: d, prefix: strings.Trim(prefix, "/"), o: o.withDefaults()}
	s.url = d.URL()
	if s.prefix != "" {
		for el := range strings.SplitSeq(s.prefix, "/") {
			s.url += url.PathEscape(el) + "/"
		}
		s.prefix += "/"
	}
	return s
}

// URL is the canonical root, percent-encoded, ending in "/".
func (s *Store) URL() string { return s.url }

// full checks a key and gives the whole name of its object.
func (s *Store) full(key string) (string, error) {
	if err := storage.ValidateKey(key); err != nil {
		return "", err
	}
	return s.prefix + key, storage.ValidateKey(s.prefix + key)
}

// limit bounds one request that moves n bytes.
func (s *Store) limit(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.o.Timeout+time.Duration(n>>16)*time.Second)
}

// fail makes the error of an operation of what the driver said. Errors of the
// caller's context come through bare, unless they leave a write open.
func (s *Store) fail(ctx context.Context, op, key string, err error, write bool) error {
	if err == nil {
		return nil
	}
	var known *storage.Error
	if errors.As(err, &known) {
		return err
	}
	e := &storage.Error{Op: op, Root: s.url, Key: key, Err: err}
	var f *Fault
	switch {
	case ctx.Err() != nil && !write:
		return ctx.Err()
	case ctx.Err() != nil:
		e.Class, e.Err = storage.ErrAmbiguous, ctx.Err()
	case errors.As(err, &f) && write:
		e.Class = f.writeClass()
	case errors.As(err, &f):
		e.Class = f.class()
	case errors.Is(err, storage.ErrInvalidKey):
	case errors.Is(err, context.DeadlineExceeded) && write: // ours, not the caller's
		e.Class, e.Err = storage.ErrAmbiguous, errTimeout
	case errors.Is(err, context.DeadlineExceeded):
		e.Class, e.Err = storage.ErrTransient, errTimeout
	}
	return e
}

var errTimeout = errors.New("no answer in time")

// Head describes an object.
func (s *Store) Head(ctx context.Context, key string) (storage.Object, error) {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return storage.Object{}, s.fail(ctx, "head", key, err, false)
	}
	rctx, cancel := s.limit(ctx, 0)
	defer cancel()
	a, err := s.d.Head(rctx, name)
	if err != nil {
		return storage.Object{}, s.fail(ctx, "head", key, err, false)
	}
	return storage.Object{Key: key, Size: a.Size, ModTime: a.ModTime, ETag: a.Version}, nil
}

// List yields objects in byte order; the page after the one that is read is
// fetched meanwhile.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if err := storage.ValidateKey(prefix + "x"); err != nil {
			yield(storage.Object{}, s.fail(ctx, "list", prefix, err, false))
			return
		}
		if err := ctx.Err(); err != nil {
			yield(storage.Object{}, err)
			return
		}
		after := startAfter
		if after != "" {
			after = s.prefix + after
		}
		if after < s.prefix+prefix {
			after = "" // everything with the prefix comes later
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		for p := range s.pages(ctx, s.prefix+prefix, after) {
			if p.err != nil {
				yield(storage.Object{}, s.fail(ctx, "list", prefix, p.err, false))
				return
			}
			for _, a := range p.Objects {
				key := strings.TrimPrefix(a.Key, s.prefix)
				if key <= startAfter || strings.HasSuffix(key, "/") || isProbe(key) || !strings.HasPrefix(key, prefix) {
					continue // markers of folders, and what a store gave too much
				}
				if !yield(storage.Object{Key: key, Size: a.Size, ModTime: a.ModTime, ETag: a.Version}, nil) {
					return
				}
			}
		}
	}
}

type page struct {
	Page
	err error
}

// pages reads a listing ahead of its consumer by one page.
func (s *Store) pages(ctx context.Context, prefix, after string) <-chan page {
	out := make(chan page, maxList-1)
	go func() {
		defer close(out)
		token := ""
		for {
			rctx, cancel := context.WithTimeout(ctx, 10*s.o.Timeout) // a driver may need several requests
			p, err := s.d.List(rctx, prefix, after, token)
			cancel()
			select {
			case out <- page{p, err}:
			case <-ctx.Done():
				return
			}
			if token = p.Next; err != nil || token == "" {
				return
			}
		}
	}()
	return out
}

// Delete removes an object; an absent one is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		rctx, cancel := s.limit(ctx, 0)
		defer cancel()
		err = s.d.Delete(rctx, name)
	}
	var f *Fault
	if errors.As(err, &f) && f.Status == http.StatusNotFound && f.Code != "NoSuchBucket" {
		return nil
	}
	return s.fail(ctx, "delete", key, err, false)
}
