package cdf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// SchemaChangedError: the next version of a stream has another schema. Everything
// before it was delivered; a new stream from At goes on with the new schema.
type SchemaChangedError struct {
	Version int64
	At      Position
	Reason  string
	// From and To are the schemas of the table before and after.
	From, To *schema.Struct
}

func (e *SchemaChangedError) Error() string {
	return fmt.Sprintf("read stream: version %d: the schema of the table changed: %s; start the stream again from its position to go on with the new schema", e.Version, e.Reason)
}

// Code is the stable error code.
func (e *SchemaChangedError) Code() string { return CodeSchemaChanged }

// Is answers ErrUnsupported.
func (e *SchemaChangedError) Is(target error) bool { return target == deltalog.ErrUnsupported }

// room is what a batch may still take.
type room struct {
	files int
	bytes int64 // 0 is unbounded
	b     *StreamBatch
}

func (r room) left() bool {
	return r.b.Files < r.files && (r.bytes <= 0 || r.b.Bytes < r.bytes)
}

func (r room) take(p piece) {
	r.b.Files++
	r.b.Bytes += max(p.src.Size, 0)
}

// Next is the next batch, nil when everything that there is was delivered. The
// stream stands at the end of the batch afterwards; whoever could not use the rows
// opens a new stream from the position before. After an error the same call may be
// tried again.
func (s *Stream) Next(ctx context.Context) (*StreamBatch, error) {
	latest, err := s.log.Update(ctx, s.latest)
	if err != nil {
		return nil, err
	}
	if err := s.pos.reachable(latest, s.ahead && s.o.Position == nil); err != nil {
		return nil, err
	}
	s.latest = latest
	b := &StreamBatch{From: s.pos.Version, To: s.pos.Version, reader: s.reader}
	b.readable = func(ctx context.Context, err error) error {
		var m *MissingError
		if errors.As(err, &m) && s.o.Kind == ChangeStream {
			m.OldestReadable = oldestReadable(ctx, s.log, m.Version, latest.Version)
		}
		return err
	}
	r := room{s.o.MaxFiles, s.o.MaxBytes, b}
	switch {
	case s.pos.Snapshot:
		err = s.fromSnapshot(ctx, r)
	case s.pos.Version > latest.Version:
		return nil, nil
	default:
		err = s.fromCommits(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	b.End = s.pos
	return b, nil
}

// timeline is the times of the commits known, listed once for each newest version.
func (s *Stream) timeline(ctx context.Context) (*deltalog.Timeline, error) {
	if s.times == nil || s.times.Last() != s.latest.Version {
		times, err := s.latest.Timeline(ctx)
		if err != nil {
			return nil, err
		}
		s.times = times
	}
	return s.times, nil
}

// fromSnapshot takes files of the starting snapshot.
func (s *Stream) fromSnapshot(ctx context.Context, r room) error {
	files, err := s.snap.FileList(ctx)
	if err != nil {
		return err
	}
	if s.pos.Index > int64(len(files)) {
		return badIndex(s.pos, len(files))
	}
	times, err := s.timeline(ctx)
	if err != nil {
		return err
	}
	when, err := times.Time(ctx, s.pos.Version)
	if err != nil {
		return err
	}
	l, err := s.lays.of(s.read.PartitionColumns())
	if err != nil {
		return err
	}
	v := versionPieces{version: s.pos.Version, when: when}
	for s.pos.Index < int64(len(files)) && r.left() {
		p := piece{src: datafile.SourceOf(files[s.pos.Index]), kind: Insert, layout: l}
		r.take(p)
		v.pieces = append(v.pieces, p)
		s.pos.Index++
	}
	r.b.parts = append(r.b.parts, v)
	if s.pos.Index == int64(len(files)) {
		s.pos.Version, s.pos.Index, s.pos.Snapshot = s.pos.Version+1, 0, false
		s.snap, s.before = nil, s.read
	}
	return nil
}

func badIndex(p Position, files int) error {
	return &Error{ErrorCode: CodePosition, Version: p.Version, Reason: fmt.Sprintf("stream position: %d files were delivered, but there are only %d", p.Index, files)}
}

// fromCommits takes files of the versions from the position on. What is taken before
// an error is delivered; the error comes again with the next call.
func (s *Stream) fromCommits(ctx context.Context, r room) error {
	times, err := s.timeline(ctx)
	if err != nil {
		return err
	}
	begin := s.pos
	if s.ahead { // nobody saw the versions in between
		if s.before, err = s.tableBefore(ctx, s.pos.Version); err != nil {
			return err
		}
		s.ahead = false
	}
	for c, err := range s.log.Commits(ctx, s.pos.Version, s.latest.Version) {
		if err == nil {
			err = s.fromCommit(ctx, c, times, r)
		}
		if err != nil {
			if s.pos != begin && ctx.Err() == nil {
				return nil
			}
			if c != nil || !errors.Is(err, deltalog.ErrNotFound) {
				return err
			}
			snap, err := s.skipLost(ctx, err)
			if err != nil {
				return err
			}
			s.before = snap.TableConfig
			r.b.From = s.pos.Version
			return s.fromCommits(ctx, r)
		}
		if s.pos.Version == c.Version || !r.left() {
			return nil // the version was not taken whole, or nothing more fits
		}
	}
	return nil
}

// fromCommit takes files of one version and moves the position.
func (s *Stream) fromCommit(ctx context.Context, c *deltalog.Commit, times *deltalog.Timeline, r room) error {
	after, err := s.enter(ctx, c)
	if err != nil {
		return err
	}
	var pieces []piece
	var whole bool
	parting := after == nil
	if parting {
		pieces, err = s.partingPieces(ctx, c)
	} else {
		pieces, whole, err = s.piecesOf(ctx, c, after)
	}
	if err != nil {
		return err
	}
	if s.pos.Index > int64(len(pieces)) {
		return badIndex(s.pos, len(pieces))
	}
	when, err := times.Time(ctx, c.Version)
	if err != nil {
		return err
	}
	if s.notBefore != nil && when.Before(*s.notBefore) {
		pieces = nil
	}
	v := versionPieces{version: c.Version, when: when}
	for s.pos.Index < int64(len(pieces)) && (whole || r.left()) {
		p := pieces[s.pos.Index]
		r.take(p)
		v.pieces = append(v.pieces, p)
		s.pos.Index++
	}
	if len(v.pieces) > 0 {
		r.b.parts = append(r.b.parts, v)
	}
	r.b.To = c.Version
	if !parting && s.pos.Index == int64(len(pieces)) {
		s.pos.Version, s.pos.Index = c.Version+1, 0
		s.before = after
	}
	return nil
}

// enter checks a version against the stream and answers the table after it, nil while
// the stream is at the parting rows of the version.
func (s *Stream) enter(ctx context.Context, c *deltalog.Commit) (*deltalog.TableConfig, error) {
	after := s.before
	if after == nil {
		after = s.read
	}
	if c.Metadata != nil && c.Metadata.ID != s.pos.TableID {
		return nil, otherTable(s.pos.TableID, c.Metadata.ID, c.Version)
	}
	if c.Metadata != nil || c.Protocol != nil {
		protocol, metadata := after.Protocol, after.Metadata
		if c.Metadata != nil {
			metadata = c.Metadata
		}
		if c.Protocol != nil {
			protocol = c.Protocol
		}
		var err error
		if after, err = deltalog.NewTableConfig(protocol, metadata); err != nil {
			return nil, fmt.Errorf("read stream: version %d: %w", c.Version, err)
		}
		op := deltalog.OpRead
		if s.o.Kind == ChangeStream {
			op = deltalog.OpReadCDF
		}
		if err := after.Require(op); err != nil {
			return nil, fmt.Errorf("read stream: version %d: %w", c.Version, err)
		}
	}
	if s.o.Kind == ChangeStream && !after.Props.ChangeDataFeed {
		return nil, missing(c.Version)
	}
	if reason := differs(s.read, after); reason != "" {
		if c.Metadata != nil && s.pos.Index < s.parting(c) {
			before, err := s.tableBefore(ctx, c.Version)
			if err != nil {
				return nil, err
			}
			if _, err := removedColumns(c.Version, before, after); err != nil && differs(s.read, before) == "" {
				return nil, nil
			}
		}
		return nil, &SchemaChangedError{Version: c.Version, At: s.pos, Reason: reason, From: s.read.Schema, To: after.Schema}
	}
	return after, nil
}

// piecesOf says which files of a version the stream delivers, and whether they go
// into one batch.
func (s *Stream) piecesOf(ctx context.Context, c *deltalog.Commit, after *deltalog.TableConfig) (pieces []piece, whole bool, err error) {
	if s.o.Kind == RowStream {
		pieces, err = s.rowPieces(c, after)
		return pieces, false, err
	}
	var before *datafile.Layout
	pieces, err = changesOf(c, func(removed bool) (*datafile.Layout, error) {
		if !removed || c.Metadata == nil {
			return s.lays.of(after.PartitionColumns())
		}
		if before == nil {
			table, err := s.tableBefore(ctx, c.Version)
			if err != nil {
				return nil, err
			}
			before, err = s.lays.removed(c.Version, table)
			if n := s.parting(c); err != nil && n > 0 && s.pos.Index >= n {
				before, err = s.lays.of(after.PartitionColumns()) // they came in the schema before it
			}
			if err != nil {
				return nil, err
			}
		}
		return before, nil
	})
	whole = len(c.CDC) > 0 || slices.ContainsFunc(pieces, func(p piece) bool { return p.pair != nil })
	return pieces, whole, err
}

// parting counts the files that a version of a change stream takes away, 0 when their
// rows cannot come apart from the others. They are the first pieces of the version.
//
// Where the version's own schema cannot show them, as after an overwrite that changed
// the type of a column, their rows are parting rows: the stream delivers them in the
// schema before the version and ends there; opened again it goes on inside the version
// with the rows that it adds.
func (s *Stream) parting(c *deltalog.Commit) int64 {
	if s.o.Kind != ChangeStream || len(c.CDC) > 0 || copiesOnly(c.Info) {
		return 0
	}
	var n int64
	gone := map[string]bool{}
	for _, r := range c.Removes {
		if r.DataChange {
			n++
			p, _ := r.Decoded()
			gone[p] = true
		}
	}
	for _, a := range c.Adds {
		if p, _ := a.Decoded(); a.DataChange && gone[p] {
			return 0
		}
	}
	return n
}

// partingPieces are the files that a version takes away, as the stream shows them.
func (s *Stream) partingPieces(ctx context.Context, c *deltalog.Commit) ([]piece, error) {
	before, err := s.tableBefore(ctx, c.Version)
	if err != nil {
		return nil, err
	}
	l, err := s.lays.of(before.PartitionColumns())
	if err != nil {
		return nil, err
	}
	var out []piece
	for _, r := range c.Removes {
		if !r.DataChange {
			continue
		}
		p, err := removed(c.Version, r, l)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// startsParting answers the table before the version at which the stream begins if that
// has parting rows to deliver, else nil.
func (s *Stream) startsParting(ctx context.Context, shown *deltalog.Snapshot) (*deltalog.Snapshot, error) {
	if s.o.Kind != ChangeStream || s.pos.Snapshot || s.pos.Version == 0 {
		return nil, nil
	}
	c, err := s.log.ReadCommit(ctx, s.pos.Version)
	if errors.Is(err, deltalog.ErrNotFound) {
		return nil, nil // told when its changes are asked for
	}
	if err != nil || c.Metadata == nil || s.pos.Index >= s.parting(c) {
		return nil, err
	}
	before, err := s.log.At(ctx, s.pos.Version-1)
	if errors.Is(err, deltalog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := removedColumns(c.Version, before.TableConfig, shown.TableConfig); err == nil {
		return nil, nil
	}
	return before, nil
}

// tableBefore is the table before a version, or as the stream shows it when the log
// does not know.
func (s *Stream) tableBefore(ctx context.Context, version int64) (*deltalog.TableConfig, error) {
	if s.before != nil {
		return s.before, nil
	}
	if version == 0 {
		return s.read, nil
	}
	snap, err := s.log.At(ctx, version-1)
	switch {
	case errors.Is(err, deltalog.ErrNotFound):
		return s.read, nil
	case err != nil:
		return nil, err
	}
	return snap.TableConfig, nil
}

// rowPieces are the files that a version appended.
func (s *Stream) rowPieces(c *deltalog.Commit, after *deltalog.TableConfig) ([]piece, error) {
	isChange := func(r *deltalog.Remove) bool { return r.DataChange }
	removes, adds := slices.ContainsFunc(c.Removes, isChange), slices.ContainsFunc(c.Adds, func(a *deltalog.Add) bool { return a.DataChange })
	if removes {
		switch {
		case s.o.SkipChangeCommits:
			return nil, nil
		case adds && !s.o.IgnoreChanges:
			return nil, &Error{ErrorCode: CodeIgnoreChanges, Version: c.Version, Reason: "it changes rows that were there; a stream of rows shows appends only: read the change feed, or pass over such versions (skip change commits), or take rewritten files again (ignore changes)"}
		case !adds && !s.o.IgnoreChanges && !s.o.IgnoreDeletes:
			return nil, &Error{ErrorCode: CodeIgnoreDelete, Version: c.Version, Reason: "it deletes rows; a stream of rows shows appends only: read the change feed, or pass over deletes (ignore deletes)"}
		}
	}
	l, err := s.lays.of(after.PartitionColumns())
	if err != nil {
		return nil, err
	}
	var out []piece
	for _, a := range c.Adds {
		if a.DataChange {
			out = append(out, piece{src: datafile.SourceOf(a), kind: Insert, layout: l})
		}
	}
	return out, nil
}

// layouts are the layouts of files with the columns of one table version.
type layouts struct {
	read  *deltalog.TableConfig
	zone  *time.Location
	known map[string]*datafile.Layout // by partition columns
}

// of is the layout of files that were written under other partition columns.
func (l *layouts) of(columns []string) (*datafile.Layout, error) {
	key := strings.Join(columns, "\x00")
	if known := l.known[key]; known != nil {
		return known, nil
	}
	c := l.read
	if !slices.Equal(columns, c.PartitionColumns()) {
		m := *c.Metadata
		m.PartitionColumns = columns
		var err error
		if c, err = deltalog.NewTableConfig(c.Protocol, &m); err != nil {
			return nil, fmt.Errorf("read change feed: %w", err)
		}
	}
	out, err := datafile.LayoutOf(c, l.zone)
	if err != nil {
		return nil, err
	}
	l.known[key] = out
	return out, nil
}

// removed is the layout of the files that a version with a metadata of its own
// removes, before being the table until then.
func (l *layouts) removed(version int64, before *deltalog.TableConfig) (*datafile.Layout, error) {
	columns, err := removedColumns(version, before, l.read)
	if err != nil {
		return nil, err
	}
	return l.of(columns)
}
