package cdf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	deltalog "github.com/sluice-data/sluice/log"
)

// StreamKind says what a stream delivers.
type StreamKind string

const (
	// ChangeStream is the change feed: the columns of the table and those of the feed.
	ChangeStream StreamKind = "changes"
	// RowStream is the rows that were appended, without columns of the feed.
	RowStream StreamKind = "rows"
)

// Position is where a stream goes on: everything before it was delivered. It is
// immutable and survives the process as JSON ([Position.MarshalJSON], [ParsePosition]).
type Position struct {
	Kind StreamKind
	// TableID is metaData.id of the table the position belongs to.
	TableID string
	// Version is the next version to deliver, Index the number of its files that were
	// delivered already.
	Version, Index int64
	// Snapshot is true while the whole content of Version, from which the stream
	// started, is being delivered.
	Snapshot bool
}

// positionFormat is the version of the JSON form. A reader refuses any other.
const positionFormat = 1

type positionJSON struct {
	Format   *int       `json:"format"`
	Kind     StreamKind `json:"kind"`
	TableID  string     `json:"tableId"`
	Version  *int64     `json:"version"`
	Index    int64      `json:"index"`
	Snapshot bool       `json:"snapshot"`
}

// MarshalJSON is the text that ParsePosition reads.
func (p Position) MarshalJSON() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	format := positionFormat
	return json.Marshal(positionJSON{&format, p.Kind, p.TableID, &p.Version, p.Index, p.Snapshot})
}

// maxPosition bounds the bytes of a position.
const maxPosition = 64 << 10

// ParsePosition reads the JSON of a position. Text that is no position, or one of
// another format version, is a *[Error] with CodePosition.
func ParsePosition(data []byte) (Position, error) {
	bad := func(format string, args ...any) (Position, error) {
		return Position{}, &Error{ErrorCode: CodePosition, Version: -1, Reason: "stream position: " + fmt.Sprintf(format, args...)}
	}
	if len(data) > maxPosition {
		return bad("%d bytes are too many", len(data))
	}
	var format struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return bad("it is not JSON: %v", err)
	}
	switch {
	case format.Format == nil:
		return bad("it has no format version")
	case *format.Format != positionFormat:
		return bad("format version %d is not known here, %d is", *format.Format, positionFormat)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var j positionJSON
	if err := d.Decode(&j); err != nil {
		return bad("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("there is more after it")
	}
	if j.Version == nil {
		return bad("it has no version")
	}
	p := Position{Kind: j.Kind, TableID: j.TableID, Version: *j.Version, Index: j.Index, Snapshot: j.Snapshot}
	if err := p.check(); err != nil {
		return Position{}, err
	}
	return p, nil
}

func (p Position) check() error {
	reason := ""
	switch {
	case p.Kind != ChangeStream && p.Kind != RowStream:
		reason = fmt.Sprintf("kind %q is neither changes nor rows", p.Kind)
	case p.TableID == "":
		reason = "it names no table"
	case p.Version < 0:
		reason = fmt.Sprintf("version %d is negative", p.Version)
	case p.Index < 0:
		reason = fmt.Sprintf("index %d is negative", p.Index)
	default:
		return nil
	}
	return &Error{ErrorCode: CodePosition, Version: -1, Reason: "stream position: " + reason}
}

func (p Position) String() string {
	s := fmt.Sprintf("version %d", p.Version)
	if p.Snapshot {
		s = "snapshot of " + s
	}
	if p.Index > 0 {
		s += fmt.Sprintf(" after %d files", p.Index)
	}
	return s
}

// reachable refuses a position that the table was put back behind. ahead allows a
// start in the future.
func (p Position) reachable(latest *deltalog.Snapshot, ahead bool) error {
	if !ahead && p.Version > latest.Version+1 || p.Snapshot && p.Version > latest.Version {
		return &Error{ErrorCode: CodeStartAfterLatest, Version: -1, Reason: fmt.Sprintf("stream position: %s is after the newest version %d: the table was put back", p, latest.Version)}
	}
	return nil
}

func otherTable(was, is string, version int64) error {
	return &Error{ErrorCode: CodeOtherTable, Version: version, Reason: fmt.Sprintf("the stream began on table %s, here is table %s: it was dropped and made anew; begin without a position", was, is)}
}
