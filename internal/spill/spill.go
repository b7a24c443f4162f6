package spill

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// pattern is that of the names of temporary files.
const pattern = "sluice-spill-*"

// Options say where temporary files lie; the zero value is the default.
type Options struct {
	// Dir is their directory; "": the system's directory for temporary files.
	Dir string
	// Count, if set, is told the bytes of every write.
	Count func(bytes int64)
}

// Error is a temporary file that could not be written or read.
type Error struct {
	Dir string
	Err error
}

// Error names the directory and what to do.
func (e *Error) Error() string {
	what := "temporary file in " + e.Dir + ": " + reason(e.Err)
	if errors.Is(e.Err, syscall.ENOSPC) {
		return what + "; free space there, or put temporary files elsewhere"
	}
	return what + "; put temporary files elsewhere"
}

// reason is an error without the name of a file that is gone.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Op + ": " + pe.Err.Error()
	}
	return err.Error()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Code is the stable code of the error.
func (e *Error) Code() string { return "SPILL_FAILED" }

// File is a temporary file of record batches. Its methods may be called from several
// goroutines; Close ends it.
type File struct {
	dir   string
	count func(int64)
	f     *os.File
	kept  bool // the system does not let go of the name of an open file

	mu  sync.Mutex
	end int64
}

// Segment is the place of a batch.
type Segment struct {
	off, size int64
	// Rows is how many the batch has.
	Rows int64
}

// Create makes an empty file.
func Create(o Options) (*File, error) {
	dir := o.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	sweep(dir)
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, &Error{Dir: dir, Err: err}
	}
	err = os.Remove(f.Name()) // or another process was faster
	return &File{dir: dir, count: o.Count, f: f, kept: err != nil && !errors.Is(err, os.ErrNotExist)}, nil
}

// sweep removes files that other processes left. That of a process which is alive is
// open, and either has no name any more or cannot be removed.
func sweep(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return // the pattern is a constant; only the directory's name can be odd
	}
	for _, name := range left {
		_ = os.Remove(name)
	}
}

// Append adds a batch.
func (f *File) Append(b arrow.RecordBatch) (Segment, error) {
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(b.Schema()), ipc.WithLZ4())
	if err := errors.Join(w.Write(b), w.Close()); err != nil {
		return Segment{}, fmt.Errorf("encode rows for a temporary file: %w", err)
	}
	f.mu.Lock()
	at := f.end
	f.end += int64(buf.Len())
	f.mu.Unlock()
	if _, err := f.f.WriteAt(buf.Bytes(), at); err != nil {
		return Segment{}, &Error{Dir: f.dir, Err: err}
	}
	if f.count != nil {
		f.count(int64(buf.Len()))
	}
	return Segment{off: at, size: int64(buf.Len()), Rows: b.NumRows()}, nil
}

// Read is the batch of a segment; the caller releases it.
func (f *File) Read(s Segment) (arrow.RecordBatch, error) {
	r, err := ipc.NewReader(io.NewSectionReader(f.f, s.off, s.size))
	if err != nil {
		return nil, &Error{Dir: f.dir, Err: err}
	}
	defer r.Release()
	if !r.Next() {
		if err = r.Err(); err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, &Error{Dir: f.dir, Err: err}
	}
	b := r.RecordBatch()
	b.Retain()
	return b, nil
}

// Size is the bytes written so far.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end
}

// Close gives the space back.
func (f *File) Close() error {
	err := f.f.Close()
	if f.kept {
		if gone := os.Remove(f.f.Name()); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		return &Error{Dir: f.dir, Err: err}
	}
	return nil
}
