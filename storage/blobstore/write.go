package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// Create writes an object if the key is absent.
func (s *Store) Create(ctx context.Context, key string, data []byte) error {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return s.fail(ctx, "create", key, err, false)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	o := PutOptions{IfAbsent: true, ID: s.o.NewID()}
	return s.exclusive(ctx, "create", key, name, &o, func() error {
		rctx, cancel := s.limit(ctx, len(data))
		defer cancel()
		return s.d.Put(rctx, name, data, o)
	})
}

// Put writes an object, replacing one that is there.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return s.fail(ctx, "put", key, err, false)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	rctx, cancel := s.limit(ctx, len(data))
	defer cancel()
	return s.fail(ctx, "put", key, s.d.Put(rctx, name, data, PutOptions{ID: s.o.NewID()}), true)
}

// exclusive sends a write that only one may win and settles what its answer
// leaves open.
func (s *Store) exclusive(ctx context.Context, op, key, name string, o *PutOptions, send func() error) error {
	exists := &storage.Error{Op: op, Root: s.url, Key: key, Class: storage.ErrExists}
	if s.o.Guard.SingleWriter {
		switch _, err := s.Head(ctx, key); {
		case err == nil:
			return exists
		case !errors.Is(err, storage.ErrNotFound):
			return err
		}
		o.IfAbsent = false
	}
	err := send()
	if err == nil {
		return nil
	}
	var f *Fault
	answered := errors.As(err, &f)
	if answered && f.exists() {
		return exists
	}
	out := s.fail(ctx, op, key, err, true)
	contested := answered && f.contested()
	if !contested && !errors.Is(out, storage.ErrAmbiguous) {
		return out
	}
	// Who looks does so though the caller's time is over: the answer decides
	// whether the write counts.
	lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Timeout)
	defer cancel()
	a, herr := s.d.Head(lctx, name)
	switch {
	case herr == nil && a.ID == o.ID:
		return nil
	case herr == nil:
		return exists
	case contested && errors.As(herr, &f) && f.Status == http.StatusNotFound:
		return &storage.Error{Op: op, Root: s.url, Key: key, Class: storage.ErrTransient, Err: err}
	}
	return out
}

// NewWriter streams a new object in parts; one that fits into a part is one request.
func (s *Store) NewWriter(ctx context.Context, key string) (storage.Writer, error) {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, s.fail(ctx, "write", key, err, false)
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return &writer{s: s, ctx: ctx, key: key, name: name, o: PutOptions{IfAbsent: true, ID: s.o.NewID()}, slots: make(chan struct{}, partsInFlight)}, nil
}

// partsInFlight parts are on their way while another is filled.
const partsInFlight = 2

var errClosed = errors.New("the writer is closed")

type writer struct {
	s         *Store
	ctx       context.Context // of the stream, as NewWriter's contract has it
	key, name string
	o         PutOptions

	buf   []byte
	parts int
	up    Upload
	ended bool
	slots chan struct{}
	wg    sync.WaitGroup
	mu    struct {
		sync.Mutex
		err error
	}
}

func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

func (w *writer) setFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err == nil {
		w.mu.err = err
	}
}

// Write takes the bytes; full parts are sent behind its back.
func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, w.s.fail(w.ctx, "write", w.key, errClosed, false)
	}
	n := 0
	for len(p) > 0 {
		if err := errors.Join(w.ctx.Err(), w.failed()); err != nil {
			return n, w.s.fail(w.ctx, "write", w.key, err, false)
		}
		take := min(len(p), w.s.o.PartSize-len(w.buf))
		w.buf = append(w.buf, p[:take]...)
		n, p = n+take, p[take:]
		if len(w.buf) == w.s.o.PartSize && len(p) > 0 {
			if err := w.part(false); err != nil {
				w.setFailed(err)
				return n, w.s.fail(w.ctx, "write", w.key, err, false)
			}
		}
	}
	return n, nil
}

