package main

import (
	"context"
	"io"
)

// interruptible is a reader whose Read ends when ctx does, also while the
// underlying Read blocks on a terminal or a pipe. It is used by one goroutine.
type interruptible struct {
	ctx    context.Context
	r      io.Reader
	chunks chan chunk
	left   []byte
	err    error
}

type chunk struct {
	data []byte
	err  error
}

func (i *interruptible) Read(b []byte) (int, error) {
	if i.chunks == nil {
		i.chunks = make(chan chunk)
		// The goroutine ends with its input, or with the process.
		go func() {
			for {
				buf := make([]byte, 64<<10)
				n, err := i.r.Read(buf)
				select {
				case i.chunks <- chunk{buf[:n], err}:
				case <-i.ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for len(i.left) == 0 {
		if i.err != nil {
			return 0, i.err
		}
		select {
		case c := <-i.chunks:
			i.left, i.err = c.data, c.err
		case <-i.ctx.Done():
			return 0, context.Cause(i.ctx)
		}
	}
	n := copy(b, i.left)
	i.left = i.left[n:]
	return n, nil
}
