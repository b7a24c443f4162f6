package rowio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

type parquetWriter struct{ w *parquetio.Writer }

func newParquetWriter(w io.Writer, s *schema.Struct) (*parquetWriter, error) {
	pw, err := parquetio.NewWriter(w, s, parquetio.WriterOptions{})
	if err != nil {
		return nil, err
	}
	return &parquetWriter{pw}, nil
}

func (w *parquetWriter) Write(b arrow.RecordBatch) error { return w.w.Write(b) }
func (w *parquetWriter) Flush() error                    { return nil } // row groups end by size
func (w *parquetWriter) Close() error                    { return w.w.Close() }

// readParquet reads a file in place, or a stream by way of memory.
func readParquet(ctx context.Context, r io.Reader, o ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	optional := o.optional()
	return func(yield func(arrow.RecordBatch, error) bool) {
		f, err := openParquet(r)
		if err != nil {
			yield(nil, parquetError(err, o.File))
			return
		}
		if err := fits(f.Schema(), o.Schema, ""); err != nil {
			err.File = o.File
			yield(nil, err)
			return
		}
		drop := missing(o.Schema, optional, f.Schema().Names())
		row := int64(0)
		for b, err := range f.Read(ctx, nullable(o.Schema), parquetio.ReadOptions{BatchRows: o.BatchRows}) {
			if err != nil {
				yield(nil, parquetError(err, o.File))
				return
			}
			out, err := declare(b.RecordBatch, o, row)
			if err != nil {
				yield(nil, err)
				return
			}
			row += b.NumRows()
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

func openParquet(r io.Reader) (*parquetio.File, error) {
	if f, ok := r.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			return parquetio.Open(f, st.Size())
		}
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return parquetio.Open(bytes.NewReader(data), int64(len(data)))
}

func parquetError(err error, file string) error {
	var wrong *parquetio.TypeMismatchError
	switch {
	case errors.As(err, &wrong):
		return &Error{ErrorCode: CodeTypeMismatch, File: file, Column: wrong.Column, Reason: fmt.Sprintf("%s expected, the file has %s", wrong.Want, wrong.FileType)}
	case errors.Is(err, parquetio.ErrCorrupt), errors.Is(err, parquetio.ErrUnsupported):
		return &Error{ErrorCode: CodeInvalidParquet, File: file, Reason: err.Error()}
	}
	return fmt.Errorf("read %s: %w", file, err)
}

// fits refuses columns that the target lacks, and NOT NULL ones that the file lacks.
func fits(file, target *schema.Struct, path string) *Error {
	for _, f := range file.Fields {
		name := path + f.Name
		i := target.Index(f.Name)
		if i < 0 {
			return fault(CodeUnknownColumn, name, "not a column of the table")
		}
		inner, ok1 := f.Type.(*schema.Struct)
		want, ok2 := target.Fields[i].Type.(*schema.Struct)
		if ok1 && ok2 {
			if err := fits(inner, want, name+"."); err != nil {
				return err
			}
		}
	}
	for _, f := range target.Fields {
		if !f.Nullable && file.Index(f.Name) < 0 {
			return fault(CodeNotNull, path+f.Name, "missing from the input, and NOT NULL")
		}
	}
	return nil
}

// nullable is s as a reader may find it: whether a NOT NULL column holds nulls
// is for declare to tell, with the row.
func nullable(s *schema.Struct) *schema.Struct {
	out := &schema.Struct{}
	for _, f := range s.Fields {
		f.Nullable = true
		out.Fields = append(out.Fields, f)
	}
	return out
}

// declare gives b the declared nullability after checking it; the caller
// releases the answer.
func declare(b arrow.RecordBatch, o ReadOptions, before int64) (arrow.RecordBatch, error) {
	for c, f := range o.Schema.Fields {
		if row := firstForbiddenNull(b.Column(c), f); row >= 0 {
			return nil, &Error{ErrorCode: CodeNotNull, File: o.File, Row: before + int64(row) + 1, Column: f.Name, Reason: "null in a NOT NULL column"}
		}
	}
	as, err := schema.ArrowSchema(o.Schema)
	if err != nil {
		return nil, err
	}
	return array.NewRecordBatch(as, b.Columns(), b.NumRows()), nil
}
