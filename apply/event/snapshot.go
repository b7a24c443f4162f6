package event

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

// Snapshots picks the snapshots of a source one after the other (auto-cdc 2.8).
type Snapshots interface {
	// Next is the snapshot that follows the last committed version (nil before the
	// first commit); nil if there is none now.
	Next(ctx context.Context, last *SnapshotVersion) (*Snapshot, error)
	// Held are the snapshots that the source shows now, by version in ascending order,
	// without regard to what was committed; typed as last where that is not nil. Nil
	// where the source keeps no list: then no version can come late unseen.
	Held(ctx context.Context, last *SnapshotVersion) ([]*Snapshot, error)
	Close() error
}

// SnapshotVersion is what orders the snapshots of a target: one value.
type SnapshotVersion struct {
	// Column is the name of the version (of the query's column, of the pattern's
	// placeholder); a snapshot flow keeps it.
	Column string
	Type   schema.Type
	Value  arrow.Array // of length 1
}

// Snapshot is the whole content of a table at one version.
type Snapshot struct {
	Name string // for messages: path, or table and version
	// Version is nil without WITH VERSION: the update's start time counts.
	Version *SnapshotVersion
	// Rows are batches whose Columns and Rows alone count: every row is one of the
	// snapshot. The order does not matter.
	Rows iter.Seq2[*Batch, error]
}
