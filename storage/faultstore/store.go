package faultstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/sluice-data/sluice/storage"
)

var (
	// ErrInjected is the default fault.
	ErrInjected = errors.New("injected fault")
	// ErrCrashed is what every operation gets after a crash.
	ErrCrashed = errors.New("process crashed (injected)")
)

// Store is a storage.Store that fails as its rules say.
type Store struct {
	inner storage.Store

	mu struct {
		sync.Mutex
		rules    []*Rule
		trace    []Call
		mutators int
		crashed  bool
	}
	down chan struct{} // closed by a crash: it wakes what a gate holds
}

// New wraps inner. More rules can be added at any time.
func New(inner storage.Store, rules ...Rule) *Store {
	s := &Store{inner: inner, down: make(chan struct{})}
	s.Add(rules...)
	return s
}

// Add appends rules; of several that match, the first that is not spent acts.
func (s *Store) Add(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		if r.Times == 0 {
			r.Times = 1
		}
		if r.Err == nil {
			r.Err = ErrInjected
		}
		s.mu.rules = append(s.mu.rules, &r)
	}
}

// Reset drops all rules and the trace; numbers start at 0 again. A crash stays.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rules, s.mu.trace, s.mu.mutators = nil, nil, 0
}

// Inner is the wrapped store.
func (s *Store) Inner() storage.Store { return s.inner }

// Trace is a copy of all calls so far.
func (s *Store) Trace() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.trace)
}

// Count is the number of operations so far, Mutations that of the mutating ones.
func (s *Store) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.trace)
}

// Mutations: see Count.
func (s *Store) Mutations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.mutators
}

// Crash makes every later operation fail, as if the process had been killed.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashLocked()
}

func (s *Store) crashLocked() {
	if !s.mu.crashed {
		s.mu.crashed = true
		close(s.down)
	}
}

// Crashed says whether a crash happened.
func (s *Store) Crashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.crashed
}

// Gate holds one operation until it is released.
type Gate struct {
	arrived chan Call
	open    chan struct{}
	once    sync.Once
}

// Pause holds the first operation that matches. The caller must Release it.
func (s *Store) Pause(m Match) *Gate {
	g := &Gate{arrived: make(chan Call, 1), open: make(chan struct{})}
	s.Add(Rule{Match: m, Mode: Observe, Hook: func(ctx context.Context, c Call) error {
		g.arrived <- c
		select {
		case <-g.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-s.down:
			return ErrCrashed
		}
	}})
	return g
}

// Wait returns the held operation once it has come, or the error of ctx.
func (g *Gate) Wait(ctx context.Context) (Call, error) {
	select {
	case c := <-g.arrived:
		return c, nil
	case <-ctx.Done():
		return Call{}, fmt.Errorf("no operation came to the gate: %w", ctx.Err())
	}
}

// Release lets the operation go on; an operation that comes later is not held.
func (g *Gate) Release() { g.once.Do(func() { close(g.open) }) }

// begin numbers a call and finds the rule for it.
func (s *Store) begin(op Op, key string) (int, Call, *Rule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Call{N: len(s.mu.trace), Mutator: -1, Op: op, Key: key}
	if op.Mutates() {
		c.Mutator = s.mu.mutators
	}
	if s.mu.crashed {
		return -1, c, nil, s.crashErr(op, key)
	}
	if op.Mutates() {
		s.mu.mutators++
	}
	s.mu.trace = append(s.mu.trace, c)
	for _, r := range s.mu.rules {
		if r.Times != 0 && r.Match(c) {
			if r.Times > 0 {
				r.Times--
			}
			if r.Mode == CrashBefore || r.Mode == CrashAfter {
				// From now on for all others; this one is still under way.
				s.crashLocked()
			}
			return c.N, c, r, nil
		}
	}
	return c.N, c, nil, nil
}

func (s *Store) crashErr(op Op, key string) error {
	return &storage.Error{Op: string(op), Root: s.inner.URL(), Key: key, Err: ErrCrashed}
}

