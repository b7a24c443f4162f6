package delta

import (
	"context"

	"github.com/sluice-data/sluice/cdf"
)

// Changes opens a range of the change feed, up to the newest version unless the
// options end it before. The range is checked whole; its rows are read by
// [cdf.Feed.Rows]. Errors are those of [cdf.Open].
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
