package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/sluice-data/sluice/storage"
)

// Timeline gives the times of the commits that the log still holds, up to the
// version of its snapshot. Times are strictly increasing: without in-commit
// timestamps they are file times, where one that is not later than its
// predecessor becomes predecessor + 1 ms; with them, commitInfo decides
// from the enablement version on. Not safe for concurrent use.
type Timeline struct {
	log     *Log
	commits []logFile
	millis  []int64
	// ictFrom is the first version with in-commit timestamps; those of read commits
	// are known.
	ictFrom int64
	known   map[int64]int64
	// rebuildable is the first version a snapshot can be made of.
	rebuildable int64
}

// Timeline lists the commits up to s.Version.
func (s *Snapshot) Timeline(ctx context.Context) (*Timeline, error) {
	files, err := s.log.list(ctx, 0, -1, s.Version)
	if err != nil {
		return nil, err
	}
	return s.timelineOf(files)
}

// timelineOf is the timeline of a listing.
func (s *Snapshot) timelineOf(files []logFile) (*Timeline, error) {
	t := &Timeline{log: s.log, ictFrom: latest, known: map[int64]int64{}, rebuildable: earliestRebuildable(files)}
	t.commits = commitFiles(files, -1, s.Version)
	// Only the unbroken run that ends at s.Version counts.
	for i := len(t.commits) - 1; i > 0; i-- {
		if t.commits[i-1].version != t.commits[i].version-1 {
			t.commits = t.commits[i:]
			break
		}
	}
	if len(t.commits) == 0 {
		return nil, &NotFoundError{ErrorCode: "DELTA_NO_COMMITS_FOUND", Version: -1, Reason: "the log holds no commit file, so commits have no times"}
	}
	for i, f := range t.commits {
		ms := f.modTime
		if i > 0 && ms <= t.millis[i-1] {
			ms = t.millis[i-1] + 1
		}
		t.millis = append(t.millis, ms)
	}
	if s.InCommitTimestamps() {
		t.ictFrom = 0
		if v := s.Props.ICTEnablementVersion; v != nil {
			t.ictFrom = *v
		}
	}
	return t, nil
}

// First is the oldest version whose commit the log holds.
func (t *Timeline) First() int64 { return t.commits[0].version }

// Last is the version of the snapshot.
func (t *Timeline) Last() int64 { return t.commits[len(t.commits)-1].version }

// Time is the time of a version, in UTC with millisecond precision.
func (t *Timeline) Time(ctx context.Context, version int64) (time.Time, error) {
	if version < t.First() || version > t.Last() {
		return time.Time{}, versionNotFound(version, t.First(), t.Last())
	}
	ms, err := t.at(ctx, int(version-t.First()))
	return time.UnixMilli(ms).UTC(), err
}

func (t *Timeline) at(ctx context.Context, i int) (int64, error) {
	f := t.commits[i]
	if f.version < t.ictFrom {
		return t.millis[i], nil
	}
	if ms, ok := t.known[f.version]; ok {
		return ms, nil
	}
	c, err := t.log.readCommitFile(ctx, f)
	if err != nil {
		return 0, err
	}
	if c.Info == nil || c.Info.InCommitTimestamp == nil {
		return 0, &CorruptError{ErrorCode: "DELTA_MISSING_COMMIT_TIMESTAMP", File: f.key, Reason: "commitInfo.inCommitTimestamp is missing though the table has in-commit timestamps"}
	}
	t.known[f.version] = *c.Info.InCommitTimestamp
	return *c.Info.InCommitTimestamp, nil
}

// search finds the first index whose time is after at, or at or after it.
func (t *Timeline) search(ctx context.Context, at time.Time, orEqual bool) (int, error) {
	var fail error
	i := sort.Search(len(t.commits), func(i int) bool {
		ms, err := t.at(ctx, i)
		if err != nil {
			fail = err
			return true
		}
		this := time.UnixMilli(ms)
		return this.After(at) || orEqual && this.Equal(at)
	})
	return i, fail
}

