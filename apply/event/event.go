package event

import (
	"bytes"
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/log/schema"
)

// Op is what happened to a row.
type Op uint8

// The operations (cdc-formats 0.1). Upsert is a snapshot read, or an insert or
// update that the format does not tell apart.
const (
	Insert Op = iota + 1
	Update
	Upsert
	Delete
	Truncate
)

// Table names a source table. Parts that a format lacks are empty.
type Table struct{ Database, Schema, Name string }

// Position is how far one source has been read.
type Position struct {
	// Source is the identity of the file, partition or table (apply-state 2.1).
	Source string
	// Offset is the next byte (text files), row (columnar files), offset (Kafka)
	// or version (tables) to read.
	Offset int64
	// Check proves that what was read is still there: a hash of the bytes before
	// Offset for growing files, ETag for others. Opaque to the engine.
	Check string
	// Done: a source that never grows (a compressed or columnar file) is read whole.
	Done bool
	// Decoder is what the decoder must know to go on from here; opaque.
	Decoder string
	// Gone: the source was taken away and its position is to be forgotten.
	Gone bool `json:",omitempty"`
}

// Header is one Kafka record header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one undecoded record of a source.
type Record struct {
	Source string // Position.Source
	Topic  string
	// Partition and Transport order records of one topic; Transport is the Kafka
	// offset where the record has one, else its index in the file.
	Partition int32
	Transport int64
	// End is Position.Offset after this record.
	End int64
	// Line is the 1-based line (text files) or row; for messages to a human.
	Line int64
	// Key and Value are nil for null, empty (not nil) for zero bytes.
	Key, Value []byte
	Headers    []Header
	// Columns: a record of a columnar or CSV source comes as rows instead of bytes.
	Columns arrow.RecordBatch
	// Raw is the whole record as it stood in the source, for quarantine.
	Raw []byte
	// Size is the bytes behind the record where Raw does not hold them (columnar files).
	Size int64
	// Fault, if not "", says why the source could not split or read the record
	// ("LINE_TOO_LONG: ..."): decoders make it poison P1 with that code.
	Fault string
}

// Batch is change rows of one source table (see the invariants of the package).
type Batch struct {
	Table  Table
	Source string
	Topic  string
	// Columns are the data columns in source order; Rows has exactly these.
	Columns *schema.Struct
	// Keys are the columns that the format says identify a row; nil if it does not.
	Keys []string
	// Rows has one row per event. Upserts: the after image. Deletes: key columns
	// filled, all others null and meaningless. Truncates: all null.
	Rows arrow.RecordBatch
	Ops  []Op
	// Unauthored[c] is nil if every row authors column c; else bit r is set where
	// row r does not (ABSENT or UNAVAILABLE).
	Unauthored []Bits
	// Unavailable[c] is the subset of Unauthored[c] that came as a placeholder.
	Unavailable []Bits
	// Seq is the format's own position, a struct array without nulls, one per
	// row; nil if the format has none (cdc-formats 0.3). SeqType is its type.
	Seq     arrow.Array
	SeqType *schema.Struct
	// SeqOnly: rows may be ordered by Seq alone, as those of a table's change feed by
	// its _commit_version (auto-cdc 2.11); a flow's other sequence is refused.
	SeqOnly bool
	// Offsets[r] is Record.End of the record that row r came from.
	Offsets []int64
	// Lines[r] is Record.Line, for messages.
	Lines []int64
	// OldKeys (on creates) and NewKeys (on deletes) hold the other key of a key
	// change in the columns Keys, null where there is none; nil if no row has one.
	OldKeys, NewKeys arrow.RecordBatch
	// Rescued[r] is the JSON of fields that could not be converted, "" for none; nil if no row has any.
	Rescued []string
	// RawSize is the number of source bytes behind the rows, for batch limits.
	RawSize int64
}

// Bits is a bitmap over rows.
type Bits []uint64

