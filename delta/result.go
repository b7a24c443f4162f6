package delta

import (
	"context"
	"errors"
	"strconv"
	"time"

	deltalog "github.com/sluice-data/sluice/log"
)

// Metrics count what an operation did.
type Metrics struct {
	RowsInserted, RowsUpdated, RowsDeleted int64
	// RowsCopied were rewritten unchanged.
	RowsCopied int64

	FilesAdded, FilesRemoved, ChangeFiles int64
	BytesAdded, BytesRemoved, ChangeBytes int64

	// VectorsAdded are files with a new deletion vector, VectorsUpdated those of them
	// that had one before, VectorsRemoved deletion vectors that went. Such a file is
	// in FilesAdded and FilesRemoved only when it goes.
	VectorsAdded, VectorsUpdated, VectorsRemoved int64
}

// Result is what became of an operation.
type Result struct {
	// Version is the one committed, or the one that was read when Committed is false.
	Version int64
	// Committed is false when there was nothing to change.
	Committed bool
	// AlreadyDone: the application's txn was recorded before (W-853).
	AlreadyDone bool
	// Time is the commit's time.
	Time time.Time
	// Attempts counts how often the operation was done, above 1 after lost races.
	Attempts int
	Metrics  Metrics
}

// Txn is an application's progress mark that a write carries: a write whose
// version the table has recorded already is skipped (W-853).
type Txn struct {
	AppID   string
	Version int64
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// writeMetrics are the operationMetrics of Spark's WRITE.
func (m Metrics) write(overwrite bool) map[string]string {
	out := map[string]string{
		"numFiles": itoa(m.FilesAdded), "numOutputRows": itoa(m.RowsInserted + m.RowsCopied), "numOutputBytes": itoa(m.BytesAdded),
	}
	if overwrite {
		out["numRemovedFiles"], out["numRemovedBytes"] = itoa(m.FilesRemoved), itoa(m.BytesRemoved)
		if m.ChangeFiles > 0 {
			out["numAddedChangeFiles"] = itoa(m.ChangeFiles)
		}
		if m.RowsDeleted > 0 {
			out["numDeletedRows"], out["numCopiedRows"] = itoa(m.RowsDeleted), itoa(m.RowsCopied)
		}
	}
	return out
}

// rewriteMetrics are those of DELETE and UPDATE.
func (m Metrics) rewrite(operation string, took time.Duration) map[string]string {
	out := map[string]string{
		"numRemovedFiles": itoa(m.FilesRemoved), "numRemovedBytes": itoa(m.BytesRemoved),
		"numAddedFiles": itoa(m.FilesAdded), "numAddedBytes": itoa(m.BytesAdded),
		"numCopiedRows": itoa(m.RowsCopied), "numAddedChangeFiles": itoa(m.ChangeFiles),
		"numDeletionVectorsAdded": itoa(m.VectorsAdded), "numDeletionVectorsUpdated": itoa(m.VectorsUpdated), "numDeletionVectorsRemoved": itoa(m.VectorsRemoved),
		"executionTimeMs": itoa(took.Milliseconds()),
	}
	if operation == "DELETE" {
		out["numDeletedRows"] = itoa(m.RowsDeleted)
	} else {
		out["numUpdatedRows"] = itoa(m.RowsUpdated)
	}
	return out
}

// retryable reports whether an operation that failed this way can be done again on
// the newer version: any conflict but that of one application with itself.
func retryable(err error) bool {
	var c *deltalog.ConflictError
	return errors.As(err, &c) && c.Kind != deltalog.ConcurrentTransaction
}

// unknownOutcome reports whether the commit may have been written after all, so
// that none of its files may be deleted.
func unknownOutcome(err error) bool {
	var u *deltalog.UnknownOutcomeError
	return errors.As(err, &u)
}

// again runs op until it succeeds, fails for good, or attempts are used up.
func (t *Table) again(ctx context.Context, op func(snap *deltalog.Snapshot) (Result, error)) (Result, error) {
	for n := 1; ; n++ {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return Result{}, err
		}
		res, err := op(snap)
		res.Attempts = n
		if err == nil || !retryable(err) || n >= t.opts.Attempts {
			return res, err
		}
		t.opts.Logger.Debug("lost a race, doing it again", "attempt", n, "cause", err)
		if err := t.pause(ctx, n); err != nil {
			return res, err
		}
	}
}

// nothing is the result of an operation that changed no row.
func nothing(snap *deltalog.Snapshot) Result { return Result{Version: snap.Version} }
