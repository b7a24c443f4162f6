package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// Config says what is tested.
type Config struct {
	// New gives an empty store for one test.
	New func(t *testing.T) storage.Store
	// URLPrefix is what URL must begin with, "file://" for example.
	URLPrefix string
	// Lists is how many random listings are compared, for stores that list slowly.
	// Default 300.
	Lists int
	// ModTimeSlack is how far the store's clock may be from ours. Default 5 s.
	ModTimeSlack time.Duration
}

// Run runs the whole contract suite.
func Run(t *testing.T, cfg Config) {
	if cfg.ModTimeSlack == 0 {
		cfg.ModTimeSlack = 5 * time.Second
	}
	if cfg.Lists == 0 {
		cfg.Lists = 300
	}
	for _, c := range []struct {
		name string
		fn   func(*testing.T, storage.Store, Config)
	}{
		{"URL", testURL},
		{"Head", testHead},
		{"Create", testCreate},
		{"CreateKeepsNoAlias", testNoAlias},
		{"Put", testPut},
		{"ReadRanges", testReadRanges},
		{"ReaderKeepsItsBytes", testReaderKeepsBytes},
		{"Writer", testWriter},
		{"WriterExclusive", testWriterExclusive},
		{"WriterAbort", testWriterAbort},
		{"Delete", testDelete},
		{"List", testList},
		{"ListRandom", testListRandom},
		{"ListEndsEarly", testListEndsEarly},
		{"Keys", testKeys},
		{"Context", testContext},
		{"ErrorsNameTheObject", testErrors},
		{"RacingCreators", testRacingCreators},
		{"RacingWriters", testRacingWriters},
		{"ReadersSeeWholeObjects", testWholeObjects},
		{"ListSeesAcknowledged", testListSeesAcknowledged},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := cfg.New(t)
			if got := s.URL(); !strings.HasPrefix(got, cfg.URLPrefix) {
				t.Fatalf("the suite ran on %s, asked for was %s", got, cfg.URLPrefix)
			}
			c.fn(t, s, cfg)
		})
	}
}

func testURL(t *testing.T, s storage.Store, _ Config) {
	if u := s.URL(); !strings.HasSuffix(u, "/") || !strings.Contains(u, "://") {
		t.Fatalf("URL %q does not end in / or has no scheme", u)
	}
}

func testHead(t *testing.T, s storage.Store, cfg Config) {
	ctx := t.Context()
	_, err := s.Head(ctx, "d/absent")
	wantClass(t, "head of an absent key", err, storage.ErrNotFound)
	ok(t, s.Create(ctx, "d/x", []byte("hello")))
	o, err := s.Head(ctx, "d/x")
	ok(t, err)
	if o.Key != "d/x" || o.Size != 5 {
		t.Fatalf("got %+v", o)
	}
	if age := time.Since(o.ModTime).Abs(); age > cfg.ModTimeSlack {
		t.Fatalf("modification time is %v away from now", age)
	}
	_, err = s.Head(ctx, "d")
	wantClass(t, "head of what only prefixes a key", err, storage.ErrNotFound)
	_, err = s.Head(ctx, "d/x/y")
	wantClass(t, "head below an object", err, storage.ErrNotFound)
	if o.ETag == "" {
		return
	}
	again, err := s.Head(ctx, "d/x")
	ok(t, err)
	ok(t, s.Put(ctx, "d/x", []byte("world")))
	put, err := s.Head(ctx, "d/x")
	ok(t, err)
	if again.ETag != o.ETag || put.ETag == o.ETag {
		t.Fatalf("etags: first %s, unchanged %s, replaced %s", o.ETag, again.ETag, put.ETag)
	}
}

