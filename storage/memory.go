package storage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Store in the memory of this process, for tests and for tables
// that need not outlive it. It keeps to the whole contract, with one view of
// durability: what Create, Put or Close answered with nil is durable, and
// nothing else is (see Crash).
type Memory struct {
	name  string
	clock func() time.Time

	mu struct {
		sync.RWMutex
		objects map[string]memObject
		etag    uint64
	}
}

// memObject is immutable: a Put replaces it, readers keep the bytes they have.
type memObject struct {
	data    []byte
	modTime time.Time
	etag    uint64
}

// MemoryOptions configures NewMemoryWith.
type MemoryOptions struct {
	// Clock gives the modification times. Default: time.Now.
	Clock func() time.Time
}

// NewMemory gives an empty store with the URL mem://name/.
func NewMemory(name string) *Memory { return NewMemoryWith(name, MemoryOptions{}) }

// NewMemoryWith is NewMemory with options.
func NewMemoryWith(name string, opts MemoryOptions) *Memory {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	m := &Memory{name: name, clock: opts.Clock}
	m.mu.objects = map[string]memObject{}
	return m
}

// Crash gives the store as a machine that lost power now would come back with:
// every acknowledged object, nothing of writers that are still open. The clone
// is independent: what goes on in m afterwards does not reach it.
func (m *Memory) Crash() *Memory {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := &Memory{name: m.name, clock: m.clock}
	c.mu.objects, c.mu.etag = maps.Clone(m.mu.objects), m.mu.etag
	return c
}

// URL implements Store.
func (m *Memory) URL() string { return "mem://" + m.name + "/" }

func (m *Memory) fail(op, key string, class, cause error) error {
	return &Error{Op: op, Root: m.URL(), Key: key, Class: class, Err: cause}
}

func (m *Memory) check(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := ValidateKey(key); err != nil {
		return m.fail(op, key, nil, err)
	}
	return nil
}

func (m *Memory) get(ctx context.Context, op, key string) (memObject, error) {
	if err := m.check(ctx, op, key); err != nil {
		return memObject{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.mu.objects[key]
	if !ok {
		return memObject{}, m.fail(op, key, ErrNotFound, nil)
	}
	return o, nil
}

func (o memObject) describe(key string) Object {
	return Object{Key: key, Size: int64(len(o.data)), ModTime: o.modTime, ETag: fmt.Sprintf("%x", o.etag)}
}

// Head implements Store.
func (m *Memory) Head(ctx context.Context, key string) (Object, error) {
	o, err := m.get(ctx, "head", key)
	if err != nil {
		return Object{}, err
	}
	return o.describe(key), nil
}

// Open implements Store.
func (m *Memory) Open(ctx context.Context, key string) (Reader, error) {
	o, err := m.get(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	return &memReader{ctx: ctx, m: m, key: key, data: o.data}, nil
}

type memReader struct {
	ctx  context.Context
	m    *Memory
	key  string
	data []byte
}

func (r *memReader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, r.m.fail("read", r.key, nil, fmt.Errorf("negative offset %d", off))
	}
	if off >= int64(len(r.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, r.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *memReader) Size() int64  { return int64(len(r.data)) }
func (r *memReader) Close() error { return nil }

// Create implements Store.
func (m *Memory) Create(ctx context.Context, key string, data []byte) error {
	if err := m.checkWrite(ctx, "create", key); err != nil {
		return err
	}
	return m.store("create", key, slices.Clone(data), false)
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, data []byte) error {
	if err := m.checkWrite(ctx, "put", key); err != nil {
		return err
	}
	return m.store("put", key, slices.Clone(data), true)
}

// checkWrite also refuses what Local refuses, so that a test on Memory finds it.
func (m *Memory) checkWrite(ctx context.Context, op, key string) error {
	if err := m.check(ctx, op, key); err != nil {
		return err
	}
	if isTemp(key[strings.LastIndexByte(key, '/')+1:]) {
		return m.fail(op, key, ErrInvalidKey, fmt.Errorf("reserved for temporary files"))
	}
	return nil
}

func (m *Memory) store(op, key string, data []byte, replace bool) error {
	now := m.clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.mu.objects[key]; ok && !replace {
		return m.fail(op, key, ErrExists, nil)
	}
	m.mu.etag++
	m.mu.objects[key] = memObject{data: data, modTime: now, etag: m.mu.etag}
	return nil
}

// NewWriter implements Store.
func (m *Memory) NewWriter(ctx context.Context, key string) (Writer, error) {
	if err := m.checkWrite(ctx, "write", key); err != nil {
		return nil, err
	}
	return &memWriter{m: m, ctx: ctx, key: key}, nil
}

type memWriter struct {
	m     *Memory
	ctx   context.Context
	key   string
	data  []byte
	err   error
	ended bool
}

func (w *memWriter) Write(p []byte) (int, error) {
	if w.ended {
		return 0, w.m.fail("write", w.key, nil, fs.ErrClosed)
	}
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

func (w *memWriter) Close() error {
	if w.ended {
		return w.m.fail("close", w.key, nil, fs.ErrClosed)
	}
	w.ended = true
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return w.err
	}
	return w.m.store("close", w.key, w.data, false)
}

func (w *memWriter) Abort() { w.ended = true }

// List implements Store. It shows the objects of the moment it was called.
func (m *Memory) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := validatePrefix(prefix); err != nil {
			yield(Object{}, m.fail("list", prefix, nil, err))
			return
		}
		for _, o := range m.match(prefix, startAfter) {
			if err := ctx.Err(); err != nil {
				yield(Object{}, err)
				return
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (m *Memory) match(prefix, startAfter string) []Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []Object
	for k, o := range m.mu.objects {
		if strings.HasPrefix(k, prefix) && k > startAfter {
			out = append(out, o.describe(k))
		}
	}
	slices.SortFunc(out, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := m.check(ctx, "delete", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.objects, key)
	return nil
}
