package files

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/wire"
)

// RescuedField marks, in the metadata of an Arrow field of Record.Columns, the
// column that holds the JSON object of what did not fit the header.
const RescuedField = "sluice.rescued"

// csvRows is how many rows one Record of a CSV file holds at most.
const csvRows = 4096

// csvReader cuts a CSV file (RFC 4180) into batches of STRING columns: an empty
// unquoted field is null, "" is the empty string, a field that a short record
// lacks is no column of its batch.
type csvReader struct {
	*reader
	delim  byte
	header []string
	// noHeader and null are those of the options or of the file's dialect, which may
	// have rows of any width (growing).
	noHeader bool
	growing  bool
	null     string

	fields  []csvField
	text    []byte // unquoted text of the current record
	b       []*array.StringBuilder
	rows    int
	first   int64 // line of the first row in the batch
	offset  int64 // index of it
	raw     []byte
	records int64
}

type csvField struct {
	off, end int // in text
	null     bool
}

// readCSV yields a record for each stretch of rows of one width, and one with a
// fault for each that breaks the grammar.
func (r *reader) readCSV(ctx context.Context, yield func(*event.Record) bool) (bool, error) {
	c := &csvReader{reader: r, delim: r.opt.Delimiter, noHeader: r.opt.NoHeader, null: r.opt.Null}
	if r.opt.Dialect != nil {
		of := r.opt.Dialect(r.in.path)
		c.noHeader, c.growing = c.noHeader || of.NoHeader, of.NoHeader
		if c.null == "" {
			c.null = of.Null
		}
	}
	if c.delim == 0 {
		c.delim = ','
		if name, _ := stripCodec(r.in.path); hasSuffixFold(name, ".tsv") {
			c.delim = '\t'
		}
	}
	c.records = r.lines
	if r.start > 0 && !c.noHeader {
		if err := c.headerOf(ctx, r.in.path); err != nil {
			return false, err
		}
	}
	for {
		n, fault, err := c.next(ctx)
		if err != nil {
			return false, err
		}
		if n == 0 {
			return c.flush(yield), nil
		}
		if fault == "" && !utf8.Valid(c.text) {
			fault = "INVALID_UTF8: the record is not UTF-8"
		}
		for c.growing && fault == "" && len(c.header) < len(c.fields) {
			c.header = append(c.header, "_c"+strconv.Itoa(len(c.header)))
		}
		// What does not belong to the open batch closes it before it is taken: a
		// position never covers a row that was not yielded.
		if c.rows > 0 && (fault != "" || min(len(c.fields), len(c.header)) != len(c.b) || len(c.fields) > len(c.header)) {
			if blank := len(bytes.TrimRight(c.buf[c.head:c.head+n], "\r\n")) == 0; !blank && !c.flush(yield) {
				return false, nil
			}
		}
		raw := r.take(n)
		if len(bytes.TrimRight(raw, "\r\n")) == 0 && fault == "" {
			r.lines++
			continue
		}
		line := r.lines + 1
		r.lines += int64(max(1, bytes.Count(raw, []byte("\n"))))
		if c.header == nil && fault == "" {
			if !c.noHeader {
				if fault = c.setHeader(); fault == "" {
					continue
				}
				return false, &Error{Code: "FILE_UNREADABLE", Path: r.in.path, Reason: fault}
			}
			for i := range c.fields {
				c.header = append(c.header, "_c"+strconv.Itoa(i))
			}
		}
		if fault != "" {
			raw = bytes.TrimRight(raw, "\r\n")
			r.mark()
			r.rec = event.Record{Source: r.in.uri, Transport: line - 1, End: r.off, Line: line, Raw: raw, Value: raw, Fault: fault}
			if !yield(&r.rec) {
				return false, nil
			}
			continue
		}
		if !c.add(raw, line, yield) {
			return false, nil
		}
	}
}

// headerOf reads the header from the start of a file that is read on from its middle.
func (c *csvReader) headerOf(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return notFound(path, err)
	}
	defer f.Close()
	h := &csvReader{reader: &reader{opt: c.opt, in: c.in, file: &localFile{f, path}, stat: c.stat, src: f, whole: true}, delim: c.delim}
	n, fault, err := h.next(ctx)
	if err != nil {
		return err
	}
	if n == 0 || fault != "" {
		return c.changed("its header cannot be read again")
	}
	h.setHeader()
	c.header = h.header
	return nil
}

// setHeader takes the current fields as column names; a reason if they are none.
func (c *csvReader) setHeader() string {
	seen := map[string]bool{}
	for i, f := range c.fields {
		name := string(c.text[f.off:f.end])
		if name == "" || seen[name] {
			return fmt.Sprintf("column %d of the header is empty or comes twice: %q; a file without header needs --option header=false", i+1, name)
		}
		seen[name] = true
		c.header = append(c.header, name)
	}
	return ""
}

// next parses the record at head into fields and returns its length with its
// line end, 0 at the end of what is there. A fault is a broken record, which
// ends at its line.
func (c *csvReader) next(ctx context.Context) (n int, fault string, err error) {
	for {
		n, fault, ok := c.parse(c.buf[c.head:c.tail], c.eof)
		if ok {
			if c.eof && n == c.tail-c.head && n > 0 && c.buf[c.head+n-1] != '\n' && !c.lastRecord(ctx, fault == "") {
				return 0, "", nil
			}
			return n, fault, nil
		}
		if c.tail-c.head > c.opt.MaxRecordBytes {
			return c.tail - c.head, fmt.Sprintf("LINE_TOO_LONG: the record is longer than %d bytes, or a quote is not closed", c.opt.MaxRecordBytes), nil
		}
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		if err := c.fill(); err != nil {
			return 0, "", err
		}
	}
}