func testCreate(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Create(ctx, "_delta_log/00000000000000000000.json", []byte("first")))
	err := s.Create(ctx, "_delta_log/00000000000000000000.json", []byte("second"))
	wantClass(t, "second create", err, storage.ErrExists)
	if errors.Is(err, storage.ErrAmbiguous) {
		t.Fatalf("a plain refusal says that its outcome is unknown: %v", err)
	}
	wantBytes(t, s, "_delta_log/00000000000000000000.json", "first")
	ok(t, s.Create(ctx, "empty", nil))
	wantBytes(t, s, "empty", "")
	ok(t, s.Delete(ctx, "empty"))
	ok(t, s.Create(ctx, "empty", []byte("again")))
	wantBytes(t, s, "empty", "again")
	wantKeys(t, s, "", "", "_delta_log/00000000000000000000.json", "empty")
}

func testNoAlias(t *testing.T, s storage.Store, _ Config) {
	b := []byte("mine")
	ok(t, s.Create(t.Context(), "k", b))
	copy(b, "XXXX")
	wantBytes(t, s, "k", "mine")
}

func testPut(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Put(ctx, "a/b", []byte("one")))
	wantBytes(t, s, "a/b", "one")
	ok(t, s.Put(ctx, "a/b", []byte("three")))
	wantBytes(t, s, "a/b", "three")
	ok(t, s.Put(ctx, "a/b", nil))
	wantBytes(t, s, "a/b", "")
	wantKeys(t, s, "", "", "a/b")
}

