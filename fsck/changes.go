package fsck

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// changes looks at the change files of every commit that the log holds. Each is read
// with the schema of its own version.
func (c *checker) changes(ctx context.Context) error {
	first := int64(0)
	if line, err := c.snap.Timeline(ctx); err == nil {
		first = line.First()
	} else if !refused(err) {
		return err
	}
	var err error
	if c.vacuumed, err = c.lastVacuum(ctx); err != nil {
		return err
	}
	var layout *datafile.Layout
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Concurrency)
	for v := first; v <= c.snap.Version; v++ {
		commit, err := c.log.ReadCommit(ctx, v)
		if err != nil {
			if refused(err) || errors.Is(err, deltalog.ErrNotFound) {
				continue // the audit says why
			}
			return errors.Join(err, g.Wait())
		}
		if commit.Metadata != nil || commit.Protocol != nil || layout == nil && len(commit.CDC) > 0 {
			if layout, err = c.layoutAt(ctx, commit.Version); err != nil {
				return errors.Join(err, g.Wait())
			}
		}
		if len(commit.CDC) == 0 || layout == nil {
			continue
		}
		c.report.ChangeFiles += len(commit.CDC)
		l := layout
		g.Go(func() error { return c.commitChanges(gctx, commit, l) })
	}
	return g.Wait()
}

// layoutAt is nil where that version cannot be read, which the audit reports.
func (c *checker) layoutAt(ctx context.Context, version int64) (*datafile.Layout, error) {
	snap, err := c.log.At(ctx, version)
	if err != nil {
		if refused(err) || errors.Is(err, deltalog.ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	l, err := datafile.LayoutOf(snap.TableConfig, c.o.Table.TimeZone)
	if err != nil {
		return nil, nil // files reports it for the newest version
	}
	return l, nil
}

// commitChanges reads the change files of one commit and adds them up: what they insert
// less what they delete is what the commit's files have more.
func (c *checker) commitChanges(ctx context.Context, commit *deltalog.Commit, l *datafile.Layout) error {
	sum, whole := map[string]int64{}, true
	for _, file := range commit.CDC {
		f := deltalog.Finding{Code: ChangeUnreadable, Severity: deltalog.SevereError, File: file.Path, Version: commit.Version}
		size, err := fileSize(ctx, c.store, file.Path)
		switch {
		case errors.Is(err, storage.ErrNotFound) && c.expired(commit):
			whole = false
			continue // VACUUM took it, as it may (W-910)
		case err != nil:
			whole = false
			if err := c.damage(err, f); err != nil {
				return err
			}
			continue
		case size != file.Size:
			whole = false
			f.Detail = fmt.Sprintf("the log says %d bytes, the file has %d", file.Size, size)
			c.find(f)
			continue
		}
		if c.o.Quick {
			continue
		}
		counts, err := datafile.ChangeCounts(ctx, c.store, l, datafile.Source{Path: file.Path, PartitionValues: file.PartitionValues, Size: file.Size})
		if err != nil {
			whole = false
			if err := c.damage(err, f); err != nil {
				return err
			}
			continue
		}
		for kind, n := range counts {
			switch kind {
			case "insert", "delete", "update_preimage", "update_postimage":
				sum[kind] += n
			default:
				whole = false
				f.Code, f.Detail = ChangeType, fmt.Sprintf("%d rows have _change_type %q", n, kind)
				c.find(f)
			}
		}
	}
	if whole && !c.o.Quick {
		c.addUp(commit, sum)
	}
	return nil
}

func (c *checker) addUp(commit *deltalog.Commit, sum map[string]int64) {
	f := deltalog.Finding{Code: ChangeSum, Severity: deltalog.SevereError, File: deltalog.CommitKey(commit.Version), Version: commit.Version}
	if a, b := sum["update_preimage"], sum["update_postimage"]; a != b {
		f.Detail = fmt.Sprintf("the change files have %d rows before an update and %d after", a, b)
		c.find(f)
		return
	}
	more, known := int64(0), true
	live := func(stats string, dv *deltalog.DeletionVectorDescriptor) int64 {
		n := datafile.ParseStats(stats).NumRecords
		known = known && n >= 0
		if dv != nil {
			n -= dv.Cardinality
		}
		return n
	}
	for _, a := range commit.Adds {
		more += live(a.Stats, a.DeletionVector)
	}
	for _, r := range commit.Removes {
		more -= live(r.Stats, r.DeletionVector)
	}
	if said := sum["insert"] - sum["delete"]; known && said != more {
		f.Detail = fmt.Sprintf("the change files insert %d rows and delete %d, the files of the commit have %d rows more than those it removes", sum["insert"], sum["delete"], more)
		c.find(f)
	}
}

// expired tells whether a vacuum may have taken what only this version needed.
func (c *checker) expired(commit *deltalog.Commit) bool {
	return commit.Version < c.vacuumed || c.log.Now().Sub(commit.FileTime) > c.snap.Props.DeletedFileRetention
}

// lastVacuum is the newest version that a VACUUM left in the log, whose retention may
// have been any.
func (c *checker) lastVacuum(ctx context.Context) (int64, error) {
	history, err := c.snap.History(ctx, 0)
	if err != nil && !refused(err) {
		return 0, err
	}
	for _, h := range history {
		if h.Info != nil && strings.HasPrefix(h.Info.Operation, "VACUUM") {
			return h.Version, nil
		}
	}
	return -1, nil
}

// state looks at the apply state of a target: what the target names must be there and
// fit, and be whole as a table.
func (c *checker) state(ctx context.Context) error {
	m := c.o.Operator
	m.Store = c.store
	if m.Name == "" {
		m.Name = c.store.URL()
	}
	_, err := apply.Inspect(ctx, m, c.o.Apply)
	var refusal *apply.Error
	switch {
	case err == nil:
		c.report.State = true
	case errors.As(err, &refusal) && refusal.Code == apply.CodeInvalidTarget:
		return nil // no target of apply
	case errors.Is(err, deltalog.ErrUnsupported):
		return nil // not writable for us: no target of apply
	case errors.As(err, &refusal):
		c.report.State = true
		c.find(deltalog.Finding{Code: State, Severity: deltalog.SevereError, File: "_apply/state", Version: c.snap.Version, Detail: err.Error()})
	default:
		return err
	}
	return nil
}
