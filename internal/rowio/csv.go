package rowio

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

// csvWriter prints a header and one record a row (RFC 4180, lines end in \n).
// Null is an empty field, the empty string a quoted one; nested values are JSON.
type csvWriter struct {
	out  *bufio.Writer
	s    *schema.Struct
	cell []byte
	buf  []byte
}

func newCSVWriter(w io.Writer, s *schema.Struct) (*csvWriter, error) {
	cw := &csvWriter{out: bufio.NewWriterSize(w, 64<<10), s: s}
	for i, f := range s.Fields {
		if _, err := schema.ArrowType(f.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		if i > 0 {
			cw.buf = append(cw.buf, ',')
		}
		cw.buf = appendCSV(cw.buf, []byte(f.Name))
	}
	cw.buf = append(cw.buf, '\n')
	_, err := cw.out.Write(cw.buf)
	return cw, err
}

func appendCSV(b, cell []byte) []byte {
	if len(cell) > 0 && !bytes.ContainsAny(cell, ",\"\r\n") {
		return append(b, cell...)
	}
	b = append(b, '"')
	b = append(b, bytes.ReplaceAll(cell, []byte(`"`), []byte(`""`))...)
	return append(b, '"')
}

func (w *csvWriter) Write(b arrow.RecordBatch) error {
	if int(b.NumCols()) != len(w.s.Fields) {
		return fmt.Errorf("write row: batch has %d columns, expected %d", b.NumCols(), len(w.s.Fields))
	}
	for i := range int(b.NumRows()) {
		w.buf = w.buf[:0]
		for c, f := range w.s.Fields {
			if c > 0 {
				w.buf = append(w.buf, ',')
			}
			if isNull(b.Column(c), i) {
				continue
			}
			var err error
			if w.cell, err = appendText(w.cell[:0], f.Type, b.Column(c), i); err != nil {
				return fmt.Errorf("write column %s: %w", f.Name, err)
			}
			w.buf = appendCSV(w.buf, w.cell)
		}
		w.buf = append(w.buf, '\n')
		if _, err := w.out.Write(w.buf); err != nil {
			return err
		}
	}
	return nil
}

func (w *csvWriter) Flush() error { return w.out.Flush() }
func (w *csvWriter) Close() error { return w.out.Flush() }

// csvLines is a rowSource of CSV records under a header.
type csvLines struct {
	r      *bufio.Reader
	s      *schema.Struct
	cols   []*column
	fields []int  // header position -> column
	absent []int  // columns that the header lacks
	rec    []byte // fields of the current record, joined
	ends   []int
	quoted []bool
	start  int64 // line of the current record
	n      int64 // lines read
	scan   scanner
}

func newCSVLines(r *bufio.Reader, cols []*column, s *schema.Struct) (rowSource, error) {
	c := &csvLines{r: r, s: s, cols: cols}
	if _, err := c.record(); err != nil {
		if err == io.EOF {
			return nil, fault(CodeInvalidCSV, "", "the header line is missing")
		}
		return nil, err
	}
	seen := make([]bool, len(cols))
	for i := range c.ends {
		name := c.field(i)
		col := lookup(s, name)
		if col < 0 {
			return nil, fault(CodeUnknownColumn, string(name), "not a column of the table")
		}
		if seen[col] {
			return nil, fault(CodeDuplicateColumn, string(name), "stands twice in the header")
		}
		seen[col] = true
		c.fields = append(c.fields, col)
	}
	for i, ok := range seen {
		if ok {
			continue
		}
		if !s.Fields[i].Nullable {
			return nil, notNull(s.Fields[i].Name)
		}
		c.absent = append(c.absent, i)
	}
	return c, nil
}

func (c *csvLines) line() int64 { return c.start }

func (c *csvLines) lacks(i int) bool { return slices.Contains(c.absent, i) }

func (c *csvLines) field(i int) []byte {
	from := 0
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.rec[from:c.ends[i]]
}

func (c *csvLines) next() (int, error) {
	size, err := c.record()
	for err == nil && len(c.ends) == 1 && len(c.fields) > 1 && len(c.rec) == 0 && !c.quoted[0] {
		size, err = c.record() // a blank line
	}
	if err != nil {
		return 0, err
	}
	if len(c.ends) != len(c.fields) {
		return 0, fault(CodeInvalidCSV, "", "%d fields, the header has %d", len(c.ends), len(c.fields))
	}
	for i, col := range c.fields {
		if err := c.append(c.cols[col], c.field(i), c.quoted[i], c.s.Fields[col].Nullable); err != nil {
			return 0, err
		}
	}
	for _, col := range c.absent {
		c.cols[col].b.AppendNull()
	}
	return size, nil
}

func (c *csvLines) append(col *column, text []byte, quoted, nullable bool) error {
	if len(text) == 0 && !quoted {
		if !nullable {
			return notNull(col.path)
		}
		col.b.AppendNull()
		return nil
	}
	if !utf8.Valid(text) {
		return fault(CodeInvalidCSV, col.path, "bytes that are not UTF-8")
	}
	if col.text != nil {
		return col.give(text)
	}
	c.scan.data, c.scan.pos = text, 0
	if err := col.json(&c.scan); err != nil {
		return err
	}
	return c.scan.end()
}

// record reads one record into rec, ends and quoted; a quoted field may span lines.
func (c *csvLines) record() (size int, err error) {
	c.rec, c.ends, c.quoted = c.rec[:0], c.ends[:0], c.quoted[:0]
	c.start = c.n + 1
	bad := func(format string, args ...any) error { return fault(CodeInvalidCSV, "", format, args...) }
	finish := func(quoted bool) {
		c.ends, c.quoted = append(c.ends, len(c.rec)), append(c.quoted, quoted)
	}
	const (
		fieldStart = iota
		bare
		inQuotes
		afterQuote
	)
	state := fieldStart
	for {
		ch, err := c.r.ReadByte()
		if err == io.EOF {
			switch {
			case state == inQuotes:
				return 0, bad("a quoted field does not end")
			case size == 0:
				return 0, io.EOF
			}
			finish(state == afterQuote)
			c.n++
			return size, nil
		}
		if err != nil {
			return 0, err
		}
		size++
		if state == inQuotes {
			switch ch {
			case '"':
				state = afterQuote
			case '\n':
				c.n++
				fallthrough
			default:
				c.rec = append(c.rec, ch)
			}
			continue
		}
		switch ch {
		case '\r':
			if next, _ := c.r.Peek(1); len(next) == 0 || next[0] == '\n' {
				continue
			}
			if state == afterQuote {
				return 0, bad("text after a closing quote")
			}
			c.rec, state = append(c.rec, ch), bare
		case '\n':
			finish(state == afterQuote)
			c.n++
			return size, nil
		case ',':
			finish(state == afterQuote)
			state = fieldStart
		case '"':
			switch state {
			case fieldStart:
				state = inQuotes
			case afterQuote: // a doubled quote
				c.rec, state = append(c.rec, ch), inQuotes
			default:
				return 0, bad("a quote inside an unquoted field")
			}
		default:
			if state == afterQuote {
				return 0, bad("text after a closing quote")
			}
			c.rec, state = append(c.rec, ch), bare
		}
	}
}