// lastRecord tells whether the bytes behind the last line end are a record: a
// well-formed one if the file rests for a second, a broken one if no more comes.
func (c *csvReader) lastRecord(ctx context.Context, whole bool) bool {
	switch {
	case c.opt.StableAge > 0:
		return c.stable(ctx, c.opt.StableAge, 0)
	case whole:
		return c.stable(ctx, time.Second, time.Second)
	}
	return c.stable(ctx, time.Minute, 0)
}

// parse splits one record; ok is false if more bytes are needed.
func (c *csvReader) parse(b []byte, eof bool) (n int, fault string, ok bool) {
	c.fields, c.text = c.fields[:0], c.text[:0]
	if len(b) == 0 {
		return 0, "", eof
	}
	lineEnd := func(i int) int { // index behind the line that i is in
		if k := bytes.IndexByte(b[i:], '\n'); k >= 0 {
			return i + k + 1
		}
		return len(b)
	}
	i := 0
	if c.off == 0 { // a byte order mark may stand before a quote
		if len(b) < 3 && !eof {
			return 0, "", false
		}
		if bytes.HasPrefix(b, []byte("\ufeff")) {
			i = 3
		}
	}
	for {
		off := len(c.text)
		quoted := i < len(b) && b[i] == '"'
		if quoted {
			i++
			for {
				k := bytes.IndexByte(b[i:], '"')
				if k < 0 {
					if !eof {
						return 0, "", false
					}
					return len(b), "UNCLOSED_QUOTE: a quoted field does not end", true
				}
				c.text = append(c.text, b[i:i+k]...)
				i += k + 1
				if i < len(b) && b[i] == '"' {
					c.text = append(c.text, '"')
					i++
					continue
				}
				if i == len(b) && !eof {
					return 0, "", false
				}
				break
			}
		} else {
			start := i
			for i < len(b) && b[i] != c.delim && b[i] != '\n' {
				i++
			}
			if i == len(b) && !eof {
				return 0, "", false
			}
			field := b[start:i]
			if i == len(b) || b[i] == '\n' {
				field = bytes.TrimSuffix(field, []byte("\r"))
			}
			c.text = append(c.text, field...)
		}
		c.fields = append(c.fields, csvField{off, len(c.text), !quoted && (len(c.text) == off || string(c.text[off:]) == c.null)})
		switch {
		case i == len(b):
			return i, "", true
		case b[i] == c.delim:
			i++
		case b[i] == '\n':
			return i + 1, "", true
		case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
			return i + 2, "", true
		case b[i] == '\r' && i+1 == len(b):
			if !eof {
				return 0, "", false
			}
			return i + 1, "", true
		default:
			end := lineEnd(i)
			if end == len(b) && !eof {
				return 0, "", false
			}
			return end, "BAD_QUOTE: text after a closing quote", true
		}
	}
}

// add takes the current fields into the batch, which is empty or of their width.
func (c *csvReader) add(raw []byte, line int64, yield func(*event.Record) bool) bool {
	width := min(len(c.fields), len(c.header))
	long := len(c.fields) > len(c.header)
	if c.rows == 0 {
		c.first, c.offset = line, line-1
		c.b = c.b[:0]
		for range width {
			c.b = append(c.b, array.NewStringBuilder(memory.DefaultAllocator))
		}
	}
	for i, f := range c.fields[:width] {
		if f.null {
			c.b[i].AppendNull()
		} else {
			c.b[i].BinaryBuilder.Append(c.text[f.off:f.end])
		}
	}
	c.rows++
	c.raw = append(c.raw, raw...)
	if long {
		return c.yieldRows(c.rescue(), yield)
	}
	if c.rows >= csvRows || len(c.raw) >= 4<<20 {
		return c.flush(yield)
	}
	return true
}

// rescue is the JSON of the fields behind the header's last.
func (c *csvReader) rescue() string {
	out := []byte{'{'}
	for i, f := range c.fields[len(c.header):] {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendString(out, "_c"+strconv.Itoa(len(c.header)+i))
		out = append(out, ':')
		out = wire.AppendString(out, string(c.text[f.off:f.end]))
	}
	return string(append(out, '}'))
}

func (c *csvReader) flush(yield func(*event.Record) bool) bool { return c.yieldRows("", yield) }

// yieldRows hands the batch over; rescued belongs to its only row.
func (c *csvReader) yieldRows(rescued string, yield func(*event.Record) bool) bool {
	if c.rows == 0 {
		return true
	}
	fields := make([]arrow.Field, 0, len(c.b)+1)
	cols := make([]arrow.Array, 0, len(c.b)+1)
	for i, b := range c.b {
		fields = append(fields, arrow.Field{Name: c.header[i], Type: arrow.BinaryTypes.String, Nullable: true})
		cols = append(cols, b.NewArray())
	}
	if rescued != "" {
		fields = append(fields, arrow.Field{Name: RescuedField, Type: arrow.BinaryTypes.String, Nullable: true,
			Metadata: arrow.NewMetadata([]string{RescuedField}, []string{"true"})})
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range c.rows - 1 {
			b.AppendNull()
		}
		b.Append(rescued)
		cols = append(cols, b.NewArray())
	}
	rows := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(c.rows))
	for _, col := range cols {
		col.Release()
	}
	c.mark()
	c.rec = event.Record{Source: c.in.uri, Transport: c.offset, End: c.off, Line: c.first, Columns: rows, Raw: c.raw}
	c.rows = 0
	ok := yield(&c.rec)
	c.raw = c.raw[:0]
	rows.Release()
	return ok
}
