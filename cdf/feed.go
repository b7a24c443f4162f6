package cdf

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// The columns that a feed has after those of the table.
const (
	ChangeTypeColumn      = "_change_type"      // STRING
	CommitVersionColumn   = "_commit_version"   // BIGINT
	CommitTimestampColumn = "_commit_timestamp" // TIMESTAMP
)

// ChangeType is what happened to a row.
type ChangeType string

// The change types. An update is two rows of one version.
const (
	Insert     ChangeType = "insert"
	Delete     ChangeType = "delete"
	UpdatePre  ChangeType = "update_preimage"
	UpdatePost ChangeType = "update_postimage"
)

// Options say which part of the feed is wanted.
type Options struct {
	Range
	// Columns are table columns in the wanted order; nil means all. The columns of
	// the feed follow them in any case.
	Columns []string
	// Where is a condition over the columns of the table and of the feed; "" is none.
	Where string
	// Zone is the zone of partition timestamps, and of timestamps in Where, that
	// name none. Default: UTC.
	Zone *time.Location
	// BatchRows bounds the rows of a batch; 0 is the reader's default.
	BatchRows int
	// OnMissing, if set, is told of each change that cannot be shown because a data,
	// change or deletion vector file is gone, and the feed goes on without it. Without
	// it such a file ends the feed with a [MissingError].
	OnMissing func(version int64, path string)
}

// Feed is a checked range of the change feed. It is immutable; its rows may be read
// any number of times.
type Feed struct {
	// From and To are the versions, both inclusive. To is From-1 if Empty.
	From, To int64
	// Empty is true when no version is in the range.
	Empty bool
	// Schema has the wanted columns, then _change_type, _commit_version and
	// _commit_timestamp.
	Schema *schema.Struct

	log    *deltalog.Log
	read   *deltalog.Snapshot // of the end version
	opts   Options
	reader *reader
	plan   *plan
}

// Open resolves and checks a range of the feed of a table. Errors are *[Error] with
// one of the codes above, those of the log (a version that is gone, an unsupported
// feature), or *expr errors of Where.
func Open(ctx context.Context, log *deltalog.Log, o Options) (*Feed, error) {
	latest, err := log.Latest(ctx)
	if err != nil {
		return nil, err
	}
	return OpenAt(ctx, latest, o)
}

// OpenAt is Open with a snapshot as the newest version.
func OpenAt(ctx context.Context, latest *deltalog.Snapshot, o Options) (*Feed, error) {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if err := latest.Require(deltalog.OpReadCDF); err != nil {
		return nil, err
	}
	f := &Feed{log: latest.Log(), read: latest, opts: o}
	var err error
	if f.From, f.To, f.Empty, err = o.resolve(ctx, latest); err != nil {
		return nil, err
	}
	if f.Empty {
		f.From, f.To = latest.Version+1, latest.Version
	} else if f.To < latest.Version {
		if f.read, err = f.log.At(ctx, f.To); err != nil {
			return nil, err
		}
		if err := f.read.Require(deltalog.OpReadCDF); err != nil {
			return nil, err
		}
	}
	if f.reader, err = newReader(f.log, f.read.Schema, readerOptions{
		columns: o.Columns, where: o.Where, zone: o.Zone, batchRows: o.BatchRows, feed: true, onMissing: o.OnMissing,
	}); err != nil {
		return nil, err
	}
	f.Schema = f.reader.schema
	if f.Empty {
		return f, nil
	}
	f.plan, err = newPlan(ctx, f)
	return f, err
}

var feedFields = []schema.Field{
	{Name: ChangeTypeColumn, Type: schema.String, Nullable: true},
	{Name: CommitVersionColumn, Type: schema.Long, Nullable: true},
	{Name: CommitTimestampColumn, Type: schema.Timestamp, Nullable: true},
}

// SchemaOf is the schema of the feed of a table: its columns, then those of the feed.
func SchemaOf(table *schema.Struct) *schema.Struct {
	return &schema.Struct{Fields: append(slices.Clone(table.Fields), feedFields...)}
}

// Rows streams the change rows, version by version. A batch holds rows of one
// version and is valid until the next iteration unless retained. An error ends the
// stream; it names the version and, where one is at fault, the file.
func (f *Feed) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if f.Empty {
			return
		}
		times, err := f.read.Timeline(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for c, err := range f.plan.commits(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			for b, err := range f.version(ctx, c, times) {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// version streams the change rows of one commit.
func (f *Feed) version(ctx context.Context, c *deltalog.Commit, times *deltalog.Timeline) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		pieces, err := changesOf(c, func(removed bool) (*datafile.Layout, error) { return f.plan.layout(c.Version, removed), nil })
		if err != nil {
			yield(nil, err)
			return
		}
		if len(pieces) == 0 {
			return
		}
		when, err := times.Time(ctx, c.Version)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, p := range pieces {
			for b, err := range f.reader.piece(ctx, c.Version, when, p) {
				if err != nil {
					yield(nil, f.readable(ctx, err))
					return
				}
				more := b.NumRows() == 0 || yield(b, nil)
				b.Release()
				if !more {
					return
				}
			}
		}
	}
}

func describe(t schema.Type) string {
	s := t.String()
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
