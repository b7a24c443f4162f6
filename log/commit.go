package deltalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-data/sluice/storage"
)

const (
	defaultAttempts = 1000
	backoffBase     = 4 * time.Millisecond
	backoffMax      = 500 * time.Millisecond
	// readBackTries bounds how often an unknown outcome is looked at; readBackTime
	// how long that may take once the caller's context is done.
	readBackTries = 6
	readBackTime  = 10 * time.Second
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Commit writes the staged actions as the next version. It tries version after
// version, put-if-absent, until it wins, a rule of the conflict checks fails, the
// attempts are used up or ctx ends; every commit that was faster is checked in
// order before the next try (W-125).
//
// Errors, all before anything is written unless said otherwise: [ErrUnsupported]
// (the table cannot be written), [ErrInvalid] (the actions break a rule),
// *[ConflictError], *[UnknownOutcomeError] (something may have been written), errors
// of the store.
func (t *Transaction) Commit(ctx context.Context, opts CommitOptions) (CommitResult, error) {
	c, done, err := t.prepare(ctx, opts)
	if err != nil || done {
		return CommitResult{Version: c.version - 1, AlreadyDone: done}, err
	}
	for {
		won, err := c.attempt(ctx)
		if err != nil {
			return CommitResult{Version: c.version, TxnID: c.info.TxnID, Attempts: c.attempts}, err
		}
		if won {
			return c.finish(ctx), nil
		}
		won, err = c.afterLoss(ctx)
		if err != nil {
			return CommitResult{Version: c.version, TxnID: c.info.TxnID, Attempts: c.attempts}, err
		}
		if won {
			return c.finish(ctx), nil
		}
	}
}

// committer is one Commit call.
type committer struct {
	t    *Transaction
	log  *Log
	opts CommitOptions
	info *commitInfoWire
	// level and blind are derived from the actions (C-02, C-03).
	level IsolationLevel
	blind bool
	// config is that of the table after the winners seen so far; after is config with
	// our own protocol and metadata.
	config, after *TableConfig
	// txns are the application versions that winners recorded.
	txns map[string]int64
	// lastTime is the time of the newest commit known, stamp the in-commit timestamp of
	// the last attempt, both ms since 1970.
	lastTime, stamp int64
	// rowDomain is the row-tracking domain of the newest commit known, nil if none.
	rowDomain *DomainMetadata
	// rows collects what RowLevel is asked about, nil without it.
	rows *rowCollector
	// final is what the last attempt wrote: the staged actions with what belongs to
	// the attempt (row ids, enablement properties).
	final *Actions
	// version is the one that is tried next.
	version  int64
	attempts int
	winners  int
}

// prepare validates everything that can be known before the first attempt.
func (t *Transaction) prepare(ctx context.Context, opts CommitOptions) (c *committer, done bool, err error) {
	c = &committer{t: t, log: t.log, opts: opts, txns: map[string]int64{}}
	if t.used {
		return c, false, invalid("DELTA_INVALID_COMMIT", "", "the transaction was committed before")
	}
	t.used = true
	if t.snap != nil {
		c.version, c.config = t.snap.Version+1, t.snap.TableConfig
		if err := c.config.Require(OpWrite); err != nil {
			return c, false, err
		}
	}
	if opts.Operation == "" {
		return c, false, &InvalidError{ErrorCode: "DELTA_INVALID_COMMIT", Rule: "W-204", Reason: "a commit needs an operation name"}
	}
	switch opts.Isolation {
	case "", Serializable, WriteSerializable, SnapshotIsolation:
	default:
		return c, false, &InvalidError{ErrorCode: "DELTA_INVALID_ISOLATION_LEVEL", Rule: "C-01", Reason: fmt.Sprintf("isolation level %q", opts.Isolation)}
	}
	if done, err := t.alreadyDone(); done || err != nil {
		return c, done, err
	}
	if c.after, err = c.afterConfig(); err != nil {
		return c, false, err
	}
	if err := c.after.Require(OpWrite); err != nil {
		return c, false, err
	}
	if err := c.validate(); err != nil {
		return c, false, err
	}
	c.level, c.blind = t.level(opts), t.blind(opts)
	c.info = &commitInfoWire{
		Operation: opts.Operation, OperationParameters: opts.Parameters, OperationMetrics: opts.Metrics,
		IsolationLevel: string(c.level), IsBlindAppend: c.blind, UserMetadata: opts.UserMetadata, Tags: opts.Tags,
		EngineInfo: t.log.opts.EngineInfo, TxnID: t.log.NewID(),
	}
	if c.info.OperationParameters == nil {
		c.info.OperationParameters = map[string]string{}
	}
	c.tag()
	if t.snap != nil {
		c.rowDomain, _ = t.snap.Domain(rowTrackingDomain)
	}
	if err := c.startTimes(ctx); err != nil {
		return c, false, err
	}
	// Once before the first attempt, so that a fault comes before files are counted on.
	return c, false, c.finalize()
}

// finalize makes what the next attempt writes out of the staged actions.
func (c *committer) finalize() error {
	final := c.t.actions
	c.stampTime(&final)
	if err := c.assignRowIDs(&final); err != nil {
		return err
	}
	c.final = &final
	return nil
}

// afterConfig is the table as it would be after our commit on top of c.config.
func (c *committer) afterConfig() (*TableConfig, error) {
	a := &c.t.actions
	if a.Protocol == nil && a.Metadata == nil && c.config != nil {
		return c.config, nil
	}
	p, m := a.Protocol, a.Metadata
	if c.config != nil {
		if p == nil {
			p = c.config.Protocol
		}
		if m == nil {
			m = c.config.Metadata
		}
	}
	if p == nil || m == nil {
		return nil, &InvalidError{ErrorCode: "DELTA_INVALID_COMMIT", Rule: "W-101", Reason: "the first commit of a table needs one protocol and one metaData"}
	}
	cfg, err := NewTableConfig(p, m)
	if errors.Is(err, ErrCorrupt) {
		// Our own actions are at fault, not the log.
		return nil, &InvalidError{ErrorCode: codeOf(err), Reason: "staged metadata", Cause: err}
	}
	return cfg, err
}

func codeOf(err error) string {
	var c Coder
	if errors.As(err, &c) {
		return c.Code()
	}
	return ""
}

// attempt tries to create c.version. It answers won, or lost with a nil error.
func (c *committer) attempt(ctx context.Context) (won bool, err error) {
	c.attempts++
	if err := c.finalize(); err != nil {
		return false, err
	}
	if c.version > 0 {
		read := c.t.snap.Version
		c.info.ReadVersion = &read
	}
	data, err := encodeCommit(c.info, c.final)
	if err != nil {
		return false, err
	}
	key := CommitKey(c.version)
	err = c.log.store.Create(ctx, key, data)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, storage.ErrExists):
		// The winners are read next, and one of them may be this very commit.
		return false, nil
	}
	return c.resolve(ctx, key, data, err)
}