// AtOrBefore is the largest version whose time is not after at; ok is false when
// at is before the first.
func (t *Timeline) AtOrBefore(ctx context.Context, at time.Time) (version int64, ok bool, err error) {
	i, err := t.search(ctx, at, false)
	if err != nil || i == 0 {
		return 0, false, err
	}
	return t.commits[i-1].version, true, nil
}

// AtOrAfter is the smallest version whose time is not before at; ok is false when
// at is after the last.
func (t *Timeline) AtOrAfter(ctx context.Context, at time.Time) (version int64, ok bool, err error) {
	i, err := t.search(ctx, at, true)
	if err != nil || i == len(t.commits) {
		return 0, false, err
	}
	return t.commits[i].version, true, nil
}

// AtTimeOptions of [Log.AtTime].
type AtTimeOptions struct {
	// LatestIfAfter takes the newest version for times after it, instead of
	// DELTA_TIMESTAMP_GREATER_THAN_COMMIT.
	LatestIfAfter bool
}

// AtTime is the snapshot of the largest version whose time is not after at.
func (l *Log) AtTime(ctx context.Context, at time.Time, opts AtTimeOptions) (*Snapshot, error) {
	s, err := l.Latest(ctx)
	if err != nil {
		return nil, err
	}
	t, err := s.Timeline(ctx)
	if err != nil {
		return nil, err
	}
	v, ok, err := t.AtOrBefore(ctx, at)
	if err != nil {
		return nil, err
	}
	if !ok || v < t.rebuildable {
		first := max(t.rebuildable, t.First())
		when, err := t.Time(ctx, first)
		if err != nil {
			return nil, err
		}
		return nil, &NotFoundError{ErrorCode: "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", Version: -1,
			Reason: fmt.Sprintf("no version at %s: the oldest available is %d of %s", stamp(at), first, stamp(when))}
	}
	if v == s.Version {
		when, err := t.Time(ctx, v)
		if err != nil {
			return nil, err
		}
		if at.After(when) && !opts.LatestIfAfter {
			return nil, &NotFoundError{ErrorCode: "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", Version: -1,
				Reason: fmt.Sprintf("%s is after the newest version %d of %s", stamp(at), v, stamp(when))}
		}
		return s, nil
	}
	return l.At(ctx, v)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// HistoryEntry is one version of a table.
type HistoryEntry struct {
	Version int64
	Time    time.Time
	// Info is nil when the commit has no commitInfo.
	Info *CommitInfo
}

// History lists the commits that the log holds, newest first, at most limit of
// them (0: all). Of each commit only commitInfo is decoded.
func (s *Snapshot) History(ctx context.Context, limit int) ([]HistoryEntry, error) {
	t, err := s.Timeline(ctx)
	if err != nil {
		return nil, err
	}
	var out []HistoryEntry
	for i := len(t.commits) - 1; i >= 0 && (limit <= 0 || len(out) < limit); i-- {
		f := t.commits[i]
		info, err := s.log.readCommitInfo(ctx, f)
		if err != nil {
			return nil, err
		}
		if info != nil && info.InCommitTimestamp != nil {
			t.known[f.version] = *info.InCommitTimestamp
		}
		ms, err := t.at(ctx, i)
		if err != nil {
			return nil, err
		}
		out = append(out, HistoryEntry{Version: f.version, Time: time.UnixMilli(ms).UTC(), Info: info})
	}
	return out, nil
}

func (l *Log) readCommitInfo(ctx context.Context, f logFile) (*CommitInfo, error) {
	data, err := l.readText(ctx, f.key, maxTextFile)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, versionNotFound(f.version, 0, -1)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.key, err)
	}
	var info *CommitInfo
	n := 0
	for line := range splitLines(data) {
		if n++; len(line) == 0 {
			continue
		}
		var l struct {
			CommitInfo json.RawMessage `json:"commitInfo"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, &CorruptError{ErrorCode: codeCorrupt, File: f.key, Line: n, Reason: "unparseable action", Cause: plainJSON(err)}
		}
		if isSet(l.CommitInfo) {
			info = parseCommitInfo(l.CommitInfo)
			break
		}
	}
	return info, nil
}