// Get tells whether bit i is set; bits past the end are clear.
func (b Bits) Get(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

// Set returns b, grown if needed, with bit i set.
func (b Bits) Set(i int) Bits {
	for i>>6 >= len(b) {
		b = append(b, 0)
	}
	b[i>>6] |= 1 << (i & 63)
	return b
}

// Class tells why a record is poison (cdc-formats 0.4).
type Class string

// The classes of poison.
const (
	PoisonBytes    Class = "P1"
	PoisonEnvelope Class = "P2"
	PoisonField    Class = "P3"
	PoisonOrder    Class = "P4"
	PoisonKey      Class = "P5"
)

// Poison is a record that cannot be applied.
type Poison struct {
	Class  Class
	Code   string // stable, e.g. UNKNOWN_OP, INVALID_JSON
	Reason string
	Table  Table
	Record Record // bytes are copies
	Delete bool   // it would have deleted a row
}

// ControlKind is a record that carries no row.
type ControlKind string

// The kinds of control events (cdc-formats 0.1).
const (
	ControlSchema    ControlKind = "SCHEMA"
	ControlTx        ControlKind = "TX"
	ControlHeartbeat ControlKind = "HEARTBEAT"
	ControlSignal    ControlKind = "SIGNAL"
	ControlTombstone ControlKind = "TOMBSTONE"
	ControlUnknown   ControlKind = "UNKNOWN"
	// ControlFiltered counts records of tables that were not asked for.
	ControlFiltered ControlKind = "FILTERED"
)

// Decoded is what a decoder made of the records since the last Flush.
type Decoded struct {
	Batches  []*Batch
	Poison   []Poison
	Controls map[ControlKind]int64
	// Warnings are said once each (e.g. a schema with defaults under
	// replace.null.with.default).
	Warnings []string
}

// Decoder turns records into change rows. It is used from one goroutine.
type Decoder interface {
	// Add decodes one record. An error is fatal for the flow (transient fault
	// class T1, configuration); what is wrong with one record becomes Poison.
	Add(ctx context.Context, r *Record) error
	// Pending is the number of change rows and source bytes since the last Flush.
	Pending() (rows int, bytes int64)
	// Flush hands over everything since the last Flush.
	Flush() (*Decoded, error)
	// State is what must be known to go on after the last record (Position.Decoder);
	// Restore sets it on a fresh decoder.
	State() string
	Restore(state string) error
}

// Hinted is a decoder that takes the types of columns which its records do not
// tell. Hint is called before the first record, with columns that the target has.
type Hinted interface {
	Hint(types *schema.Struct)
}

// Source yields records from where the positions end.
type Source interface {
	// Records reads on from the given positions (by Source; unknown ones start at
	// the beginning) until the input that is there now ends. Errors carry codes:
	// FILE_CHANGED, INPUT_GONE, SOURCE_CHANGED.
	Records(ctx context.Context, from map[string]Position) iter.Seq2[*Record, error]
	// Positions is how far each source has been read, after the last record that
	// Records yielded. Called between two records. Sources without positions
	// (stdin) are left out.
	Positions() ([]Position, error)
	Close() error
}

// Cleaner is a source that takes away what was read. Committed is called after positions
// became durable, never before.
type Cleaner interface {
	Committed(ctx context.Context, positions map[string]Position) error
}

// Lagging is a source that knows how many records are waiting; ok is false while it
// does not. Called from any goroutine.
type Lagging interface {
	Lag() (records int64, ok bool)
}

// Copy is the record with bytes of its own and without columns, as it goes to
// the quarantine.
func (r *Record) Copy() Record {
	c := *r
	c.Columns = nil
	c.Key, c.Value, c.Raw = bytes.Clone(r.Key), bytes.Clone(r.Value), bytes.Clone(r.Raw)
	c.Headers = make([]Header, len(r.Headers))
	for i, h := range r.Headers {
		c.Headers[i] = Header{Key: h.Key, Value: bytes.Clone(h.Value)}
	}
	return c
}
