package datafile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// ReadOptions say which part of a file is wanted; the zero value is all of it.
type ReadOptions struct {
	// Columns are logical names in the wanted order; nil means all, empty means none.
	Columns []string
	// Hidden appends the columns of Layout.Carry, null where the file lacks them.
	Hidden bool
	// RowIDs appends, after them, the row id and row commit version of each row where
	// the layout has them.
	RowIDs bool
	// Change appends _change_type from the file.
	Change bool
	// Rows are physical rows, ascending without repeats; nil means all.
	Rows []int64
	// Among are the only rows that are returned; not together with Rows. Rows that the
	// file does not have are a [FileError]: the vector is of another file.
	Among *dv.Vector
	// KeepDeleted returns rows of the deletion vector too.
	KeepDeleted bool
	// OnlyDeleted returns the rows of the deletion vector and no other.
	OnlyDeleted bool
	// Filter, bound to the layout's schema, keeps the rows for which it is TRUE.
	Filter *expr.Bound
	// Keys lets pages be left out that hold none of its values; other rows of a page
	// that holds one are returned too. Not together with Rows.
	Keys *KeySet
	// BatchRows bounds the rows of a batch; 0 is the reader's default.
	BatchRows int
}

// Batch is a record batch of logical rows with their physical row numbers.
type Batch struct {
	arrow.RecordBatch
	// Rows is the physical row of each row, ascending.
	Rows []int64
}

// Source names one file of rows: of an add, a remove or a cdc action.
type Source struct {
	Path            string // URI text of the log
	PartitionValues map[string]*string
	Size            int64 // bytes; below 0 when unknown
	DeletionVector  *deltalog.DeletionVectorDescriptor
	// BaseRowID and RowVersion are those of an add action; nil without row tracking.
	BaseRowID, RowVersion *int64
}

// SourceOf is the file of an add action.
func SourceOf(a *deltalog.Add) Source {
	return Source{Path: a.Path, PartitionValues: a.PartitionValues, Size: a.Size, DeletionVector: a.DeletionVector,
		BaseRowID: a.BaseRowID, RowVersion: a.DefaultRowCommitVersion}
}

// Read streams the logical rows of the file of an add action.
func Read(ctx context.Context, store storage.Store, l *Layout, add *deltalog.Add, o ReadOptions) iter.Seq2[Batch, error] {
	return ReadFile(ctx, store, l, SourceOf(add), o)
}

// ReadFile streams the logical rows of one file: deleted rows left out, partition
// columns from the action, columns the file lacks null. A batch is
// valid until the next iteration unless retained. Errors are [*FileError] where the
// file is at fault.
func ReadFile(ctx context.Context, store storage.Store, l *Layout, src Source, o ReadOptions) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		r, err := newReader(ctx, store, l, src, o)
		if err != nil {
			yield(Batch{}, fileError(src.Path, err))
			return
		}
		defer r.file.Close()
		for po := range r.passes(o) {
			for b, err := range r.pf.Read(ctx, r.want, po) {
				if err != nil {
					yield(Batch{}, fileError(src.Path, err))
					return
				}
				out, err := r.logical(b)
				if err != nil {
					yield(Batch{}, fileError(src.Path, err))
					return
				}
				if out.NumRows() > 0 && !yield(out, nil) {
					out.Release()
					return
				}
				out.Release()
			}
		}
	}
}

// amongRows are the rows of a vector that are listed at once: a vector of some
// kilobytes can stand for billions.
const amongRows = 1 << 20

// passes are the reads that give the wanted rows: one, or one for each run of rows of
// the vector o.Among.
func (r *reader) passes(o ReadOptions) iter.Seq[parquetio.ReadOptions] {
	return func(yield func(parquetio.ReadOptions) bool) {
		if o.Among == nil {
			yield(r.po)
			return
		}
		rows := make([]int64, 0, min(o.Among.Cardinality(), amongRows))
		for row := range o.Among.Rows() {
			if rows = append(rows, row); len(rows) == amongRows {
				po := r.po
				if po.Rows = rows; !yield(po) {
					return
				}
				rows = rows[:0]
			}
		}
		if po := r.po; len(rows) > 0 {
			po.Rows = rows
			yield(po)
		}
	}
}

