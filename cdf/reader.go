package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// reader turns pieces of files into the rows that were asked for. It is immutable.
type reader struct {
	log       *deltalog.Log
	schema    *schema.Struct // of what comes out
	needed    []string       // table columns to read
	where     *expr.Bound
	output    []int         // columns of schema in a batch of needed and feed columns
	arrow     *arrow.Schema // of needed and feed columns
	outside   *arrow.Schema // of schema
	batchRows int
	feed      bool // rows have the columns of the feed
	onMissing func(version int64, path string)
}

type readerOptions struct {
	columns   []string
	where     string
	zone      *time.Location
	batchRows int
	feed      bool
	onMissing func(version int64, path string)
}

// newReader decides what is read and what comes out of a table of that schema.
func newReader(log *deltalog.Log, table *schema.Struct, o readerOptions) (*reader, error) {
	r := &reader{log: log, batchRows: o.batchRows, feed: o.feed, onMissing: o.onMissing, needed: []string{}}
	with := SchemaOf
	if !o.feed {
		with = func(s *schema.Struct) *schema.Struct { return s }
	}
	want := o.columns
	if want == nil {
		want = table.Names()
	}
	out, err := table.Select(want)
	if err != nil {
		return nil, &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: err.Error()}
	}
	r.schema = with(out)
	for _, c := range out.Fields {
		if !slices.Contains(r.needed, c.Name) {
			r.needed = append(r.needed, c.Name)
		}
	}
	if o.where != "" {
		now := log.Now()
		e, err := expr.Parse(o.where)
		if err != nil {
			return nil, err
		}
		if r.where, err = e.BindWith(with(table), expr.Options{Zone: o.zone, Now: &now}); err != nil {
			return nil, err
		}
		if t := r.where.Type(); t != schema.Boolean && t != schema.Void {
			return nil, &deltalog.InvalidError{ErrorCode: expr.CodeTypeMismatch, Reason: fmt.Sprintf("condition %s has type %s, not BOOLEAN at %s", r.where, t, e.Pos())}
		}
		for _, c := range r.where.Columns() {
			if table.Index(c) >= 0 && !slices.Contains(r.needed, c) {
				r.needed = append(r.needed, c)
			}
		}
	}
	inner, err := table.Select(r.needed)
	if err != nil {
		return nil, err
	}
	inner = with(inner)
	for _, c := range r.schema.Fields {
		r.output = append(r.output, slices.IndexFunc(inner.Fields, func(g schema.Field) bool { return g.Name == c.Name }))
	}
	if r.arrow, err = schema.ArrowSchema(inner); err != nil {
		return nil, err
	}
	r.outside, err = schema.ArrowSchema(r.schema)
	return r, err
}

// part is rows of a file that are changes of one kind.
type part struct {
	src  datafile.Source
	kind ChangeType
	rows *dv.Vector // the only ones, where it is not nil
}

// parts says which rows of the file of a piece are read. Vectors are loaded here,
// one piece at a time.
func (r *reader) parts(ctx context.Context, p piece) ([]part, error) {
	if p.pair == nil {
		return []part{{src: p.src, kind: p.kind}}, nil
	}
	before, err := r.vector(ctx, p.src.Path, p.pair.before)
	if err != nil {
		return nil, err
	}
	after, err := r.vector(ctx, p.src.Path, p.pair.after)
	if err != nil {
		return nil, err
	}
	var out []part
	if rows := minus(after, before); rows != nil {
		src := p.src
		src.DeletionVector = p.pair.after
		out = append(out, part{src: src, kind: Delete, rows: rows})
	}
	if rows := minus(before, after); rows != nil {
		src := p.src
		src.DeletionVector = p.pair.before
		out = append(out, part{src: src, kind: Insert, rows: rows})
	}
	return out, nil
}

func (r *reader) vector(ctx context.Context, path string, d *deltalog.DeletionVectorDescriptor) (*dv.Vector, error) {
	v, err := datafile.LoadVector(ctx, r.log.Store(), d)
	switch {
	case errors.Is(err, dv.ErrCorrupt):
		return nil, &datafile.FileError{ErrorCode: datafile.CodeVector, Path: path, Reason: "its deletion vector is damaged", Cause: err}
	case errors.Is(err, storage.ErrNotFound):
		return nil, &datafile.FileError{ErrorCode: datafile.CodeMissing, Path: path, Reason: "its deletion vector is not there (was it removed by VACUUM?)", Cause: err}
	case err != nil:
		return nil, fmt.Errorf("deletion vector of %s: %w", path, err)
	}
	return v, nil
}

