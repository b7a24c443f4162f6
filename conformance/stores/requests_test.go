package stores_test

import (
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/conformance/stores"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/storage"
	"github.com/sluice-data/sluice/storage/open"
)

// counter is a proxy before S3 that writes down what passes, by kind.
type counter struct {
	mu   sync.Mutex
	seen []string
	*httptest.Server
}

func newCounter(t *testing.T, target string) *counter {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Host = r.In.Host // it is signed
	}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.Method
		if r.Method == http.MethodGet && r.URL.Query().Has("list-type") {
			kind = "LIST"
		}
		c.mu.Lock()
		c.seen = append(c.seen, kind+" "+r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		c.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// take gives the number of requests of each kind since the last call.
func (c *counter) take() (n map[string]int, seen []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = map[string]int{}
	for _, s := range c.seen {
		kind, _, _ := strings.Cut(s, " ")
		n[kind]++
	}
	seen, c.seen = c.seen, nil
	return n, seen
}

// TestRequests pins what operations cost, so that none gets dearer unseen.
func TestRequests(t *testing.T) {
	s := stores.S3(t)
	c := newCounter(t, s.Endpoint)
	s.Setenv(t)
	t.Setenv("AWS_ENDPOINT_URL", c.URL)
	clouds := &open.Clouds{}
	location := s.Bucket(t) + "/t"
	fresh := func() storage.Store { return openStore(t, location, open.Options{Clouds: clouds}) }
	ctx := t.Context()

	const ddl = "id BIGINT, v STRING"
	tab, err := delta.Create(ctx, fresh(), delta.CreateOptions{Schema: testtable.Struct(t, ddl)}, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, most map[string]int) {
		t.Helper()
		n, seen := c.take()
		for _, kind := range []string{"LIST", "GET", "HEAD", "PUT", "POST", "DELETE"} {
			if n[kind] > most[kind] {
				t.Errorf("%s: %d %s, at most %d expected: %v", what, n[kind], kind, most[kind], seen)
			}
		}
		t.Logf("%s: %v", what, n)
	}
	check("create a table, with the probe", map[string]int{"LIST": 2, "PUT": 4, "DELETE": 1})
	add := func(i int) iter.Seq2[arrow.RecordBatch, error] {
		return testtable.Rows(t, ddl, fmt.Sprintf(`{"id":%d,"v":"x"}`, i))
	}
	for i := range 12 {
		if _, err := tab.Append(ctx, add(i), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.take()
	if _, err := tab.Append(ctx, add(99), delta.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	check("append a file", map[string]int{"LIST": 2, "GET": 2, "PUT": 3})

	tab, err = delta.Open(ctx, fresh(), delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check("open a table three commits behind its checkpoint", map[string]int{"LIST": 1, "GET": 5})
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Version != 13 || len(files) != 13 {
		t.Fatalf("version %d, %d files", snap.Version, len(files))
	}
	check("look for newer commits and name all files", map[string]int{"LIST": 1, "GET": 2})

	if rows := testtable.Read(t, tab, delta.ScanOptions{}); len(rows) != 13 {
		t.Fatalf("rows %v", rows)
	}
	check("scan 13 small files of an open table", map[string]int{"LIST": 1, "GET": 13})
}
