package rowio

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

// tableWriter prints aligned columns. Widths come from the header and the first
// rows (WriteOptions.Sample); later cells that are wider push their line out.
type tableWriter struct {
	out     *bufio.Writer
	s       *schema.Struct
	sample  int
	most    int // characters a cell may have
	right   []bool
	widths  []int
	pending [][]string
	started bool
	cell    []byte
}

func newTableWriter(w io.Writer, s *schema.Struct, o WriteOptions) (*tableWriter, error) {
	if o.Width == 0 {
		o.Width = 120
	}
	if o.Sample == 0 {
		o.Sample = 1000
	}
	tw := &tableWriter{out: bufio.NewWriterSize(w, 64<<10), s: s, sample: o.Sample, most: max(o.Width/2, 20)}
	for _, f := range s.Fields {
		if _, err := schema.ArrowType(f.Type); err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		tw.widths = append(tw.widths, cellWidth(printable([]byte(f.Name))))
		tw.right = append(tw.right, isNumeric(f.Type))
	}
	return tw, nil
}

func isNumeric(t schema.Type) bool {
	switch t := t.(type) {
	case schema.Decimal:
		return true
	case schema.Primitive:
		switch t {
		case schema.Long, schema.Integer, schema.Short, schema.Byte, schema.Float, schema.Double:
			return true
		}
	}
	return false
}

func (w *tableWriter) Write(b arrow.RecordBatch) error {
	if int(b.NumCols()) != len(w.s.Fields) {
		return fmt.Errorf("write row: batch has %d columns, expected %d", b.NumCols(), len(w.s.Fields))
	}
	for i := range int(b.NumRows()) {
		row := make([]string, len(w.s.Fields))
		for c, f := range w.s.Fields {
			if isNull(b.Column(c), i) {
				row[c] = "NULL"
				continue
			}
			var err error
			if w.cell, err = appendText(w.cell[:0], f.Type, b.Column(c), i); err != nil {
				return fmt.Errorf("write column %s: %w", f.Name, err)
			}
			row[c] = cut(printable(w.cell), w.most)
		}
		if w.started {
			w.line(row)
			continue
		}
		for c, cell := range row {
			w.widths[c] = max(w.widths[c], cellWidth(cell))
		}
		if w.pending = append(w.pending, row); len(w.pending) >= w.sample {
			w.start()
		}
	}
	return nil
}

func (w *tableWriter) start() {
	if w.started {
		return
	}
	w.started = true
	header, rule := make([]string, len(w.widths)), make([]string, len(w.widths))
	for c, f := range w.s.Fields {
		header[c] = printable([]byte(f.Name))
		rule[c] = strings.Repeat("-", w.widths[c])
	}
	w.line(header)
	w.line(rule)
	for _, row := range w.pending {
		w.line(row)
	}
	w.pending = nil
}

func (w *tableWriter) line(row []string) {
	for c, cell := range row {
		if c > 0 {
			w.out.WriteString("  ")
		}
		pad := strings.Repeat(" ", max(0, w.widths[c]-cellWidth(cell)))
		switch {
		case w.right[c]:
			w.out.WriteString(pad)
			w.out.WriteString(cell)
		case c == len(row)-1: // no blanks at the end of a line
			w.out.WriteString(cell)
		default:
			w.out.WriteString(cell)
			w.out.WriteString(pad)
		}
	}
	w.out.WriteByte('\n')
}

func (w *tableWriter) Flush() error {
	w.start()
	return w.out.Flush()
}

func (w *tableWriter) Close() error { return w.Flush() }

// printable is b without anything that a terminal would act on: control and
// format characters, line ends and bytes that are not UTF-8 are shown as escapes.
func printable(b []byte) string {
	plain := true
	for _, c := range b {
		if c < 0x20 || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, b[0])
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
		b = b[n:]
	}
	return out.String()
}

// cut shortens a cell to at most most columns.
func cut(s string, most int) string {
	if len(s) <= most || cellWidth(s) <= most {
		return s
	}
	width := 0
	for i, r := range s {
		width += runeWidth(r)
		if width > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

func cellWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is the terminal columns of a rune: 0 for combining marks, 2 for the
// wide East Asian and emoji blocks.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
