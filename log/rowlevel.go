package deltalog

import (
	"context"
	"sort"
)

// Row-level concurrency (3.5): two writers that touch different rows of one file can
// both win. The log finds what is in question; whoever knows the rows decides.

// RowConflicts is what winners did that only a look at rows can tell to be harmless.
// Everything else that the rules C-11 to C-28 forbid has failed before.
type RowConflicts struct {
	// Winners are the commits since the last try, oldest first.
	Winners []*Commit
	// Files are those that this transaction read or removes, and whose deletion vector
	// winners replaced, by path.
	Files []RowConflict
	// Added are files that winners brought and that this transaction should have read
	// (C-23), as they stand after the last winner, by path.
	Added []*Add
}

// RowConflict is one file under two writers.
type RowConflict struct {
	// Before is the deletion vector that the first winner met, nil for none; the one
	// this transaction knows unless an earlier try was reconciled.
	Before *DeletionVectorDescriptor
	// Now is the file as it stands after the last winner.
	Now *Add
	// Removed is true when this transaction removes the file (to rewrite it, or to give
	// it another vector), false when it only read it.
	Removed bool
}

// rowCollector gathers the conflicts of one round.
type rowCollector struct {
	files map[string]*RowConflict
	added map[string]*Add
	ours  map[string]bool
}

func newRowCollector(a *Actions) *rowCollector {
	c := &rowCollector{files: map[string]*RowConflict{}, added: map[string]*Add{}, ours: map[string]bool{}}
	for _, r := range a.Removes {
		if p, err := canonicalPath(r.Path); err == nil {
			c.ours[p] = true
		}
	}
	return c
}

// take is true when the remove of a winner is half of a vector update, now in pair, or
// removes what a winner of this round brought.
func (c *rowCollector) take(path string, r *Remove, pair *Add, t *Transaction) bool {
	if c.added[path] != nil {
		if pair != nil {
			c.added[path] = pair
		}
		return true
	}
	if pair == nil {
		return false
	}
	f := c.files[path]
	if f == nil {
		f = &RowConflict{Before: r.DeletionVector, Removed: c.ours[path]}
		c.files[path] = f
	}
	f.Now = pair
	return true
}

func (c *rowCollector) empty() bool { return len(c.files) == 0 && len(c.added) == 0 }

func (c *rowCollector) conflicts(winners []*Commit) *RowConflicts {
	out := &RowConflicts{Winners: winners}
	for _, f := range c.files {
		out.Files = append(out.Files, *f)
	}
	sort.Slice(out.Files, func(i, j int) bool { return out.Files[i].Now.Path < out.Files[j].Now.Path })
	for _, a := range c.added {
		out.Added = append(out.Added, a)
	}
	sort.Slice(out.Added, func(i, j int) bool { return out.Added[i].Path < out.Added[j].Path })
	return out
}

// Conflict is the error for a file that cannot be reconciled: C-23 for one of Added,
// C-24 or C-26 for one of Files.
func (r *RowConflicts) Conflict(path string) *ConflictError {
	last := r.Winners[len(r.Winners)-1]
	kind, rule := ConcurrentAppend, "C-23"
	for _, f := range r.Files {
		if f.Now.Path == path {
			if kind, rule = ConcurrentDeleteRead, "C-24"; f.Removed {
				kind, rule = ConcurrentDeleteDelete, "C-26"
			}
		}
	}
	for _, w := range r.Winners {
		for _, a := range w.Adds {
			if a.Path == path {
				last = w
			}
		}
	}
	return conflict(kind, rule, last, path)
}

// rebase takes the actions of a caller that made the transaction anew.
func (c *committer) rebase(r *Rebased) {
	if r == nil {
		return
	}
	c.t.actions = r.Actions
	if r.Parameters != nil {
		c.info.OperationParameters = r.Parameters
	}
	if r.Metrics != nil {
		c.info.OperationMetrics = r.Metrics
	}
	c.level, c.blind = c.t.level(c.opts), c.t.blind(c.opts)
	c.info.IsolationLevel, c.info.IsBlindAppend = string(c.level), c.blind
	c.tag()
}

// reconcile asks the callers after the checks have passed.
func (c *committer) reconcile(ctx context.Context, winners []*Commit) error {
	switch {
	case c.opts.OnConflict != nil:
		r, err := c.opts.OnConflict(ctx, winners)
		if err != nil {
			return err
		}
		c.rebase(r)
	case c.rows != nil && !c.rows.empty():
		r, err := c.opts.RowLevel(ctx, c.rows.conflicts(winners))
		if err != nil {
			return err
		}
		c.rebase(r)
	}
	return nil
}

// tag sets what commitInfo.tags says beside the caller's own.
func (c *committer) tag() {
	c.info.Tags = c.opts.Tags
	c.tagPreserved()
	c.tagIdentity()
}
