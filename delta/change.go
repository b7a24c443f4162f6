package delta

import (
	"context"
	"errors"

	deltalog "github.com/sluice-data/sluice/log"
)

// Change is row changes that were decided on one version and staged.
type Change struct {
	Staged *Staged
	// Config is the table that the same commit makes (see [StageOptions.Config]); nil
	// when it stays as it is.
	Config *deltalog.TableConfig
	// Read records what the decision stands on.
	Read func(*deltalog.Transaction)
	// Rows, if set, lets the change stand although winners of a lost race touched the
	// same files, where the table writes deletion vectors. The decision on a row must
	// depend on nothing of the table but that row, Rows.Used aside.
	Rows *RowReads
	// Operation, Parameters and Metrics go into the history.
	Operation           string
	Parameters, Metrics map[string]string
}

// Change commits row changes: decide makes them for a version, and again for a newer
// one after a lost race that matters. Without changes (nil, or nothing staged) nothing
// is committed. What lost is deleted.
func (t *Table) Change(ctx context.Context, o DMLOptions, decide func(ctx context.Context, snap *deltalog.Snapshot) (*Change, error)) (Result, error) {
	return t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if res, done := t.recorded(snap, o.Txn); done {
			return res, nil
		}
		c, err := decide(ctx, snap)
		if err != nil || c == nil {
			return nothing(snap), err
		}
		if c.Staged.Empty() {
			return nothing(snap), nil
		}
		tx := t.log.Begin(snap)
		c.Read(tx)
		cfg := snap.TableConfig
		if c.Config != nil {
			cfg = c.Config
			if c.Config.Metadata != snap.Metadata {
				tx.SetMetadata(c.Config.Metadata)
			}
			if c.Config.Protocol != snap.Protocol {
				tx.SetProtocol(c.Config.Protocol)
			}
		}
		res, err := t.finish(ctx, tx, c.Staged, WriteOptions{Txn: o.Txn, UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
			Operation: c.Operation, Parameters: c.Parameters, Metrics: c.Metrics, NotBlind: true, Isolation: o.Isolation,
			RowLevel: t.rowLevel(cfg, c.Staged, c.Rows, tx),
		})
		if err != nil && !unknownOutcome(err) {
			err = errors.Join(err, c.Staged.Discard(ctx))
		}
		return res, err
	})
}

// MayChange refuses what the table forbids before a file is written; removes is
// whether rows that are there may change or go.
func (t *Table) MayChange(snap *deltalog.Snapshot, removes bool) error {
	return t.mayChange(snap, removes)
}
