package parquetio

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// ErrInvalid marks data or a schema that cannot be written: a type without a
// Parquet form, a batch of other types, a null in a required column, a decimal
// with too many digits.
var ErrInvalid = errors.New("invalid parquet data")

// WriterOptions are the settings of a [Writer]; the zero value is the default.
type WriterOptions struct {
	// Codec is snappy (default), uncompressed, gzip, zstd or lz4_raw.
	Codec string
	// FieldIDs writes field_id from metadata delta.columnMapping.id and
	// delta.columnMapping.nested.ids (W-501).
	FieldIDs bool
	// Extra fields follow those of the schema in the file and in batches.
	Extra *schema.Struct
	// KeyValue is the footer's key-value metadata.
	KeyValue map[string]string
	// RowGroupRows and RowGroupBytes (compressed) end a row group; 1 Mi rows, 128 MiB.
	RowGroupRows, RowGroupBytes int64
	// PageRows and PageBytes (uncompressed) end a page; 20480 rows, 128 KiB.
	PageRows, PageBytes int
	// DictBytes ends dictionary encoding of a column chunk; 1 MiB. Negative: no dictionaries.
	DictBytes int
	// CreatedBy is the footer's created_by.
	CreatedBy string
	// AllOptional makes every column but map keys optional (checkpoints, W-702).
	AllOptional bool
}

func (o WriterOptions) withDefaults() WriterOptions {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.RowGroupRows, 1<<20)
	def(&o.RowGroupBytes, 128<<20)
	if o.PageRows <= 0 {
		o.PageRows = 20480
	}
	if o.PageBytes <= 0 {
		o.PageBytes = 128 << 10
	}
	if o.DictBytes == 0 {
		o.DictBytes = 1 << 20
	}
	if o.CreatedBy == "" {
		o.CreatedBy = "sluice version 0.0.0"
	}
	return o
}

// Writer writes one Parquet file. It buffers one row group. It is not safe for
// concurrent use.
type Writer struct {
	out    io.Writer
	o      WriterOptions
	codec  format.CompressionCodec
	elems  []format.SchemaElement
	roots  []*outNode
	leaves []*leafWriter
	width  int // columns of a batch
	shred  shredder

	offset    int64 // bytes written
	rows      int64 // all rows taken
	groupRows int64
	groups    []format.RowGroup
	indexes   []chunkIndex // of all groups, in order
	enc       *pageEncoder
	err       error
	closed    bool
}

type chunkIndex struct {
	column *format.ColumnIndex // nil if some page has no trustworthy bounds
	offset format.OffsetIndex
}

// writeStep is the rows after which pages are checked for their size.
const writeStep = 2048

// maxStepBytes bounds what such a step adds to a column, so that wide values do
// not make pages without measure.
const maxStepBytes = 4 << 20

// NewWriter prepares a file with the columns of s and o.Extra. Void columns are
// left out of the file (W-404) but have their place in batches. Nothing is
// written before the first row group is complete.
func NewWriter(w io.Writer, s *schema.Struct, o WriterOptions) (*Writer, error) {
	o = o.withDefaults()
	codec, ok := map[string]format.CompressionCodec{
		"": format.Snappy, "snappy": format.Snappy, "uncompressed": format.Uncompressed, "none": format.Uncompressed,
		"gzip": format.Gzip, "zstd": format.Zstd, "lz4_raw": format.Lz4Raw,
	}[o.Codec]
	if !ok {
		return nil, fmt.Errorf("write parquet file: codec %q: %w", o.Codec, ErrInvalid)
	}
	fields := s.Fields
	if o.Extra != nil {
		fields = append(slices.Clone(fields), o.Extra.Fields...)
	}
	as, err := schema.ArrowSchema(&schema.Struct{Fields: fields})
	if err != nil {
		return nil, fmt.Errorf("write parquet file: %w: %w", ErrInvalid, err)
	}
	types := make([]arrow.DataType, len(fields))
	for i := range types {
		types[i] = as.Field(i).Type
	}
	out := &outSchema{o: &o, elements: []format.SchemaElement{{Name: "schema"}}}
	pw := &Writer{out: w, o: o, codec: codec, width: len(fields), enc: newPageEncoder(codec)}
	if pw.roots, err = out.fields(fields, types, "", nil, 0, 0); err != nil {
		return nil, fmt.Errorf("write parquet file: %w", err)
	}
	out.elements[0].NumChildren = thrift.New(int32(len(pw.roots)))
	pw.elems, pw.leaves = out.elements, out.leaves
	for _, l := range pw.leaves {
		l.init(&pw.o, pw.enc)
	}
	return pw, nil
}

