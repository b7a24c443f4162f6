package delta

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
)

// RowReads say what of a decision stands on single rows, so that a lost race need not
// void it (row-level concurrency, 3.5): a winner's change to other rows of the same
// files, and files it added without a row that matters, leave the decision as it is.
type RowReads struct {
	// Matters reports whether a file that a winner added has a live row that the
	// decision would have acted on.
	Matters func(ctx context.Context, added *deltalog.Add) (bool, error)
	// Used, if set, reports whether the decision stands on one of the given rows of a
	// file, ascending, that it leaves as they are: a winner has deleted them.
	Used func(file *deltalog.Add, rows []int64) bool
}

// reconciler makes a staged change anew on top of winners that touched other rows.
type reconciler struct {
	t    *Table
	cfg  *deltalog.TableConfig
	s    *Staged
	read *RowReads
	tx   *deltalog.Transaction
}

// rowLevel is the hook for a transaction of s; nil where every lost race is decided by
// files: the table writes no deletion vectors, or the caller knows nothing of rows.
func (t *Table) rowLevel(cfg *deltalog.TableConfig, s *Staged, read *RowReads, tx *deltalog.Transaction) func(context.Context, *deltalog.RowConflicts) (*deltalog.Rebased, error) {
	if read == nil || t.opts.FileLevelConflicts || !cfg.WritesDeletionVectors() {
		return nil
	}
	return (&reconciler{t, cfg, s, read, tx}).reconcile
}

// reconcile gives every file of which a winner has replaced the deletion vector the
// union of both vectors, if no row is in both, and holds added files against the
// decision. Change files and new rows stay as they are.
func (r *reconciler) reconcile(ctx context.Context, c *deltalog.RowConflicts) (*deltalog.Rebased, error) {
	for _, a := range c.Added {
		hit, err := r.read.Matters(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("read file of a winner: %w", err)
		}
		if hit {
			return nil, c.Conflict(a.Path)
		}
	}
	byPath := map[string]int{}
	for i, m := range r.s.masked {
		byPath[m.File.Path] = i
	}
	masks := slices.Clone(r.s.masked)
	changed := map[string]bool{}
	for _, f := range c.Files {
		i, mine := byPath[f.Now.Path]
		if f.Removed && !mine {
			return nil, c.Conflict(f.Now.Path) // rewritten or gone: its rows are elsewhere
		}
		theirs, back, now, err := r.difference(ctx, f)
		if err != nil {
			return nil, err
		}
		if back || !mine && r.used(f.Now, theirs) {
			return nil, c.Conflict(f.Now.Path)
		}
		if !mine {
			continue
		}
		m := masks[i]
		own := m.own.Clone()
		own.And(theirs)
		if !own.IsEmpty() || r.used(f.Now, theirs) {
			return nil, c.Conflict(f.Now.Path)
		}
		m.File, m.all = f.Now, now
		m.all.Or(m.own)
		masks[i], changed[f.Now.Path] = m, true
	}
	if len(changed) == 0 {
		return nil, nil
	}
	return r.again(ctx, masks, changed)
}

// maxUsed bounds the rows that are listed for a look: more of them count as used.
const maxUsed = 1 << 24

func (r *reconciler) used(f *deltalog.Add, rows *roaring64.Bitmap) bool {
	if r.read.Used == nil || rows.IsEmpty() {
		return false
	}
	if rows.GetCardinality() > maxUsed {
		return true
	}
	return r.read.Used(f, slices.Collect(dv.NewVector(rows).Rows()))
}

// difference is what winners deleted of a file, whether they brought rows back, and
// the rows that are deleted now.
func (r *reconciler) difference(ctx context.Context, f deltalog.RowConflict) (theirs *roaring64.Bitmap, back bool, now *roaring64.Bitmap, err error) {
	load := func(d *deltalog.DeletionVectorDescriptor) (*roaring64.Bitmap, error) {
		v, err := datafile.LoadVector(ctx, r.t.store, d)
		if err != nil {
			return nil, fmt.Errorf("deletion vector of %s: %w", f.Now.Path, err)
		}
		if v == nil {
			return roaring64.New(), nil
		}
		return v.Bitmap(), nil
	}
	before, err := load(f.Before)
	if err != nil {
		return nil, false, nil, err
	}
	if now, err = load(f.Now.DeletionVector); err != nil {
		return nil, false, nil, err
	}
	return roaring64.AndNot(now, before), !roaring64.AndNot(before, now).IsEmpty(), now, nil
}

// again writes the vectors of all masks into a new file, drops the old one, which no
// commit names, and replaces the pairs of actions; changed are the paths of files that
// winners touched.
func (r *reconciler) again(ctx context.Context, masks []mask, changed map[string]bool) (*deltalog.Rebased, error) {
	var kept []mask
	var bitmaps []*roaring64.Bitmap
	ours := map[string]bool{}
	for _, m := range masks {
		ours[m.File.Path] = true
		if int64(m.all.GetCardinality()) < m.physical {
			kept, bitmaps = append(kept, m), append(bitmaps, m.all)
		}
	}
	places, key, err := r.t.storeVectors(ctx, r.cfg, bitmaps)
	if err != nil {
		return nil, err
	}
	old := r.s.vectorKey
	if key != "" {
		r.s.keys = append(r.s.keys, key)
	}
	r.s.vectorKey = key
	// What the log has changed of the actions since, such as row ids that a winner gave
	// a file, stays.
	a := *r.tx.Actions()
	adds, removes := map[string]*deltalog.Add{}, map[string]*deltalog.Remove{}
	for _, f := range a.Adds {
		adds[f.Path] = f
	}
	for _, f := range a.Removes {
		removes[f.Path] = f
	}
	a.Adds = slices.DeleteFunc(slices.Clone(a.Adds), func(f *deltalog.Add) bool { return ours[f.Path] })
	a.Removes = slices.DeleteFunc(slices.Clone(a.Removes), func(f *deltalog.Remove) bool { return ours[f.Path] })
	for _, m := range masks {
		if changed[m.File.Path] {
			a.Removes = append(a.Removes, m.File.Remove(r.t.opts.Clock(), true))
		} else {
			a.Removes = append(a.Removes, removes[m.File.Path])
		}
	}
	for i, m := range kept {
		base := m.File
		if f := adds[m.File.Path]; f != nil && !changed[m.File.Path] {
			base = f
		}
		a.Adds = append(a.Adds, withVector(base, places[i], m.physical))
	}
	r.s.masked, r.s.Adds, r.s.Removes = masks, a.Adds, a.Removes
	if old != "" {
		// The lost try is known not to stand, so nothing names its vectors.
		r.s.keys = slices.DeleteFunc(r.s.keys, func(k string) bool { return k == old })
		if err := r.t.store.Delete(context.WithoutCancel(ctx), old); err != nil {
			r.t.opts.Logger.Warn("deletion vectors of a lost try stay behind", "file", old, "cause", err)
		}
	}
	r.t.opts.Logger.Debug("lost a race to changes of other rows, took them in", "files", len(masks))
	return &deltalog.Rebased{Actions: a}, nil
}