func testReadRanges(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	data := make([]byte, 200_000)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	ok(t, s.Create(ctx, "f", data))
	r, err := s.Open(ctx, "f")
	ok(t, err)
	defer r.Close()
	if r.Size() != int64(len(data)) {
		t.Fatalf("size %d, want %d", r.Size(), len(data))
	}
	for _, c := range []struct {
		off int64
		n   int
	}{{0, 1}, {0, 200_000}, {199_999, 1}, {100_000, 50_000}, {199_000, 2000}, {200_000, 1}, {300_000, 5}, {7, 0}} {
		p := make([]byte, c.n)
		n, err := r.ReadAt(p, c.off)
		want := data[min(c.off, 200_000):min(c.off+int64(c.n), 200_000)]
		if !bytes.Equal(p[:n], want) {
			t.Fatalf("ReadAt(%d bytes, %d) gave %d bytes that differ", c.n, c.off, n)
		}
		if n < c.n && err != io.EOF {
			t.Fatalf("ReadAt(%d bytes, %d) = %d, %v; want io.EOF", c.n, c.off, n, err)
		}
		if n == c.n && err != nil && err != io.EOF {
			t.Fatalf("ReadAt(%d bytes, %d) = %v", c.n, c.off, err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			p := make([]byte, 1000)
			for i := range 50 {
				off := (g*37_003 + i*3_989) % 199_000
				if n, err := r.ReadAt(p, int64(off)); n != 1000 || err != nil || !bytes.Equal(p, data[off:off+1000]) {
					t.Errorf("concurrent ReadAt at %d: %d, %v", off, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	_, err = s.Open(ctx, "absent")
	wantClass(t, "open of an absent key", err, storage.ErrNotFound)
	_, err = storage.ReadAll(ctx, s, "absent/below")
	wantClass(t, "read of an absent key", err, storage.ErrNotFound)
}

// testReaderKeepsBytes: a Reader on a replaced object gives old bytes or an
// error, never a mixture (object stores read by version or by etag).
func testReaderKeepsBytes(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Put(ctx, "f", []byte("aaaaaaaa")))
	r, err := s.Open(ctx, "f")
	ok(t, err)
	defer r.Close()
	ok(t, s.Put(ctx, "f", []byte("bbbbbbbb")))
	p := make([]byte, 8)
	if n, err := r.ReadAt(p, 0); (err == nil || err == io.EOF) && string(p[:n]) != "aaaaaaaa" {
		t.Fatalf("a reader changed its object: %q", p[:n])
	}
}

func testWriter(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	w, err := s.NewWriter(ctx, "p=1/part-0.parquet")
	ok(t, err)
	defer w.Abort()
	var want bytes.Buffer
	for i := range 50 {
		b := []byte(strings.Repeat(fmt.Sprint(i), 3000))
		n, err := w.Write(b)
		if n != len(b) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
		want.Write(b)
		b[0] = '#'
	}
	_, err = s.Head(ctx, "p=1/part-0.parquet")
	wantClass(t, "head before Close", err, storage.ErrNotFound)
	wantKeys(t, s, "", "")
	ok(t, w.Close())
	wantBytes(t, s, "p=1/part-0.parquet", want.String())
	wantKeys(t, s, "", "", "p=1/part-0.parquet")
	w.Abort()
	wantKeys(t, s, "", "", "p=1/part-0.parquet")
	if err := w.Close(); err == nil {
		t.Fatal("a second Close answered nil")
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Fatal("a Write after Close answered nil")
	}

	w, err = s.NewWriter(ctx, "empty")
	ok(t, err)
	ok(t, w.Close())
	wantBytes(t, s, "empty", "")
}

func testWriterExclusive(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Create(ctx, "k", []byte("first")))
	w, err := s.NewWriter(ctx, "k")
	if err == nil {
		_, err = w.Write([]byte("second"))
		err = errors.Join(err, w.Close())
	}
	wantClass(t, "writer on a key that exists", err, storage.ErrExists)
	wantBytes(t, s, "k", "first")
	wantKeys(t, s, "", "", "k")
}

func testWriterAbort(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	w, err := s.NewWriter(ctx, "d/k")
	ok(t, err)
	_, err = w.Write(make([]byte, 100_000))
	ok(t, err)
	w.Abort()
	w.Abort()
	if err := w.Close(); err == nil {
		t.Fatal("Close after Abort answered nil")
	}
	wantKeys(t, s, "", "")
	ok(t, s.Create(ctx, "d/k", []byte("free")))

	cctx, cancel := context.WithCancel(ctx)
	w, err = s.NewWriter(cctx, "d/l")
	ok(t, err)
	_, err = w.Write([]byte("x"))
	ok(t, err)
	cancel()
	wantClass(t, "close under an ended context", w.Close(), context.Canceled)
	wantKeys(t, s, "", "", "d/k")
}

func testDelete(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Delete(ctx, "absent"))
	ok(t, s.Delete(ctx, "absent/below"))
	ok(t, s.Create(ctx, "d/x", []byte("1")))
	ok(t, s.Create(ctx, "d/y", []byte("2")))
	ok(t, s.Delete(ctx, "d"))
	wantKeys(t, s, "", "", "d/x", "d/y")
	ok(t, s.Delete(ctx, "d/x"))
	ok(t, s.Delete(ctx, "d/x"))
	_, err := s.Head(ctx, "d/x")
	wantClass(t, "head after delete", err, storage.ErrNotFound)
	ok(t, s.Delete(ctx, "d/y"))
	wantKeys(t, s, "", "")
	ok(t, s.Delete(ctx, "d"))
	ok(t, s.Create(ctx, "d/x", []byte("3")))
}

// testList: '-' and '.' sort before '/', '0' after it; upper case before lower
// case; bytes above 0x7f last.
func testList(t *testing.T, s storage.Store, _ Config) {
	keys := []string{"_delta_log/.hidden", "_delta_log/00000000000000000009.json", "_delta_log/00000000000000000010.checkpoint.parquet",
		"_delta_log/00000000000000000010.json", "_delta_log/_last_checkpoint", "a-b", "a.b", "a/b", "a/b-c", "a/c/d/e", "a0", "A/z",
		"a b/c d", "p=%20/x", "p=ü/x", "zz.tmp", ".x.tmp"}
	for _, k := range keys {
		ok(t, s.Create(t.Context(), k, []byte(k)))
	}
	slices.Sort(keys)
	wantKeys(t, s, "", "", keys...)
	for _, prefix := range []string{"", "_", "_delta_log/", "_delta_log/0000000000000000001", "a", "a/", "a/b", "a/c", "a/c/", "p", "q", "a/b/", "none/", "_delta_log/."} {
		for _, after := range append([]string{"", "a", "a/", "_delta_log/", "_delta_log/00000000000000000010", "zzz", "a/c/d/zzz", "!", "\xff"}, keys...) {
			wantKeys(t, s, prefix, after, filter(keys, prefix, after)...)
		}
	}
	for o, err := range s.List(t.Context(), "", "") {
		ok(t, err)
		if o.Size != int64(len(o.Key)) || o.ModTime.IsZero() {
			t.Fatalf("listed as %+v", o)
		}
	}
}

func testListRandom(t *testing.T, s storage.Store, cfg Config) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, 1+rng.IntN(3))
		for i := range b {
			b[i] = "ab-.0/~_"[rng.IntN(8)]
		}
		return string(b)
	}
	have := map[string]bool{}
	for range 200 {
		k := strings.Trim(word()+word()+word(), "/")
		// A file cannot also be a folder on a file system.
		if storage.ValidateKey(k) != nil || slices.ContainsFunc(keysOf(have), func(h string) bool {
			return k == h || strings.HasPrefix(h, k+"/") || strings.HasPrefix(k, h+"/")
		}) {
			continue
		}
		have[k] = true
		ok(t, s.Create(t.Context(), k, nil))
	}
	keys := keysOf(have)
	for range cfg.Lists {
		prefix, after := word(), word()+word()
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 && storage.ValidateKey(prefix[:i]) != nil {
			continue
		}
		wantKeys(t, s, prefix, after, filter(keys, prefix, after)...)
		wantKeys(t, s, "", after, filter(keys, "", after)...)
	}
}

