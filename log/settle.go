package deltalog

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/sluice-data/sluice/storage"
)

// A listing is no snapshot of a directory: while it runs, commits 890 and 891 may be
// created and only 891 be seen. Paged listings of object stores have the same race.
// So a hole in a listing is a question, not yet damage: the log is listed once
// more, and what is still missing is looked for by name. A commit was there before its
// successor, so the second listing of a consistent store shows every commit below the
// newest one of the first.

// holeLooks bounds how many missing commits are looked for by name.
const holeLooks = 16

// list names the log's files of versions from on, in order of version, without holes
// that only the listing has. first is the version that must follow on what the caller
// knows, -1 if it knows nothing; upTo is a version known to exist, -1 if none is.
func (l *Log) list(ctx context.Context, from, first, upTo int64) ([]logFile, error) {
	files, err := l.listOnce(ctx, from)
	if err != nil {
		return nil, err
	}
	newest := max(newestVersion(files), upTo)
	if len(holes(files, first, newest)) == 0 {
		return files, nil
	}
	again, err := l.listOnce(ctx, from)
	if err != nil {
		return nil, err
	}
	files = mergeFiles(files, again, newest)
	for i, v := range holes(files, first, newest) {
		if i == holeLooks {
			break
		}
		obj, err := l.store.Head(ctx, CommitKey(v))
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("head %s: %w", CommitKey(v), err)
		}
		f := logFile{kind: commitFile, version: v, key: obj.Key, size: obj.Size, modTime: obj.ModTime.UnixMilli()}
		files = mergeFiles(files, []logFile{f}, newest)
	}
	return files, nil
}

// holes lists, in order and at most holeLooks+1 of them, the versions up to newest
// without a commit that a reader may need: from first on, or, where that is -1, from
// the older of the first commit and the newest complete checkpoint on.
func holes(files []logFile, first, newest int64) []int64 {
	commits := commitFiles(files, -1, newest)
	next := first
	if next < 0 {
		next = 0
		if sets := checkpointsUpTo(files, newest); len(sets) > 0 {
			next = sets[0].version + 1
			if len(commits) > 0 {
				next = min(next, commits[0].version)
			}
		}
	}
	var out []int64
	missing := func(before int64) {
		for ; next < before && len(out) <= holeLooks; next++ {
			out = append(out, next)
		}
	}
	for _, f := range commits {
		if f.version < next {
			continue
		}
		missing(f.version)
		next = f.version + 1
	}
	missing(newest + 1)
	return out
}

// mergeFiles is a with the files of b up to version newest, each key once: what came
// after the first listing may itself have holes.
func mergeFiles(a, b []logFile, newest int64) []logFile {
	have := make(map[string]bool, len(a))
	for _, f := range a {
		have[f.key] = true
	}
	for _, f := range b {
		if !have[f.key] && f.version <= newest {
			a = append(a, f)
		}
	}
	sort.SliceStable(a, func(i, j int) bool {
		if a[i].version != a[j].version {
			return a[i].version < a[j].version
		}
		return a[i].key < a[j].key
	})
	return a
}