// resolve finds out what became of a Create that failed: it reads the version back
// and compares txnId (W-124). Where nothing is there and the fault may pass, the
// same bytes are tried again: should the first request arrive late, one of the two
// finds the other, and both are ours.
func (c *committer) resolve(ctx context.Context, key string, data []byte, cause error) (won bool, err error) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
	defer cancel()
	// open: some answer left open whether the commit was written.
	open := errors.Is(cause, storage.ErrAmbiguous)
	for try := 0; try < readBackTries; try++ {
		if try > 0 {
			if err := c.log.opts.Sleep(detached, c.backoff(try)); err != nil {
				break
			}
		}
		got, err := c.log.ReadCommit(detached, c.version)
		switch {
		case err == nil:
			return got.Info != nil && got.Info.TxnID == c.info.TxnID, nil
		case errors.Is(err, ErrCorrupt):
			// What stands there is not ours: a commit is written whole or not at all.
			return false, nil
		case !errors.Is(err, ErrNotFound):
			if !passing(err) && !open {
				return false, fmt.Errorf("create %s: %w", key, errors.Join(cause, err))
			}
			continue
		case ctx.Err() != nil || !passing(cause):
			if open {
				continue
			}
			return false, fmt.Errorf("create %s: %w", key, cause)
		}
		switch err = c.log.store.Create(ctx, key, data); {
		case err == nil:
			return true, nil
		case !errors.Is(err, storage.ErrExists):
			open = open || errors.Is(err, storage.ErrAmbiguous)
			cause = err
		}
	}
	if !open {
		return false, fmt.Errorf("create %s: %w", key, cause)
	}
	return false, &UnknownOutcomeError{Version: c.version, TxnID: c.info.TxnID, Cause: fmt.Errorf("create %s: %w", key, cause)}
}

// passing faults are worth another try.
func passing(err error) bool {
	return errors.Is(err, storage.ErrAmbiguous) || errors.Is(err, storage.ErrTransient)
}

