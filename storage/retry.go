package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"
)

// RetryOptions configures WithRetry. The zero value is the default.
type RetryOptions struct {
	// Attempts is how often a call is made in all. Default 5; 1 means no retry.
	Attempts int
	// Base is the longest pause before the second attempt; it doubles with each
	// further one. The pause is drawn evenly from half of that to all of it.
	// Default 100ms.
	Base time.Duration
	// Max bounds the pause. Default 10s.
	Max time.Duration
	// Sleep waits, or returns early with the error of ctx. Default: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Rand gives numbers in [0,1). Default: math/rand/v2.
	Rand func() float64
}

func (o RetryOptions) withDefaults() RetryOptions {
	if o.Attempts <= 0 {
		o.Attempts = 5
	}
	if o.Base <= 0 {
		o.Base = 100 * time.Millisecond
	}
	if o.Max <= 0 {
		o.Max = 10 * time.Second
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithRetry tries calls of inner again that fail with ErrTransient, a bounded
// number of times, with growing pauses.
//
//  1. An error that is ErrAmbiguous is never retried: whoever wrote must read
//     back first. So a Create or Put is tried again only when the store says
//     that it was not applied (ErrTransient alone).
//  2. Write and Close of a Writer are never retried: the stream cannot be replayed.
//  3. A List that fails midway goes on after the last object that it yielded.
//  4. The last error is returned, wrapped with the number of attempts; its
//     class and cause stay visible to errors.Is.
func WithRetry(inner Store, opts RetryOptions) Store {
	s := &retryStore{inner: inner, opts: opts.withDefaults()}
	if f, ok := inner.(Folders); ok {
		return &retryFolders{s, f}
	}
	return s
}

// retryFolders is a retryStore of a store that has folders.
type retryFolders struct {
	*retryStore
	folders Folders
}

// RemoveEmptyFolders implements [Folders]; it is not tried again, the next one goes on.
func (s *retryFolders) RemoveEmptyFolders(ctx context.Context, may func(string, time.Time) bool) ([]string, error) {
	return s.folders.RemoveEmptyFolders(ctx, may)
}

type retryStore struct {
	inner Store
	opts  RetryOptions
}

func retriable(err error) bool {
	return errors.Is(err, ErrTransient) && !errors.Is(err, ErrAmbiguous)
}

// Do calls f until it succeeds, fails with an error that is not ErrTransient, or
// was called as often as the options allow. The zero value of o is the default.
func (o RetryOptions) Do(ctx context.Context, f func() error) error {
	return o.withDefaults().do(ctx, f)
}

// pause waits after the attempt with the given number, counted from 1. It
// returns the error to give up with, or nil to go on.
func (o RetryOptions) pause(ctx context.Context, attempt int, err error) error {
	if !retriable(err) {
		if attempt > 1 {
			return fmt.Errorf("attempt %d: %w", attempt, err)
		}
		return err
	}
	if attempt >= o.Attempts {
		return fmt.Errorf("gave up after %d attempts: %w", attempt, err)
	}
	d := o.Max
	if n := attempt - 1; n < 30 && o.Base<<n < o.Max && o.Base<<n > 0 {
		d = o.Base << n
	}
	d = d/2 + time.Duration(o.Rand()*float64(d/2))
	if serr := o.Sleep(ctx, d); serr != nil {
		return errors.Join(serr, err)
	}
	return nil
}

func (o RetryOptions) do(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return nil
		}
		if err := o.pause(ctx, attempt, err); err != nil {
			return err
		}
	}
}

func (s *retryStore) URL() string { return s.inner.URL() }

func (s *retryStore) Head(ctx context.Context, key string) (o Object, err error) {
	err = s.opts.do(ctx, func() error { o, err = s.inner.Head(ctx, key); return err })
	return o, err
}

func (s *retryStore) Open(ctx context.Context, key string) (r Reader, err error) {
	err = s.opts.do(ctx, func() error { r, err = s.inner.Open(ctx, key); return err })
	if err != nil {
		return nil, err
	}
	return &retryReader{Reader: r, s: s, ctx: ctx}, nil
}

type retryReader struct {
	Reader
	s   *retryStore
	ctx context.Context
}

func (r *retryReader) ReadAt(p []byte, off int64) (n int, err error) {
	err = r.s.opts.do(r.ctx, func() error {
		m, err := r.Reader.ReadAt(p[n:], off+int64(n))
		n += m
		if err == io.EOF {
			return nil
		}
		return err
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (s *retryStore) Create(ctx context.Context, key string, data []byte) error {
	return s.opts.do(ctx, func() error { return s.inner.Create(ctx, key, data) })
}

func (s *retryStore) Put(ctx context.Context, key string, data []byte) error {
	return s.opts.do(ctx, func() error { return s.inner.Put(ctx, key, data) })
}

func (s *retryStore) NewWriter(ctx context.Context, key string) (w Writer, err error) {
	err = s.opts.do(ctx, func() error { w, err = s.inner.NewWriter(ctx, key); return err })
	return w, err
}

func (s *retryStore) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		after := startAfter
		for attempt := 1; ; attempt++ {
			var failed error
			for o, err := range s.inner.List(ctx, prefix, after) {
				if err != nil {
					failed = err
					break
				}
				after, attempt = o.Key, 1 // progress: the faults before it are past
				if !yield(o, nil) {
					return
				}
			}
			if failed == nil {
				return
			}
			if err := s.opts.pause(ctx, attempt, failed); err != nil {
				yield(Object{}, err)
				return
			}
		}
	}
}

func (s *retryStore) Delete(ctx context.Context, key string) error {
	return s.opts.do(ctx, func() error { return s.inner.Delete(ctx, key) })
}

// Unfinished implements [Leftovers], without trying again.
func (s *retryStore) Unfinished(ctx context.Context) iter.Seq2[Object, error] {
	return UnfinishedIn(ctx, s.inner)
}
