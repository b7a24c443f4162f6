package deltalog

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Replay folds the file actions of a log into live files and tombstones, keyed by
// (decoded path, dvId). It walks from the newest commit to the
// oldest and then the checkpoint: the first action seen for a key decides
// . Inside one version an add decides before a remove of the same key, so
// that the order of lines does not matter.

// fileState is the result of a replay.
type fileState struct {
	live map[fileKey]*Add
	dead map[fileKey]*Remove
	// sorted are the live files in order of keys.
	sorted []*Add
	keys   []fileKey
}

// lazyFiles loads the file state once; sem is a lock that can be waited for with a
// context.
type lazyFiles struct {
	sem   chan struct{}
	state *fileState
}

func newLazyFiles() lazyFiles { return lazyFiles{sem: make(chan struct{}, 1)} }

// state is the file state of s, loaded on first use.
func (s *Snapshot) state(ctx context.Context) (*fileState, error) {
	select {
	case s.files.sem <- struct{}{}:
		defer func() { <-s.files.sem }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	st := s.files.state
	if st == nil {
		var err error
		if st, err = s.replay(ctx); err != nil {
			if st, err = s.replayOlder(ctx, err); err != nil {
				return nil, err
			}
		}
		s.reportChecksum(ctx, st)
	}
	if st.sorted == nil {
		st.sort()
	}
	s.files.state = st
	return st, nil
}

// replayOlder replays from an older checkpoint, or from version 0, where that of s is
// damaged; cause is the error of the replay.
func (s *Snapshot) replayOlder(ctx context.Context, cause error) (*fileState, error) {
	if s.checkpoint == nil || !errors.Is(cause, errUnusable) {
		return nil, cause
	}
	older, err := s.log.insteadOf(ctx, s)
	if err != nil {
		return nil, cause
	}
	st, err := older.state(ctx)
	if err != nil {
		return nil, cause
	}
	s.log.opts.Logger.Warn("a checkpoint cannot be used; the files of the version were found from older files of the log", "version", s.Version, "error", cause)
	return st, nil
}

func (s *Snapshot) replay(ctx context.Context) (*fileState, error) {
	st := &fileState{live: map[fileKey]*Add{}, dead: map[fileKey]*Remove{}}
	seen := func(k fileKey) bool {
		if _, ok := st.live[k]; ok {
			return true
		}
		_, ok := st.dead[k]
		return ok
	}
	add := func(file string, a *Add) error {
		k, err := keyOf(a.Path, a.DeletionVector)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: file, Reason: "add", Cause: err}
		}
		if !seen(k) {
			st.live[k] = a
		}
		return nil
	}
	remove := func(file string, r *Remove) error {
		k, err := keyOf(r.Path, r.DeletionVector)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: file, Reason: "remove", Cause: err}
		}
		if !seen(k) {
			st.dead[k] = r
		}
		return nil
	}
	for i := len(s.tail) - 1; i >= 0; i-- {
		c := s.tail[i]
		for _, a := range c.Adds {
			if err := add(CommitKey(c.Version), a); err != nil {
				return nil, err
			}
		}
		for _, r := range c.Removes {
			if err := remove(CommitKey(c.Version), r); err != nil {
				return nil, err
			}
		}
	}
	if s.checkpoint != nil {
		err := s.checkpoint.fileActions(ctx, s.TableConfig, func(file string, a *Add, r *Remove) error {
			if a != nil {
				return add(file, a)
			}
			return remove(file, r)
		})
		if err != nil {
			return nil, err
		}
	}
	return st, nil
}

// fold is st with the file actions of a newer commit, forward in time.
func (st *fileState) fold(c *Commit) error {
	for _, r := range c.Removes {
		k, err := keyOf(r.Path, r.DeletionVector)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(c.Version), Reason: "remove", Cause: err}
		}
		delete(st.live, k)
		st.dead[k] = r
	}
	for _, a := range c.Adds {
		k, err := keyOf(a.Path, a.DeletionVector)
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: CommitKey(c.Version), Reason: "add", Cause: err}
		}
		delete(st.dead, k)
		st.live[k] = a
	}
	return nil
}

func (st *fileState) clone() *fileState {
	out := &fileState{live: make(map[fileKey]*Add, len(st.live)), dead: make(map[fileKey]*Remove, len(st.dead))}
	for k, a := range st.live {
		out.live[k] = a
	}
	for k, r := range st.dead {
		out.dead[k] = r
	}
	return out
}

func (st *fileState) sort() {
	st.keys = make([]fileKey, 0, len(st.live))
	for k := range st.live {
		st.keys = append(st.keys, k)
	}
	slices.SortFunc(st.keys, func(a, b fileKey) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return strings.Compare(a.dv, b.dv)
	})
	st.sorted = make([]*Add, len(st.keys))
	for i, k := range st.keys {
		st.sorted[i] = st.live[k]
	}
}

// reportChecksum logs when a listed checksum and the replay disagree. Reading
// goes on with the replay; [Snapshot.VerifyChecksum] is for those who must know.
func (s *Snapshot) reportChecksum(ctx context.Context, st *fileState) {
	if s.checksum == nil {
		return
	}
	c, err := s.Checksum(ctx)
	if err == nil && c != nil {
		err = s.compareChecksum(c, st)
	}
	if err != nil {
		s.log.opts.Logger.Warn("version checksum", "version", s.Version, "error", err)
	}
}
