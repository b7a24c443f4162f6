package parquetio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-data/sluice/log/schema"
)

// File is an opened Parquet file. It reads through the io.ReaderAt it was opened
// with, keeps no state between reads and may be used by several goroutines.
type File struct {
	r         io.ReaderAt
	size      int64
	meta      *fileMeta
	root      *node
	leaves    []*node
	firstRows []int64 // first row of each row group
	rebase    rebaseModes
}

const (
	footerGuess   = 64 << 10 // read from the end in one go
	maxFooterSize = 512 << 20
)

// Open reads the footer of a file of exactly size bytes. It fails with
// [ErrNotParquet], [ErrCorrupt], [ErrUnsupported] or an error of r.
func Open(r io.ReaderAt, size int64) (*File, error) {
	if size < 12 {
		return nil, fmt.Errorf("open parquet file: %d bytes: %w", size, ErrNotParquet)
	}
	tail := make([]byte, min(size, footerGuess))
	if err := readFull(r, tail, size-int64(len(tail))); err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	switch string(tail[len(tail)-4:]) {
	case "PAR1":
	case "PARE":
		return nil, fmt.Errorf("open parquet file: %w", unsupportedf("footer is encrypted"))
	default:
		return nil, fmt.Errorf("open parquet file: %w", ErrNotParquet)
	}
	length := int64(binary.LittleEndian.Uint32(tail[len(tail)-8:]))
	if length > size-12 || length > maxFooterSize {
		return nil, fmt.Errorf("open parquet file: %w", corruptf("footer of %d bytes in a file of %d", length, size))
	}
	footer := tail[:len(tail)-8]
	if length > int64(len(footer)) {
		footer = make([]byte, length)
		if err := readFull(r, footer, size-8-length); err != nil {
			return nil, fmt.Errorf("open parquet file: read footer: %w", err)
		}
	} else {
		footer = footer[int64(len(footer))-length:]
	}
	f := &File{r: r, size: size}
	if err := guard(func() error { return f.load(footer) }); err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	return f, nil
}

func (f *File) load(footer []byte) error {
	var err error
	if f.meta, err = parseFooter(footer); err != nil {
		return err
	}
	if f.meta.encrypted {
		return unsupportedf("file is encrypted")
	}
	if f.root, f.leaves, err = buildTree(f.meta.schema); err != nil {
		return err
	}
	row := int64(0)
	for i := range f.meta.rowGroups {
		g := &f.meta.rowGroups[i]
		if len(g.columns) != len(f.leaves) {
			return corruptf("row group %d has %d columns, schema has %d", i, len(g.columns), len(f.leaves))
		}
		if g.numRows < 0 || g.numRows > 1<<40 || row > 1<<50 {
			return corruptf("row group %d has %d rows", i, g.numRows)
		}
		f.firstRows = append(f.firstRows, row)
		row += g.numRows
		for j := range g.columns {
			if err := f.checkChunk(&g.columns[j], g, f.leaves[j]); err != nil {
				return fmt.Errorf("row group %d column %d: %w", i, j, err)
			}
		}
	}
	if f.meta.numRows != row {
		return corruptf("footer says %d rows, row groups have %d", f.meta.numRows, row)
	}
	f.rebase = rebaseModesOf(f.meta.keyValue)
	return nil
}

func (f *File) checkChunk(c *chunkMeta, g *rowGroupMeta, leaf *node) error {
	switch {
	case c.encrypted:
		return unsupportedf("column is encrypted")
	case c.external:
		return unsupportedf("column lies in another file")
	case c.typ != leaf.typ:
		return corruptf("type %s, schema has %s", c.typ, leaf.typ)
	case c.numValues < 0 || leaf.maxRep == 0 && c.numValues != g.numRows || c.numValues < g.numRows:
		return corruptf("%d values for %d rows", c.numValues, g.numRows)
	}
	start, n := c.span()
	if c.numValues > 0 && (start < 4 || n <= 0 || n > f.size || start > f.size-n) {
		return corruptf("bytes %d+%d in a file of %d", start, n, f.size)
	}
	return nil
}

// span is the byte range of the chunk. Some writers leave the dictionary out of
// the offsets they record, or write offset 0 for "none".
func (c *chunkMeta) span() (start, length int64) {
	start = c.dataOffset
	if c.dictOffset > 0 && c.dictOffset < start {
		start = c.dictOffset
	}
	return start, c.compressed
}

// readFull fills b from offset off; an early end means the file is not as long
// as it was said to be.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corruptf("file ends at byte %d, inside %d bytes from %d", off+int64(n), len(b), off)
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), off, err)
}

// NumRows is the number of rows over all row groups.
func (f *File) NumRows() int64 { return f.meta.numRows }

// CreatedBy is the footer's created_by text.
func (f *File) CreatedBy() string { return f.meta.createdBy }

// KeyValue returns an entry of the footer's key-value metadata.
func (f *File) KeyValue(key string) (string, bool) {
	v, ok := f.meta.keyValue[key]
	return v, ok
}

// Schema is the file's own schema in Delta types, field ids as metadata
// delta.columnMapping.id. Columns without a Delta type are schema.Unknown.
func (f *File) Schema() *schema.Struct {
	s := &schema.Struct{}
	for _, c := range f.root.children {
		fld := schema.Field{Name: c.name, Type: c.deltaType(), Nullable: c.repetition == optional}
		if c.hasFieldID {
			fld.Metadata = fld.Metadata.With(fieldIDKey, c.fieldID)
		}
		s.Fields = append(s.Fields, fld)
	}
	return s
}

// HasFieldIDs reports whether any column or group of the file has a field id.
func (f *File) HasFieldIDs() bool {
	for i := range f.meta.schema {
		if f.meta.schema[i].hasFieldID {
			return true
		}
	}
	return false
}

// HasColumn reports whether the file has a column or group at that path of
// struct fields, by exact names.
func (f *File) HasColumn(path ...string) bool {
	n := f.root
walk:
	for _, name := range path {
		for _, c := range n.children {
			if c.name == name {
				n = c
				continue walk
			}
		}
		return false
	}
	return len(path) > 0
}
