package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/avro"
)

// readAvro reads an Avro object container file: rows as batches of columns,
// Debezium's envelopes as JSON with their schema beside them.
func (r *reader) readAvro(ctx context.Context, yield func(*event.Record) bool) (bool, error) {
	bad := func(err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, avro.ErrNotWhole):
			return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "cannot be read to its end", Err: err}
		}
		return &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: "cannot be read as Avro", Err: err}
	}
	f, err := avro.OpenContainer(r.src, int64(r.opt.MaxRecordBytes))
	if err != nil {
		return false, bad(err)
	}
	defer f.Close()
	a := avroReader{reader: r, yield: yield}
	if f.Schema.IsEnvelope() {
		if a.head, err = f.Schema.ConnectHead(); err != nil {
			return false, bad(err)
		}
	} else if a.cols, err = avro.NewColumns(f.Schema); err != nil {
		return false, bad(err)
	}
	for {
		n, body, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return a.flush(), nil
		}
		if err != nil {
			return false, bad(err)
		}
		a.size += int64(len(body))
		for range n {
			more := true
			if body, more, err = a.record(f.Schema, body); err != nil {
				return false, bad(fmt.Errorf("record %d: %w", r.off+1, err))
			}
			if !more {
				return false, nil
			}
		}
		if len(body) > 0 {
			return false, bad(fmt.Errorf("%w: %d bytes are left over in a block", avro.ErrNotWhole, len(body)))
		}
	}
}

// avroReader gathers the records of a file; r.off counts them.
type avroReader struct {
	*reader
	yield func(*event.Record) bool
	head  []byte        // of envelopes
	cols  *avro.Columns // of rows
	size  int64         // bytes behind the rows that wait
}

// record takes the record that body begins with; more is false if the consumer has enough.
func (a *avroReader) record(s *avro.Schema, body []byte) (rest []byte, more bool, err error) {
	if a.cols == nil {
		text, rest, err := s.Envelope(a.head, body)
		if err != nil {
			return nil, false, err
		}
		a.off++
		a.rec = event.Record{Source: a.in.uri, Transport: a.off - 1, End: a.off, Line: a.off, Value: text, Raw: text, Size: int64(len(body) - len(rest))}
		return rest, a.yield(&a.rec), nil
	}
	rest, fault, err := a.cols.Add(body)
	if err != nil {
		return nil, false, err
	}
	switch {
	case fault != "":
		if !a.flush() {
			return nil, false, nil
		}
		a.off++
		raw := body[:len(body)-len(rest)]
		a.rec = event.Record{Source: a.in.uri, Transport: a.off - 1, End: a.off, Line: a.off, Value: raw, Raw: raw, Fault: fault}
		return rest, a.yield(&a.rec), nil
	case a.cols.Rows() >= csvRows:
		return rest, a.flush(), nil
	}
	return rest, true, nil
}

// flush hands the rows over that wait.
func (a *avroReader) flush() bool {
	if a.cols == nil || a.cols.Rows() == 0 {
		return true
	}
	first := a.off
	a.off += int64(a.cols.Rows())
	rows := a.cols.Take()
	defer rows.Release()
	a.rec = event.Record{Source: a.in.uri, Transport: first, End: a.off, Line: first + 1, Columns: rows, Size: max(a.size, 1)}
	a.size = 0
	return a.yield(&a.rec)
}
