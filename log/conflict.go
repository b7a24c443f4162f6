package deltalog

// Conflict detection (section 3 of the checklist). A transaction knows what it read:
// partitions, files, application marks, or everything. Each commit that won a race
// against it is checked in order; the first rule that fails decides (C-04).

// nonChanging are the operations that move rows without changing them, by name (C-02).
var nonChanging = map[string]bool{
	"OPTIMIZE": true, "REORG": true, "VACUUM START": true, "VACUUM END": true, "COMPUTE STATS": true, "CLUSTER BY": true,
	backfillOperation: true,
}

// notRebased are the operations whose commit stands on exactly the version it read
// (C-27), by name.
var notRebased = map[string]bool{"RESTORE": true, "CLONE": true, "CONVERT": true}

// level is the isolation level in force: a commit that only rearranges files needs
// no more than SnapshotIsolation (C-02).
func (t *Transaction) level(opts CommitOptions) IsolationLevel {
	level := opts.Isolation
	if level == "" {
		level = Serializable
	}
	a := &t.actions
	if a.Protocol != nil || a.Metadata != nil || len(a.Txns) > 0 {
		return level
	}
	for _, d := range a.Domains {
		if d.Domain != rowTrackingDomain {
			return level
		}
	}
	for _, f := range a.Adds {
		if f.DataChange {
			return level
		}
	}
	for _, f := range a.Removes {
		if f.DataChange {
			return level
		}
	}
	if level == WriteSerializable && !nonChanging[opts.Operation] {
		return level
	}
	return SnapshotIsolation
}

// blind: nothing was read, and the file actions are adds alone (C-03).
func (t *Transaction) blind(opts CommitOptions) bool {
	return !opts.NotBlind && len(t.actions.Removes) == 0 && len(t.actions.CDC) == 0 &&
		!t.wholeTable && len(t.predicates) == 0 && len(t.readFiles) == 0
}

func conflict(kind ConflictKind, rule string, w *Commit, path string) *ConflictError {
	e := &ConflictError{Kind: kind, Rule: rule, WinnerVersion: w.Version, Path: path}
	if w.Info != nil {
		e.Operation = w.Info.Operation
		if w.Info.Timestamp != nil {
			e.WinnerTime = *w.Info.Timestamp
		}
	}
	return e
}

// check holds one winner against the transaction and takes over what it changed.
func (c *committer) check(w *Commit) error {
	if err := c.checkProtocol(w); err != nil {
		return err
	}
	if err := c.checkMetadata(w); err != nil {
		return err
	}
	for _, txn := range w.Txns {
		c.txns[txn.AppID] = txn.Version
	}
	for _, d := range w.Domains {
		if d.Domain == rowTrackingDomain {
			// Row ids are assigned above it at the next attempt (C-21).
			c.rowDomain = d
		}
	}
	if err := c.takeTime(w); err != nil {
		return err
	}
	if c.opts.OnConflict != nil {
		return nil
	}
	for _, d := range w.Domains {
		for _, ours := range c.t.actions.Domains {
			if d.Domain == ours.Domain && d.Domain != rowTrackingDomain {
				return conflict(ConcurrentTransaction, "C-20", w, d.Domain)
			}
		}
	}
	for _, txn := range w.Txns {
		if c.t.readApps[txn.AppID] {
			return conflict(ConcurrentTransaction, "C-22", w, txn.AppID)
		}
	}
	if isBackfill(w) {
		// The files are the same, they only have row ids now (C-34).
		takeBackfill(&c.t.actions, w)
		return nil
	}
	pairs, err := vectorPairs(w)
	if err != nil {
		return err
	}
	if err := c.checkAdds(w, pairs); err != nil {
		return err
	}
	return c.checkRemoves(w, pairs)
}

// checkProtocol is C-11 to C-15.
func (c *committer) checkProtocol(w *Commit) error {
	if w.Protocol == nil {
		return nil
	}
	if c.config == nil {
		// Two creators of one table.
		return conflict(ProtocolChanged, "C-12", w, "")
	}
	m := c.config.Metadata
	if w.Metadata != nil {
		m = w.Metadata
	}
	cfg, err := NewTableConfig(w.Protocol, m)
	if err == nil {
		err = cfg.Require(OpWrite)
	}
	if err != nil {
		return err // C-11
	}
	if c.t.actions.Protocol != nil {
		return conflict(ProtocolChanged, "C-12", w, "")
	}
	if f, dropped := c.config.Protocol.downgrades(w.Protocol); dropped {
		return conflict(ProtocolChanged, "C-13", w, f)
	}
	for _, f := range w.Protocol.Features() {
		if row, known := lookupFeature(string(f)); !c.config.Supports(f) && (!known || row.failAtUpgrade) {
			return conflict(ProtocolChanged, "C-14", w, string(f))
		}
	}
	if w.Metadata == nil {
		c.config = cfg // C-15
	}
	return nil
}

