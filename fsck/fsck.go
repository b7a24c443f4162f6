package fsck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// Codes of findings beside those of the log (deltalog.Fsck…).
const (
	FileMissing      = "FSCK_FILE_MISSING"
	FileSize         = "FSCK_FILE_SIZE"
	FileUnreadable   = "FSCK_FILE_UNREADABLE"
	FileRows         = "FSCK_FILE_ROWS"
	Statistics       = "FSCK_STATISTICS"
	PartitionValue   = "FSCK_PARTITION_VALUE"
	Vector           = "FSCK_DELETION_VECTOR"
	RowIDs           = "FSCK_ROW_IDS"
	ChangeMissing    = "FSCK_CHANGE_FILE_MISSING"
	ChangeUnreadable = "FSCK_CHANGE_FILE_UNREADABLE"
	ChangeType       = "FSCK_CHANGE_TYPE"
	ChangeSum        = "FSCK_CHANGE_FEED"
	State            = "FSCK_APPLY_STATE"
)

// Options of a check; the zero value is all of it.
type Options struct {
	Table delta.Options
	// Apply are the options of the target's engine; Operator finds its state, its Store
	// and Name are set by [Check].
	Apply    apply.Options
	Operator apply.Operator
	// Quick reads footers only, not the rows: statistics and change types are not held
	// against them.
	Quick bool
	// Concurrency bounds the files that are read at once, 0: 4.
	Concurrency int
}

// Report is what a check found.
type Report struct {
	Table string `json:"table"`
	// Version is the newest one; Log counts what was looked at in the log.
	Version     int64 `json:"version"`
	Commits     int   `json:"commits"`
	Checkpoints int   `json:"checkpoints"`
	// Files are the live data files, Vectors those with a deletion vector; Rows their
	// live rows and Bytes their size.
	Files       int                `json:"files"`
	Rows        int64              `json:"rows"`
	Bytes       int64              `json:"bytes"`
	Vectors     int                `json:"deletion_vectors"`
	ChangeFiles int                `json:"change_files"`
	State       bool               `json:"apply_state"`
	Findings    []deltalog.Finding `json:"findings"`
	// Repaired are the findings that a repair dealt with; those are not in Findings.
	Repaired []deltalog.Finding `json:"repaired,omitempty"`
}

