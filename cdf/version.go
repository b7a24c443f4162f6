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
	"github.com/sluice-data/sluice/storage"
)

// piece is a part of a file whose rows are changes of one kind.
type piece struct {
	src datafile.Source
	// kind is "" for a change file, whose rows name their own.
	kind ChangeType
	// rows are physical rows, all of them in the deletion vector of src; nil means
	// all rows that the deletion vector leaves.
	rows    []int64
	removed bool // the file was written before this version
}

// version streams the change rows of one commit.
func (f *Feed) version(ctx context.Context, c *deltalog.Commit, times *deltalog.Timeline) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		pieces, err := f.pieces(ctx, c)
		if err != nil {
			yield(nil, err)
			return
		}
		if len(pieces) == 0 {
			return
		}
		when, err := times.Time(ctx, c.Version)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, p := range pieces {
			for b, err := range f.piece(ctx, c.Version, when, p) {
				if err != nil {
					yield(nil, at(c.Version, err))
					return
				}
				more := b.NumRows() == 0 || yield(b, nil)
				b.Release()
				if !more {
					return
				}
			}
		}
	}
}

// pieces says which rows of which files are the changes of a commit.
func (f *Feed) pieces(ctx context.Context, c *deltalog.Commit) ([]piece, error) {
	if len(c.CDC) > 0 {
		out := make([]piece, len(c.CDC))
		for i, a := range c.CDC {
			out[i] = piece{src: datafile.Source{Path: a.Path, PartitionValues: a.PartitionValues, Size: a.Size}}
		}
		return out, nil
	}
	if copiesOnly(c.Info) {
		return nil, nil
	}
	adds := map[string]*deltalog.Add{}
	for _, a := range c.Adds {
		if !a.DataChange {
			continue
		}
		p, err := a.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if adds[p] != nil {
			return nil, &Error{ErrorCode: CodeDuplicateFileActions, Version: c.Version, Path: a.Path, Reason: "it is added twice"}
		}
		adds[p] = a
	}
	var out []piece
	paired := map[string]bool{}
	for _, r := range c.Removes {
		if !r.DataChange {
			continue
		}
		p, err := r.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if paired[p] {
			return nil, &Error{ErrorCode: CodeDuplicateFileActions, Version: c.Version, Path: r.Path, Reason: "it is removed twice"}
		}
		if a := adds[p]; a != nil {
			paired[p] = true
			changed, err := f.vectorChange(ctx, r, a)
			if err != nil {
				return nil, at(c.Version, err)
			}
			out = append(out, changed...)
			continue
		}
		gone, err := f.removed(c.Version, r)
		if err != nil {
			return nil, err
		}
		out = append(out, gone)
	}
	for _, a := range c.Adds {
		if !a.DataChange {
			continue
		}
		p, err := a.Decoded()
		if err != nil {
			return nil, at(c.Version, err)
		}
		if !paired[p] {
			out = append(out, piece{src: datafile.SourceOf(a), kind: Insert})
		}
	}
	return out, nil
}

// copiesOnly is R-906: a MERGE that says it changed no row only copied some.
func copiesOnly(info *deltalog.CommitInfo) bool {
	if info == nil || info.Operation != "MERGE" {
		return false
	}
	for _, m := range []string{"numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"} {
		if info.OperationMetrics[m] != "0" {
			return false
		}
	}
	return true
}

// removed is a file that went away without coming back: the rows that its deletion
// vector left are deleted.
func (f *Feed) removed(version int64, r *deltalog.Remove) (piece, error) {
	if r.PartitionValues == nil && len(f.plan.layout(version, true).Partition) > 0 {
		return piece{}, &Error{ErrorCode: CodeRemoveWithoutValues, Version: version, Path: r.Path,
			Reason: "the remove action has no partition values, so its rows cannot be rebuilt"}
	}
	size := int64(-1)
	if r.Size != nil {
		size = *r.Size
	}
	return piece{src: datafile.Source{Path: r.Path, PartitionValues: r.PartitionValues, Size: size, DeletionVector: r.DeletionVector}, kind: Delete, removed: true}, nil
}