// checkAdds is C-23: adds of the winner that this transaction should have read (3.3).
// With row-level concurrency they are collected for the caller, but for the halves of
// deletion vector updates, which checkRemoves handles.
func (c *committer) checkAdds(w *Commit, pairs map[string]*Add) error {
	winnerBlind := w.Info != nil && w.Info.IsBlindAppend != nil && *w.Info.IsBlindAppend
	switch {
	case c.blind, c.level == SnapshotIsolation:
		return nil
	case c.level == WriteSerializable && winnerBlind && c.t.actions.Metadata == nil:
		return nil
	}
	whole := c.t.wholeTable || c.config == nil || len(c.config.PartitionColumns()) == 0
	for _, a := range w.Adds {
		hit := whole
		for _, match := range c.t.predicates {
			hit = hit || match == nil || match(a.PartitionValues)
		}
		if !hit {
			continue
		}
		if c.rows == nil {
			return conflict(ConcurrentAppend, "C-23", w, a.Path)
		}
		p, err := canonicalPath(a.Path)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(w.Version), Reason: "add", Cause: err}
		}
		if pairs[p] == nil {
			c.rows.added[p] = a
		}
	}
	return nil
}

// checkRemoves is C-24 to C-26. Paths compare without deletion vectors, and removes
// that change no data count (C-35).
func (c *committer) checkRemoves(w *Commit, pairs map[string]*Add) error {
	if len(w.Removes) == 0 {
		return nil
	}
	ours := make(map[string]bool, len(c.t.actions.Removes))
	for _, r := range c.t.actions.Removes {
		if p, err := canonicalPath(r.Path); err == nil {
			ours[p] = true
		}
	}
	paths := make([]string, len(w.Removes))
	for i, r := range w.Removes {
		p, err := canonicalPath(r.Path)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(w.Version), Reason: "remove", Cause: err}
		}
		paths[i] = p
	}
	// Removes of files that came after our snapshot, and vector updates, are the
	// caller's with row-level concurrency.
	left := func(i int) bool { return c.rows == nil || !c.rows.take(paths[i], w.Removes[i], pairs[paths[i]], c.t) }
	for i, r := range w.Removes {
		if c.t.readFiles[paths[i]] && left(i) {
			return conflict(ConcurrentDeleteRead, "C-24", w, r.Path)
		}
	}
	if c.t.wholeTable {
		for i, r := range w.Removes {
			if left(i) {
				return conflict(ConcurrentDeleteRead, "C-25", w, r.Path)
			}
		}
	}
	for i, r := range w.Removes {
		if ours[paths[i]] && left(i) {
			return conflict(ConcurrentDeleteDelete, "C-26", w, r.Path)
		}
	}
	if c.rows != nil {
		for i := range w.Removes {
			if c.rows.added[paths[i]] == nil {
				continue
			}
			if a := pairs[paths[i]]; a != nil {
				c.rows.added[paths[i]] = a
			} else {
				delete(c.rows.added, paths[i])
			}
		}
	}
	return nil
}

// vectorPairs are the winner's adds, by path, that replace the deletion vector of a
// file it removes in the same commit and that are otherwise the same file.
func vectorPairs(w *Commit) (map[string]*Add, error) {
	if len(w.Adds) == 0 || len(w.Removes) == 0 {
		return nil, nil
	}
	removed := map[string]*Remove{}
	for _, r := range w.Removes {
		p, err := canonicalPath(r.Path)
		if err != nil {
			return nil, &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(w.Version), Reason: "remove", Cause: err}
		}
		removed[p] = r
	}
	out := map[string]*Add{}
	for _, a := range w.Adds {
		p, err := canonicalPath(a.Path)
		if err != nil {
			return nil, &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(w.Version), Reason: "add", Cause: err}
		}
		if removed[p] != nil && a.DeletionVector != nil {
			out[p] = a
		}
	}
	return out, nil
}