// Write appends the rows of a batch whose columns are, by position, those of the
// schema and then of Extra, with the types of schema.ArrowType. A batch that
// fails with [ErrInvalid] leaves the file unusable.
func (w *Writer) Write(b arrow.RecordBatch) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errors.New("write parquet file: already closed")
	}
	if err := w.write(b); err != nil {
		w.err = fmt.Errorf("write parquet file: %w", err)
	}
	return w.err
}

func (w *Writer) write(b arrow.RecordBatch) error {
	if int(b.NumCols()) != w.width {
		return fmt.Errorf("batch has %d columns, file has %d: %w", b.NumCols(), w.width, ErrInvalid)
	}
	for _, r := range w.roots {
		if got := b.Column(r.src).DataType(); !sameType(got, r.typ) {
			return fmt.Errorf("column %s: batch has %s, want %s: %w", r.column, got, r.typ, ErrInvalid)
		}
	}
	n := int(b.NumRows())
	for at := 0; at < n; {
		k := min(n-at, writeStep, int(w.o.RowGroupRows-w.groupRows))
		for k > 1 && w.widest(b, at, at+k) > maxStepBytes {
			k /= 2
		}
		for _, r := range w.roots {
			col := b.Column(r.src)
			if k < n {
				col = array.NewSlice(col, int64(at), int64(at+k))
			}
			if err := w.shred.root(r, col, k); err != nil {
				return err
			}
			if k < n {
				col.Release()
			}
		}
		at += k
		w.rows += int64(k)
		w.groupRows += int64(k)
		if w.groupRows >= w.o.RowGroupRows || w.BufferedBytes() >= w.o.RowGroupBytes {
			if err := w.flushGroup(); err != nil {
				return err
			}
		}
	}
	return nil
}

// widest is the most bytes that the rows [from, to) have in one column.
func (w *Writer) widest(b arrow.RecordBatch, from, to int) int64 {
	n := int64(0)
	for _, r := range w.roots {
		n = max(n, dataBytes(b.Column(r.src), int64(from), int64(to)))
	}
	return n
}

func dataBytes(a arrow.Array, from, to int64) int64 {
	if from >= to {
		return 0
	}
	switch a := a.(type) {
	case *array.String:
		return int64(a.ValueOffset(int(to-1)) + a.ValueLen(int(to-1)) - a.ValueOffset(int(from)))
	case *array.Binary:
		return int64(a.ValueOffset(int(to-1)) + a.ValueLen(int(to-1)) - a.ValueOffset(int(from)))
	case *array.Struct:
		n := int64(0)
		for i := range a.NumField() {
			n += dataBytes(a.Field(i), from, to)
		}
		return n
	case array.ListLike:
		lo, _ := a.ValueOffsets(int(from))
		_, hi := a.ValueOffsets(int(to - 1))
		return dataBytes(a.ListValues(), lo, hi)
	}
	return 8 * (to - from)
}

// sameType compares Arrow types but for the names and nullability inside them.
func sameType(a, b arrow.DataType) bool {
	if a.ID() != b.ID() {
		return false
	}
	switch a := a.(type) {
	case *arrow.StructType:
		b := b.(*arrow.StructType)
		if a.NumFields() != b.NumFields() {
			return false
		}
		for i := range a.NumFields() {
			if !sameType(a.Field(i).Type, b.Field(i).Type) {
				return false
			}
		}
		return true
	case *arrow.ListType:
		return sameType(a.Elem(), b.(*arrow.ListType).Elem())
	case *arrow.MapType:
		b := b.(*arrow.MapType)
		return sameType(a.KeyType(), b.KeyType()) && sameType(a.ItemType(), b.ItemType())
	}
	return arrow.TypeEqual(a, b)
}

