package files_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/apply/source/files"
	"github.com/sluice-data/sluice/storage"
)

// bucket is an object store in memory, mem://b/.
type bucket struct{ storage.Store }

func newBucket() *bucket { return &bucket{Store: storage.NewMemory("b")} }

func (b *bucket) put(t *testing.T, key, text string) {
	t.Helper()
	if err := b.Put(context.Background(), key, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (b *bucket) open(location string) (storage.Store, error) {
	rest, ok := strings.CutPrefix(location, "mem://b")
	if !ok {
		return nil, fmt.Errorf("no such store: %s", location)
	}
	if rest = strings.Trim(rest, "/"); rest == "" {
		return b.Store, nil
	}
	return storage.Sub(b.Store, rest), nil
}

func (b *bucket) flow(paths ...string) *flow {
	return &flow{opt: files.Options{Paths: paths, OpenStore: b.open}}
}

func (f *flow) want(t *testing.T, rows ...string) {
	t.Helper()
	got, err := f.run(t, 0)
	if err != nil || !slices.Equal(got, rows) {
		t.Fatalf("got %q, %v, want %q", got, err, rows)
	}
}

// Objects below a prefix: in natural order, each once, those that are not data left
// out (cdc-formats 20).
func TestSource_Objects(t *testing.T) {
	t.Run("Files.A each object once", func(t *testing.T) {
		b := newBucket()
		b.put(t, "in/part-10.jsonl", "{\"id\":10}\n")
		b.put(t, "in/part-9.jsonl", "{\"id\":9}\n{\"id\":99}") // an object is whole: its last line counts
		b.put(t, "in/sub/part-1.csv", "id\n1\n")
		b.put(t, "elsewhere/x.jsonl", "{\"id\":0}\n")
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write([]byte("{\"id\":7}\n")); err != nil {
			t.Fatal(err)
		}
		w.Close()
		b.put(t, "in/z.jsonl.gz", z.String())
		for _, path := range []string{"mem://b/in", "mem://b/in/"} {
			f := b.flow(path)
			f.want(t, `{"id":9}`, `{"id":99}`, `{"id":10}`, "id=1", `{"id":7}`)
			f.want(t)
		}
		f := b.flow("mem://b/in", "mem://b/in/part-9.jsonl")
		f.want(t, `{"id":9}`, `{"id":99}`, `{"id":10}`, "id=1", `{"id":7}`)
		b.put(t, "in/part-11.jsonl", "{\"id\":11}\n")
		f.want(t, `{"id":11}`)
	})
	t.Run("Files.A stopped anywhere, each object is read to its end once", func(t *testing.T) {
		b := newBucket()
		for i := range 5 {
			b.put(t, fmt.Sprintf("in/%d.jsonl", i), fmt.Sprintf("{\"id\":%d}\n{\"id\":1%d}\n", i, i))
		}
		for n := 1; n < 10; n++ {
			f := b.flow("mem://b/in")
			first, err := f.run(t, n)
			if err != nil {
				t.Fatal(err)
			}
			rest, err := f.run(t, 0)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, r := range append(first, rest...) {
				seen[r] = true
			}
			// The object that was being read comes again whole; no other does.
			if len(seen) != 10 || len(first)+len(rest) > 12 {
				t.Errorf("stopped after %d: %q and then %q", n, first, rest)
			}
			f.want(t)
		}
	})
	t.Run("Files.E what is no data", func(t *testing.T) {
		b := newBucket()
		for _, key := range []string{"in/_SUCCESS", "in/.hidden", "in/x.jsonl.tmp", "in/_temporary/0/x.jsonl", "in/.spark/y.jsonl", "in/a.inprogress"} {
			b.put(t, key, "{\"id\":1}\n")
		}
		b.put(t, "in/empty.jsonl", "")
		b.put(t, "in/ok.jsonl", "{\"id\":2}\n")
		b.flow("mem://b/in").want(t, `{"id":2}`)
	})
	t.Run("patterns", func(t *testing.T) {
		b := newBucket()
		b.put(t, "day=1/a.jsonl", "{\"id\":1}\n")
		b.put(t, "day=2/a.jsonl", "{\"id\":2}\n")
		b.put(t, "day=2/b.csv", "id\n3\n")
		b.put(t, "other/a.jsonl", "{\"id\":4}\n")
		b.flow("mem://b/day=*/*.jsonl").want(t, `{"id":1}`, `{"id":2}`)
		b.flow("mem://b/day=*").want(t, `{"id":1}`, `{"id":2}`, "id=3")
		b.flow("mem://b/day=[2-9]/b*").want(t, "id=3")
		_, err := b.flow("mem://b/none*").run(t, 0)
		wantCode(t, err, "NOT_FOUND")
		f := b.flow("mem://b/none*")
		f.opt.Wait = true
		f.want(t)
	})
	t.Run("Files.D an object that was replaced", func(t *testing.T) {
		b := newBucket()
		b.put(t, "in/a.jsonl", "{\"id\":1}\n")
		f := b.flow("mem://b/in")
		f.want(t, `{"id":1}`)
		b.put(t, "in/a.jsonl", "{\"id\":2}\n")
		_, err := f.run(t, 0)
		wantCode(t, err, "FILE_CHANGED")
		f.opt.Overwrite = true
		f.want(t, `{"id":2}`)
		f.want(t)
	})
	t.Run("gone and missing", func(t *testing.T) {
		b := newBucket()
		b.put(t, "in/a.jsonl", "{\"id\":1}\n")
		_, err := b.flow("mem://b/none").run(t, 0)
		wantCode(t, err, "NOT_FOUND")
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%v is of no class", err)
		}
		_, err = (&flow{opt: files.Options{Paths: []string{"mem://b/in"}}}).run(t, 0)
		wantCode(t, err, "NOT_FOUND")
		f := b.flow("mem://b/in/a.jsonl")
		f.want(t, `{"id":1}`)
		if err := b.Delete(context.Background(), "in/a.jsonl"); err != nil {
			t.Fatal(err)
		}
		b.put(t, "in/b.jsonl", "{\"id\":5}\n")
		g := b.flow("mem://b/in")
		g.pos = f.pos
		g.want(t, `{"id":5}`) // a name that is gone after it was read is no fault
	})
	t.Run("identity is the URL", func(t *testing.T) {
		b := newBucket()
		b.put(t, "in/a.jsonl", "{\"id\":1}\n")
		f := b.flow("mem://b/in")
		f.want(t, `{"id":1}`)
		var ids []string
		for id, p := range f.pos {
			ids = append(ids, id)
			if p.Done != true {
				t.Errorf("position %+v", p)
			}
		}
		if !slices.Equal(ids, []string{"mem://b/in/a.jsonl"}) {
			t.Errorf("ids %q", ids)
		}
	})
}
