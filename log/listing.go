package deltalog

import (
	"context"
	"fmt"
	"sort"
	"strings"
)

// checkpointSet is one complete checkpoint: one file, or all parts of a multipart one.
type checkpointSet struct {
	version int64
	kind    fileKind
	files   []logFile
}

// segment is the part of the log that a snapshot is made from: a complete
// checkpoint or none, and every commit after it up to version, without a hole.
type segment struct {
	version    int64
	checkpoint *checkpointSet
	commits    []logFile
	// tail is how commits are read: by themselves or by compaction files.
	tail []tailFile
	// checksum is the .crc of version, nil if none is listed.
	checksum *logFile
}

// listOnce names the log's files of versions from on as one listing shows them, in
// order of version. Everything that is not a log file is skipped.
func (l *Log) listOnce(ctx context.Context, from int64) ([]logFile, error) {
	start := ""
	if from > 0 {
		start = versionPrefix(from)
	}
	var out []logFile
	for obj, err := range l.store.List(ctx, LogDir, start) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", LogDir, err)
		}
		name := logName(obj.Key)
		// Names sort by bytes: behind the digits come only files that are not ours.
		if name != "" && name[0] > '9' {
			break
		}
		if strings.Contains(name, "/") {
			continue
		}
		f := parseLogName(name)
		if f.kind == otherFile || f.version < from {
			continue
		}
		f.key, f.size, f.modTime = obj.Key, obj.Size, obj.ModTime.UnixMilli()
		out = append(out, f)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].version < out[j].version })
	return out, nil
}

// checkpointsUpTo lists the complete checkpoints of versions up to max, newest
// first; zero-byte files and incomplete multipart sets are skipped.
func checkpointsUpTo(files []logFile, max int64) []*checkpointSet {
	type setKey struct {
		version int64
		parts   int
	}
	var out []*checkpointSet
	multi := map[setKey]map[int]logFile{}
	for _, f := range files {
		if f.version > max || f.size == 0 {
			continue
		}
		switch f.kind {
		case classicCheckpoint, uuidCheckpoint:
			out = append(out, &checkpointSet{f.version, f.kind, []logFile{f}})
		case multipartCheckpoint:
			k := setKey{f.version, f.parts}
			if multi[k] == nil {
				multi[k] = map[int]logFile{}
			}
			multi[k][f.part] = f
		}
	}
	for k, parts := range multi {
		if len(parts) != k.parts {
			continue
		}
		set := &checkpointSet{version: k.version, kind: multipartCheckpoint}
		for i := 1; i <= k.parts; i++ {
			set.files = append(set.files, parts[i])
		}
		out = append(out, set)
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.version != b.version {
			return a.version > b.version
		}
		if a.kind != b.kind {
			return rank(a.kind) < rank(b.kind)
		}
		if len(a.files) != len(b.files) {
			return len(a.files) < len(b.files)
		}
		return a.files[0].key < b.files[0].key
	})
	return out
}

// rank prefers, of several checkpoints of one version, the one that is cheapest to
// open; any complete one is right.
func rank(k fileKind) int {
	switch k {
	case classicCheckpoint:
		return 0
	case uuidCheckpoint:
		return 1
	}
	return 2
}

// commitFiles are the commits in (after, upTo], one per version.
func commitFiles(files []logFile, after, upTo int64) []logFile {
	var out []logFile
	for _, f := range files {
		if f.kind != commitFile || f.version <= after || f.version > upTo {
			continue
		}
		if n := len(out); n > 0 && out[n-1].version == f.version {
			// Two spellings of one version: the 20-digit name is the one writers race for.
			if f.key == CommitKey(f.version) {
				out[n-1] = f
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// newestVersion is the largest version that a commit or complete checkpoint makes
// known, -1 if there is none.
func newestVersion(files []logFile) int64 {
	newest := int64(-1)
	for _, f := range files {
		if f.kind == commitFile {
			newest = max(newest, f.version)
		}
	}
	if sets := checkpointsUpTo(files, 1<<62); len(sets) > 0 {
		newest = max(newest, sets[0].version)
	}
	return newest
}

// buildSegment checks that nothing is missing between the checkpoint (nil: version
// 0) and version.
func buildSegment(files []logFile, ck *checkpointSet, version int64) (*segment, error) {
	after := int64(-1)
	if ck != nil {
		after = ck.version
	}
	s := &segment{version: version, checkpoint: ck, commits: commitFiles(files, after, version)}
	next := after + 1
	for _, f := range s.commits {
		if f.version != next {
			return nil, gapError(after, next, f.version)
		}
		next++
	}
	if next != version+1 {
		return nil, gapError(after, next, version+1)
	}
	s.tail = planTail(s.commits, files)
	for _, f := range files {
		if f.kind == checksumFile && f.version == version {
			s.checksum = &f
		}
	}
	return s, nil
}

func gapError(checkpoint, missing, next int64) error {
	if missing == checkpoint+1 {
		reason := fmt.Sprintf("the log starts at version %d: commit %d is missing and there is no checkpoint to start from", next, missing)
		if checkpoint >= 0 {
			reason = fmt.Sprintf("commit %d, the first after the checkpoint of version %d, is missing", missing, checkpoint)
		}
		return &CorruptError{ErrorCode: "DELTA_TRUNCATED_TRANSACTION_LOG", File: CommitKey(missing), Reason: reason}
	}
	return &CorruptError{ErrorCode: "DELTA_VERSIONS_NOT_CONTIGUOUS", File: CommitKey(missing),
		Reason: fmt.Sprintf("the log has a hole: commit %d is missing", missing)}
}

// earliestRebuildable is the smallest version a snapshot can be made of: 0 if that
// commit is there, else the oldest complete checkpoint; -1 if there is none.
func earliestRebuildable(files []logFile) int64 {
	for _, f := range files {
		if f.kind == commitFile && f.version == 0 {
			return 0
		}
	}
	sets := checkpointsUpTo(files, 1<<62)
	if len(sets) == 0 {
		return -1
	}
	return sets[len(sets)-1].version
}