type reader struct {
	file    storage.Reader
	pf      *parquetio.File
	want    *schema.Struct // of the file
	po      parquetio.ReadOptions
	columns []outColumn // wanted ones, then those only the filter needs
	width   int         // of the wanted ones
	schema  *arrow.Schema
	deleted func(row int64) bool // nil: none
	filter  *expr.Bound
	keep    bool
	only    bool
	rowIDs  int // 1 + index of the row id column, 0 when it is not wanted
	baseID  *int64
	version *int64
}

// outColumn says where a logical column comes from: a column of the file batch, a
// constant, or nowhere (null).
type outColumn struct {
	in    int // -1: constant
	arrow arrow.DataType
	value scalar.Scalar
}

func newReader(ctx context.Context, store storage.Store, l *Layout, src Source, o ReadOptions) (*reader, error) {
	r := &reader{filter: o.Filter, keep: o.KeepDeleted, only: o.OnlyDeleted}
	if err := r.plan(l, src, o); err != nil {
		return nil, err
	}
	var err error
	if r.file, err = Open(ctx, store, src.Path); err != nil {
		return nil, err
	}
	ok := false
	defer func() {
		if !ok {
			r.file.Close()
		}
	}()
	if n := r.file.Size(); n == 0 || src.Size > 0 && n < src.Size {
		return nil, &FileError{CodeTruncated, src.Path, fmt.Sprintf("it has %d bytes, the log says %d", n, src.Size), nil}
	}
	if r.pf, err = parquetio.Open(r.file, r.file.Size()); err != nil {
		return nil, err
	}
	if r.po.MatchFieldID && !r.pf.HasFieldIDs() && slices.ContainsFunc(r.want.Fields, hasFieldID) {
		return nil, &FileError{CodeSchema, src.Path, "its columns have no field ids, by which the table (delta.columnMapping.mode=id) finds them", nil}
	}
	if o.Among != nil && o.Among.Max() >= r.pf.NumRows() {
		return nil, beyond(src.Path, o.Among, r.pf.NumRows())
	}
	if src.DeletionVector != nil && !r.keep || r.only {
		if err := r.loadDeleted(ctx, store, src); err != nil {
			return nil, err
		}
	}
	if err := r.prune(l, o); err != nil {
		return nil, err
	}
	ok = true
	return r, nil
}

func hasFieldID(f schema.Field) bool {
	_, ok := schema.FieldID(f)
	return ok
}

func (r *reader) plan(l *Layout, src Source, o ReadOptions) error {
	names := o.Columns
	if names == nil {
		names = l.Schema.Names()
	}
	r.want = &schema.Struct{}
	out := &schema.Struct{}
	add := func(name string) error {
		i := l.Schema.Index(name)
		if i < 0 {
			return fmt.Errorf("column %q: not in the table (it has %s)", name, strings.Join(l.Schema.Names(), ", "))
		}
		f := l.Schema.Fields[i]
		at, err := schema.ArrowType(f.Type)
		if err != nil {
			return fmt.Errorf("column %s: %w", f.Name, err)
		}
		c := outColumn{in: -1, arrow: at}
		if l.columns[i].partition {
			if c.value, err = schema.ParsePartitionValue(f.Type, src.PartitionValues[l.columns[i].physical], l.Zone); err != nil {
				return fmt.Errorf("column %s: %w", f.Name, err)
			}
		} else {
			c.in = len(r.want.Fields)
			r.want.Fields = append(r.want.Fields, l.physical.Fields[i])
		}
		r.columns = append(r.columns, c)
		out.Fields = append(out.Fields, f)
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return err
		}
	}
	extra := func(f schema.Field) error {
		at, err := schema.ArrowType(f.Type)
		if err != nil {
			return fmt.Errorf("hidden column %s: %w", f.Name, err)
		}
		r.columns = append(r.columns, outColumn{in: len(r.want.Fields), arrow: at})
		r.want.Fields = append(r.want.Fields, f)
		out.Fields = append(out.Fields, f)
		return nil
	}
	for _, f := range l.hidden(o.Hidden, false) {
		if err := extra(f); err != nil {
			return err
		}
	}
	if o.RowIDs && l.RowIDs != nil {
		r.rowIDs, r.baseID, r.version = len(r.columns)+1, src.BaseRowID, src.RowVersion
		for _, f := range l.RowIDs {
			if err := extra(f); err != nil {
				return err
			}
		}
	}
	if o.Change {
		if err := extra(schema.Field{Name: ChangeTypeColumn, Type: schema.String, Nullable: true}); err != nil {
			return err
		}
	}
	r.width = len(r.columns)
	if o.Filter != nil {
		for _, n := range o.Filter.Columns() {
			if !slices.ContainsFunc(out.Fields, func(f schema.Field) bool { return f.Name == n }) {
				if err := add(n); err != nil {
					return err
				}
			}
		}
	}
	var err error
	r.schema, err = schema.ArrowSchema(out)
	r.po = parquetio.ReadOptions{MatchFieldID: l.Mapping == schema.ModeID, Rows: o.Rows, BatchRows: o.BatchRows}
	return err
}

