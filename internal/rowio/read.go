package rowio

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-data/sluice/log/schema"
)

// ReadOptions say how input becomes batches.
type ReadOptions struct {
	// Schema of the batches. Input columns are matched by name, exactly or else
	// ignoring case; columns that the input lacks are null; columns that the
	// schema lacks are an [*Error].
	Schema *schema.Struct
	// Optional names columns that are missing from a batch, instead of null in it,
	// where the input lacks them: JSON Lines row by row, other forms as a whole.
	// Whether a NOT NULL one may be null is then left to the caller.
	Optional []string
	// Zone of timestamp texts without one; nil = UTC.
	Zone *time.Location
	// File is the name in messages.
	File string
	// BatchRows per batch; 0 = 16384.
	BatchRows int
	// BatchBytes of input text per batch; 0 = 16 MiB. Whichever limit comes first.
	BatchBytes int
}

func (o ReadOptions) withDefaults() ReadOptions {
	if o.BatchRows == 0 {
		o.BatchRows = 16384
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 16 << 20
	}
	return o
}

// ReadPath reads a local file, or standard input for "-", in the form that its
// name tells unless form is set. Names that end in .gz or .zst are decompressed
// (text forms and Arrow). Errors of the file itself are those of package os.
func ReadPath(ctx context.Context, path string, form Form, stdin io.Reader, o ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	if o.File == "" {
		if o.File = path; path == "-" {
			o.File = "standard input"
		}
	}
	if form == "" {
		var ok bool
		if form, ok = InputForm(path); !ok {
			return failed(&Error{ErrorCode: CodeUnknownForm, File: path, Reason: "the name does not tell the form: expected .jsonl, .csv, .parquet or .arrow"})
		}
	}
	return func(yield func(arrow.RecordBatch, error) bool) {
		var r io.Reader = stdin
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				yield(nil, fmt.Errorf("open input: %w", err))
				return
			}
			defer f.Close()
			if st, err := f.Stat(); err == nil && st.IsDir() {
				yield(nil, &Error{ErrorCode: CodeUnknownForm, File: path, Reason: "a directory, not a file"})
				return
			}
			r = f
		}
		switch {
		case strings.HasSuffix(path, ".gz"):
			z, err := gzip.NewReader(r)
			if err != nil {
				yield(nil, &Error{ErrorCode: unreadable(form), File: o.File, Reason: err.Error()})
				return
			}
			r = &unpacked{z, form}
		case strings.HasSuffix(path, ".zst"):
			z, err := zstd.NewReader(r)
			if err != nil {
				yield(nil, &Error{ErrorCode: unreadable(form), File: o.File, Reason: err.Error()})
				return
			}
			defer z.Close()
			r = &unpacked{z, form}
		}
		for b, err := range Read(ctx, r, form, o) {
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// unpacked is a decompressor whose faults are faults of the input.
type unpacked struct {
	r    io.Reader
	form Form
}

func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.r.Read(b)
	if err != nil && err != io.EOF {
		err = fault(unreadable(u.form), "", "decompress: %v", err)
	}
	return n, err
}

func unreadable(form Form) string {
	switch form {
	case CSV:
		return CodeInvalidCSV
	case Parquet:
		return CodeInvalidParquet
	case Arrow:
		return CodeInvalidArrow
	}
	return CodeInvalidJSON
}

// Read reads rows in the given form. Parquet and Arrow files need r to be an
// *os.File or are read into memory. The sequence ends at the first error.
func Read(ctx context.Context, r io.Reader, form Form, o ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	o = o.withDefaults()
	switch form {
	case JSONL:
		return readText(ctx, r, o, newJSONLines)
	case CSV:
		return readText(ctx, r, o, newCSVLines)
	case Arrow:
		return readArrow(ctx, r, o)
	case Parquet:
		return readParquet(ctx, r, o)
	}
	return failed(&Error{ErrorCode: CodeUnknownForm, File: o.File, Reason: fmt.Sprintf("form %q cannot be read: expected jsonl, csv, parquet or arrow", form)})
}

func failed(err error) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) { yield(nil, err) }
}

// rowSource reads one row into the builders at a time.
type rowSource interface {
	// next appends one row; io.EOF after the last. size is the bytes read.
	next() (size int, err error)
	// line is the line that the current row started on.
	line() int64
	// lacks reports whether the current row came without column i.
	lacks(i int) bool
}

