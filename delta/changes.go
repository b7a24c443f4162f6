package delta

import (
	"context"
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

// DefaultPoll is how often [Table.Follow] looks for new versions.
const DefaultPoll = time.Second

// Follow streams the change feed from the start of o's range on and then waits for
// new versions, looking every poll (0: [DefaultPoll]), until the consumer leaves or
// ctx ends, which is the last error it yields. A start after the newest version waits
// for it. The end of o's range is not used. Rows come version by version; the
// _commit_version of the last complete batch plus one is where to go on later.
func (t *Table) Follow(ctx context.Context, o cdf.Options, poll time.Duration) iter.Seq2[arrow.RecordBatch, error] {
	if poll <= 0 {
		poll = DefaultPoll
	}
	o.ToVersion, o.ToTime, o.OutOfRange = nil, nil, true
	return func(yield func(arrow.RecordBatch, error) bool) {
		for {
			feed, err := t.Changes(ctx, o)
			if err != nil {
				yield(nil, err)
				return
			}
			if !feed.Empty {
				for b, err := range feed.Rows(ctx) {
					if !yield(b, err) || err != nil {
						return
					}
				}
				next := feed.To + 1
				o.FromVersion, o.FromTime = &next, nil
			}
			if err := t.opts.Sleep(ctx, poll); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