// logical turns a batch of the file into logical rows.
func (r *reader) logical(b parquetio.Batch) (Batch, error) {
	rows := b.Rows
	if rows == nil {
		rows = make([]int64, b.NumRows())
		for i := range rows {
			rows[i] = b.FirstRow + int64(i)
		}
	}
	n := int(b.NumRows())
	cols := make([]arrow.Array, len(r.columns))
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i, c := range r.columns {
		if c.in >= 0 {
			cols[i] = Rename(b.Column(c.in), c.arrow)
			continue
		}
		a, err := Repeat(c.value, n)
		if err != nil {
			return Batch{}, err
		}
		cols[i] = a
	}
	if r.rowIDs > 0 {
		if err := r.fillRowIDs(cols, rows); err != nil {
			return Batch{}, err
		}
	}
	out := Batch{array.NewRecordBatch(r.schema, cols, int64(n)), rows}
	if r.deleted != nil || r.only {
		if err := out.keep(func(i int) bool { return (r.deleted != nil && r.deleted(rows[i])) == r.only }); err != nil {
			return Batch{}, err
		}
	}
	if r.filter != nil && out.NumRows() > 0 {
		hits, err := r.filter.EvalFilter(out.RecordBatch)
		if err != nil {
			return Batch{}, err
		}
		if err := out.take(hits); err != nil {
			return Batch{}, err
		}
	}
	if r.width < len(r.columns) {
		fields := r.schema.Fields()[:r.width]
		p := array.NewRecordBatch(arrow.NewSchema(fields, nil), out.Columns()[:r.width], out.NumRows())
		out.Release()
		out.RecordBatch = p
	}
	return out, nil
}

// keep drops the rows for which f is false.
func (b *Batch) keep(f func(i int) bool) error {
	hits := make([]int32, 0, b.NumRows())
	for i := range int(b.NumRows()) {
		if f(i) {
			hits = append(hits, int32(i))
		}
	}
	return b.take(hits)
}

// take keeps the rows at the given positions, ascending.
func (b *Batch) take(hits []int32) error {
	if int64(len(hits)) == b.NumRows() {
		return nil
	}
	at, rows := make([]int64, len(hits)), make([]int64, len(hits))
	for i, h := range hits {
		at[i], rows[i] = int64(h), b.Rows[h]
	}
	t, err := Take(b.RecordBatch, at)
	if err != nil {
		return err
	}
	b.Release()
	b.RecordBatch, b.Rows = t, rows
	return nil
}

// Open opens a file that the log names: relative to the table, or absolute as
// shallow clones have it.
func Open(ctx context.Context, store storage.Store, uri string) (storage.Reader, error) {
	key, other, err := locate(store, uri)
	if err != nil {
		return nil, err
	}
	if other != nil {
		store = other
	}
	r, err := store.Open(ctx, key)
	if errors.Is(err, storage.ErrInvalidKey) {
		return nil, &FileError{CodePath, uri, "the path is not one of a data file", err}
	}
	return r, err
}

