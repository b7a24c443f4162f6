package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progress shows how far work has come: on a terminal a bar with rate and time
// left, elsewhere a line every ten seconds. Nothing is shown in the first second.
// Stop must be called once, before anything else is printed.
type progress struct {
	out   io.Writer
	clock func() time.Time
	start time.Time
	verb  string
	bar   bool
	// done and total count the same unit; total 0 is unknown.
	done, total atomic.Int64
	note        atomic.Value // string
	bytes       bool

	stop    chan struct{}
	stopped sync.WaitGroup
	shown   bool // the bar is on screen; only the drawing goroutine uses it
}

// startProgress begins to show verb; bytes tells the unit of done and total.
func (a *app) startProgress(verb string, total int64, bytes bool) *progress {
	p := &progress{out: a.stderr, clock: a.clock, start: a.clock(), verb: verb, bytes: bytes, stop: make(chan struct{})}
	p.total.Store(total)
	p.note.Store("")
	mode := a.flags.progress
	if mode == "auto" {
		mode = "plain"
		if a.errTerminal {
			mode = "bar"
		}
	}
	if mode == "none" {
		return p
	}
	p.bar = mode == "bar"
	every := 10 * time.Second
	if p.bar {
		every = 200 * time.Millisecond
	}
	p.stopped.Add(1)
	go func() {
		defer p.stopped.Done()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.draw()
			case <-p.stop:
				if p.shown {
					fmt.Fprint(p.out, "\r\x1b[K")
				}
				return
			}
		}
	}()
	return p
}

// Stop ends the display and takes a bar off the screen.
func (p *progress) Stop() {
	close(p.stop)
	p.stopped.Wait()
}

func (p *progress) draw() {
	elapsed := p.clock().Sub(p.start)
	if elapsed < time.Second {
		return
	}
	line := p.line(elapsed)
	if p.bar {
		p.shown = true
		fmt.Fprint(p.out, "\r\x1b[K"+line)
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *progress) line(elapsed time.Duration) string {
	done, total := p.done.Load(), p.total.Load()
	count := func(n int64) string {
		if p.bytes {
			return humanSize(n)
		}
		return fmt.Sprint(n) + " rows"
	}
	rate := float64(done) / elapsed.Seconds()
	var b strings.Builder
	b.WriteString(p.verb)
	if total > 0 {
		fraction := min(1, float64(done)/float64(total))
		if p.bar {
			const width = 24
			full := int(fraction * width)
			fmt.Fprintf(&b, " [%s%s]", strings.Repeat("#", full), strings.Repeat(".", width-full))
		}
		fmt.Fprintf(&b, " %.0f%% %s of %s", fraction*100, count(done), count(total))
	} else {
		fmt.Fprintf(&b, " %s", count(done))
	}
	fmt.Fprintf(&b, ", %s/s", count(int64(rate)))
	if total > done && rate > 0 {
		left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(&b, ", %s left", left)
	}
	if note := p.note.Load().(string); note != "" {
		b.WriteString(", " + note)
	}
	return b.String()
}
