package rowio

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/sluice-data/sluice/log/schema"
)

type arrowWriter struct {
	as *arrow.Schema
	w  *ipc.Writer
	// buf: an IPC message goes out in many small writes.
	buf *bufio.Writer
}

func newArrowWriter(w io.Writer, s *schema.Struct) (*arrowWriter, error) {
	as, err := schema.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(w, 64<<10)
	return &arrowWriter{as: as, buf: buf, w: ipc.NewWriter(buf, ipc.WithSchema(as))}, nil
}

func (w *arrowWriter) Write(b arrow.RecordBatch) error { return w.w.Write(b) }
func (w *arrowWriter) Flush() error                    { return w.buf.Flush() }

func (w *arrowWriter) Close() error {
	if err := w.w.Close(); err != nil {
		return err
	}
	return w.buf.Flush()
}

// arrowMagic starts an IPC file (as opposed to a stream).
var arrowMagic = []byte("ARROW1")

// readArrow reads an IPC stream or file.
func readArrow(ctx context.Context, r io.Reader, o ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	optional := o.optional()
	return func(yield func(arrow.RecordBatch, error) bool) {
		bad := func(err error) error {
			return &Error{ErrorCode: CodeInvalidArrow, File: o.File, Reason: err.Error()}
		}
		br := bufio.NewReaderSize(r, 256<<10)
		var next func() (arrow.RecordBatch, error)
		var from *arrow.Schema
		if head, _ := br.Peek(len(arrowMagic)); bytes.Equal(head, arrowMagic) {
			data, err := io.ReadAll(br)
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", o.File, err))
				return
			}
			f, err := guard(func() (*ipc.FileReader, error) { return ipc.NewFileReader(bytes.NewReader(data)) })
			if err != nil {
				yield(nil, bad(err))
				return
			}
			defer f.Close()
			from, next = f.Schema(), f.Read
		} else {
			s, err := guard(func() (*ipc.Reader, error) { return ipc.NewReader(br) })
			if err != nil {
				yield(nil, bad(err))
				return
			}
			defer s.Release()
			from, next = s.Schema(), s.Read
		}
		conv, err := newConverter(from, o)
		if err != nil {
			yield(nil, err)
			return
		}
		var have []string
		for _, f := range from.Fields() {
			have = append(have, f.Name)
		}
		drop := missing(o.Schema, optional, have)
		for {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			b, err := guard(next)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, bad(err))
				return
			}
			out, err := conv.batch(b)
			if err != nil {
				yield(nil, err)
				return
			}
			given := without(out, drop)
			ok := yield(given, nil)
			given.Release()
			out.Release()
			if !ok {
				return
			}
		}
	}
}

// guard turns a panic of the decoder on hostile bytes into an error.
func guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed data: %v", p)
		}
	}()
	return f()
}
