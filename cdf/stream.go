package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// DefaultMaxFiles is how many files a batch takes unless StreamOptions say otherwise.
const DefaultMaxFiles = 1000

// StreamOptions say what a stream delivers and where it starts. At most one of
// FromVersion, FromTime and FromLatest is set. With none of them the whole content
// of the newest version comes first, as inserts of that version, then what changes
// after it.
type StreamOptions struct {
	// Kind is ChangeStream unless set.
	Kind StreamKind
	// Position, if set, is where an earlier stream of the same table ended; the start
	// is then not used.
	Position *Position

	FromVersion *int64
	FromTime    *time.Time
	// FromLatest starts after the newest version.
	FromLatest bool
	// OutOfRange makes a start after the newest version wait for it instead of an error.
	OutOfRange bool

	// MaxFiles and MaxBytes bound a batch: it takes files while it has less than
	// both. A version with change files or deletion vectors is taken whole, so
	// a batch may be larger by one version. Default: DefaultMaxFiles; bytes unbounded.
	MaxFiles int
	MaxBytes int64

	// IgnoreDeletes, IgnoreChanges and SkipChangeCommits are for RowStream, which
	// otherwise ends at a version that removes rows: pass over versions that only
	// remove; emit files again that were rewritten; pass over every version that
	// removes.
	IgnoreDeletes, IgnoreChanges, SkipChangeCommits bool

	// Marked, of a RowStream, gives its rows the columns of a change feed, as inserts.
	Marked bool

	// OnMissing is that of [Options]. OnLost, if set, is told of versions that the log
	// no longer holds, from to to, and the stream goes on after them; without it they
	// end the stream with CodeLost.
	OnMissing func(version int64, path string)
	OnLost    func(from, to int64)

	// Columns, Where, Zone and BatchRows are those of [Options].
	Columns   []string
	Where     string
	Zone      *time.Location
	BatchRows int
}

// Stream delivers a table as it grows, batch by batch. It reads only when asked and
// holds no more than one batch, so a slow consumer slows it down. It is for one
// goroutine.
//
// The schema of a stream does not change: before the first version with another one,
// Next ends with a *[SchemaChangedError]. A new stream from Position goes on with the
// new schema. Rows that such a version deletes and that its schema cannot show, since an
// overwrite changed the type of a column, come before that error, in the old schema.
type Stream struct {
	log    *deltalog.Log
	o      StreamOptions
	latest *deltalog.Snapshot
	times  *deltalog.Timeline // of latest, or of one before it
	pos    Position
	reader *reader
	lays   *layouts
	// read is the table as the stream shows it.
	read *deltalog.TableConfig
	// before is the table before version pos.Version; nil: not looked up yet.
	before *deltalog.TableConfig
	// snap is the starting snapshot while pos.Snapshot.
	snap *deltalog.Snapshot
	// ahead is true while the start is a version that is not there yet.
	ahead bool
	// notBefore keeps versions out that are older than a start time in the future.
	notBefore *time.Time
}

// OpenStream starts a stream, or goes on with one. Errors are *[Error], those of the
// log, or *expr errors of Where.
func OpenStream(ctx context.Context, log *deltalog.Log, o StreamOptions) (*Stream, error) {
	latest, err := log.Latest(ctx)
	if err != nil {
		return nil, err
	}
	return OpenStreamAt(ctx, latest, o)
}

// OpenStreamAt is OpenStream with a snapshot as the newest version known.
func OpenStreamAt(ctx context.Context, latest *deltalog.Snapshot, o StreamOptions) (*Stream, error) {
	if o.Kind == "" {
		o.Kind = ChangeStream
	}
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	s := &Stream{log: latest.Log(), o: o, latest: latest}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	shown := latest
	if s.ahead = s.pos.Version > latest.Version; !s.ahead {
		var err error
		if shown, err = s.snapshotAt(ctx); err != nil {
			return nil, err
		}
		before, err := s.startsParting(ctx, shown)
		if err != nil {
			return nil, err
		}
		if before != nil {
			shown, s.before = before, before.TableConfig
		}
	}
	if id := shown.Metadata.ID; id != s.pos.TableID && o.Position != nil {
		return nil, otherTable(s.pos.TableID, id, -1)
	}
	s.pos.TableID = shown.Metadata.ID
	op := deltalog.OpRead
	if o.Kind == ChangeStream {
		op = deltalog.OpReadCDF
	}
	if err := shown.Require(op); err != nil {
		return nil, err
	}
	if s.pos.Snapshot {
		s.snap = shown
		if o.Kind == ChangeStream && !shown.Props.ChangeDataFeed {
			return nil, missing(shown.Version)
		}
	}
	s.read = shown.TableConfig
	s.lays = &layouts{read: s.read, zone: o.Zone, known: map[string]*datafile.Layout{}}
	var err error
	s.reader, err = newReader(s.log, shown.Schema, readerOptions{
		columns: o.Columns, where: o.Where, zone: o.Zone, batchRows: o.BatchRows, feed: o.Kind == ChangeStream || o.Marked, onMissing: o.OnMissing,
	})
	return s, err
}

