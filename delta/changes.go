package delta

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/cdf"
)

// Changes opens a range of the change feed; see package cdf for ranges and errors.
// The table's time zone counts unless o has one.
func (t *Table) Changes(ctx context.Context, o cdf.Options) (*cdf.Feed, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if o.Zone == nil {
		o.Zone = t.opts.TimeZone
	}
	return cdf.OpenAt(ctx, snap, o)
}

// Stream opens a stream of the table's changes or appended rows, from a start or
// from the position of an earlier stream; see package cdf. The table's time zone
// counts unless o has one.
func (t *Table) Stream(ctx context.Context, o cdf.StreamOptions) (*cdf.Stream, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if o.Zone == nil {
		o.Zone = t.opts.TimeZone
	}
	return cdf.OpenStreamAt(ctx, snap, o)
}

// DefaultPoll is how often a stream that waits looks for new versions.
const DefaultPoll = time.Second

// Wait is the wait of [cdf.Stream.Batches]: it pauses for poll (0: [DefaultPoll]), so
// that the stream follows the table until ctx ends.
func (t *Table) Wait(poll time.Duration) func(ctx context.Context) error {
	if poll <= 0 {
		poll = DefaultPoll
	}
	return func(ctx context.Context) error { return t.opts.Sleep(ctx, poll) }
}

// Follow streams the change feed from the start of o's range on and then waits for
// new versions, looking every poll (0: [DefaultPoll]), until the consumer leaves or
// ctx ends, which is the last error it yields. A start after the newest version waits
// for it. The end of o's range is not used. Rows come version by version. When the
// schema of the table changes, so does that of the batches; [Table.Stream] stops
// there instead, and can be resumed.
func (t *Table) Follow(ctx context.Context, o cdf.Options, poll time.Duration) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if o.FromVersion == nil && o.FromTime == nil {
			_, err := t.Changes(ctx, o) // says that a start is missing
			yield(nil, err)
			return
		}
		so := cdf.StreamOptions{FromVersion: o.FromVersion, FromTime: o.FromTime, OutOfRange: true,
			Columns: o.Columns, Where: o.Where, Zone: o.Zone, BatchRows: o.BatchRows, OnMissing: o.OnMissing}
		for {
			s, err := t.Stream(ctx, so)
			if err != nil {
				yield(nil, err)
				return
			}
			var changed *cdf.SchemaChangedError
			for b, err := range s.Batches(ctx, t.Wait(poll)) {
				if errors.As(err, &changed) {
					break
				}
				if err != nil {
					yield(nil, err)
					return
				}
				for rows, err := range b.Rows(ctx) {
					if !yield(rows, err) || err != nil {
						return
					}
				}
			}
			if changed == nil {
				return
			}
			so.Position = &changed.At
		}
	}
}
