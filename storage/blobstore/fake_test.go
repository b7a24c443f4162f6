package blobstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-data/sluice/storage/blobstore"
)

// fake is a bucket in memory that counts requests and can be told to fail.
type fake struct {
	mu      sync.Mutex
	objects map[string]object
	uploads map[int]map[int][]byte
	serial  int
	calls   []string // "put key", in order
	ranges  []string // of gets

	tails   bool
	partial bool // parts follow each other, the last one makes the object
	// ignore makes the bucket take conditional writes as plain ones.
	ignore bool
	// before and after are asked around each call that is applied.
	before, after func(call, key string) error
}

type object struct {
	data    []byte
	id      string
	version string
	at      time.Time
}

func newFake() *fake { return &fake{objects: map[string]object{}, uploads: map[int]map[int][]byte{}} }

func (f *fake) URL() string { return "s3://fake/" }
func (f *fake) Tails() bool { return f.tails }

// call counts a request and applies it between the hooks.
func (f *fake) call(ctx context.Context, name, key string, apply func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name+" "+key)
	if f.before != nil {
		if err := f.before(name, key); err != nil {
			return err
		}
	}
	if err := apply(); err != nil {
		return err
	}
	if f.after != nil {
		return f.after(name, key)
	}
	return nil
}

// count is how many calls began with name since the last count.
func (f *fake) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if strings.HasPrefix(c, name) {
			n++
		}
	}
	return n
}

func (f *fake) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.ranges = nil, nil
}

func (f *fake) keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects))
}

func status(code int, word string) error { return &blobstore.Fault{Status: code, Code: word} }

func (f *fake) set(key string, data []byte, o blobstore.PutOptions) error {
	if _, there := f.objects[key]; there && o.IfAbsent && !f.ignore {
		return status(412, "PreconditionFailed")
	}
	f.serial++
	f.objects[key] = object{data: slices.Clone(data), id: o.ID, version: fmt.Sprintf(`"%d"`, f.serial), at: time.Now()}
	return nil
}

func (o object) attrs(key string) blobstore.Attrs {
	return blobstore.Attrs{Key: key, Size: int64(len(o.data)), ModTime: o.at, Version: o.version, ID: o.id}
}

func (f *fake) Head(ctx context.Context, key string) (a blobstore.Attrs, err error) {
	err = f.call(ctx, "head", key, func() error {
		o, there := f.objects[key]
		if !there {
			return status(404, "")
		}
		a = o.attrs(key)
		return nil
	})
	return a, err
}

func (f *fake) Get(ctx context.Context, key string, off int64, buf []byte, version string) (n int, a blobstore.Attrs, err error) {
	err = f.call(ctx, "get", key, func() error {
		o, there := f.objects[key]
		switch {
		case !there:
			return status(404, "NoSuchKey")
		case version != "" && version != o.version:
			return status(412, "PreconditionFailed")
		}
		if off == blobstore.Tail {
			off = max(0, int64(len(o.data)-len(buf)))
		}
		if off >= int64(len(o.data)) {
			return status(416, "InvalidRange")
		}
		n, a = copy(buf, o.data[off:]), o.attrs(key)
		f.ranges = append(f.ranges, fmt.Sprintf("%d+%d", off, n))
		return nil
	})
	return n, a, err
}

func (f *fake) Put(ctx context.Context, key string, data []byte, o blobstore.PutOptions) error {
	return f.call(ctx, "put", key, func() error { return f.set(key, data, o) })
}

func (f *fake) Delete(ctx context.Context, key string) error {
	return f.call(ctx, "delete", key, func() error {
		delete(f.objects, key)
		return nil
	})
}

func (f *fake) List(ctx context.Context, prefix, startAfter, token string) (p blobstore.Page, err error) {
	err = f.call(ctx, "list", prefix, func() error {
		for _, k := range slices.Sorted(maps.Keys(f.objects)) {
			if !strings.HasPrefix(k, prefix) || k <= startAfter || k <= token {
				continue
			}
			if len(p.Objects) == 7 {
				p.Next = p.Objects[6].Key
				return nil
			}
			p.Objects = append(p.Objects, f.objects[k].attrs(k))
		}
		return nil
	})
	return p, err
}

type fakeUpload struct {
	f   *fake
	n   int
	key string
	o   blobstore.PutOptions
}

func (f *fake) Upload(ctx context.Context, key string, o blobstore.PutOptions) (u blobstore.Upload, err error) {
	err = f.call(ctx, "upload", key, func() error {
		f.serial++
		f.uploads[f.serial] = map[int][]byte{}
		u = &fakeUpload{f, f.serial, key, o}
		return nil
	})
	return u, err
}

func (u *fakeUpload) Parallel() bool { return !u.f.partial }

func (u *fakeUpload) Part(ctx context.Context, n int, data []byte, last bool) error {
	return u.f.call(ctx, "part", u.key, func() error {
		u.f.uploads[u.n][n] = slices.Clone(data)
		if last && u.f.partial {
			return u.finish(n + 1)
		}
		return nil
	})
}

func (u *fakeUpload) finish(parts int) error {
	var all []byte
	for n := range parts {
		all = append(all, u.f.uploads[u.n][n]...)
	}
	delete(u.f.uploads, u.n)
	return u.f.set(u.key, all, u.o)
}

func (u *fakeUpload) Complete(ctx context.Context, parts int) error {
	if u.f.partial {
		return nil
	}
	return u.f.call(ctx, "complete", u.key, func() error { return u.finish(parts) })
}

func (u *fakeUpload) Abort(ctx context.Context) {
	_ = u.f.call(ctx, "abort", u.key, func() error {
		delete(u.f.uploads, u.n)
		return nil
	})
}
