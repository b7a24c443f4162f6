package blobstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-data/sluice/storage"
)

// Windows of ranged reads. A request costs about as much time as some hundred
// kilobytes do, so a read that misses brings its surroundings; one that goes on
// where another ended brings twice as much as that one.
const (
	minWindow = 256 << 10
	maxWindow = 4 << 20
	maxGap    = 64 << 10 // skipped bytes that still count as going on
)

// Open asks for the first bytes of an object, or the last ones of a Parquet file
// where its footer is, and learns size and version from the answer.
func (s *Store) Open(ctx context.Context, key string) (storage.Reader, error) {
	name, err := s.full(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, s.fail(ctx, "open", key, err, false)
	}
	rctx, cancel := s.limit(ctx, firstRead)
	defer cancel()
	buf := make([]byte, firstRead)
	off := int64(0)
	if t, ok := s.d.(Tailer); ok && t.Tails() && strings.HasSuffix(key, ".parquet") {
		off = Tail
	}
	n, a, err := s.d.Get(rctx, name, off, buf, "")
	var f *Fault
	if errors.As(err, &f) && f.Status == http.StatusRequestedRangeNotSatisfiable { // an empty object has no first byte
		n = 0
		a, err = s.d.Head(rctx, name)
	}
	if err != nil {
		return nil, s.fail(ctx, "open", key, err, false)
	}
	r := &reader{s: s, ctx: ctx, key: key, name: name, size: a.Size, version: a.Version}
	first := &window{done: make(chan struct{}), data: slices.Clip(buf[:n])}
	if off == Tail {
		first.off = a.Size - int64(n)
	}
	first.end = first.off + int64(n)
	close(first.done)
	if n > 0 {
		r.mu.windows, r.mu.held = []*window{first}, int64(n)
	}
	return r, nil
}

// Tail as the offset of Get asks a [Tailer] for the last bytes of an object.
const Tail = -1

// Tailer is a Driver whose Get takes the offset [Tail].
type Tailer interface{ Tails() bool }

// window is a range that is held or on its way.
type window struct {
	off, end int64
	done     chan struct{} // closed when data and err are set
	data     []byte
	err      error
	used     uint64 // when, by the reader's count
}

type reader struct {
	s         *Store
	ctx       context.Context // bounds the reads, as Open's contract has it
	key, name string
	size      int64
	version   string

	mu struct {
		sync.Mutex
		windows []*window
		held    int64 // bytes of windows
		count   uint64
	}
}

func (r *reader) Size() int64 { return r.size }

// Close forgets the windows.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.windows, r.mu.held = nil, 0
	return nil
}

// ReadAt reads through the windows; several readers of one window make one request.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, r.s.fail(r.ctx, "read", r.key, errors.New("negative offset"), false)
	}
	n := 0
	for n < len(p) && off+int64(n) < r.size {
		at := off + int64(n)
		want := min(int64(len(p)-n), r.size-at)
		w, mine := r.window(at, want)
		if w == nil { // too large to be kept
			m, err := r.get(p[n:n+int(want)], at)
			n += m
			if err != nil {
				return n, err
			}
			continue
		}
		if mine {
			r.fetch(w)
		}
		select {
		case <-w.done:
		case <-r.ctx.Done():
			return n, r.ctx.Err()
		}
		if w.err != nil {
			return n, w.err
		}
		n += copy(p[n:], w.data[at-w.off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// window finds the window of an offset, or makes one that the caller has to fetch;
// nil for a read that goes past the windows.
func (r *reader) window(at, want int64) (w *window, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.count++
	length, next := int64(minWindow), r.size
	for _, w := range r.mu.windows {
		switch {
		case w.off <= at && at < w.end:
			w.used = r.mu.count
			return w, false
		case w.off > at:
			next = min(next, w.off)
		case at-w.end <= maxGap:
			length = max(length, min(2*(w.end-w.off), maxWindow))
		}
	}
	if want = min(want, next-at); want >= maxWindow {
		return nil, false
	}
	length = min(max(length, want), next-at)
	w = &window{off: at, end: at + length, done: make(chan struct{}), used: r.mu.count}
	r.mu.windows = append(r.mu.windows, w)
	r.mu.held += length
	for r.mu.held > int64(r.s.o.ReadBuffer) && r.evict(w) {
	}
	return w, true
}

// evict drops the window that was used longest ago, but not keep.
func (r *reader) evict(keep *window) bool {
	oldest := -1
	for i, w := range r.mu.windows {
		if w != keep && (oldest < 0 || w.used < r.mu.windows[oldest].used) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	r.drop(oldest)
	return true
}

func (r *reader) drop(i int) {
	r.mu.held -= r.mu.windows[i].end - r.mu.windows[i].off
	r.mu.windows = slices.Delete(r.mu.windows, i, i+1)
}

// fetch fills a window; one that fails is forgotten, so that the next read asks again.
func (r *reader) fetch(w *window) {
	data := make([]byte, w.end-w.off)
	if _, w.err = r.get(data, w.off); w.err == nil {
		w.data = data
	} else {
		r.mu.Lock()
		if i := slices.Index(r.mu.windows, w); i >= 0 {
			r.drop(i)
		}
		r.mu.Unlock()
	}
	close(w.done)
}

// get fills p from one request.
func (r *reader) get(p []byte, off int64) (int, error) {
	ctx, cancel := r.s.limit(r.ctx, len(p))
	defer cancel()
	n, _, err := r.s.d.Get(ctx, r.name, off, p, r.version)
	var f *Fault
	if errors.As(err, &f) && f.Status == http.StatusPreconditionFailed {
		f.Message = "it was replaced while it was read"
	}
	if err == nil && n < len(p) {
		err = NoAnswer(io.ErrUnexpectedEOF)
	}
	return n, r.s.fail(r.ctx, "read", r.key, err, false)
}
