package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is what happens to a request.
type Kind string

// The kinds.
const (
	// CutBefore resets the connection; the server sees nothing.
	CutBefore Kind = "connection cut before the request"
	// CutMiddle resets both connections in the middle of the request.
	CutMiddle Kind = "connection cut within the request"
	// CutAfter resets the connection after the server has answered.
	CutAfter Kind = "connection cut after the request was applied"
	// Truncate sends half of the answer.
	Truncate Kind = "answer truncated"
	// Delay holds the answer back.
	Delay Kind = "answer delayed"
	// Duplicate sends the answer twice.
	Duplicate Kind = "answer sent twice"
	// ErrorAfter answers 500 though the server has applied the request.
	ErrorAfter Kind = "500 after the request was applied"
	// SlowDownAfter answers 503 SlowDown though the server has applied the request.
	SlowDownAfter Kind = "503 SlowDown after the request was applied"
	// TooManyAfter answers 429 though the server has applied the request.
	TooManyAfter Kind = "429 after the request was applied"
	// SlowDownBefore answers 503 SlowDown; the server sees nothing.
	SlowDownBefore Kind = "503 SlowDown before the request"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{CutBefore, CutMiddle, CutAfter, Truncate, Delay, Duplicate, ErrorAfter, SlowDownAfter, TooManyAfter, SlowDownBefore}
}

// Options of a proxy.
type Options struct {
	Seed int64
	// Kinds that happen; nil: all.
	Kinds []Kind
	// OneIn is how many requests one fault comes on; 0: 5.
	OneIn int
	// Burst bounds the faults in a row; 0: 3.
	Burst int
	// Pause is how long Delay holds an answer back; 0: 200ms.
	Pause time.Duration
}

// Proxy runs until its test ends.
type Proxy struct {
	// URL is its HTTP address.
	URL    string
	target string
	o      Options

	mu  sync.Mutex
	rng *rand.Rand
	row int
	met map[Kind]int
}

// Start starts a proxy before the server at target, "host:port".
func Start(tb testing.TB, target string, o Options) *Proxy {
	tb.Helper()
	if len(o.Kinds) == 0 {
		o.Kinds = Kinds()
	}
	if o.OneIn == 0 {
		o.OneIn = 5
	}
	if o.Burst == 0 {
		o.Burst = 3
	}
	if o.Pause == 0 {
		o.Pause = 200 * time.Millisecond
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{URL: "http://" + l.Addr().String(), target: target, o: o, rng: rand.New(rand.NewPCG(uint64(o.Seed), 7)), met: map[Kind]int{}}
	var open sync.Map
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			all.Go(func() {
				defer open.Delete(c)
				defer c.Close()
				p.serve(c)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		all.Wait()
	})
	return p
}

// Met counts the faults so far.
func (p *Proxy) Met() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.met)
}

// draw decides about the next request; "" lets it pass.
func (p *Proxy) draw() Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.IntN(p.o.OneIn) != 0 || p.row == p.o.Burst {
		p.row = 0
		return ""
	}
	p.row++
	k := p.o.Kinds[p.rng.IntN(len(p.o.Kinds))]
	p.met[k]++
	return k
}

// serve answers the requests of one connection.
func (p *Proxy) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			req.Header.Del("Expect")
			if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return
			}
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if !p.pass(c, req, body, p.draw()) {
			return
		}
	}
}

// pass does to one request what kind says; it is false where the connection is over.
func (p *Proxy) pass(c net.Conn, req *http.Request, body []byte, kind Kind) bool {
	switch kind {
	case CutBefore:
		return reset(c)
	case SlowDownBefore:
		return answer(c, http.StatusServiceUnavailable, "SlowDown")
	}
	var wire bytes.Buffer
	req.Body = io.NopCloser(bytes.NewReader(body))
	if err := req.Write(&wire); err != nil {
		return false
	}
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return false
	}
	defer up.Close()
	if kind == CutMiddle {
		_, _ = up.Write(wire.Bytes()[:wire.Len()/2])
		reset(up)
		return reset(c)
	}
	if _, err := up.Write(wire.Bytes()); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(up), req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	if err := resp.Write(&out); err != nil {
		return false
	}
	switch kind {
	case CutAfter:
		return reset(c)
	case ErrorAfter:
		return answer(c, http.StatusInternalServerError, "InternalError")
	case SlowDownAfter:
		return answer(c, http.StatusServiceUnavailable, "SlowDown")
	case TooManyAfter:
		return answer(c, http.StatusTooManyRequests, "TooManyRequests")
	case Truncate:
		_, _ = c.Write(out.Bytes()[:out.Len()/2])
		return false
	case Delay:
		time.Sleep(p.o.Pause)
	case Duplicate:
		out.Write(bytes.Clone(out.Bytes()))
	}
	_, err = c.Write(out.Bytes())
	return err == nil && !resp.Close
}

// reset closes a connection so that the other side gets an error, not an end.
func reset(c net.Conn) bool {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
	return false
}

func answer(c net.Conn, status int, code string) bool {
	text := "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>injected</Message></Error>"
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(text), text)
	return err == nil
}