// part sends the buffer off, waiting while too many are under way.
func (w *writer) part(last bool) error {
	if w.up == nil {
		if w.s.o.Guard.SingleWriter {
			w.o.IfAbsent = false
		}
		err := w.s.o.Retry.Do(w.ctx, func() (err error) {
			rctx, cancel := w.s.limit(w.ctx, 0)
			defer cancel()
			w.up, err = w.s.d.Upload(rctx, w.name, w.o)
			return transient(err)
		})
		if err != nil {
			return err
		}
	}
	if w.s.o.PartSize > 0 && w.parts >= maxParts {
		return fmt.Errorf("more than %d parts of %d bytes: raise the part size", maxParts, w.s.o.PartSize)
	}
	n, data := w.parts, w.buf
	w.parts, w.buf = w.parts+1, nil
	send := func() error {
		return w.s.o.Retry.Do(w.ctx, func() error {
			rctx, cancel := w.s.limit(w.ctx, len(data))
			defer cancel()
			return transient(w.up.Part(rctx, n, data, last))
		})
	}
	if !w.up.Parallel() {
		return send()
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	w.wg.Go(func() {
		defer func() { <-w.slots }()
		if err := send(); err != nil {
			w.setFailed(err)
		}
	})
	return nil
}

// maxParts is what S3 takes.
const maxParts = 10_000

// transient marks faults that a further try may heal, for storage.RetryOptions.
func transient(err error) error {
	if err != nil && retriable(err) {
		return &transientError{err}
	}
	return err
}

type transientError struct{ error }

func (e *transientError) Unwrap() []error { return []error{e.error, storage.ErrTransient} }

// Close makes the object, if the key is still absent.
func (w *writer) Close() error {
	if w.ended {
		return w.s.fail(w.ctx, "close", w.key, errClosed, false)
	}
	w.ended = true
	if err := errors.Join(w.ctx.Err(), w.failed()); err != nil {
		w.drop()
		return w.s.fail(w.ctx, "close", w.key, err, false)
	}
	if w.up == nil {
		return w.settle(func() error {
			rctx, cancel := w.s.limit(w.ctx, len(w.buf))
			defer cancel()
			return w.s.d.Put(rctx, w.name, w.buf, w.o)
		})
	}
	last := func() error { return w.part(true) }
	if w.up.Parallel() {
		err := last()
		w.wg.Wait()
		if err = errors.Join(err, w.ctx.Err(), w.failed()); err != nil {
			w.drop()
			return w.s.fail(w.ctx, "close", w.key, err, false)
		}
		last = func() error { return nil }
	}
	finish := w.settle
	if !w.up.Parallel() {
		// The last part makes the object, and was tried again itself.
		finish = func(send func() error) error { return w.s.exclusive(w.ctx, "close", w.key, w.name, &w.o, send) }
	}
	err := finish(func() error {
		if err := last(); err != nil {
			return err
		}
		rctx, cancel := w.s.limit(w.ctx, 0)
		defer cancel()
		return w.up.Complete(rctx, w.parts)
	})
	if err != nil && !errors.Is(err, storage.ErrAmbiguous) {
		w.drop()
	}
	return err
}

// settle makes the object and tries again what may pass, as throttling does: the bytes are
// still here, and an object that an earlier try made carries the id of this write.
func (w *writer) settle(send func() error) error {
	var last, open error
	tries := 0
	_ = w.s.o.Retry.Do(w.ctx, func() error {
		tries++
		last = w.s.exclusive(w.ctx, "close", w.key, w.name, &w.o, send)
		if last != nil && tries > 1 && w.made() {
			last = nil
		}
		switch {
		case last == nil:
			open = nil
			return nil
		case errors.Is(last, storage.ErrAmbiguous) && w.ctx.Err() == nil:
			open = last
			return storage.ErrTransient
		}
		return last
	})
	if open != nil {
		return open
	}
	return last
}

// made says whether the object is there and of this write.
func (w *writer) made() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), w.s.o.Timeout)
	defer cancel()
	a, err := w.s.d.Head(ctx, w.name)
	return err == nil && a.ID == w.o.ID
}

// Abort drops what was written.
func (w *writer) Abort() {
	if !w.ended {
		w.ended = true
		w.drop()
	}
}

func (w *writer) drop() {
	w.wg.Wait()
	w.buf = nil
	if w.up != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 30*time.Second)
		defer cancel()
		w.up.Abort(ctx)
	}
}