// start sets the position.
func (s *Stream) start(ctx context.Context) error {
	o := s.o
	if p := o.Position; p != nil {
		s.pos = *p
		if err := p.check(); err != nil {
			return err
		}
		if p.Kind != o.Kind {
			return &Error{ErrorCode: CodePosition, Version: -1, Reason: fmt.Sprintf("stream position: it is one of a stream of %s, not of %s", p.Kind, o.Kind)}
		}
		return p.reachable(s.latest, false)
	}
	s.pos = Position{Kind: o.Kind}
	starts := 0
	for _, set := range []bool{o.FromVersion != nil, o.FromTime != nil, o.FromLatest} {
		if set {
			starts++
		}
	}
	switch {
	case starts > 1:
		return rangeError(CodeStreamBoundary, "the start of a stream is a version, a time or the newest version: one of them")
	case o.FromLatest:
		s.pos.Version = s.latest.Version + 1
	case starts == 0:
		s.pos.Version, s.pos.Snapshot = s.latest.Version, true
	default:
		r := Range{FromVersion: o.FromVersion, FromTime: o.FromTime, OutOfRange: o.OutOfRange}
		if o.FromVersion != nil && *o.FromVersion == s.latest.Version+1 {
			r.OutOfRange = true // the next version is where a stream may start
		}
		from, _, empty, err := r.resolve(ctx, s.latest)
		switch {
		case err != nil:
			return err
		case !empty:
			s.pos.Version = from
		case o.FromVersion != nil:
			s.pos.Version = *o.FromVersion
		default:
			s.pos.Version, s.notBefore = s.latest.Version+1, o.FromTime
		}
	}
	return nil
}

// snapshotAt is the table at the position.
func (s *Stream) snapshotAt(ctx context.Context) (*deltalog.Snapshot, error) {
	snap, err := s.log.At(ctx, s.pos.Version)
	if err == nil || !errors.Is(err, deltalog.ErrNotFound) || s.o.Position == nil {
		return snap, err
	}
	return s.skipLost(ctx, err)
}

// skipLost moves the position on to the oldest version that the log can rebuild, if
// that is allowed.
func (s *Stream) skipLost(ctx context.Context, cause error) (*deltalog.Snapshot, error) {
	if s.o.OnLost == nil || s.pos.Snapshot {
		return nil, s.lost(cause)
	}
	from := s.pos.Version
	var snap *deltalog.Snapshot
	var err error
	n := sort.Search(int(s.latest.Version-from), func(i int) bool {
		_, err := s.log.At(ctx, from+int64(i))
		return err == nil || !errors.Is(err, deltalog.ErrNotFound)
	})
	s.pos.Version, s.pos.Index = from+int64(n), 0
	if snap, err = s.log.At(ctx, s.pos.Version); err != nil {
		return nil, err
	}
	s.o.OnLost(from, s.pos.Version-1)
	return snap, nil
}

func (s *Stream) lost(cause error) error {
	return &Error{ErrorCode: CodeLost, Version: s.pos.Version, Cause: cause,
		Reason: "the stream stopped before this version and the log no longer holds it; what it changed cannot be delivered"}
}

// Schema is that of the rows, the same for the life of the stream.
func (s *Stream) Schema() *schema.Struct { return s.reader.schema }

// Position is where the next batch begins.
func (s *Stream) Position() Position { return s.pos }

// StreamBatch is a part of a stream that is delivered and remembered as one.
type StreamBatch struct {
	// From and To are the versions it has parts of, both inclusive.
	From, To int64
	// Files and Bytes it takes; 0 files when the versions changed no row.
	Files int
	Bytes int64
	// End is where the stream goes on after it: store it when the rows are safe.
	End Position

	reader *reader
	parts  []versionPieces
	// readable completes errors of missing files.
	readable func(ctx context.Context, err error) error
}

type versionPieces struct {
	version int64
	when    time.Time
	pieces  []piece
}

// Rows streams the rows of the batch, which may be read again. A record batch holds
// rows of one version and is valid until the next iteration unless retained.
func (b *StreamBatch) Rows(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, v := range b.parts {
			for _, p := range v.pieces {
				for rows, err := range b.reader.piece(ctx, v.version, v.when, p) {
					if err != nil {
						yield(nil, b.readable(ctx, err))
						return
					}
					more := rows.NumRows() == 0 || yield(rows, nil)
					rows.Release()
					if !more {
						return
					}
				}
			}
		}
	}
}

// Batches yields batch after batch. When there is nothing more it calls wait and
// looks again, until wait fails, which is the last error yielded; a nil wait ends
// the iteration at the newest version.
func (s *Stream) Batches(ctx context.Context, wait func(ctx context.Context) error) iter.Seq2[*StreamBatch, error] {
	return func(yield func(*StreamBatch, error) bool) {
		for {
			b, err := s.Next(ctx)
			switch {
			case err != nil:
				yield(nil, err)
				return
			case b != nil:
				if !yield(b, nil) {
					return
				}
			case wait == nil:
				return
			default:
				if err := wait(ctx); err != nil {
					yield(nil, err)
					return
				}
			}
		}
	}
}