func testListEndsEarly(t *testing.T, s storage.Store, _ Config) {
	for i := range 10 {
		ok(t, s.Create(t.Context(), fmt.Sprintf("d/%d", i), nil))
	}
	n := 0
	for _, err := range s.List(t.Context(), "d/", "d/2") {
		ok(t, err)
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Fatalf("%d objects before the consumer left", n)
	}
}

func testKeys(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	for _, k := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../x", "a/../../x", "a/..", "./a", "a/./b", "a\x00b", strings.Repeat("k/", 600) + "k"} {
		_, err := s.Head(ctx, k)
		wantClass(t, fmt.Sprintf("head %q", k), err, storage.ErrInvalidKey)
		_, err = s.Open(ctx, k)
		wantClass(t, fmt.Sprintf("open %q", k), err, storage.ErrInvalidKey)
		wantClass(t, fmt.Sprintf("create %q", k), s.Create(ctx, k, nil), storage.ErrInvalidKey)
		wantClass(t, fmt.Sprintf("put %q", k), s.Put(ctx, k, nil), storage.ErrInvalidKey)
		wantClass(t, fmt.Sprintf("delete %q", k), s.Delete(ctx, k), storage.ErrInvalidKey)
		_, err = s.NewWriter(ctx, k)
		wantClass(t, fmt.Sprintf("writer %q", k), err, storage.ErrInvalidKey)
	}
	for _, p := range []string{"/", "../", "a/../b", "a//", "a\x00"} {
		var err error
		for _, err = range s.List(ctx, p, "") {
		}
		wantClass(t, fmt.Sprintf("list %q", p), err, storage.ErrInvalidKey)
	}
	wantKeys(t, s, "", "")
	for _, k := range []string{"...", "..a/b..", "p=a%3Ab/c", "sp ace/ü/日本", "~", "-", strings.Repeat("n", 255) + "/" + strings.Repeat("m", 255)} {
		ok(t, s.Create(ctx, k, []byte(k)))
		wantBytes(t, s, k, k)
	}
}

func testContext(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Create(ctx, "k", []byte("v")))
	r, err := s.Open(ctx, "k")
	ok(t, err)
	defer r.Close()
	cctx, cancel := context.WithCancel(ctx)
	r2, err := s.Open(cctx, "k")
	ok(t, err)
	defer r2.Close()
	cancel()
	_, err = r2.ReadAt(make([]byte, 1), 0)
	wantClass(t, "read after the end of its context", err, context.Canceled)
	_, err = r.ReadAt(make([]byte, 1), 0)
	ok(t, err)
	_, err = s.Head(cctx, "k")
	wantClass(t, "head", err, context.Canceled)
	_, err = s.Open(cctx, "k")
	wantClass(t, "open", err, context.Canceled)
	wantClass(t, "create", s.Create(cctx, "l", nil), context.Canceled)
	wantClass(t, "put", s.Put(cctx, "k", nil), context.Canceled)
	wantClass(t, "delete", s.Delete(cctx, "k"), context.Canceled)
	for _, err = range s.List(cctx, "", "") {
		break
	}
	wantClass(t, "list", err, context.Canceled)
	wantBytes(t, s, "k", "v")
	wantKeys(t, s, "", "", "k")
}

