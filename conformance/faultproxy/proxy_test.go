package faultproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Each kind does what its name says: what the client gets, and whether the server was asked.
func TestProxy_Kinds(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		status  int // 0: an error
		whole   bool
		applied bool
	}{
		{CutBefore, 0, false, false}, {CutMiddle, 0, false, false}, {CutAfter, 0, false, true}, {Truncate, 200, false, true}, {Delay, 200, true, true},
		{Duplicate, 200, true, true}, {ErrorAfter, 500, false, true}, {SlowDownAfter, 503, false, true}, {TooManyAfter, 429, false, true}, {SlowDownBefore, 503, false, false},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			var asked atomic.Int64
			text := strings.Repeat("answer ", 1000)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err == nil && string(b) == "question" {
					asked.Add(1)
				}
				io.WriteString(w, text)
			}))
			defer s.Close()
			p := Start(t, s.Listener.Addr().String(), Options{Kinds: []Kind{c.kind}, OneIn: 1, Burst: 1, Pause: 1})
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			resp, err := client.Post(p.URL+"/x", "text/plain", io.NopCloser(strings.NewReader("question"))) // a body that cannot be sent again
			got := ""
			if err == nil {
				var b []byte
				b, _ = io.ReadAll(resp.Body)
				got = string(b)
				resp.Body.Close()
			}
			if (err == nil) != (c.status != 0) || err == nil && resp.StatusCode != c.status || (got == text) != c.whole || (asked.Load() == 1) != c.applied {
				t.Errorf("error %v, answer of %d bytes, asked %d times", err, len(got), asked.Load())
			}
			if n := p.Met()[c.kind]; n != 1 {
				t.Errorf("met %d times", n)
			}
			// The next request passes, whatever became of the connection.
			resp, err = client.Post(p.URL+"/x", "text/plain", strings.NewReader("question"))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != text {
				t.Errorf("second request: %d bytes, %v", len(b), err)
			}
			resp.Body.Close()
		})
	}
}
