package deltalog

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"
)

// In-commit timestamps (1.12): commitInfo.inCommitTimestamp is the time of a commit,
// strictly larger than that of its predecessor, whatever the clocks of the writers say.

const (
	ictVersionKey   = "delta.inCommitTimestampEnablementVersion"
	ictTimestampKey = "delta.inCommitTimestampEnablementTimestamp"
)

// Time is when the snapshot's version was committed, UTC with ms precision: the
// in-commit timestamp where the table has them, else the time of the commit file,
// which is not adjusted to its predecessors as [Timeline] does.
func (s *Snapshot) Time(ctx context.Context) (time.Time, error) {
	ms, err := s.commitMillis(ctx)
	return time.UnixMilli(ms).UTC(), err
}

func (s *Snapshot) commitMillis(ctx context.Context) (int64, error) {
	ict := s.InCommitTimestamps()
	if s.info == nil && (ict || s.fileTime.IsZero()) {
		// The snapshot comes from a checkpoint of its version; the commit beside it is
		// kept.
		c, err := s.log.ReadCommit(ctx, s.Version)
		if err != nil {
			return 0, fmt.Errorf("time of version %d: %w", s.Version, err)
		}
		return commitTime(s.TableConfig, c)
	}
	return commitTime(s.TableConfig, &Commit{Version: s.Version, Info: s.info, FileTime: s.fileTime})
}

// commitTime is the time of a commit to a table that has config cfg after it.
func commitTime(cfg *TableConfig, c *Commit) (int64, error) {
	if !cfg.InCommitTimestamps() {
		return c.FileTime.UnixMilli(), nil
	}
	if c.Info == nil || c.Info.InCommitTimestamp == nil {
		return 0, &CorruptError{ErrorCode: "DELTA_MISSING_COMMIT_TIMESTAMP", File: CommitKey(c.Version),
			Reason: "commitInfo.inCommitTimestamp is missing though the table has in-commit timestamps"}
	}
	if ms := *c.Info.InCommitTimestamp; ms < 0 || ms > maxMillis {
		return 0, &CorruptError{ErrorCode: "DELTA_INVALID_COMMIT_TIMESTAMP", File: CommitKey(c.Version), Reason: fmt.Sprintf("commitInfo.inCommitTimestamp %d is no time", ms)}
	}
	return *c.Info.InCommitTimestamp, nil
}

// maxMillis is the end of the year 9999 in ms since 1970.
const maxMillis = 253402300799999

// startTimes finds the time that the first attempt must exceed (W-751).
func (c *committer) startTimes(ctx context.Context) error {
	c.lastTime = -1
	if c.t.snap == nil || !c.after.InCommitTimestamps() {
		return nil
	}
	ms, err := c.t.snap.commitMillis(ctx)
	if err != nil {
		return err
	}
	c.lastTime = ms
	return nil
}

// takeTime moves on to the time of a winner, whose config is already c.config.
func (c *committer) takeTime(w *Commit) error {
	if c.config == nil {
		return nil
	}
	ms, err := commitTime(c.config, w)
	if err != nil {
		return err
	}
	c.lastTime = max(c.lastTime, ms)
	return nil
}

// stampTime sets the times of this attempt and, in the commit that switches in-commit
// timestamps on, the pair of properties that says since when (W-751). final is what
// will be written.
func (c *committer) stampTime(final *Actions) {
	now := c.log.Now().UnixMilli()
	c.info.Timestamp, c.info.InCommitTimestamp = now, nil
	if !c.after.InCommitTimestamps() {
		return
	}
	// The value of an earlier attempt never goes down (max(value, winner + 1)).
	c.stamp = max(now, c.lastTime+1, c.stamp)
	ict := c.stamp
	c.info.InCommitTimestamp = &ict
	if final.Metadata == nil {
		return
	}
	m := *final.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	if c.config == nil {
		// Enabled since version 0: neither is set, also when the metadata is a copy.
		delete(m.Configuration, ictVersionKey)
		delete(m.Configuration, ictTimestampKey)
	} else if !c.config.InCommitTimestamps() {
		m.Configuration[ictVersionKey] = strconv.FormatInt(c.version, 10)
		m.Configuration[ictTimestampKey] = strconv.FormatInt(ict, 10)
	} else {
		for _, k := range []string{ictVersionKey, ictTimestampKey} {
			if v, ok := c.config.Metadata.Configuration[k]; ok {
				m.Configuration[k] = v
			}
		}
	}
	final.Metadata = &m
}

// checkICT: both enablement properties are there or none.
func checkICT(p *Properties) error {
	if (p.ICTEnablementVersion == nil) != (p.ICTEnablementTimestamp == nil) {
		return &CorruptError{ErrorCode: "DELTA_INVALID_COMMIT_TIMESTAMP",
			Reason: "only one of " + ictVersionKey + " and " + ictTimestampKey + " is set"}
	}
	return nil
}
