package delta

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/internal/datafile"
)

// rowWriter writes the rows of a task: all into one run of files, or those that
// StageOptions.Apart tells into another one.
type rowWriter struct {
	main, apart *datafile.Writer // apart is made when it is needed
	open        func() (*datafile.Writer, error)
	by          func(arrow.RecordBatch) []bool
}

func (s *stager) rowWriter() (*rowWriter, error) {
	w, err := s.writer()
	return &rowWriter{main: w, open: s.writer, by: s.o.Apart}, err
}

// Write adds rows; the batch may be used again afterwards.
func (w *rowWriter) Write(ctx context.Context, b arrow.RecordBatch) error {
	if w.by == nil {
		return w.main.Write(ctx, b)
	}
	var here, there []int64
	for r, apart := range w.by(b) {
		if apart {
			there = append(there, int64(r))
		} else {
			here = append(here, int64(r))
		}
	}
	if len(there) == 0 {
		return w.main.Write(ctx, b)
	}
	if w.apart == nil {
		var err error
		if w.apart, err = w.open(); err != nil {
			return err
		}
	}
	if len(here) == 0 {
		return w.apart.Write(ctx, b)
	}
	return errors.Join(take(ctx, w.main, b, here), take(ctx, w.apart, b, there))
}

func take(ctx context.Context, w *datafile.Writer, b arrow.RecordBatch, rows []int64) error {
	part, err := datafile.Take(b, rows)
	if err != nil {
		return err
	}
	defer part.Release()
	return w.Write(ctx, part)
}

// Close makes the files durable.
func (w *rowWriter) Close(ctx context.Context) ([]datafile.WrittenFile, error) {
	files, err := w.main.Close(ctx)
	if w.apart == nil {
		return files, err
	}
	if err != nil {
		return files, errors.Join(err, w.apart.Abort(context.WithoutCancel(ctx)))
	}
	more, err := w.apart.Close(ctx)
	return append(files, more...), err
}

// Abort leaves nothing behind.
func (w *rowWriter) Abort(ctx context.Context) error {
	if w.apart == nil {
		return w.main.Abort(ctx)
	}
	return errors.Join(w.main.Abort(ctx), w.apart.Abort(ctx))
}