// locate finds the store and key of a path in the log; a nil store is the table's own.
func locate(store storage.Store, uri string) (key string, other storage.Store, err error) {
	p, err := schema.DecodePath(uri)
	if err != nil {
		return "", nil, &FileError{CodePath, uri, "the path cannot be decoded", err}
	}
	if !deltalog.IsAbsolute(p) {
		return path.Clean(p), nil, nil
	}
	if rest, ok := strings.CutPrefix(p, "file:"); ok {
		p = "/" + strings.TrimLeft(rest, "/")
	}
	root := store.URL()
	if rest, ok := strings.CutPrefix(p, root); ok {
		return rest, nil, nil
	}
	local, ok := strings.CutPrefix(root, "file://")
	if !ok || !strings.HasPrefix(p, "/") {
		return "", nil, &FileError{CodePath, uri, "it lies outside of the table's store", nil}
	}
	if dir, err := schema.DecodePath(local); err == nil {
		if rest, ok := strings.CutPrefix(p, dir); ok {
			return rest, nil, nil
		}
	}
	s, err := storage.NewLocal(path.Dir(p), storage.LocalOptions{})
	if err != nil {
		return "", nil, err
	}
	return path.Base(p), s, nil
}

// Key is where a path of the log lies in the table's own store: the key that a listing
// gives, however the path is written; ok is false for a path outside of the table.
func Key(store storage.Store, uri string) (key string, ok bool) {
	key, other, err := locate(store, uri)
	if err != nil {
		return "", false
	}
	if other != nil {
		// A symbolic link may lead an absolute path back into the table.
		full, inside := strings.CutPrefix(other.URL()+schema.EncodePath(key), store.URL())
		if !inside {
			return "", false
		}
		if key, err = schema.DecodePath(full); err != nil {
			return "", false
		}
	}
	key = path.Clean(key)
	return key, storage.ValidateKey(key) == nil
}

// loadDeleted reads the deletion vector; rows beyond the end of the file mean that
// it is of another file.
func (r *reader) loadDeleted(ctx context.Context, store storage.Store, src Source) error {
	v, err := vectorOf(ctx, store, src, r.pf.NumRows())
	if err != nil || v == nil {
		return err
	}
	r.deleted = v.Contains
	return nil
}

// VectorOf reads the deletion vector of a file of so many physical rows; nil for
// none. Errors are those of [ReadFile].
func VectorOf(ctx context.Context, store storage.Store, add *deltalog.Add, rows int64) (*dv.Vector, error) {
	return vectorOf(ctx, store, SourceOf(add), rows)
}

func vectorOf(ctx context.Context, store storage.Store, src Source, rows int64) (*dv.Vector, error) {
	v, err := LoadVector(ctx, store, src.DeletionVector)
	switch {
	case errors.Is(err, dv.ErrCorrupt):
		return nil, &FileError{CodeVector, src.Path, "its deletion vector is damaged", err}
	case errors.Is(err, storage.ErrNotFound):
		return nil, &FileError{CodeMissing, src.Path, "its deletion vector is not there", err}
	case err == nil && v != nil && v.Max() >= rows:
		return nil, beyond(src.Path, v, rows)
	}
	return v, err
}

func beyond(path string, v *dv.Vector, rows int64) *FileError {
	return &FileError{CodeVector, path, fmt.Sprintf("its deletion vector names row %d of %d", v.Max(), rows), nil}
}

// LoadVector reads the deletion vector of an action; nil for none.
func LoadVector(ctx context.Context, store storage.Store, d *deltalog.DeletionVectorDescriptor) (*dv.Vector, error) {
	if d == nil {
		return nil, nil
	}
	desc := dv.Descriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv, Offset: d.Offset, SizeInBytes: d.SizeInBytes, Cardinality: d.Cardinality}
	return dv.Load(ctx, desc, func(ctx context.Context, path string) (storage.Reader, error) {
		return Open(ctx, store, path)
	})
}

// CountRows is the number of physical rows of a file, from its footer.
func CountRows(ctx context.Context, store storage.Store, l *Layout, add *deltalog.Add) (int64, error) {
	r, err := newReader(ctx, store, l, SourceOf(add), ReadOptions{Columns: []string{}, KeepDeleted: true})
	if err != nil {
		return 0, fileError(add.Path, err)
	}
	return r.pf.NumRows(), r.file.Close()
}