// Rows is the number of rows written so far.
func (w *Writer) Rows() int64 { return w.rows }

// Written is the bytes that have gone to the io.Writer.
func (w *Writer) Written() int64 { return w.offset }

// BufferedBytes is the memory held for the current row group: complete pages
// compressed, open pages as they are.
func (w *Writer) BufferedBytes() int64 {
	n := int64(0)
	for _, l := range w.leaves {
		n += l.buffered()
	}
	return n
}

func (w *Writer) emit(b []byte) error {
	n, err := w.out.Write(b)
	w.offset += int64(n)
	return err
}

// flushGroup writes the buffered row group.
func (w *Writer) flushGroup() error {
	if w.groupRows == 0 {
		return nil
	}
	if w.offset == 0 {
		if err := w.emit([]byte("PAR1")); err != nil {
			return err
		}
	}
	if len(w.groups) >= 1<<15-1 {
		return fmt.Errorf("more than %d row groups: %w", 1<<15-1, ErrInvalid)
	}
	g := format.RowGroup{NumRows: w.groupRows, FileOffset: w.offset, Ordinal: int16(len(w.groups))}
	for _, l := range w.leaves {
		chunk, idx, err := l.finish(w.offset, w.emit)
		if err != nil {
			return err
		}
		chunk.MetaData.Codec = w.codec
		g.TotalByteSize += chunk.MetaData.TotalUncompressedSize
		g.TotalCompressedSize += chunk.MetaData.TotalCompressedSize
		g.Columns = append(g.Columns, chunk)
		w.indexes = append(w.indexes, idx)
	}
	w.groups = append(w.groups, g)
	w.groupRows = 0
	return nil
}

// Close writes what is buffered and the footer. It does not close the io.Writer.
// A file without rows is a valid file of no rows.
func (w *Writer) Close() error {
	if w.closed || w.err != nil {
		return w.err
	}
	w.closed = true
	if err := w.close(); err != nil {
		w.err = fmt.Errorf("write parquet file: %w", err)
	}
	return w.err
}

func (w *Writer) close() error {
	if err := w.flushGroup(); err != nil {
		return err
	}
	if w.offset == 0 {
		if err := w.emit([]byte("PAR1")); err != nil {
			return err
		}
	}
	proto := new(thrift.CompactProtocol)
	put := func(v any) (off int64, n int32, err error) {
		b, err := thrift.Marshal(proto, v)
		if err != nil {
			return 0, 0, err
		}
		off = w.offset
		return off, int32(len(b)), w.emit(b)
	}
	var err error
	chunk := func(i int) *format.ColumnChunk { return &w.groups[i/len(w.leaves)].Columns[i%len(w.leaves)] }
	for i, x := range w.indexes {
		if x.column == nil {
			continue
		}
		c := chunk(i)
		if c.ColumnIndexOffset, c.ColumnIndexLength, err = put(x.column); err != nil {
			return err
		}
	}
	for i := range w.indexes {
		c := chunk(i)
		if c.OffsetIndexOffset, c.OffsetIndexLength, err = put(&w.indexes[i].offset); err != nil {
			return err
		}
	}
	meta := format.FileMetaData{
		Version: 2, Schema: w.elems, NumRows: w.rows, RowGroups: w.groups, CreatedBy: w.o.CreatedBy,
	}
	for _, k := range slices.Sorted(maps.Keys(w.o.KeyValue)) {
		meta.KeyValueMetadata = append(meta.KeyValueMetadata, format.KeyValue{Key: k, Value: w.o.KeyValue[k]})
	}
	for range w.leaves {
		meta.ColumnOrders = append(meta.ColumnOrders, format.ColumnOrder{Value: &format.TypeDefinedOrder{}})
	}
	_, n, err := put(&meta)
	if err != nil {
		return err
	}
	return w.emit([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 'P', 'A', 'R', '1'})
}

func parseIDs(raw json.RawMessage) map[string]int32 {
	var ids map[string]int32
	if json.Unmarshal(raw, &ids) != nil {
		return nil
	}
	return ids
}