// vectorChange is R-902: one file, another deletion vector.
func (f *Feed) vectorChange(ctx context.Context, r *deltalog.Remove, a *deltalog.Add) ([]piece, error) {
	if r.DeletionVector.ID() == a.DeletionVector.ID() {
		return nil, nil
	}
	before, err := f.vector(ctx, a.Path, r.DeletionVector)
	if err != nil {
		return nil, err
	}
	after, err := f.vector(ctx, a.Path, a.DeletionVector)
	if err != nil {
		return nil, err
	}
	src := datafile.SourceOf(a)
	var out []piece
	if rows := minus(after, before); len(rows) > 0 {
		out = append(out, piece{src: src, kind: Delete, rows: rows})
	}
	if rows := minus(before, after); len(rows) > 0 {
		src.DeletionVector = r.DeletionVector
		out = append(out, piece{src: src, kind: Insert, rows: rows})
	}
	return out, nil
}

func (f *Feed) vector(ctx context.Context, path string, d *deltalog.DeletionVectorDescriptor) (*dv.Vector, error) {
	v, err := datafile.LoadVector(ctx, f.log.Store(), d)
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

func minus(v, w *dv.Vector) []int64 {
	if v == nil {
		return nil
	}
	return slices.Collect(v.Minus(w).Rows())
}

// piece reads the rows of one piece and gives them the columns of the feed.
func (f *Feed) piece(ctx context.Context, version int64, when time.Time, p piece) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		l := f.plan.layout(version, p.removed)
		columns := f.needed
		if columns == nil {
			columns = []string{}
		}
		o := datafile.ReadOptions{Columns: columns, Change: p.kind == "", Rows: p.rows, OnlyDeleted: p.rows != nil, BatchRows: f.opts.BatchRows}
		for b, err := range datafile.ReadFile(ctx, f.log.Store(), l, p.src, o) {
			var out arrow.RecordBatch
			if err == nil {
				out, err = f.finish(b.RecordBatch, version, when, p)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// finish adds the columns of the feed, filters and projects.
func (f *Feed) finish(b arrow.RecordBatch, version int64, when time.Time, p piece) (arrow.RecordBatch, error) {
	n := int(b.NumRows())
	cols := slices.Clone(b.Columns()[:len(f.needed)])
	var kinds arrow.Array
	if p.kind == "" {
		kinds = b.Column(len(f.needed))
		if err := checkKinds(kinds, version, p.src.Path); err != nil {
			return nil, err
		}
		kinds.Retain()
	} else {
		kinds = repeatText(string(p.kind), n)
	}
	versions := array.NewInt64Builder(memory.DefaultAllocator)
	times := array.NewTimestampBuilder(memory.DefaultAllocator, f.arrow.Field(len(f.needed)+2).Type.(*arrow.TimestampType))
	versions.Reserve(n)
	times.Reserve(n)
	for range n {
		versions.UnsafeAppend(version)
		times.UnsafeAppend(arrow.Timestamp(when.UnixMicro()))
	}
	added := []arrow.Array{kinds, versions.NewArray(), times.NewArray()}
	versions.Release()
	times.Release()
	defer func() {
		for _, a := range added {
			a.Release()
		}
	}()
	whole := array.NewRecordBatch(f.arrow, append(cols, added...), int64(n))
	defer func() { whole.Release() }()
	if f.where != nil {
		hits, err := f.where.EvalFilter(whole)
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
	out := make([]arrow.Array, len(f.output))
	for i, k := range f.output {
		out[i] = whole.Column(k)
	}
	return array.NewRecordBatch(f.outside, out, whole.NumRows()), nil
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
	if errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("read change feed: version %d: %w", version, err)
}
