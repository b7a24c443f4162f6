package datafile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Tagger collects what goes into the tags of one data file while it is written.
type Tagger interface {
	// Add sees each batch as it goes into the file: the logical file columns, then
	// the hidden ones where they are written, under their own names.
	Add(arrow.RecordBatch)
	// Tags is called once, when the file is complete.
	Tags() map[string]string
}

// WriterOptions are the settings of [NewWriter]; the zero value is the default.
type WriterOptions struct {
	// Roll is the size in bytes at which the next file is begun. Default: the
	// layout's target size.
	Roll int64
	// Hidden: batches carry the columns of Layout.Carry after the logical ones.
	Hidden bool
	// RowIDs: batches carry, after them, the columns of Layout.RowIDs, if it has any.
	RowIDs bool
	// Change makes change files: batches end with the column _change_type (W-903).
	// Constraints are not checked and statistics not kept, since the rows are
	// images of rows that the table holds or held.
	Change bool
	// Copied: every row is a copy of a row of the table as it is. It is held to no rule
	// again, and no value is padded.
	Copied bool
	// NewTagger, if set, makes the tagger of each data file.
	NewTagger func() Tagger
	// Footer are key-value pairs for the Parquet footer.
	Footer map[string]string
	// NewID makes the unique part of file names. Default: random UUIDs.
	NewID func() string
	// Clock gives modification times. Default: time.Now.
	Clock func() time.Time
	// MaxOpen bounds how many files are under way at once and MaxBuffered the bytes
	// they hold in memory; beyond either, the largest file ends. Default 64, 256 MiB.
	MaxOpen     int
	MaxBuffered int64
}

