package deltalog

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
)

// sidecarAge is how old an unreferenced sidecar must be before it is deleted: a younger
// one may belong to a checkpoint that is still being written (W-721).
const sidecarAge = 24 * time.Hour

// CleanUpOptions of [Log.CleanUp].
type CleanUpOptions struct {
	// DryRun only tells what would be deleted.
	DryRun bool
	// Retention replaces delta.logRetentionDuration; 0 keeps it.
	Retention time.Duration
	// exact does not round the cutoff down to midnight; unprotect ignores the protected
	// version, whose protection is being dropped.
	exact, unprotect bool
}

// CleanUpResult is what a clean-up did.
type CleanUpResult struct {
	// Cutoff is the first version that can still be rebuilt, -1 when nothing expired.
	Cutoff int64
	// Deleted are the keys in the order of deletion.
	Deleted []string
	// Kept says why nothing was deleted though something expired; "" otherwise.
	Kept string
}

// CleanUp deletes what the log holds only for versions that expired (W-721): with the
// newest commit that is older than midnight UTC of now - retention, and the newest
// checkpoint at or below it that can be read to its end, all commits, checkpoints and checksums of lower
// versions, compaction files that start at or below it, and then the sidecars that no
// checkpoint names. The checkpoint's own commit stays. Oldest files go first,
// so that the table can be read at every step (W-722). Tables with protected
// checkpoints are cleaned only when everything below the protected version goes at
// once (W-308).
func (l *Log) CleanUp(ctx context.Context, s *Snapshot, opts CleanUpOptions) (CleanUpResult, error) {
	none := CleanUpResult{Cutoff: -1}
	if err := s.Require(OpWrite); err != nil {
		return none, err
	}
	files, err := l.list(ctx, 0, -1, s.Version)
	if err != nil {
		return none, err
	}
	set, err := l.cutoff(ctx, s, files, opts)
	if err != nil || set == nil {
		return none, err
	}
	return l.deleteBefore(ctx, s, files, set.version, opts)
}

// cutoff finds the checkpoint below which the log may go, nil for none.
func (l *Log) cutoff(ctx context.Context, s *Snapshot, files []logFile, opts CleanUpOptions) (*checkpointSet, error) {
	keep := s.Props.LogRetention
	if opts.Retention > 0 {
		keep = opts.Retention
	}
	at := l.Now().UTC().Add(-keep)
	if !opts.exact {
		at = at.Truncate(24 * time.Hour)
	}
	commits := commitFiles(files, -1, s.Version)
	if len(commits) < 2 || !s.InCommitTimestamps() && commits[0].modTime > at.UnixMilli() {
		return nil, nil
	}
	line, err := s.timelineOf(files)
	if err != nil {
		return nil, err
	}
	last, ok, err := line.AtOrBefore(ctx, at)
	if err != nil || !ok {
		return nil, err
	}
	damaged := int64(-1)
	for _, set := range checkpointsUpTo(files, last) {
		if files[0].version >= set.version {
			return nil, nil
		}
		src, state, err := l.openCheckpoint(ctx, set)
		if err == nil && set.version != damaged {
			// Readers that chose this one would not fall back to another.
			if err = l.readThrough(ctx, src, state); err == nil {
				return set, nil
			}
			damaged = set.version
		}
		if err != nil && !errors.Is(err, errUnusable) && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
	}
	return nil, nil
}

// readThrough reads a checkpoint to its end, file actions and sidecars too, and counts
// its files where the checksum of its version tells how many there are: nothing may be
// deleted for the sake of one that cannot take its place.
func (l *Log) readThrough(ctx context.Context, src *checkpointSource, state *Actions) error {
	bad := func(format string, args ...any) error {
		return &CorruptError{ErrorCode: codeCorrupt, File: src.set.files[0].key, Reason: fmt.Sprintf(format, args...)}
	}
	if state.Protocol == nil || state.Metadata == nil {
		return bad("a checkpoint without protocol or metadata")
	}
	cfg, err := NewTableConfig(state.Protocol, state.Metadata)
	if err != nil {
		return err
	}
	adds := int64(0)
	if err := src.fileActions(ctx, cfg, func(_ string, a *Add, _ *Remove) error {
		if a != nil {
			adds++
		}
		return nil
	}); err != nil {
		return err
	}
	// A checksum that cannot be read says nothing about the checkpoint.
	if sum, err := l.readChecksum(ctx, src.set.version); err == nil && sum != nil && sum.NumFiles != nil && *sum.NumFiles != adds {
		return bad("%d files, its checksum counts %d", adds, *sum.NumFiles)
	}
	return nil
}

