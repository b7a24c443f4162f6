package delta

import (
	"context"
	"slices"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/pipeline"
)

// countRows is the number of live rows of files: from statistics, else from footers. ok
// is false where a file cannot tell, as one that is gone: counts never make a write fail.
func (t *Table) countRows(ctx context.Context, cfg *deltalog.TableConfig, files []*deltalog.Add) (n int64, ok bool) {
	layout, err := datafile.LayoutOf(cfg, t.opts.TimeZone)
	if err != nil {
		return 0, false
	}
	for rows, err := range pipeline.Map(ctx, 16, slices.Values(files), func(ctx context.Context, a *deltalog.Add) (int64, error) {
		if rows, ok := liveRows(a); ok {
			return rows, nil
		}
		rows, err := datafile.CountRows(ctx, t.store, layout, a)
		if err == nil && a.DeletionVector != nil {
			rows -= a.DeletionVector.Cardinality
		}
		return rows, err
	}) {
		if err != nil {
			return 0, false
		}
		n += rows
	}
	return n, true
}

// countDifference is how many rows of the table went and came when files were removed and
// added; a file that is in both with another deletion vector counts the rows by which
// the two differ.
func (t *Table) countDifference(ctx context.Context, cfg *deltalog.TableConfig, removed, added []*deltalog.Add) (deleted, inserted int64, ok bool) {
	before := map[string]*deltalog.Add{}
	for _, a := range removed {
		if p, err := a.Decoded(); err == nil {
			before[p] = a
		}
	}
	var came []*deltalog.Add
	for _, b := range added {
		p, err := b.Decoded()
		a := before[p]
		if err != nil || a == nil {
			came = append(came, b)
			continue
		}
		delete(before, p)
		was, err := datafile.LoadVector(ctx, t.store, a.DeletionVector)
		if err != nil {
			return 0, 0, false
		}
		is, err := datafile.LoadVector(ctx, t.store, b.DeletionVector)
		if err != nil {
			return 0, 0, false
		}
		if is != nil {
			deleted += is.Minus(was).Cardinality()
		}
		if was != nil {
			inserted += was.Minus(is).Cardinality()
		}
	}
	went := make([]*deltalog.Add, 0, len(before))
	for _, a := range before {
		went = append(went, a)
	}
	n, ok1 := t.countRows(ctx, cfg, went)
	m, ok2 := t.countRows(ctx, cfg, came)
	return deleted + n, inserted + m, ok1 && ok2
}
