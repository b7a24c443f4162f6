package delta

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
)

// ScanOptions say what to read; the zero value is every row and column of the
// newest version.
type ScanOptions struct {
	// Version or Timestamp chooses an older version; both are an error.
	Version   *int64
	Timestamp *time.Time
	// Snapshot, if set, is read instead.
	Snapshot *deltalog.Snapshot
	// Columns in the wanted order; nil means all. Hidden appends hidden columns.
	Columns []string
	Hidden  bool
	// RowIDs appends [RowIDColumn] and [RowCommitVersionColumn] of a table with row
	// tracking.
	RowIDs bool
	// Where is a condition in SQL.
	Where string
	// Limit bounds the rows; 0 means all.
	Limit int64
	// OrderBy sorts the rows, in memory; without it their order is unspecified.
	OrderBy []Order
}

// Scan is one read of one version.
type Scan struct {
	t      *Table
	snap   *deltalog.Snapshot
	layout *datafile.Layout
	where  *expr.Bound
	o      ScanOptions
	out    *schema.Struct // of the batches
	read   []string       // columns read: those of out, then sort keys
}

// Scan prepares a read: names, condition and version are checked, data files are
// not opened yet.
func (t *Table) Scan(ctx context.Context, o ScanOptions) (*Scan, error) {
	snap, err := t.pick(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Scan{t: t, snap: snap, o: o}
	if s.layout, err = t.Layout(snap); err != nil {
		return nil, err
	}
	if s.where, err = t.condition(snap.Schema, o.Where, t.opts.Clock()); err != nil {
		return nil, err
	}
	s.out = snap.Schema
	if o.Columns != nil {
		if s.out, err = snap.Schema.Select(o.Columns); err != nil {
			return nil, &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: "choose columns", Cause: err}
		}
	}
	s.read = s.out.Names()
	for _, k := range o.OrderBy {
		i := snap.Schema.Index(k.Column)
		if i < 0 {
			return nil, &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: "order by " + k.Column + ": no such column"}
		}
		if s.out.Index(k.Column) < 0 {
			s.read = append(s.read, snap.Schema.Fields[i].Name)
		}
	}
	if o.Hidden && s.layout.Carry != nil {
		s.out = &schema.Struct{Fields: append(s.out.Fields[:len(s.out.Fields):len(s.out.Fields)], s.layout.Carry.Fields...)}
	}
	if o.RowIDs {
		ids, err := rowIDColumns(s.layout)
		if err != nil {
			return nil, err
		}
		s.out = &schema.Struct{Fields: append(s.out.Fields[:len(s.out.Fields):len(s.out.Fields)], ids...)}
	}
	return s, nil
}

func (t *Table) pick(ctx context.Context, o ScanOptions) (*deltalog.Snapshot, error) {
	switch {
	case o.Version != nil && o.Timestamp != nil:
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_TIME_TRAVEL_INVALID", Reason: "a version and a timestamp exclude each other"}
	case o.Snapshot != nil:
		return o.Snapshot, nil
	case o.Version != nil:
		return t.SnapshotAt(ctx, *o.Version)
	case o.Timestamp != nil:
		return t.SnapshotAsOf(ctx, *o.Timestamp)
	}
	return t.Snapshot(ctx)
}

// Snapshot is the version that is read.
func (s *Scan) Snapshot() *deltalog.Snapshot { return s.snap }

// Schema is that of the batches.
func (s *Scan) Schema() *schema.Struct { return s.out }