func (o WriterOptions) withDefaults(l *Layout) WriterOptions {
	if o.Roll <= 0 {
		o.Roll = l.TargetFileSize
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.MaxOpen <= 0 {
		o.MaxOpen = 64
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = 256 << 20
	}
	return o
}

// WrittenFile is one complete, durable file.
type WrittenFile struct {
	Key  string // in the store
	Path string // URI text for the log (W-553)
	// PartitionValues has every partition column by physical name, nil for null.
	PartitionValues map[string]*string
	Size, Rows      int64
	ModTime         time.Time
	Stats           string // "" for change files
	Tags            map[string]string
}

// Writer turns logical batches into files: rows are split by partition, files by
// size. It is for one goroutine. Exactly one of Close and Abort ends it; until
// then no file is named anywhere.
type Writer struct {
	store  storage.Store
	l      *Layout
	o      WriterOptions
	schema *arrow.Schema  // of incoming batches
	file   *schema.Struct // of the files
	input  []int          // incoming column of each file column
	open   map[string]*openFile
	done   []WrittenFile
	begun  []string // keys of files whose completion was begun
	number int
}

type openFile struct {
	key    string
	number int
	values []*string
	w      storage.Writer
	pw     *parquetio.Writer
	size   *counter
	rows   int64
	stats  *collector
	tagger Tagger
}

// counter counts bytes on their way to the store.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// NewWriter prepares a writer; it touches the store only when rows come.
func NewWriter(store storage.Store, l *Layout, o WriterOptions) (*Writer, error) {
	w := &Writer{store: store, l: l, o: o.withDefaults(l), open: map[string]*openFile{}}
	in := &schema.Struct{Fields: slices.Clone(l.Schema.Fields)}
	w.file = &schema.Struct{Fields: slices.Clone(l.file.Fields)}
	w.input = make([]int, len(l.file.Fields))
	for i, c := range l.columns {
		if c.file >= 0 {
			w.input[c.file] = i
		}
	}
	if l.materialize {
		w.file, w.input = &schema.Struct{}, nil
		for i, f := range l.physical.Fields {
			w.file.Fields, w.input = append(w.file.Fields, f), append(w.input, i)
		}
	}
	for _, f := range l.hidden(o.Hidden, o.RowIDs) {
		w.input = append(w.input, len(in.Fields))
		in.Fields = append(in.Fields, f)
		w.file.Fields = append(w.file.Fields, f)
	}
	if o.Change {
		w.input = append(w.input, len(in.Fields))
		f := schema.Field{Name: ChangeTypeColumn, Type: schema.String, Nullable: true}
		in.Fields = append(in.Fields, f)
		w.file.Fields = append(w.file.Fields, f)
	}
	if err := schema.CheckWritable(l.file); err != nil {
		return nil, err
	}
	var err error
	if w.schema, err = schema.ArrowSchema(in); err != nil {
		return nil, fmt.Errorf("plan files: %w", err)
	}
	return w, nil
}

// Schema is what incoming batches look like: the logical columns, then the hidden
// ones, row ids and _change_type as the options say.
func (w *Writer) Schema() *arrow.Schema { return w.schema }

// Write adds rows; the batch must have the types of [Writer.Schema]. A row that
// breaks a constraint of the schema is a [*ConstraintError].
func (w *Writer) Write(ctx context.Context, b arrow.RecordBatch) error {
	if b.NumRows() == 0 {
		return ctx.Err()
	}
	cols, release, err := w.check(b)
	if err != nil {
		return err
	}
	defer release()
	groups, err := w.split(cols, int(b.NumRows()))
	if err != nil {
		return err
	}
	whole := array.NewRecordBatch(w.schema, cols, b.NumRows())
	defer whole.Release()
	for _, g := range groups {
		if err := w.writeGroup(ctx, whole, g); err != nil {
			return err
		}
	}
	return nil
}

// check verifies types and constraints and gives the columns as they are stored.
func (w *Writer) check(b arrow.RecordBatch) ([]arrow.Array, func(), error) {
	if int(b.NumCols()) != w.schema.NumFields() {
		return nil, nil, fmt.Errorf("write rows: %d columns, want %d", b.NumCols(), w.schema.NumFields())
	}
	for i, c := range b.Columns() {
		if want := w.schema.Field(i); c.DataType().ID() != want.Type.ID() {
			return nil, nil, fmt.Errorf("write rows: column %s: Arrow type %s, want %s", want.Name, c.DataType(), want.Type)
		}
	}
	cols := slices.Clone(b.Columns())
	if w.o.Change || w.o.Copied {
		return cols, func() {}, nil
	}
	if err := checkNotNull(w.l.Schema, cols); err != nil {
		return nil, nil, err
	}
	for i, f := range w.l.Schema.Fields {
		c, err := applyLength(f, cols[i])
		if err != nil {
			return nil, nil, err
		}
		cols[i] = c
	}
	n := len(w.l.Schema.Fields)
	return cols, func() {
		for _, c := range cols[:n] {
			c.Release()
		}
	}, nil
}

func (w *Writer) writeGroup(ctx context.Context, whole arrow.RecordBatch, g group) error {
	part := whole
	if g.rows != nil {
		p, err := Take(whole, g.rows)
		if err != nil {
			return err
		}
		defer p.Release()
		part = p
	}
	b, err := w.fileBatch(part)
	if err != nil {
		return err
	}
	defer b.Release()
	// Slices keep one file from growing far beyond the roll size in one step.
	const step = 1 << 16
	for at := int64(0); at < b.NumRows(); at += step {
		f, err := w.fileFor(ctx, g.values)
		if err != nil {
			return err
		}
		s := b.NewSlice(at, min(at+step, b.NumRows()))
		err = f.write(s)
		s.Release()
		if err != nil {
			return fmt.Errorf("write %s: %w", f.key, err)
		}
		if f.bytes() >= w.o.Roll {
			if err := w.finish(partitionKey(g.values)); err != nil {
				return err
			}
		}
	}
	var held int64
	for _, f := range w.open {
		held += f.pw.BufferedBytes()
	}
	if len(w.open) > 1 && held > w.o.MaxBuffered {
		return w.finishLargest()
	}
	return nil
}

// bytes estimates the size of the file if it ended now.
func (f *openFile) bytes() int64 { return f.pw.Written() + f.pw.BufferedBytes() }

func (f *openFile) write(b arrow.RecordBatch) error {
	if err := f.pw.Write(b); err != nil {
		return err
	}
	f.rows += b.NumRows()
	if f.stats != nil {
		f.stats.add(b)
	}
	if f.tagger != nil {
		f.tagger.Add(b)
	}
	return nil
}

// fileBatch picks the file columns of a batch and gives them the physical form.
func (w *Writer) fileBatch(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	as, err := schema.ArrowSchema(w.file)
	if err != nil {
		return nil, fmt.Errorf("plan files: %w", err)
	}
	cols := make([]arrow.Array, len(w.input))
	for i, in := range w.input {
		cols[i] = Rename(b.Column(in), as.Field(i).Type)
		defer cols[i].Release()
	}
	return array.NewRecordBatch(as, cols, b.NumRows()), nil
}

// fileFor is the open file of a partition.
func (w *Writer) fileFor(ctx context.Context, values []*string) (*openFile, error) {
	key := partitionKey(values)
	if f, ok := w.open[key]; ok {
		return f, nil
	}
	if len(w.open) >= w.o.MaxOpen {
		if err := w.finishLargest(); err != nil {
			return nil, err
		}
	}
	f := &openFile{number: w.number, key: w.name(values), values: values}
	sw, err := w.store.NewWriter(ctx, f.key)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", f.key, err)
	}
	f.w, f.size = sw, &counter{w: sw}
	f.pw, err = parquetio.NewWriter(f.size, w.file, parquetio.WriterOptions{Codec: w.codec(), FieldIDs: w.l.Mapping != schema.ModeNone, KeyValue: w.o.Footer})
	if err != nil {
		sw.Abort()
		return nil, fmt.Errorf("create %s: %w", f.key, err)
	}
	if !w.o.Change {
		f.stats = newCollector(w.file, w.l.indexed, w.l.prefix, w.l.tight)
		if w.o.NewTagger != nil {
			f.tagger = w.o.NewTagger()
		}
	}
	w.open[key] = f
	return f, nil
}

