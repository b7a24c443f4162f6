package delta

import (
	"context"
	"errors"
	"maps"
	"slices"

	deltalog "github.com/sluice-data/sluice/log"
)

// commit puts the new files in place of the old ones. After a lost race the groups
// whose files all stand as they were are tried again on the newer version (C-42).
func (z *optimizer) commit(ctx context.Context, done []*rewritten) (OptimizeResult, error) {
	snap, out := z.snap, OptimizeResult{}
	for n := 1; ; n++ {
		s, vectors := z.staged(done)
		tx := z.t.log.Begin(snap)
		for _, r := range done {
			tx.ReadFiles(r.from...)
		}
		res, err := z.t.finish(ctx, tx, s, WriteOptions{UserMetadata: z.o.UserMetadata}, z.commitOptions(s, vectors))
		if err == nil {
			out.Result, out.VectorsRemoved, out.Partitions = res, vectors, z.countPartitions(done)
			return out, nil
		}
		switch {
		case unknownOutcome(err):
			return out, err
		case !retryable(err) || n >= z.t.opts.Attempts:
			return out, errors.Join(err, z.discard(ctx, done))
		}
		if err := z.t.pause(ctx, n); err != nil {
			return out, errors.Join(err, z.discard(ctx, done))
		}
		next, nextErr := z.t.Snapshot(ctx)
		if nextErr != nil {
			return out, errors.Join(nextErr, z.discard(ctx, done))
		}
		kept, lost, keepErr := z.standing(ctx, next, done)
		if keepErr != nil {
			return out, errors.Join(keepErr, z.discard(ctx, done))
		}
		for _, r := range lost {
			out.Skipped += len(r.from)
		}
		if dErr := z.discard(ctx, lost); dErr != nil {
			return out, errors.Join(dErr, z.discard(ctx, kept))
		}
		if len(kept) == 0 {
			return out, err
		}
		snap, done = next, kept
	}
}

// standing splits the groups into those whose files are live in snap as they were
// and the others. A table that stores rows in another way now keeps none.
func (z *optimizer) standing(ctx context.Context, snap *deltalog.Snapshot, done []*rewritten) (kept, lost []*rewritten, err error) {
	if !sameLayout(z.snap.Metadata, snap.Metadata) || !maps.Equal(z.snap.Metadata.Configuration, snap.Metadata.Configuration) {
		return nil, done, nil
	}
	for _, r := range done {
		ok := true
		for _, a := range r.from {
			b, live, err := snap.File(ctx, a.Path)
			if err != nil {
				return nil, nil, err
			}
			ok = ok && live && a.DeletionVector.ID() == b.DeletionVector.ID()
		}
		if ok {
			kept = append(kept, r)
		} else {
			lost = append(lost, r)
		}
	}
	return kept, lost, nil
}

// staged are the actions of the groups.
func (z *optimizer) staged(done []*rewritten) (s *Staged, vectors int64) {
	s = &Staged{store: z.t.store, preserved: z.l.RowIDs != nil}
	now := z.t.opts.Clock()
	for _, r := range done {
		for _, a := range r.from {
			if a.DeletionVector != nil {
				vectors++
			}
			s.Removes = append(s.Removes, a.Remove(now, false))
			s.Metrics.FilesRemoved++
			s.Metrics.BytesRemoved += a.Size
		}
		for _, a := range r.adds {
			s.Adds = append(s.Adds, a)
			s.Metrics.FilesAdded++
			s.Metrics.BytesAdded += a.Size
		}
		s.Metrics.RowsCopied += r.rows
	}
	return s, vectors
}

func (z *optimizer) countPartitions(done []*rewritten) int {
	seen := map[string]bool{}
	for _, r := range done {
		seen[partitionText(r.from[0].PartitionValues)] = true
	}
	return len(seen)
}

// commitOptions are operation, parameters and metrics as Spark has them.
func (z *optimizer) commitOptions(s *Staged, vectors int64) deltalog.CommitOptions {
	m := map[string]string{
		"numRemovedFiles": itoa(s.Metrics.FilesRemoved), "numRemovedBytes": itoa(s.Metrics.BytesRemoved),
		"numAddedFiles": itoa(s.Metrics.FilesAdded), "numAddedBytes": itoa(s.Metrics.BytesAdded),
		"numDeletionVectorsRemoved": itoa(vectors),
	}
	if n := len(s.Adds); n > 0 {
		sizes := make([]int64, n)
		for i, a := range s.Adds {
			sizes[i] = a.Size
		}
		slices.Sort(sizes)
		m["minFileSize"], m["maxFileSize"] = itoa(sizes[0]), itoa(sizes[n-1])
		m["p25FileSize"], m["p50FileSize"], m["p75FileSize"] = itoa(sizes[n/4]), itoa(sizes[n/2]), itoa(sizes[3*n/4])
	}
	where := []string{}
	if z.where != nil {
		where = append(where, z.where.String())
	}
	if z.o.Purge {
		return deltalog.CommitOptions{Operation: "REORG", NotBlind: true, Metrics: m,
			Parameters: map[string]string{"predicate": jsonText(where), "applyPurge": "true"}}
	}
	p := map[string]string{"predicate": jsonText(where), "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}
	if z.cluster != nil {
		names := jsonText(z.cluster.names)
		if z.cluster.curve == zOrderCurve {
			p["zOrderBy"] = names
		} else {
			p["clusterBy"], p["isFull"] = names, "false"
			if z.o.Full {
				p["isFull"] = "true"
			}
		}
	}
	return deltalog.CommitOptions{Operation: "OPTIMIZE", NotBlind: true, Metrics: m, Parameters: p}
}