// afterLoss reads the winners since the last try, checks them and moves on to the
// version after them. won is true when one of them turns out to be this commit.
func (c *committer) afterLoss(ctx context.Context) (won bool, err error) {
	// Wait before the winners are read, not after: the next try follows at once on
	// what was read, or it would be stale among busy writers.
	if err := c.log.opts.Sleep(ctx, c.backoff(c.attempts)); err != nil {
		return false, err
	}
	winners, err := c.readWinners(ctx)
	if err != nil {
		return false, err
	}
	for _, w := range winners {
		if w.Info != nil && w.Info.TxnID == c.info.TxnID {
			c.version = w.Version
			return true, nil
		}
	}
	c.winners += len(winners)
	last := winners[len(winners)-1]
	limit := c.opts.MaxAttempts
	if limit <= 0 {
		limit = defaultAttempts
	}
	if c.opts.NoRebase || notRebased[c.opts.Operation] {
		return false, conflict(ConcurrentWrite, "C-27", winners[0], "")
	}
	c.rows = nil
	if c.opts.RowLevel != nil {
		c.rows = newRowCollector(&c.t.actions)
	}
	for _, w := range winners {
		if err := c.check(w); err != nil {
			return false, err
		}
	}
	if c.attempts >= limit {
		return false, conflict(ConcurrentWrite, "W-125", last, "")
	}
	if err := c.reconcile(ctx, winners); err != nil {
		return false, err
	}
	// After a rebase everything that depends on the table's state is held again (C-36).
	if c.after, err = c.afterConfig(); err != nil {
		return false, err
	}
	if err := c.after.Require(OpWrite); err != nil {
		return false, err
	}
	if err := c.validate(); err != nil {
		return false, err
	}
	for _, txn := range c.t.actions.Txns {
		if v, ok := c.txns[txn.AppID]; ok && txn.Version <= v {
			return false, conflict(ConcurrentTransaction, "C-22", last, txn.AppID)
		}
	}
	c.version = last.Version + 1
	return false, nil
}

// readWinners reads the commits from c.version to the newest; there is at least one.
func (c *committer) readWinners(ctx context.Context) ([]*Commit, error) {
	files, err := c.log.list(ctx, c.version, c.version, c.version)
	if err != nil {
		return nil, err
	}
	var winners []*Commit
	next := c.version
	for _, f := range commitFiles(files, c.version-1, latest) {
		if f.version != next {
			break
		}
		w, err := c.log.readCommitFile(ctx, f)
		if err != nil {
			return nil, err
		}
		winners = append(winners, w)
		next++
	}
	if len(winners) == 0 {
		return nil, &CorruptError{ErrorCode: "DELTA_VERSIONS_NOT_CONTIGUOUS", File: CommitKey(c.version),
			Reason: "the store says that the commit exists but does not list it"}
	}
	return winners, nil
}

// backoff is a random wait that grows with the number of lost races.
func (c *committer) backoff(n int) time.Duration {
	d := min(backoffBase<<min(n, 10), backoffMax)
	return time.Duration(c.log.opts.Rand() * float64(d))
}

// finish is what happens after the commit is durable: the checkpoint, if one is due
// (W-705, W-706).
func (c *committer) finish(ctx context.Context) CommitResult {
	at := c.info.Timestamp
	if c.info.InCommitTimestamp != nil {
		at = *c.info.InCommitTimestamp
	}
	r := CommitResult{Version: c.version, Time: time.UnixMilli(at).UTC(), TxnID: c.info.TxnID, Attempts: c.attempts, Winners: c.winners}
	if !c.log.opts.NoChecksums {
		c.writeChecksum(ctx)
	}
	if c.log.opts.NoCheckpoints || c.version == 0 || c.version%c.after.Props.CheckpointInterval != 0 {
		return r
	}
	s, err := c.checkpoint(ctx)
	if err != nil {
		r.CheckpointErr = err
		c.log.opts.Logger.Warn("checkpoint failed", "version", c.version, "error", err)
		return r
	}
	r.Checkpoint = true
	if s.Props.EnableExpiredLogCleanup {
		// Like the checkpoint itself it never fails the commit (W-722).
		cleaned, err := c.log.CleanUp(ctx, s, CleanUpOptions{})
		if r.LogFilesDeleted = len(cleaned.Deleted); err != nil {
			c.log.opts.Logger.Warn("log clean-up failed", "version", c.version, "error", err)
		}
	}
	return r
}

func (c *committer) checkpoint(ctx context.Context) (*Snapshot, error) {
	var s *Snapshot
	var err error
	if c.t.snap != nil {
		s, err = c.log.update(ctx, c.t.snap, c.version)
	} else {
		s, err = c.log.At(ctx, c.version)
	}
	if err != nil {
		return nil, fmt.Errorf("read version %d: %w", c.version, err)
	}
	return s, c.log.WriteCheckpoint(ctx, s)
}
