package deltalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-data/sluice/storage"
)

// Repair audits the log and puts right what can be put right without loss: derived
// files that are damaged or differ from the commits are deleted, as is a
// _last_checkpoint that names none that is whole; readers then list. It gives the
// findings that it dealt with; the others need a decision. Nothing that a commit needs is touched, and
// a checkpoint is deleted only when the commits make its state without it. A table that
// is not supported is refused by name.
func (l *Log) Repair(ctx context.Context) ([]Finding, error) {
	if _, err := l.Latest(ctx); errors.Is(err, ErrUnsupported) {
		return nil, err
	}
	a, err := l.audit(ctx)
	if err != nil {
		return nil, err
	}
	var done []Finding
	doomed := map[string]bool{}
	for _, f := range a.out.Findings {
		switch {
		case f.Repair == "":
			continue
		case f.Code == FsckChecksum, f.Code == FsckCompaction, f.Code == FsckCheckpointPart, f.Code == FsckHint:
			doomed[f.File] = true
		}
		done = append(done, f)
	}
	for _, set := range checkpointsUpTo(a.files, a.out.Latest) {
		if spare, bad := a.bad[set.files[0].key]; bad && spare {
			for _, f := range set.files {
				doomed[f.key] = true
			}
		}
	}
	// The pointer goes first: a crash in between leaves none to a file that is gone.
	hintKey := LogDir + hintName
	order := sortedKeys(doomed)
	if doomed[hintKey] {
		order = append([]string{hintKey}, order...)
	}
	for _, key := range order {
		if err := l.store.Delete(ctx, key); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, fmt.Errorf("delete %s: %w", key, err)
		}
	}
	return done, nil
}
