package deltafeed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/cdf"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// Options of a source.
type Options struct {
	// From is the first version to deliver as changes; nil: the whole table first.
	From *int64
	// Appends reads the rows that were appended instead of the change feed, which the
	// table need not have then. A version that removes rows ends the flow
	// (AUTOCDC_SOURCE_NOT_APPEND_ONLY), or with SkipChanges is passed over.
	Appends, SkipChanges bool
	// MaxFiles bounds the files of a batch of the stream, whose rows are held; 0: 8.
	MaxFiles int
}

// CodeNotAppendOnly: the rows of a table without change feed are read, and a version
// changes or deletes some (auto-cdc 1.6).
const CodeNotAppendOnly = "AUTOCDC_SOURCE_NOT_APPEND_ONLY"

// Error is a table whose feed cannot be read on. Code is stable: SOURCE_CHANGED or
// CodeNotAppendOnly.
type Error struct{ Code, Reason string }

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// Source yields the rows of a table's change feed; it implements event.Source.
type Source struct {
	log *deltalog.Log
	opt Options
	id  string
	pos *cdf.Position
}

// New makes a source of the table of log; snap is a version of it.
func New(log *deltalog.Log, snap *deltalog.Snapshot, o Options) *Source {
	if o.MaxFiles == 0 {
		o.MaxFiles = 8
	}
	return &Source{log: log, opt: o, id: "delta:" + snap.Metadata.ID}
}

// offset puts a position on one scale. A version has fewer than 2^20 files that
// count; what more there are shares one offset and is read again.
func offset(p cdf.Position) int64 { return p.Version<<20 | min(p.Index, 1<<20-1) }

// Records implements event.Source. Each record is a batch of rows; an empty one
// ends every batch of the stream.
func (s *Source) Records(ctx context.Context, from map[string]event.Position) iter.Seq2[*event.Record, error] {
	return func(yield func(*event.Record, error) bool) {
		if err := s.start(from); err != nil {
			yield(nil, err)
			return
		}
		for {
			st, err := cdf.OpenStream(ctx, s.log, s.options())
			if err != nil {
				yield(nil, fmt.Errorf("open change feed: %w", err))
				return
			}
			ok, err := s.stream(ctx, st, yield)
			var changed *cdf.SchemaChangedError
			switch {
			case !ok:
				return
			case errors.As(err, &changed):
				p := st.Position()
				s.pos = &p
			case err != nil:
				yield(nil, notAppendOnly(err))
				return
			default:
				return
			}
		}
	}
}

// notAppendOnly gives the refusal of a version that removes rows its name.
func notAppendOnly(err error) error {
	var e *cdf.Error
	if !errors.As(err, &e) || e.ErrorCode != cdf.CodeIgnoreChanges && e.ErrorCode != cdf.CodeIgnoreDelete {
		return err
	}
	return &Error{Code: CodeNotAppendOnly, Reason: fmt.Sprintf("version %d of the source table changes or deletes rows, and the flow reads what is appended: switch the table's change feed on "+
		"(delta.enableChangeDataFeed) and start a flow that reads it, or pass over such versions with --option skip_change_commits=true", e.Version)}
}

// start takes the stored position; one of another table is refused. Positions of
// sources of another kind, which the flow had before, say nothing.
func (s *Source) start(from map[string]event.Position) error {
	for id, p := range from {
		if !strings.HasPrefix(id, "delta:") {
			continue
		}
		if id != s.id {
			return &Error{Code: "SOURCE_CHANGED", Reason: fmt.Sprintf("the flow has read table %s, and this one is %s: the table was made anew; reset the flow to read it from the beginning", id, s.id)}
		}
		pos, err := cdf.ParsePosition([]byte(p.Check))
		if err != nil {
			return fmt.Errorf("read position of the change feed: %w", err)
		}
		if kind := s.options().Kind; pos.Kind != kind {
			return &Error{Code: "SOURCE_CHANGED", Reason: fmt.Sprintf("the flow has read the %s of the table, and would read its %s now; go on as before with --option appends=%t, or reset the flow",
				pos.Kind, kind, pos.Kind == cdf.RowStream)}
		}
		s.pos = &pos
	}
	return nil
}

func (s *Source) options() cdf.StreamOptions {
	o := cdf.StreamOptions{Kind: cdf.ChangeStream, Position: s.pos, MaxFiles: s.opt.MaxFiles, OutOfRange: true}
	if s.opt.Appends {
		o.Kind, o.Marked, o.SkipChangeCommits = cdf.RowStream, true, s.opt.SkipChanges
	}
	if s.pos == nil {
		o.FromVersion = s.opt.From
	}
	return o
}

// stream yields all batches there are; ok is false if the consumer left.
func (s *Source) stream(ctx context.Context, st *cdf.Stream, yield func(*event.Record, error) bool) (ok bool, err error) {
	empty, err := emptyBatch(st.Schema())
	if err != nil {
		return true, err
	}
	for {
		b, err := st.Next(ctx)
		if err == nil && b == nil {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		end := offset(b.End)
		line := int64(0)
		for rows, err := range b.Rows(ctx) {
			if err != nil {
				return true, err
			}
			line += rows.NumRows()
			if !yield(&event.Record{Source: s.id, End: end, Line: line, Columns: rows, Size: int64(rows.NumRows()) * 64}, nil) {
				return false, nil
			}
		}
		pos := b.End
		s.pos = &pos
		if !yield(&event.Record{Source: s.id, End: end, Columns: empty}, nil) {
			return false, nil
		}
	}
}

// emptyBatch has the columns of the feed and no row.
func emptyBatch(feed *schema.Struct) (arrow.RecordBatch, error) {
	as, err := schema.ArrowSchema(feed)
	if err != nil {
		return nil, err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	defer b.Release()
	return b.NewRecordBatch(), nil
}

// Positions implements event.Source.
func (s *Source) Positions() ([]event.Position, error) {
	if s.pos == nil {
		return nil, nil
	}
	check, err := s.pos.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write position of the change feed: %w", err)
	}
	return []event.Position{{Source: s.id, Offset: offset(*s.pos), Check: string(check)}}, nil
}

// Close implements event.Source.
func (s *Source) Close() error { return nil }
