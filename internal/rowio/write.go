package rowio

import (
	"bufio"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

// WriteOptions shape the output.
type WriteOptions struct {
	// Width of the terminal in columns for form Table; 0 = 120. Wider rows are not
	// wrapped, long cells are cut at half of it.
	Width int
	// Rows that form Table looks at to choose column widths; 0 = 1000.
	Sample int
}

// Writer prints batches of one schema. Close ends the output (a JSON array, a
// Parquet footer) and flushes; it does not close the underlying writer.
type Writer interface {
	Write(arrow.RecordBatch) error
	// Flush hands rows written so far to the underlying writer where the form can.
	Flush() error
	Close() error
}

// NewWriter prints rows with the columns of s to w in the given form. Batches
// must have exactly the Arrow types of s.
func NewWriter(w io.Writer, form Form, s *schema.Struct, o WriteOptions) (Writer, error) {
	switch form {
	case JSONL, JSON:
		return newJSONWriter(w, s, form == JSON)
	case CSV:
		return newCSVWriter(w, s)
	case Table:
		return newTableWriter(w, s, o)
	case Arrow:
		return newArrowWriter(w, s)
	case Parquet:
		return newParquetWriter(w, s)
	}
	return nil, fmt.Errorf("output form %q: unknown", form)
}

type jsonWriter struct {
	out   *bufio.Writer
	s     *schema.Struct
	names [][]byte // `"name":`
	buf   []byte
	array bool
	rows  int64
}

func newJSONWriter(w io.Writer, s *schema.Struct, array bool) (*jsonWriter, error) {
	jw := &jsonWriter{out: bufio.NewWriterSize(w, 64<<10), s: s, array: array}
	for _, f := range s.Fields {
		if _, err := schema.ArrowType(f.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		jw.names = append(jw.names, append(appendJSONString(nil, f.Name), ':'))
	}
	return jw, nil
}

func (w *jsonWriter) Write(b arrow.RecordBatch) error {
	if int(b.NumCols()) != len(w.names) {
		return fmt.Errorf("write row: batch has %d columns, expected %d", b.NumCols(), len(w.names))
	}
	for i := range int(b.NumRows()) {
		buf := w.buf[:0]
		if w.array {
			if w.rows == 0 {
				buf = append(buf, "[\n"...)
			} else {
				buf = append(buf, ",\n"...)
			}
		}
		buf = append(buf, '{')
		for c, name := range w.names {
			if c > 0 {
				buf = append(buf, ',')
			}
			buf = append(buf, name...)
			var err error
			if buf, err = appendJSONValue(buf, w.s.Fields[c].Type, b.Column(c), i); err != nil {
				return fmt.Errorf("write column %s: %w", w.s.Fields[c].Name, err)
			}
		}
		buf = append(buf, '}')
		if !w.array {
			buf = append(buf, '\n')
		}
		w.buf = buf
		w.rows++
		if _, err := w.out.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonWriter) Flush() error { return w.out.Flush() }

func (w *jsonWriter) Close() error {
	if w.array {
		end := "\n]\n"
		if w.rows == 0 {
			end = "[]\n"
		}
		if _, err := w.out.WriteString(end); err != nil {
			return err
		}
	}
	return w.out.Flush()
}
