package storage

import (
	"context"
	"iter"
	"strings"
)

// Sub is the part of a store below a directory, as a store of its own: key k of it
// is key dir/k of inner. dir is a valid key; closing and faults are inner's.
func Sub(inner Store, dir string) Store {
	return &sub{inner: inner, prefix: strings.Trim(dir, "/") + "/"}
}

type sub struct {
	inner  Store
	prefix string
}

func (s *sub) URL() string { return s.inner.URL() + s.prefix }

// key refuses what would leave the directory before it is joined.
func (s *sub) key(k string) (string, error) {
	if err := ValidateKey(k); err != nil {
		return "", err
	}
	return s.prefix + k, nil
}

// named makes an error speak of the key that the caller used.
func (s *sub) named(err error) error {
	e, ok := err.(*Error)
	if !ok || !strings.HasPrefix(e.Key, s.prefix) {
		return err
	}
	out := *e
	out.Root, out.Key = e.Root+s.prefix, strings.TrimPrefix(e.Key, s.prefix)
	return &out
}

func (s *sub) Head(ctx context.Context, key string) (Object, error) {
	k, err := s.key(key)
	if err != nil {
		return Object{}, err
	}
	o, err := s.inner.Head(ctx, k)
	o.Key = key
	return o, s.named(err)
}

func (s *sub) Open(ctx context.Context, key string) (Reader, error) {
	k, err := s.key(key)
	if err != nil {
		return nil, err
	}
	r, err := s.inner.Open(ctx, k)
	return r, s.named(err)
}

func (s *sub) Create(ctx context.Context, key string, data []byte) error {
	k, err := s.key(key)
	if err != nil {
		return err
	}
	return s.named(s.inner.Create(ctx, k, data))
}

func (s *sub) Put(ctx context.Context, key string, data []byte) error {
	k, err := s.key(key)
	if err != nil {
		return err
	}
	return s.named(s.inner.Put(ctx, k, data))
}

func (s *sub) NewWriter(ctx context.Context, key string) (Writer, error) {
	k, err := s.key(key)
	if err != nil {
		return nil, err
	}
	w, err := s.inner.NewWriter(ctx, k)
	return w, s.named(err)
}

func (s *sub) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error] {
	if startAfter != "" {
		startAfter = s.prefix + startAfter
	}
	return func(yield func(Object, error) bool) {
		for o, err := range s.inner.List(ctx, s.prefix+prefix, startAfter) {
			o.Key = strings.TrimPrefix(o.Key, s.prefix)
			if !yield(o, s.named(err)) {
				return
			}
		}
	}
}

func (s *sub) Delete(ctx context.Context, key string) error {
	k, err := s.key(key)
	if err != nil {
		return err
	}
	return s.named(s.inner.Delete(ctx, k))
}

// Unfinished implements [Leftovers].
func (s *sub) Unfinished(ctx context.Context) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o, err := range UnfinishedIn(ctx, s.inner) {
			key, ok := strings.CutPrefix(o.Key, s.prefix)
			if err == nil && !ok {
				continue
			}
			if o.Key = key; !yield(o, s.named(err)) {
				return
			}
		}
	}
}