type newRowSource func(r *bufio.Reader, cols []*column, s *schema.Struct) (rowSource, error)

func readText(ctx context.Context, r io.Reader, o ReadOptions, open newRowSource) iter.Seq2[arrow.RecordBatch, error] {
	optional := o.optional()
	return func(yield func(arrow.RecordBatch, error) bool) {
		place := func(err error, line int64) error {
			var e *Error
			if errors.As(err, &e) {
				e.File, e.Line = o.File, line
				return e
			}
			return fmt.Errorf("read %s: %w", o.File, err)
		}
		as, err := schema.ArrowSchema(o.Schema)
		if err != nil {
			yield(nil, err)
			return
		}
		rb := array.NewRecordBuilder(memory.DefaultAllocator, as)
		defer rb.Release()
		cols := make([]*column, len(o.Schema.Fields))
		for i, f := range o.Schema.Fields {
			if cols[i], err = compile(f.Name, f.Type, rb.Field(i), o.Zone); err != nil {
				yield(nil, err)
				return
			}
		}
		br := bufio.NewReaderSize(r, 256<<10)
		if mark, _ := br.Peek(3); string(mark) == "\ufeff" {
			br.Discard(3)
		}
		src, err := open(br, cols, o.Schema)
		if err != nil {
			yield(nil, place(err, 1))
			return
		}
		rows, bytes := 0, 0
		var drop, lacks []int // of the rows collected, of the last row
		give := func(b arrow.RecordBatch) bool {
			out := without(b, drop)
			defer out.Release()
			return out.NumRows() == 0 || yield(out, nil)
		}
		flush := func() bool {
			b := rb.NewRecordBatch()
			defer b.Release()
			rows, bytes = 0, 0
			if slices.Equal(drop, lacks) {
				return give(b)
			}
			// The last row lacks other columns: it goes alone.
			first, last := b.NewSlice(0, b.NumRows()-1), b.NewSlice(b.NumRows()-1, b.NumRows())
			defer first.Release()
			defer last.Release()
			if !give(first) {
				return false
			}
			drop = slices.Clone(lacks)
			return give(last)
		}
		for {
			n, err := src.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				yield(nil, place(err, src.line()))
				return
			}
			rows, bytes = rows+1, bytes+n
			lacks = lacks[:0]
			for _, i := range optional {
				if src.lacks(i) {
					lacks = append(lacks, i)
				}
			}
			if rows == 1 {
				drop = slices.Clone(lacks)
			}
			if rows >= o.BatchRows || bytes >= o.BatchBytes || !slices.Equal(drop, lacks) {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
				if !flush() {
					return
				}
			}
		}
		if rows > 0 {
			flush()
		}
	}
}

// jsonLines is a rowSource of JSON objects, one a line; blank lines are skipped.
type jsonLines struct {
	r    *bufio.Reader
	s    *schema.Struct
	cols []*column
	seen []bool
	scan scanner
	long []byte // a line that did not fit the buffer
	n    int64
}

func newJSONLines(r *bufio.Reader, cols []*column, s *schema.Struct) (rowSource, error) {
	return &jsonLines{r: r, s: s, cols: cols, seen: make([]bool, len(cols))}, nil
}

func (j *jsonLines) line() int64 { return j.n }

func (j *jsonLines) lacks(i int) bool { return !j.seen[i] }

func (j *jsonLines) next() (int, error) {
	for {
		line, err := readLine(j.r, &j.long)
		if err != nil {
			return 0, err
		}
		j.n++
		j.scan.data, j.scan.pos = line, 0
		if j.scan.peek() == 0 && j.scan.pos >= len(line) {
			continue
		}
		if j.scan.peek() != '{' {
			return 0, j.scan.bad("expected one JSON object a line")
		}
		if err := readObject(&j.scan, j.s, j.cols, j.seen, ""); err != nil {
			return 0, err
		}
		return len(line), j.scan.end()
	}
}

// readLine returns the next line without its end, of any length; long is the
// caller's buffer for lines larger than r's.
func readLine(r *bufio.Reader, long *[]byte) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		*long = append((*long)[:0], line...)
		for err == bufio.ErrBufferFull {
			line, err = r.ReadSlice('\n')
			*long = append(*long, line...)
		}
		line = *long
	}
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if line[len(line)-1] == '\n' {
		line = line[:len(line)-1]
	}
	return line, nil
}
