package blobstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/blobstore"
	"github.com/sluice-data/sluice/storage/storagetest"
)

func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func retry() storage.RetryOptions { return storage.RetryOptions{Sleep: noSleep} }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want %v", err, class)
	}
}

// TestStore_Contract runs the suite over both ways to upload, with parts so small
// that most of what it writes takes several.
func TestStore_Contract(t *testing.T) {
	for _, partial := range []bool{false, true} {
		t.Run(fmt.Sprintf("parts in a row %v", partial), func(t *testing.T) {
			storagetest.Run(t, storagetest.Config{URLPrefix: "s3://fake/a%20b/t/", New: func(*testing.T) storage.Store {
				f := newFake()
				f.partial, f.tails = partial, partial
				return blobstore.New(f, "/a b/t/", blobstore.Options{PartSize: 1000, ReadBuffer: 600 << 10})
			}})
		})
	}
}

// TestStore_LostAnswers is W-124 below the log: what became of a conditional write
// whose answer was lost, or says nothing, is found out and never guessed.
func TestStore_LostAnswers(t *testing.T) {
	lost := errors.New("connection reset")
	noAnswer := func() error { return blobstore.NoAnswer(lost) }
	for _, c := range []struct {
		name          string
		before, after error // of the write
		rival         bool  // somebody else's object is there
		want          error // nil: we won
		never         error // a class that must not be said
	}{
		{"W-124 applied and the answer lost", nil, noAnswer(), false, nil, nil},
		{"W-124 applied and answered 500", nil, status(500, "InternalError"), false, nil, nil},
		{"W-124 applied and answered 503 by something in between", nil, status(503, ""), false, nil, nil},
		{"W-124 not applied and the answer lost", noAnswer(), nil, false, storage.ErrAmbiguous, nil},
		{"W-124 the answer lost and a rival there", noAnswer(), nil, true, storage.ErrExists, storage.ErrAmbiguous},
		{"W-123 throttled", status(503, "SlowDown"), nil, false, storage.ErrTransient, storage.ErrAmbiguous},
		{"W-123 too many requests", status(429, ""), nil, false, storage.ErrTransient, storage.ErrAmbiguous},
		{"W-123 no connection", blobstore.NoAnswer(&net.OpError{Op: "dial", Err: lost}), nil, false, storage.ErrTransient, storage.ErrAmbiguous},
		{"W-123 conflict with a write that failed", status(409, "ConditionalRequestConflict"), nil, false, storage.ErrTransient, storage.ErrAmbiguous},
		{"W-123 conflict with a write that won", status(409, "ConditionalRequestConflict"), nil, true, storage.ErrExists, storage.ErrAmbiguous},
		{"W-123 precondition failed", status(412, ""), nil, false, storage.ErrExists, storage.ErrAmbiguous},
		{"W-123 blob exists", status(409, "BlobAlreadyExists"), nil, false, storage.ErrExists, storage.ErrAmbiguous},
		{"W-123 forbidden", status(403, "AccessDenied"), nil, false, storage.ErrPermission, storage.ErrAmbiguous},
	} {
		for _, way := range []string{"Create", "Writer", "Writer in parts", "Writer with parts in a row"} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				f := newFake()
				f.partial = strings.HasSuffix(way, "row")
				s := blobstore.New(f, "t", blobstore.Options{PartSize: 100, Retry: storage.RetryOptions{Attempts: 1}})
				ok(t, s.Create(t.Context(), "warm", nil))
				f.reset()
				deciding := func(call, key string) bool {
					return key == "t/k" && (call == "put" || call == "complete" || call == "part" && f.partial && f.uploadsHold(2))
				}
				f.before = func(call, key string) error {
					if deciding(call, key) {
						if c.rival {
							f.objects["t/k"] = object{data: []byte("rival"), id: "other"}
						}
						return c.before
					}
					return nil
				}
				f.after = func(call, key string) error {
					if call == "put" && key == "t/k" || call == "complete" || call == "part" && f.partial && len(f.objects) == 2 {
						return c.after
					}
					return nil
				}
				data := bytes.Repeat([]byte("x"), 250)
				var err error
				if way == "Create" {
					err = s.Create(t.Context(), "k", data)
				} else {
					if way == "Writer" {
						data = data[:50]
					}
					w, werr := s.NewWriter(t.Context(), "k")
					ok(t, werr)
					_, werr = w.Write(data)
					ok(t, werr)
					err = w.Close()
				}
				if c.want == nil {
					ok(t, err)
					return
				}
				is(t, err, c.want)
				if c.never != nil && errors.Is(err, c.never) {
					t.Fatalf("it also says %v: %v", c.never, err)
				}
				if n := f.count("put t/k") + f.count("complete"); n > 1 {
					t.Fatalf("a conditional write was sent %d times", n)
				}
				if len(f.uploads) != 0 && !errors.Is(err, storage.ErrAmbiguous) {
					t.Fatal("parts were left behind")
				}
			})
		}
	}
}

