package blobstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sluice-data/sluice/storage"
)

// ErrUnconditional: the store took a second object of one name though it was
// told not to, so that two writers could both commit one version (W-123).
var ErrUnconditional = errors.New("the store ignores conditional writes")

// UnconditionalError says which store, and what to do.
type UnconditionalError struct{ URL string }

func (e *UnconditionalError) Error() string {
	return fmt.Sprintf("%s: %v: two writers could both commit the same version; with --single-writer it works for one writer at a time", e.URL, ErrUnconditional)
}

// Is answers the class.
func (e *UnconditionalError) Is(target error) bool { return target == ErrUnconditional }

// Code is the stable error code.
func (e *UnconditionalError) Code() string { return "UNSAFE_STORE" }

// Guard proves, once for a process and a bucket, that the bucket refuses a second
// creator. The zero value is one that has not looked yet.
type Guard struct {
	// SingleWriter says that nobody else writes: nothing is proved, and writes are
	// made unconditionally after a look.
	SingleWriter bool
	// External says that another service decides who commits (a log store): nothing
	// is proved.
	External bool

	mu     sync.Mutex
	proved bool
}

const probePrefix = "_delta_log/.probe-"

func isProbe(key string) bool { return strings.HasPrefix(key, probePrefix) }

// ready probes the bucket before the first write. What fails is tried again by
// the next write; only a proof is kept.
func (s *Store) ready(ctx context.Context) error {
	g := s.o.Guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.SingleWriter || g.External || g.proved {
		return nil
	}
	key := probePrefix + s.o.NewID()
	name := s.prefix + key
	put := func() error {
		rctx, cancel := s.limit(ctx, 0)
		defer cancel()
		return s.d.Put(rctx, name, []byte("probe"), PutOptions{IfAbsent: true, ID: key})
	}
	remove := func() error {
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Timeout)
		defer cancel()
		return s.d.Delete(dctx, name)
	}
	var f *Fault
	if err := put(); err != nil {
		// A probe that was written though its answer was lost may lie there: it
		// holds nothing, and listings leave it out.
		if errors.As(err, &f) && errors.Is(f.writeClass(), storage.ErrAmbiguous) && remove() == nil {
			// The next try uses another name, so nothing is left open.
			return &storage.Error{Op: "probe", Root: s.url, Key: key, Class: storage.ErrTransient, Err: err}
		}
		if errors.As(err, &f) && f.Status == 501 {
			return &UnconditionalError{s.url}
		}
		return s.fail(ctx, "probe", key, err, false)
	}
	err := put()
	switch {
	case err == nil:
		return errors.Join(&UnconditionalError{s.url}, remove())
	case errors.As(err, &f) && (f.exists() || f.contested()):
		g.proved = true
		// Without the right to delete the probe stays; that takes nothing from the proof.
		if err := remove(); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return nil
	}
	return errors.Join(s.fail(ctx, "probe", key, err, false), remove())
}