// Files are the data files that may hold wanted rows.
func (s *Scan) Files(ctx context.Context) ([]*deltalog.Add, error) {
	all, err := s.snap.FileList(ctx)
	if err != nil || s.where == nil {
		return all, err
	}
	var out []*deltalog.Add
	for _, a := range all {
		if s.layout.MayMatch(s.where, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Batches streams the rows. A batch is valid until the next iteration unless it is
// retained.
func (s *Scan) Batches(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	if len(s.o.OrderBy) > 0 {
		return s.sorted(ctx)
	}
	return s.limited(ctx, s.o.Limit)
}

// limited streams rows in file order; limit 0 means all.
func (s *Scan) limited(ctx context.Context, limit int64) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		files, err := s.Files(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		ro := datafile.ReadOptions{Columns: s.read, Hidden: s.o.Hidden, RowIDs: s.o.RowIDs, Filter: s.where}
		if limit > 0 && s.where == nil && limit < 4096 {
			ro.BatchRows = int(limit)
		}
		left := limit
		for rows, err := range s.rows(ctx, files, ro, limit > 0) {
			if err != nil {
				yield(nil, err)
				return
			}
			if limit > 0 && rows.NumRows() > left {
				cut := rows.NewSlice(0, left)
				rows.Release()
				rows = cut
			}
			left -= rows.NumRows()
			ok := yield(rows, nil)
			rows.Release()
			if !ok || limit > 0 && left == 0 {
				return
			}
		}
	}
}

// readAhead is how many batches of a file wait for the ones before it to be read.
const readAhead = 2

// rows streams the rows of the files in their order; batches are the consumer's. Of
// several files as many are read at once as there are workers, unless few of the rows
// may be wanted.
func (s *Scan) rows(ctx context.Context, files []*deltalog.Add, ro datafile.ReadOptions, few bool) iter.Seq2[arrow.RecordBatch, error] {
	read := func(ctx context.Context, a *deltalog.Add) iter.Seq2[arrow.RecordBatch, error] {
		return s.fileRows(ctx, a, ro)
	}
	if !few && len(files) > 1 && s.t.opts.Workers > 1 {
		return pipeline.Streams(ctx, s.t.opts.Workers, readAhead, slices.Values(files), read, arrow.RecordBatch.Release)
	}
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, a := range files {
			for b, err := range read(ctx, a) {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s *Scan) fileRows(ctx context.Context, a *deltalog.Add, ro datafile.ReadOptions) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for b, err := range datafile.Read(ctx, s.t.store, s.layout, a, ro) {
			if err != nil {
				yield(nil, err)
				return
			}
			rows := b.RecordBatch
			if s.o.RowIDs {
				rows = nameRowIDs(rows)
			} else {
				rows.Retain()
			}
			if !yield(rows, nil) {
				return
			}
		}
	}
}

// sorted collects the rows and yields them in order, in one batch.
func (s *Scan) sorted(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		var all []arrow.RecordBatch
		defer func() {
			for _, b := range all {
				b.Release()
			}
		}()
		for b, err := range s.limited(ctx, 0) {
			if err != nil {
				yield(nil, err)
				return
			}
			b.Retain()
			all = append(all, b)
		}
		if len(all) == 0 {
			return
		}
		whole, err := datafile.Concat(all[0].Schema(), all)
		if err != nil {
			yield(nil, err)
			return
		}
		defer whole.Release()
		limit := int64(-1)
		if s.o.Limit > 0 {
			limit = s.o.Limit
		}
		rows, err := sortedRows(whole, s.o.OrderBy, limit)
		if err != nil {
			yield(nil, err)
			return
		}
		out, err := datafile.Take(whole, rows)
		if err != nil {
			yield(nil, err)
			return
		}
		defer out.Release()
		if cut := len(s.read) - len(s.out.Fields); !s.o.Hidden && !s.o.RowIDs && cut > 0 {
			out, err = project(out, s.out)
		} else if s.o.Hidden || s.o.RowIDs {
			out, err = project(out, s.out)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		yield(out, nil)
	}
}

// Count is the number of rows: from statistics and deletion vectors where they
// suffice, else by reading.
func (s *Scan) Count(ctx context.Context) (int64, error) {
	files, err := s.Files(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, a := range files {
		if s.where == nil || s.layout.AllMatch(s.where, a) {
			if live, ok := liveRows(a); ok {
				n += live
				continue
			}
		}
		for b, err := range datafile.Read(ctx, s.t.store, s.layout, a, datafile.ReadOptions{Columns: []string{}, Filter: s.where}) {
			if err != nil {
				return 0, err
			}
			n += b.NumRows()
		}
	}
	if s.o.Limit > 0 {
		n = min(n, s.o.Limit)
	}
	return n, nil
}

// liveRows is the number of rows of a file that are not deleted, if the log knows.
func liveRows(a *deltalog.Add) (int64, bool) {
	n := datafile.ParseStats(a.Stats).NumRecords
	if n < 0 {
		return 0, false
	}
	if a.DeletionVector != nil {
		n -= a.DeletionVector.Cardinality
	}
	return n, n >= 0
}