// uploadsHold: an upload has so many parts already.
func (f *fake) uploadsHold(n int) bool {
	for _, u := range f.uploads {
		if len(u) >= n {
			return true
		}
	}
	return false
}

func TestGuard(t *testing.T) {
	t.Run("W-123 a store that ignores the condition is refused before anything is written", func(t *testing.T) {
		f := newFake()
		f.ignore = true
		g := &blobstore.Guard{}
		s := blobstore.New(f, "t", blobstore.Options{Guard: g})
		for range 2 {
			is(t, s.Create(t.Context(), "k", nil), blobstore.ErrUnconditional)
			is(t, s.Put(t.Context(), "k", nil), blobstore.ErrUnconditional)
			_, err := s.NewWriter(t.Context(), "k")
			is(t, err, blobstore.ErrUnconditional)
		}
		if left := f.keys(); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
	t.Run("W-123 single-writer mode is the way out", func(t *testing.T) {
		f := newFake()
		f.ignore = true
		s := blobstore.New(f, "t", blobstore.Options{Guard: &blobstore.Guard{SingleWriter: true}, PartSize: 10})
		ok(t, s.Create(t.Context(), "k", []byte("1")))
		is(t, s.Create(t.Context(), "k", []byte("2")), storage.ErrExists)
		w, err := s.NewWriter(t.Context(), "k")
		ok(t, err)
		_, err = w.Write(make([]byte, 35))
		ok(t, err)
		is(t, w.Close(), storage.ErrExists)
		if b, err := storage.ReadAll(t.Context(), s, "k"); err != nil || string(b) != "1" {
			t.Fatalf("%s, %v", b, err)
		}
		if f.count("put t/_delta_log/.probe") != 0 {
			t.Fatal("it was probed")
		}
	})
	t.Run("W-123 one probe for all tables of a bucket, none for reading, none left", func(t *testing.T) {
		f, g := newFake(), &blobstore.Guard{}
		a, b := blobstore.New(f, "a", blobstore.Options{Guard: g}), blobstore.New(f, "b", blobstore.Options{Guard: g})
		_, err := a.Head(t.Context(), "k")
		is(t, err, storage.ErrNotFound)
		if n := f.count("put") + f.count("delete"); n != 0 {
			t.Fatalf("reading made %d writes", n)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if err := errors.Join(a.Create(t.Context(), fmt.Sprint(i), nil), b.Create(t.Context(), fmt.Sprint(i), nil)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if f.count("put") != 16+2 || f.count("delete") != 1 {
			t.Fatalf("calls: %v", f.calls)
		}
		if slices.ContainsFunc(f.keys(), func(k string) bool { return strings.Contains(k, ".probe") }) {
			t.Fatalf("left: %v", f.keys())
		}
	})
	t.Run("a fault of the probe is no proof, and a probe that stays is not listed", func(t *testing.T) {
		f := newFake()
		s := blobstore.New(f, "t", blobstore.Options{})
		f.before = func(call, _ string) error {
			if call == "put" {
				return status(503, "SlowDown")
			}
			return nil
		}
		is(t, s.Create(t.Context(), "k", nil), storage.ErrTransient)
		f.before = func(call, _ string) error {
			if call == "delete" {
				return status(403, "AccessDenied")
			}
			return nil
		}
		ok(t, s.Create(t.Context(), "k", nil))
		if got := storagetest.Keys(t, s, "", ""); len(f.keys()) != 2 || !slices.Equal(got, []string{"k"}) {
			t.Fatalf("listed %v of %v", got, f.keys())
		}
	})
}

func fill(t *testing.T, s storage.Store, key string, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	ok(t, s.Put(t.Context(), key, data))
	return data
}

func TestReader_Requests(t *testing.T) {
	f := newFake()
	f.tails = true
	s := blobstore.New(f, "t", blobstore.Options{})
	data := fill(t, s, "x.parquet", 9<<20)
	ok(t, s.Put(t.Context(), "small.json", []byte("{}")))
	read := func(r storage.Reader, off, n int) {
		t.Helper()
		p := make([]byte, n)
		if m, err := r.ReadAt(p, int64(off)); m != n || err != nil || !bytes.Equal(p, data[off:off+n]) {
			t.Fatalf("read of %d at %d: %d, %v", n, off, m, err)
		}
	}

	f.reset()
	if _, err := storage.ReadAll(t.Context(), s, "small.json"); err != nil || len(f.calls) != 1 {
		t.Fatalf("a small object took %v, %v", f.calls, err)
	}

	f.reset()
	r, err := s.Open(t.Context(), "x.parquet")
	ok(t, err)
	read(r, len(data)-8, 8)
	read(r, len(data)-64<<10, 64<<10)
	if len(f.calls) != 1 {
		t.Fatalf("the footer took %v", f.calls)
	}

	f.reset()
	for off := 0; off < 8<<20; off += 8 << 10 {
		read(r, off, 8<<10)
	}
	if len(f.calls) > 6 {
		t.Fatalf("1024 reads in a row took %d requests: %v", len(f.calls), f.ranges)
	}

	f.reset()
	ok(t, r.Close())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			p := make([]byte, 1000)
			if n, err := r.ReadAt(p, 3<<20); n != 1000 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	wg.Wait()
	if len(f.calls) != 1 {
		t.Fatalf("16 readers of one place made %d requests", len(f.calls))
	}

	f.reset()
	ok(t, r.Close())
	read(r, 0, 9<<20)
	if len(f.calls) != 1 {
		t.Fatalf("one large read made %d requests", len(f.calls))
	}
}

// TestReader_Random: whatever the order of reads and however little is kept, the
// bytes are right, and a failed request is made again by the next read.
func TestReader_Random(t *testing.T) {
	f := newFake()
	s := blobstore.New(f, "t", blobstore.Options{ReadBuffer: 700 << 10})
	data := fill(t, s, "k", 5<<20)
	r, err := s.Open(t.Context(), "k")
	ok(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	n := 0
	f.before = func(call, _ string) error {
		if n++; n%5 == 0 {
			return status(503, "SlowDown")
		}
		return nil
	}
	failed := 0
	for range 400 {
		off, size := rng.IntN(len(data)+1000), rng.IntN(1<<(3+rng.IntN(17)))
		p := make([]byte, size)
		m, err := r.ReadAt(p, int64(off))
		end := min(off+size, len(data))
		if errors.Is(err, storage.ErrTransient) {
			failed++
			continue
		}
		if want := max(0, end-off); m != want || m < size && err != io.EOF || m > 0 && !bytes.Equal(p[:m], data[off:end]) {
			t.Fatalf("read of %d at %d: %d, %v", size, off, m, err)
		}
	}
	if failed == 0 {
		t.Fatal("no fault was met")
	}
}

func TestWriter_Parts(t *testing.T) {
	t.Run("parts are sent again, the object once", func(t *testing.T) {
		f := newFake()
		s := blobstore.New(f, "t", blobstore.Options{PartSize: 100, Retry: retry()})
		n := 0
		f.before = func(call, _ string) error {
			if n++; (call == "part" || call == "upload") && n%2 == 0 {
				return status(500, "InternalError")
			}
			return nil
		}
		w, err := s.NewWriter(t.Context(), "k")
		ok(t, err)
		want := bytes.Repeat([]byte("0123456789"), 123)
		for i := 0; i < len(want); i += 7 {
			_, err := w.Write(want[i:min(i+7, len(want))])
			ok(t, err)
		}
		ok(t, w.Close())
		if b, err := storage.ReadAll(t.Context(), s, "k"); err != nil || !bytes.Equal(b, want) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if f.count("complete") != 1 || len(f.uploads) != 0 {
			t.Fatalf("calls: %v", f.calls)
		}
	})
	t.Run("a part that cannot be sent ends the writer and frees the others", func(t *testing.T) {
		f := newFake()
		s := blobstore.New(f, "t", blobstore.Options{PartSize: 100, Retry: retry()})
		f.before = func(call, _ string) error {
			if call == "part" && f.uploadsHold(1) {
				return status(403, "AccessDenied")
			}
			return nil
		}
		w, err := s.NewWriter(t.Context(), "k")
		ok(t, err)
		_, err = w.Write(make([]byte, 1000))
		if err == nil {
			err = w.Close()
		} else {
			w.Abort()
		}
		is(t, err, storage.ErrPermission)
		if len(f.uploads) != 0 || slices.Contains(f.keys(), "t/k") {
			t.Fatalf("left: %v, %d uploads", f.keys(), len(f.uploads))
		}
	})
}

// TestFault_KeepsSecrets: the network's errors name URLs, whose query may hold a
// signature.
func TestFault_KeepsSecrets(t *testing.T) {
	f := newFake()
	s := blobstore.New(f, "t", blobstore.Options{})
	for _, inner := range []error{io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: io.EOF}, &net.OpError{Op: "dial", Err: io.EOF}, &net.DNSError{Err: "no such host", Name: "h"}} {
		f.before = func(string, string) error {
			return blobstore.NoAnswer(fmt.Errorf("send: %w", &url.Error{Op: "Get", URL: "https://h/k?sig=canary0secret", Err: inner}))
		}
		_, err := s.Head(t.Context(), "k")
		is(t, err, storage.ErrTransient)
		if strings.Contains(err.Error(), "canary0secret") {
			t.Fatalf("the error holds the signature: %v", err)
		}
	}
}