// run is every operation: number it, hook it, fail or apply it, trace it.
func (s *Store) run(ctx context.Context, op Op, key string, apply func() error) (err error) {
	n, c, rule, err := s.begin(op, key)
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n < len(s.mu.trace) && s.mu.trace[n].Key == key && s.mu.trace[n].Op == op { // not Reset meanwhile
			s.mu.trace[n].Err = err
		}
	}()
	if rule == nil {
		return apply()
	}
	if rule.Hook != nil {
		if err := rule.Hook(ctx, c); err != nil {
			return s.named(op, key, err)
		}
		if s.Crashed() && rule.Mode != CrashAfter && rule.Mode != CrashBefore {
			return s.crashErr(op, key)
		}
	}
	switch rule.Mode {
	case FailBefore:
		return s.named(op, key, rule.Err)
	case FailAfter:
		if err := apply(); err != nil {
			return err
		}
		err := rule.Err
		if !errors.Is(err, storage.ErrAmbiguous) {
			err = fmt.Errorf("%w: %w", storage.ErrAmbiguous, err)
		}
		return s.named(op, key, err)
	case CrashBefore:
		return s.crashErr(op, key)
	case CrashAfter:
		_ = apply() // whatever came of it, nobody hears it
		return s.crashErr(op, key)
	}
	return apply()
}

func (s *Store) named(op Op, key string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &storage.Error{Op: string(op), Root: s.inner.URL(), Key: key, Err: err}
}

// URL implements storage.Store.
func (s *Store) URL() string { return s.inner.URL() }

// Head implements storage.Store.
func (s *Store) Head(ctx context.Context, key string) (o storage.Object, err error) {
	err = s.run(ctx, Head, key, func() (err error) { o, err = s.inner.Head(ctx, key); return err })
	return o, err
}

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, key string) (storage.Reader, error) {
	var r storage.Reader
	err := s.run(ctx, Open, key, func() (err error) { r, err = s.inner.Open(ctx, key); return err })
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, err
	}
	return &reader{Reader: r, s: s, ctx: ctx, key: key}, nil
}

type reader struct {
	storage.Reader
	s   *Store
	ctx context.Context
	key string
}

func (r *reader) ReadAt(p []byte, off int64) (n int, err error) {
	err = r.s.run(r.ctx, Read, r.key, func() (err error) { n, err = r.Reader.ReadAt(p, off); return err })
	return n, err
}

// Create implements storage.Store.
func (s *Store) Create(ctx context.Context, key string, data []byte) error {
	return s.run(ctx, Create, key, func() error { return s.inner.Create(ctx, key, data) })
}

// Put implements storage.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	return s.run(ctx, Put, key, func() error { return s.inner.Put(ctx, key, data) })
}

// NewWriter implements storage.Store.
func (s *Store) NewWriter(ctx context.Context, key string) (storage.Writer, error) {
	var w storage.Writer
	err := s.run(ctx, NewWriter, key, func() (err error) { w, err = s.inner.NewWriter(ctx, key); return err })
	if err != nil {
		if w != nil {
			w.Abort()
		}
		return nil, err
	}
	return &writer{Writer: w, s: s, ctx: ctx, key: key}, nil
}

type writer struct {
	storage.Writer
	s      *Store
	ctx    context.Context
	key    string
	failed error // a Write that failed fails the Close, by the contract
}

func (w *writer) Write(p []byte) (n int, err error) {
	err = w.s.run(w.ctx, Write, w.key, func() (err error) { n, err = w.Writer.Write(p); return err })
	if err != nil && w.failed == nil {
		w.failed = err
	}
	return n, err
}

func (w *writer) Close() error {
	err := w.s.run(w.ctx, Close, w.key, func() error {
		if w.failed != nil {
			w.Writer.Abort()
			return w.failed
		}
		return w.Writer.Close()
	})
	if err != nil {
		w.Writer.Abort() // of a Writer that was closed it does nothing
	}
	return err
}

// List implements storage.Store. It is one operation; a fault of mode FailAfter
// yields the objects and then the error.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		left := false
		err := s.run(ctx, List, prefix, func() error {
			for o, err := range s.inner.List(ctx, prefix, startAfter) {
				if err != nil {
					return err
				}
				if !yield(o, nil) {
					left = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !left {
			yield(storage.Object{}, err)
		}
	}
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.run(ctx, Delete, key, func() error { return s.inner.Delete(ctx, key) })
}