// Count is the number of findings of a severity.
func (r *Report) Count(s deltalog.Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// checker is one run.
type checker struct {
	store  storage.Store
	o      Options
	log    *deltalog.Log
	snap   *deltalog.Snapshot
	layout *datafile.Layout
	// vacuumed is the newest version with a VACUUM, -1 for none.
	vacuumed int64

	mu     sync.Mutex
	report *Report
}

// Check reads a table whole. Errors are those of the store, and ErrNotFound where there
// is no table.
func Check(ctx context.Context, store storage.Store, o Options) (*Report, error) {
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	log := deltalog.Open(store, deltalog.Options{Clock: o.Table.Clock, Logger: o.Table.Logger, EngineInfo: o.Table.EngineInfo})
	audit, err := log.Audit(ctx)
	if err != nil {
		return nil, err
	}
	c := &checker{store: store, o: o, log: log, report: &Report{Table: store.URL(), Version: audit.Latest, Commits: audit.Commits,
		Checkpoints: audit.Checkpoints, Findings: audit.Findings}}
	if c.snap, err = log.Latest(ctx); err != nil {
		if refused(err) {
			return c.report, nil // the audit says why
		}
		return nil, err
	}
	for _, check := range []func(context.Context) error{c.files, c.changes, c.state} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(c.report.Findings, func(a, b deltalog.Finding) int { return rank(a) - rank(b) })
	return c.report, nil
}

// Repair checks the table, puts right what loses nothing (invariant 4), and checks
// again.
func Repair(ctx context.Context, store storage.Store, o Options) (*Report, error) {
	log := deltalog.Open(store, deltalog.Options{Clock: o.Table.Clock, Logger: o.Table.Logger, EngineInfo: o.Table.EngineInfo})
	done, err := log.Repair(ctx)
	if err != nil {
		return nil, err
	}
	r, err := Check(ctx, store, o)
	if err != nil {
		return nil, err
	}
	r.Repaired = done
	return r, nil
}

func rank(f deltalog.Finding) int {
	switch f.Severity {
	case deltalog.SevereError:
		return 0
	case deltalog.SevereWarning:
		return 1
	}
	return 2
}

// refused tells errors that are about the table from those of the store.
func refused(err error) bool {
	return errors.Is(err, deltalog.ErrCorrupt) || errors.Is(err, deltalog.ErrUnsupported) || errors.Is(err, deltalog.ErrInvalid)
}

func (c *checker) find(f deltalog.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Findings = append(c.report.Findings, f)
}

// files looks at every live file.
func (c *checker) files(ctx context.Context) error {
	var err error
	if c.layout, err = datafile.LayoutOf(c.snap.TableConfig, c.o.Table.TimeZone); err != nil {
		c.find(deltalog.Finding{Code: deltalog.FsckMetadata, Severity: deltalog.SevereError, Version: c.snap.Version, Detail: err.Error()})
		return nil
	}
	adds, err := c.snap.FileList(ctx)
	if err != nil {
		if refused(err) {
			return nil // the audit says why
		}
		return err
	}
	c.report.Files = len(adds)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Concurrency)
	for _, add := range adds {
		c.report.Bytes += add.Size
		if add.DeletionVector != nil {
			c.report.Vectors++
		}
		g.Go(func() error { return c.file(ctx, add) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	c.rowIDs(adds)
	return nil
}

// damage makes a finding of an error that the file is to blame for and hands back
// every other one.
func (c *checker) damage(err error, f deltalog.Finding) error {
	var bad *datafile.FileError
	var broken *datafile.ConstraintError
	switch {
	case errors.Is(err, storage.ErrNotFound):
		f.Code = map[bool]string{true: ChangeMissing, false: FileMissing}[f.Code == ChangeUnreadable]
	case errors.As(err, &bad) && bad.ErrorCode == datafile.CodeVector, errors.Is(err, dv.ErrCorrupt):
		f.Code = Vector
	case errors.As(err, &bad), errors.As(err, &broken), refused(err):
	default:
		return err
	}
	f.Detail = err.Error()
	c.find(f)
	return nil
}

// file looks at one data file, from the outside in; what lies further in is not
// looked at when the outside is wrong.
func (c *checker) file(ctx context.Context, add *deltalog.Add) error {
	f := deltalog.Finding{Code: FileUnreadable, Severity: deltalog.SevereError, File: add.Path, Version: c.snap.Version}
	size, err := fileSize(ctx, c.store, add.Path)
	if err != nil {
		return c.damage(err, f)
	}
	if size != add.Size {
		f.Code, f.Detail = FileSize, fmt.Sprintf("the log says %d bytes, the file has %d", add.Size, size)
		c.find(f)
		return nil
	}
	if _, err := c.layout.PartitionRow(add.PartitionValues); err != nil {
		p := f
		p.Code, p.Detail = PartitionValue, err.Error()
		c.find(p)
		return nil
	}
	rows, err := datafile.CountRows(ctx, c.store, c.layout, &deltalog.Add{Path: add.Path, PartitionValues: add.PartitionValues, Size: add.Size})
	if err != nil {
		return c.damage(err, f)
	}
	if said := datafile.ParseStats(add.Stats).NumRecords; said >= 0 && said != rows {
		w := f
		w.Code, w.Detail = FileRows, fmt.Sprintf("numRecords is %d, the file has %d rows", said, rows)
		c.find(w)
	}
	live := rows
	if add.DeletionVector != nil {
		deleted, ok, err := c.vector(ctx, add, rows, f)
		if err != nil || !ok {
			return err
		}
		live -= deleted
	}
	c.mu.Lock()
	c.report.Rows += live
	c.mu.Unlock()
	if c.o.Quick {
		return nil
	}
	untrue, err := datafile.Untrue(ctx, c.store, c.layout, add)
	if err != nil {
		return c.damage(err, f)
	}
	for _, what := range untrue {
		u := f
		u.Code, u.Detail = Statistics, what+": readers skip the file for rows that it has"
		c.find(u)
	}
	return nil
}

// vector reads a deletion vector and holds it against its file.
func (c *checker) vector(ctx context.Context, add *deltalog.Add, rows int64, f deltalog.Finding) (deleted int64, ok bool, err error) {
	f.Code = Vector
	v, err := datafile.LoadVector(ctx, c.store, add.DeletionVector)
	if err != nil {
		if errors.Is(err, storage.ErrNotFound) {
			f.Detail = "the file of the deletion vector is missing: " + err.Error()
			c.find(f)
			return 0, false, nil
		}
		return 0, false, c.damage(err, f)
	}
	deleted = v.Cardinality()
	switch {
	case deleted != add.DeletionVector.Cardinality:
		f.Detail = fmt.Sprintf("the log says %d deleted rows, the vector has %d", add.DeletionVector.Cardinality, deleted)
	case deleted > 0 && v.Max() >= rows:
		f.Detail = fmt.Sprintf("the vector deletes row %d of a file with %d rows", v.Max(), rows)
	default:
		return deleted, true, nil
	}
	c.find(f)
	return deleted, false, nil
}

// fileSize is the size of a file that the log names.
func fileSize(ctx context.Context, store storage.Store, uri string) (int64, error) {
	r, err := datafile.Open(ctx, store, uri)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.Size(), nil
}

// rowIDs holds the row ids of a table with row tracking against each other and the
// high water mark (R-801, W-801).
func (c *checker) rowIDs(adds []*deltalog.Add) {
	if !c.snap.AssignsRowIDs() {
		return
	}
	type span struct {
		first, last int64
		path        string
	}
	var spans []span
	for _, a := range adds {
		f := deltalog.Finding{Code: RowIDs, Severity: deltalog.SevereError, File: a.Path, Version: c.snap.Version}
		n := datafile.ParseStats(a.Stats).NumRecords
		if a.BaseRowID == nil || a.DefaultRowCommitVersion == nil {
			if c.snap.RowTracking() {
				f.Detail = "the file has no baseRowId or no defaultRowCommitVersion, though row tracking is on"
				c.find(f)
			}
			continue
		}
		if n > 0 {
			spans = append(spans, span{*a.BaseRowID, *a.BaseRowID + n - 1, a.Path})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.first-b.first, -1), 1)) })
	mark, err := c.snap.RowIDHighWaterMark()
	if err != nil {
		c.find(deltalog.Finding{Code: RowIDs, Severity: deltalog.SevereError, Version: c.snap.Version, Detail: err.Error()})
		return
	}
	for i, s := range spans {
		f := deltalog.Finding{Code: RowIDs, Severity: deltalog.SevereError, File: s.path, Version: c.snap.Version}
		if i > 0 && spans[i-1].last >= s.first {
			f.Detail = fmt.Sprintf("row ids %d to %d overlap with those of %s", s.first, s.last, spans[i-1].path)
			c.find(f)
		}
		if s.last > mark {
			f.Detail = fmt.Sprintf("row ids go up to %d, the high water mark is %d: ids will be given out twice", s.last, mark)
			c.find(f)
		}
	}
}