// minus is nil where no row is left.
func minus(v, w *dv.Vector) *dv.Vector {
	if v == nil {
		return nil
	}
	if v = v.Minus(w); v.Cardinality() == 0 {
		return nil
	}
	return v
}

// piece reads the rows of one piece and gives them the columns of the feed. Errors
// name the version; a file that is gone is a *MissingError or, with onMissing, told
// to it and passed over.
func (r *reader) piece(ctx context.Context, version int64, when time.Time, p piece) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		shown := false
		fail := func(err error) {
			var file *datafile.FileError
			if errors.As(err, &file) && file.ErrorCode == datafile.CodeMissing {
				if r.onMissing != nil && !shown {
					r.onMissing(version, p.src.Path)
					return
				}
				err = &MissingError{Version: version, Path: p.src.Path, OldestReadable: -1, Cause: err}
			}
			yield(nil, at(version, err))
		}
		parts, err := r.parts(ctx, p)
		if err != nil {
			fail(err)
			return
		}
		for _, q := range parts {
			o := datafile.ReadOptions{Columns: r.needed, Change: q.kind == "", Among: q.rows, OnlyDeleted: q.rows != nil, BatchRows: r.batchRows}
			for b, err := range datafile.ReadFile(ctx, r.log.Store(), p.layout, q.src, o) {
				var out arrow.RecordBatch
				if err == nil {
					out, err = r.finish(b.RecordBatch, version, when, q)
				}
				if err != nil {
					fail(err)
					return
				}
				shown = true
				if !yield(out, nil) {
					return
				}
			}
		}
	}
}

// finish adds the columns of the feed, filters and projects.
func (r *reader) finish(b arrow.RecordBatch, version int64, when time.Time, p part) (arrow.RecordBatch, error) {
	n := int(b.NumRows())
	cols := slices.Clone(b.Columns()[:len(r.needed)])
	if r.feed {
		added, err := r.feedColumns(b, version, when, p)
		if err != nil {
			return nil, err
		}
		defer func() {
			for _, a := range added {
				a.Release()
			}
		}()
		cols = append(cols, added...)
	}
	whole := array.NewRecordBatch(r.arrow, cols, int64(n))
	defer func() { whole.Release() }()
	if r.where != nil {
		hits, err := r.where.EvalFilter(whole)
		if err != nil {
			return nil, err
		}
		if len(hits) < n {
			rows := make([]int64, len(hits))
			for i, h := range hits {
				rows[i] = int64(h)
			}
			kept, err := datafile.Take(whole, rows)
			if err != nil {
				return nil, err
			}
			whole.Release()
			whole = kept
		}
	}
	out := make([]arrow.Array, len(r.output))
	for i, k := range r.output {
		out[i] = whole.Column(k)
	}
	return array.NewRecordBatch(r.outside, out, whole.NumRows()), nil
}

// feedColumns are the three columns of the feed for the rows of b.
func (r *reader) feedColumns(b arrow.RecordBatch, version int64, when time.Time, p part) ([]arrow.Array, error) {
	n := int(b.NumRows())
	var kinds arrow.Array
	if p.kind == "" {
		kinds = b.Column(len(r.needed))
		if err := checkKinds(kinds, version, p.src.Path); err != nil {
			return nil, err
		}
		kinds.Retain()
	} else {
		kinds = repeatText(string(p.kind), n)
	}
	versions := array.NewInt64Builder(memory.DefaultAllocator)
	defer versions.Release()
	times := array.NewTimestampBuilder(memory.DefaultAllocator, r.arrow.Field(len(r.needed)+2).Type.(*arrow.TimestampType))
	defer times.Release()
	versions.Reserve(n)
	times.Reserve(n)
	for range n {
		versions.UnsafeAppend(version)
		times.UnsafeAppend(arrow.Timestamp(when.UnixMicro()))
	}
	return []arrow.Array{kinds, versions.NewArray(), times.NewArray()}, nil
}

func repeatText(s string, n int) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(n)
	b.ReserveData(n * len(s))
	for range n {
		b.Append(s)
	}
	return b.NewArray()
}

// checkKinds refuses change files whose rows do not say what happened. Other words
// than the four are passed on: old writers had some.
func checkKinds(a arrow.Array, version int64, path string) error {
	if a.NullN() > 0 {
		return &Error{ErrorCode: CodeInvalidChangeType, Version: version, Path: path, Reason: "a row has no " + ChangeTypeColumn}
	}
	return nil
}

// at says where an error happened, unless it says so itself.
func at(version int64, err error) error {
	var e *Error
	var m *MissingError
	if errors.As(err, &e) || errors.As(err, &m) {
		return err
	}
	return fmt.Errorf("read change feed: version %d: %w", version, err)
}
