package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-data/sluice/storage"
)

// Log compaction files hold the reconciled actions of a range of commits, so
// that a snapshot reads one file instead of many. They save work and are never needed:
// whatever is wrong with one, the plain commits of its range are read instead. Change
// feeds, history and conflict checks always read plain commits.

// tailFile is one file of a snapshot's tail: a commit, or a compaction of several.
type tailFile struct {
	logFile
	// plain are the commits that a compaction stands for.
	plain []logFile
}

// planTail covers the commits of a segment, which are contiguous, with compaction
// files that lie wholly inside, the longest from each place on.
func planTail(commits []logFile, files []logFile) []tailFile {
	longest := map[int64]logFile{}
	for _, f := range files {
		if f.kind == compactedFile && f.size > 0 && f.last > longest[f.version].last {
			longest[f.version] = f
		}
	}
	var out []tailFile
	for i := 0; i < len(commits); {
		f, ok := longest[commits[i].version]
		n := int(f.last-f.version) + 1
		if ok && f.last <= commits[len(commits)-1].version {
			out = append(out, tailFile{f, commits[i : i+n]})
			i += n
			continue
		}
		out = append(out, tailFile{logFile: commits[i]})
		i++
	}
	return out
}

// tailReaders is how many files of a long tail are read at a time.
const tailReaders = 8

// readTail reads the files of a tail and gives their commits, oldest first.
func (l *Log) readTail(ctx context.Context, tail []tailFile) ([]*Commit, error) {
	parts := make([][]*Commit, len(tail))
	g, ctx := errgroup.WithContext(ctx)
	// A short tail is read in order: there is little to win, and what a store sees
	// stays the same from run to run.
	g.SetLimit(1)
	if len(tail) > 2*tailReaders {
		g.SetLimit(tailReaders)
	}
	for i, f := range tail {
		g.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			parts[i], err = l.readTailFile(ctx, f)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(parts...), nil
}

func (l *Log) readTailFile(ctx context.Context, f tailFile) ([]*Commit, error) {
	plain := f.plain
	if plain == nil {
		plain = []logFile{f.logFile}
	} else if c, err := l.readCompacted(ctx, f); err == nil {
		return []*Commit{c}, nil
	} else if !errors.Is(err, ErrCorrupt) {
		return nil, err
	} else {
		l.opts.Logger.Warn("log compaction file not used", "file", f.key, "error", err)
	}
	var out []*Commit
	for _, p := range plain {
		c, err := l.readCommitFile(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// readCompacted gives the range as one commit of its last version, without Info.
func (l *Log) readCompacted(ctx context.Context, f tailFile) (*Commit, error) {
	c, err := l.readCommitFile(ctx, f.logFile)
	if err != nil {
		return nil, err
	}
	if err := checkReconciled(f.key, c); err != nil {
		return nil, err
	}
	c.Version, c.Info = f.last, nil
	c.FileTime = timeOf(f.plain[len(f.plain)-1])
	return c, nil
}

// checkReconciled refuses a file that is a mere concatenation of commits: without
// their order it does not tell what is live. Such files exist, and engines that
// believe them show removed rows.
func checkReconciled(key string, c *Commit) error {
	seen := make(map[fileKey]bool, len(c.Adds)+len(c.Removes))
	take := func(path string, dv *DeletionVectorDescriptor) error {
		k, err := keyOf(path, dv)
		if err == nil && seen[k] {
			err = fmt.Errorf("%s occurs twice", path)
		}
		seen[k] = true
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: key, Reason: "not reconciled (R-721)", Cause: err}
		}
		return nil
	}
	for _, a := range c.Adds {
		if err := take(a.Path, a.DeletionVector); err != nil {
			return err
		}
	}
	for _, r := range c.Removes {
		if err := take(r.Path, r.DeletionVector); err != nil {
			return err
		}
	}
	return nil
}

// CompactionKey is the key of the compaction file of a range of versions.
func CompactionKey(first, last int64) string {
	return fmt.Sprintf("%s%020d.%020d.compacted.json", LogDir, first, last)
}

// WriteCompaction writes the compaction file of the versions first to last, both
// inclusive, first < last, which all have their commits. A file that is there already
// is left alone (W-104).
func (l *Log) WriteCompaction(ctx context.Context, first, last int64) error {
	if first < 0 || last <= first {
		return invalid("DELTA_INVALID_COMPACTION_RANGE", "R-721", "a compaction of versions %d to %d: the range needs two versions at least", first, last)
	}
	s, err := l.At(ctx, last)
	if err != nil {
		return err
	}
	if err := s.Require(OpWrite); err != nil {
		return err
	}
	sum, err := l.reconcile(ctx, first, last)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := encodeActions(json.NewEncoder(&b), sum); err != nil {
		return fmt.Errorf("encode %s: %w", CompactionKey(first, last), err)
	}
	if err := l.store.Create(ctx, CompactionKey(first, last), b.Bytes()); err != nil && !errors.Is(err, storage.ErrExists) {
		return fmt.Errorf("create %s: %w", CompactionKey(first, last), err)
	}
	return nil
}

// reconcile folds commits into the actions that have the same effect: tombstones and
// removed domains stay, commitInfo and change files do not.
func (l *Log) reconcile(ctx context.Context, first, last int64) (*Actions, error) {
	out := &Actions{}
	st := &fileState{live: map[fileKey]*Add{}, dead: map[fileKey]*Remove{}}
	txns, domains := map[string]*Txn{}, map[string]*DomainMetadata{}
	for c, err := range l.Commits(ctx, first, last) {
		if err != nil {
			return nil, err
		}
		if c.Protocol != nil {
			out.Protocol = c.Protocol
		}
		if c.Metadata != nil {
			out.Metadata = c.Metadata
		}
		for _, t := range c.Txns {
			txns[t.AppID] = t
		}
		for _, d := range c.Domains {
			domains[d.Domain] = d
		}
		if err := st.fold(c); err != nil {
			return nil, err
		}
	}
	for _, id := range sortedKeys(txns) {
		out.Txns = append(out.Txns, txns[id])
	}
	for _, name := range sortedKeys(domains) {
		out.Domains = append(out.Domains, domains[name])
	}
	st.sort()
	for _, a := range st.sorted {
		b := *a
		b.DataChange = false
		out.Adds = append(out.Adds, &b)
	}
	for _, r := range st.dead {
		b := *r
		b.DataChange = false
		out.Removes = append(out.Removes, &b)
	}
	sort.Slice(out.Removes, func(i, j int) bool {
		a, b := out.Removes[i], out.Removes[j]
		if a.Path != b.Path {
			return a.Path < b.Path
		}
		return a.DeletionVector.ID() < b.DeletionVector.ID()
	})
	return out, nil
}
