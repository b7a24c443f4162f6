package files

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
)

// readParquet yields a record for each batch of rows, in the order of the row
// groups. Columns that sluice has no type for are an error that names them.
func (r *reader) readParquet(ctx context.Context, yield func(*event.Record) bool) (bool, error) {
	var at io.ReaderAt = r.file
	var size int64
	if _, codec := stripCodec(r.in.path); r.in.stdin || codec != "" {
		b, err := io.ReadAll(r.src)
		if err != nil {
			return false, &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "cannot be read whole", Err: err}
		}
		at, size = bytes.NewReader(b), int64(len(b))
	} else {
		size = r.stat.size
	}
	bad := func(err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, parquetio.ErrCorrupt):
			return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "is not (yet) a whole Parquet file", Err: err}
		}
		return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "cannot be read as Parquet", Err: err}
	}
	f, err := parquetio.Open(at, size)
	if err != nil {
		return false, bad(err)
	}
	want := f.Schema()
	for _, c := range want.Fields {
		if _, unknown := c.Type.(schema.Unknown); unknown {
			return false, &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "column " + c.Name + " is of a type without a Delta form: " + c.Type.String()}
		}
	}
	rows := max(f.NumRows(), 1)
	for b, err := range f.Read(ctx, want, parquetio.ReadOptions{}) {
		if err != nil {
			return false, bad(err)
		}
		n := b.NumRows()
		r.off = b.FirstRow + n
		r.rec = event.Record{
			Source: r.in.uri, Transport: b.FirstRow, End: r.off, Line: b.FirstRow + 1, Columns: b.RecordBatch,
			// The share of the file that these rows are, for batch limits.
			Size: size * n / rows,
		}
		if !yield(&r.rec) {
			return false, nil
		}
	}
	return true, nil
}