func testErrors(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	ok(t, s.Create(ctx, "d/k", nil))
	_, herr := s.Head(ctx, "d/absent")
	for _, err := range []error{herr, s.Create(ctx, "d/k", nil)} {
		var e *storage.Error
		if !errors.As(err, &e) || e.Root != s.URL() || !strings.Contains(err.Error(), e.Key) || e.Op == "" {
			t.Fatalf("error %v (%T) does not name its object", err, err)
		}
	}
}

func testRacingCreators(t *testing.T, s storage.Store, _ Config) {
	for round := range 10 {
		key := fmt.Sprintf("_delta_log/%020d.json", round)
		raceOne(t, s, key, func(me string) error {
			return s.Create(t.Context(), key, []byte(me))
		})
	}
}

func testRacingWriters(t *testing.T, s storage.Store, _ Config) {
	for round := range 5 {
		key := fmt.Sprintf("f/%d", round)
		raceOne(t, s, key, func(me string) error {
			w, err := s.NewWriter(t.Context(), key)
			if err != nil {
				return err
			}
			defer w.Abort()
			if _, err := w.Write([]byte(me)); err != nil {
				return err
			}
			return w.Close()
		})
	}
}

// raceOne lets 32 goroutines write key at once: one wins, the rest are told.
func raceOne(t *testing.T, s storage.Store, key string, write func(me string) error) {
	t.Helper()
	var wg sync.WaitGroup
	var winner atomic.Value
	var wins, refused atomic.Int64
	start := make(chan struct{})
	for g := range 32 {
		wg.Go(func() {
			<-start
			me := fmt.Sprintf("%d %s", g, strings.Repeat("x", 5000))
			switch err := write(me); {
			case err == nil:
				wins.Add(1)
				winner.Store(me)
			case errors.Is(err, storage.ErrExists):
				refused.Add(1)
			default:
				t.Errorf("racing creator: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	if wins.Load() != 1 || refused.Load() != 31 {
		t.Fatalf("%s: %d winners, %d refused", key, wins.Load(), refused.Load())
	}
	wantBytes(t, s, key, winner.Load().(string))
}

// testWholeObjects: who reads while others replace sees one whole version.
func testWholeObjects(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	body := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1000+i*137) }
	ok(t, s.Put(ctx, "_last_checkpoint", body(0)))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				b, err := storage.ReadAll(ctx, s, "_last_checkpoint")
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				i := (len(b) - 1000) / 137
				if !bytes.Equal(b, body(i)) {
					t.Errorf("read a mixture of %d bytes", len(b))
					return
				}
			}
		})
	}
	for i := range 60 {
		ok(t, s.Put(ctx, "_last_checkpoint", body(i)))
	}
	close(done)
	wg.Wait()
}

func testListSeesAcknowledged(t *testing.T, s storage.Store, _ Config) {
	ctx := t.Context()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 25 {
				key := fmt.Sprintf("log/%03d-%d", i, g)
				if err := s.Create(ctx, key, nil); err != nil {
					t.Errorf("create: %v", err)
					return
				}
				seen := false
				for o, err := range s.List(ctx, "log/", fmt.Sprintf("log/%03d", i)) {
					if err != nil {
						t.Errorf("list: %v", err)
						return
					}
					seen = seen || o.Key == key
				}
				if !seen {
					t.Errorf("%s was acknowledged and is not listed", key)
				}
			}
		})
	}
	wg.Wait()
}