func (w *Writer) codec() string {
	if w.l.Codec == "" {
		return "snappy"
	}
	return w.l.Codec
}

var codecExt = map[string]string{"snappy": ".snappy", "zstd": ".zstd", "gzip": ".gz", "lz4_raw": ".lz4raw"}

// name is the key of the next file: the names Spark gives, with a fresh UUID (W-208).
func (w *Writer) name(values []*string) string {
	dir, ok := schema.PartitionDir(w.l.PhysicalPartition(), values)
	if !ok {
		dir = w.o.NewID()[:2] // any directory is legal (W-554)
	}
	if n := w.l.RandomPrefix; n > 0 {
		// Ids of the caller need not begin at random.
		dir = strings.ReplaceAll(uuid.NewSHA1(uuid.Nil, []byte(w.o.NewID())).String(), "-", "")[:n]
	}
	name := fmt.Sprintf("part-%05d-%s-c000%s.parquet", w.number, w.o.NewID(), codecExt[w.codec()])
	if w.o.Change {
		name = fmt.Sprintf("cdc-%05d-%s.c000%s.parquet", w.number, w.o.NewID(), codecExt[w.codec()])
	}
	w.number++
	if dir != "" {
		name = dir + "/" + name
	}
	if w.o.Change {
		name = "_change_data/" + name
	}
	return name
}

// finishLargest completes the file that holds most.
func (w *Writer) finishLargest() error {
	biggest := ""
	for k, f := range w.open {
		if o, ok := w.open[biggest]; !ok || f.bytes() > o.bytes() {
			biggest = k
		}
	}
	return w.finish(biggest)
}

// finish completes the open file of a partition.
func (w *Writer) finish(partition string) error {
	f := w.open[partition]
	delete(w.open, partition)
	w.begun = append(w.begun, f.key)
	wf, err := w.close(f)
	if err != nil {
		return err
	}
	w.done = append(w.done, wf)
	return nil
}

func (w *Writer) close(f *openFile) (WrittenFile, error) {
	if err := f.pw.Close(); err != nil {
		f.w.Abort()
		return WrittenFile{}, fmt.Errorf("write %s: %w", f.key, err)
	}
	if err := f.w.Close(); err != nil {
		return WrittenFile{}, fmt.Errorf("write %s: %w", f.key, err)
	}
	out := WrittenFile{
		Key: f.key, Path: schema.EncodePath(f.key), Size: f.size.n, Rows: f.rows, ModTime: w.o.Clock(),
		PartitionValues: map[string]*string{},
	}
	for i, name := range w.l.PhysicalPartition() {
		out.PartitionValues[name] = f.values[i]
	}
	if f.stats != nil {
		out.Stats = f.stats.json()
	}
	if f.tagger != nil {
		out.Tags = f.tagger.Tags()
	}
	return out, nil
}

// Close completes all files, several at a time, and lists them in the order they
// were begun. After an error the writer has been aborted.
func (w *Writer) Close(ctx context.Context) ([]WrittenFile, error) {
	keys := make([]string, 0, len(w.open))
	for k := range w.open {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return w.open[a].number - w.open[b].number })
	for _, k := range keys {
		w.begun = append(w.begun, w.open[k].key)
	}
	var fail error
	for wf, err := range pipeline.Map(ctx, 8, slices.Values(keys), func(_ context.Context, k string) (WrittenFile, error) {
		return w.close(w.open[k])
	}) {
		if err != nil {
			fail = err
			break
		}
		w.done = append(w.done, wf)
	}
	// Only now is no worker left that looks at w.open.
	if fail != nil {
		return nil, errors.Join(fail, w.Abort(context.WithoutCancel(ctx)))
	}
	w.open = map[string]*openFile{}
	return w.done, nil
}

// Abort drops everything that was written, files already complete included.
func (w *Writer) Abort(ctx context.Context) error {
	for _, f := range w.open {
		f.w.Abort()
	}
	w.open = map[string]*openFile{}
	var errs []error
	for _, key := range w.begun {
		errs = append(errs, w.store.Delete(ctx, key))
	}
	w.done, w.begun = nil, nil
	return errors.Join(errs...)
}

// Add is the add action of a data file.
func (f WrittenFile) Add(dataChange bool) *deltalog.Add {
	out := &deltalog.Add{
		Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size, ModificationTime: f.ModTime.UnixMilli(),
		DataChange: dataChange, Stats: f.Stats,
	}
	for k, v := range f.Tags {
		if out.Tags == nil {
			out.Tags = map[string]*string{}
		}
		out.Tags[k] = &v
	}
	return out
}

// CDC is the cdc action of a change file.
func (f WrittenFile) CDC() *deltalog.CDC {
	return &deltalog.CDC{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size}
}