// deleteBefore deletes what is only needed for versions below before, which has a
// checkpoint.
func (l *Log) deleteBefore(ctx context.Context, s *Snapshot, files []logFile, before int64, opts CleanUpOptions) (CleanUpResult, error) {
	dryRun := opts.DryRun
	r := CleanUpResult{Cutoff: before}
	var old []logFile
	for _, f := range files {
		if f.version < before || f.kind == compactedFile && f.version == before {
			old = append(old, f)
		}
	}
	protected := int64(0)
	if s.Supports(CheckpointProtection) && !opts.unprotect {
		protected = s.Props.RequireCheckpointBefore
	}
	if len(old) > 0 && protected > before {
		r.Kept = fmt.Sprintf("versions below %d are protected (delta.requireCheckpointProtectionBeforeVersion) and version %d is the last that may go", protected, before-1)
		return r, nil
	}
	if !dryRun && len(old) > 0 {
		l.compatibilityCheckpoint(ctx, files, before)
	}
	sort.SliceStable(old, func(i, j int) bool { return deletedFirst(old[i], old[j], protected) })
	for _, f := range old {
		if !dryRun {
			if err := l.store.Delete(ctx, f.key); err != nil {
				return r, fmt.Errorf("delete %s: %w", f.key, err)
			}
		}
		r.Deleted = append(r.Deleted, f.key)
	}
	side, err := l.deleteSidecars(ctx, old, dryRun)
	r.Deleted = append(r.Deleted, side...)
	return r, err
}

// compatibilityCheckpoint writes a classic checkpoint of a version that has only one
// with a name of the new kind, so that readers that do not know that kind fail on the
// protocol and not on a missing file (W-723). A failure costs them the better message.
func (l *Log) compatibilityCheckpoint(ctx context.Context, files []logFile, version int64) {
	for _, f := range files {
		if f.version == version && (f.kind == classicCheckpoint || f.kind == multipartCheckpoint) {
			return
		}
	}
	s, err := l.At(ctx, version)
	if err == nil {
		_, err = l.writeClassic(ctx, s)
	}
	if err != nil {
		l.opts.Logger.Warn("classic checkpoint was not written", "version", version, "error", err)
	}
}

// deletedFirst orders deletions: oldest version first and, in a protected range,
// commits before checkpoints (W-308); of one version what builds on the commit before
// the commit.
func deletedFirst(a, b logFile, protected int64) bool {
	ca, cb := isCheckpoint(a.kind), isCheckpoint(b.kind)
	if a.version < protected && b.version < protected && ca != cb {
		return cb
	}
	if a.version != b.version {
		return a.version < b.version
	}
	order := func(k fileKind) int {
		switch k {
		case compactedFile:
			return 0
		case checksumFile:
			return 1
		case commitFile:
			return 2
		}
		return 3
	}
	return order(a.kind) < order(b.kind)
}

func isCheckpoint(k fileKind) bool {
	return k == classicCheckpoint || k == multipartCheckpoint || k == uuidCheckpoint
}

// deleteSidecars deletes sidecars older than a day that no checkpoint names; gone are
// log files to be taken as deleted. When some checkpoint cannot be read, nothing is
// deleted: it may name any of them.
func (l *Log) deleteSidecars(ctx context.Context, gone []logFile, dryRun bool) ([]string, error) {
	limit := l.Now().Add(-sidecarAge)
	var old []string
	for obj, err := range l.store.List(ctx, sidecarDir, "") {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", sidecarDir, err)
		}
		if strings.HasSuffix(obj.Key, ".parquet") && obj.ModTime.Before(limit) {
			old = append(old, obj.Key)
		}
	}
	if old == nil {
		return nil, nil
	}
	// Listed after the sidecars: a checkpoint that names one of them and is older than
	// a day is in it.
	files, err := l.listOnce(ctx, 0)
	if err != nil {
		return nil, err
	}
	skip := map[string]bool{}
	for _, f := range gone {
		skip[f.key] = true
	}
	named := map[string]bool{}
	for _, f := range files {
		if !isCheckpoint(f.kind) || f.size == 0 || skip[f.key] {
			continue
		}
		keys, err := l.sidecarsOf(ctx, f)
		if err != nil {
			l.opts.Logger.Warn("sidecars are kept", "checkpoint", f.key, "error", err)
			return nil, nil
		}
		for _, k := range keys {
			named[k] = true
		}
	}
	var out []string
	for _, k := range old {
		if named[k] {
			continue
		}
		if !dryRun {
			if err := l.store.Delete(ctx, k); err != nil {
				return out, fmt.Errorf("delete %s: %w", k, err)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// sidecarsOf are the keys that one file of a checkpoint names, whether they exist or not.
func (l *Log) sidecarsOf(ctx context.Context, f logFile) ([]string, error) {
	src := &checkpointSource{log: l}
	var paths, keys []string
	var err error
	if strings.HasSuffix(f.key, ".json") {
		err = src.openJSON(ctx, f, &Actions{}, &paths)
	} else {
		err = l.readState(ctx, f.key, &Actions{}, &paths)
	}
	for _, p := range paths {
		key, e := l.sidecarKey(p)
		if e != nil {
			// Outside of this table: none of the files here.
			continue
		}
		keys = append(keys, key)
	}
	return keys, err
}
