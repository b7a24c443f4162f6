package apply

import (
	"log/slog"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Spec is one run of one flow: where events come from, what is done with them,
// where they go.
type Spec struct {
	Source event.Source
	// NewDecoder makes the decoder of the source; Run restores its state.
	NewDecoder func() event.Decoder
	// Snapshots, instead of Source and NewDecoder, makes a snapshot flow.
	Snapshots event.Snapshots
	// Target says where the rows of a source table go.
	Target Targets
	Flow   Flow
	// FlowOf, if set, is the flow of a source table of many in place of Flow; its name,
	// its limits and what a run does about errors stay those of Flow. It is asked once
	// a table.
	FlowOf func(event.Table) Flow
	// Resume, of the result of the run before in this process with the same Source, goes on
	// behind it: what was parked stays so. Nil begins with what is committed.
	Resume *Resume
	// Progress, if set, is called after each batch and about once a second while reading.
	Progress func(Progress)
}

// Targets is either one table ([Targets.Store]) or one table per source table
// ([Targets.Route] under [Targets.Root]).
type Targets struct {
	// Store is the root of the only target. Rows of a second source table are
	// an error unless Select leaves one (code AMBIGUOUS_TABLE).
	Store storage.Store
	// Name is how messages and the default flow name call the only target.
	Name string
	// Select, if set, drops rows of the tables for which it answers false.
	Select func(event.Table) bool
	// Route answers the directory, relative to Root, of a source table's target.
	// Two tables on one directory are an error (code TARGET_CLASH).
	Route func(event.Table) (dir string, err error)
	// Root holds the targets of Route and the low-water positions (_apply/flow/).
	Root storage.Store
	// Open gives the store rooted at dir below Root; required with Route.
	Open func(dir string) (storage.Store, error)
}

// OnPoison is what happens to a record that cannot be applied.
type OnPoison string

// The answers to poison; the zero value is PoisonFail.
const (
	PoisonFail       OnPoison = "fail"
	PoisonQuarantine OnPoison = "quarantine"
)

// Expectation is a condition on the rows of a target. OnViolation is "" (only
// counted), "DROP ROW" or "FAIL UPDATE".
type Expectation struct{ Name, Expr, OnViolation string }

// Flow is an AUTO CDC flow in the words of auto-cdc 1.7.
type Flow struct {
	// Name identifies the flow in the state; empty: derived from target and
	// source (apply-state 2.3), or the stored name if the target has one flow.
	Name string
	// Keys name the key columns; empty: those that the format carries.
	Keys []string
	// SequenceBy is an expression over source columns; empty: the format's position.
	SequenceBy string
	// ApplyAsDeletes and ApplyAsTruncates are conditions over source columns that
	// add to the format's own operations.
	ApplyAsDeletes   string
	ApplyAsTruncates string
	// ColumnList or ExceptColumnList select what lands in the target.
	ColumnList       []string
	ExceptColumnList []string
	// StoredAsSCDType is "" or "1", "2" or "bitemporal".
	StoredAsSCDType string
	// At most one of the three ignore-null options and one of the two lists of
	// tracked columns is given; a list is given if it is not nil.
	IgnoreNullUpdates                 bool
	IgnoreNullUpdatesColumnList       []string
	IgnoreNullUpdatesExceptColumnList []string
	ColumnsToUpdate                   string
	TrackHistoryColumnList            []string
	TrackHistoryExceptColumnList      []string
	SystemSequenceBy                  string
	// Expectations are tested on rows of the result (auto-cdc 2.9).
	Expectations []Expectation
	// Format is the form of the source's records, which the flow keeps (see
	// [StoredFormat]); FormatNamed: the user said so. "": nothing is kept.
	Format      string
	FormatNamed bool
	// Snapshot and SnapshotVersion are the queries of a snapshot flow (auto-cdc 2.8); the
	// engine runs none (UNSUPPORTED_CLAUSE): it takes what [Spec.Snapshots] picks.
	Snapshot        string
	SnapshotVersion string
	// SnapshotWhere is a condition on the rows of a snapshot: only those for which it is
	// TRUE belong to it. "": all do.
	SnapshotWhere string
	// Once: the flow runs to completion once per target generation.
	Once bool

	// PartitionBy, Properties, Comment, ChangeFeed and DeletionVectors describe
	// the table that the flow creates (ChangeFeed nil: on). On an existing target
	// Properties, ChangeFeed and DeletionVectors change the table only when set.
	PartitionBy     []string
	Properties      map[string]string
	Comment         string
	ChangeFeed      *bool
	DeletionVectors *bool

	// Evolution is what becomes of new columns and of values that do not fit. Hints are
	// types of columns whatever the source says; Declared the columns of a target to be
	// created, beyond which a column is new.
	Evolution Evolution
	Hints     *schema.Struct
	Declared  *schema.Struct

	// BatchRows and BatchBytes bound a batch; zero: 100000 rows, 256 MB.
	BatchRows  int
	BatchBytes int64
	OnPoison   OnPoison
	// StopTogether ends a run of several targets with the first that is refused; else
	// that one is parked and the others go on.
	StopTogether bool
	// Quarantine and State override <target>/_apply/quarantine/ and
	// <target>/_apply/state/; both stores are rooted at the table's own directory.
	Quarantine func(target string) (storage.Store, error)
	State      func(target string) (storage.Store, error)
	// StatePath is what State opens, as the property sluice.apply.state records it.
	StatePath string
	// MaxDeleteFraction refuses a snapshot that would delete a larger share of the
	// rows (code SNAPSHOT_DELETES_TOO_MUCH); 0: any share. AllowEmptySnapshot lets a
	// snapshot without rows empty the target (else code SNAPSHOT_EMPTY).
	MaxDeleteFraction  float64
	AllowEmptySnapshot bool
	// MissingGrace is how many snapshots in a row must lack a key before it counts as
	// deleted; 0 and 1: the first one does it.
	MissingGrace int
	// AcceptRows goes on after TARGET_REWOUND with the rows as they are.
	AcceptRows bool
	// DryRun decides everything and writes nothing.
	DryRun bool
}

// Options are the engine's surroundings; the zero value is ready to use.
type Options struct {
	// Clock is the time of commits and of processed-at; nil: time.Now. It is
	// called from several goroutines.
	Clock func() time.Time
	// NewID makes unique ids; nil: random UUIDs.
	NewID func() string
	// Logger gets warnings and retries; nil: none.
	Logger *slog.Logger
	// EngineInfo goes into commitInfo; empty: sluice's default.
	EngineInfo string
	// TimeZone is the zone of timestamp text without one; nil: UTC.
	TimeZone *time.Location
	// Memory is what a run may hold at once, in bytes; zero: 1 GiB, negative: no bound. A
	// batch that needs more goes through temporary files in SpillDir ("": the system's
	// directory for them); the table does not show it. The caller keeps the collector to
	// the same figure (debug.SetMemoryLimit), as the command does.
	Memory   int64
	SpillDir string

	// stateBudget is the bytes of state files up to which a state is held whole,
	// factFiles the number of them at which they are compacted; 0: the default.
	stateBudget int64
	factFiles   int
	// lotBytes, of tests, is the size of lots and of what a decoder holds; 0: by Memory.
	lotBytes int64
}

// Progress is the state of a run between two batches.
type Progress struct {
	Target  string // of the last batch
	Version int64  // its target version; -1 before the first commit
	Batches int64
	Events  Events
	Bytes   int64 // source bytes read
}

// Events counts records by fate. Read is all rows and poison of the selected
// tables that had not been consumed before; Read = Applied + Stale + Duplicate + Poison.
type Events struct {
	Read    int64 `json:"read"`
	Applied int64 `json:"applied"`
	// Stale events are older than what the target knows and author nothing new.
	Stale int64 `json:"stale"`
	// Duplicate events equal one already applied: same key, sequence and content.
	Duplicate int64 `json:"duplicate"`
	Poison    int64 `json:"poison"`
	// PoisonDeletes of the poison would have deleted a row.
	PoisonDeletes int64 `json:"poison_deletes,omitempty"`
	// LateBeyondRetention are events at or below the highest sequence that was
	// collected: what would have rejected them may be forgotten (auto-cdc 3).
	LateBeyondRetention int64 `json:"num_late_beyond_retention,omitempty"`
	// SequenceConflicts: different content at one key and sequence (auto-cdc 2.4).
	SequenceConflicts int64 `json:"num_sequence_conflicts,omitempty"`
	// LateSystem: events whose system sequence is older than one known of their key
	// (BITEMPORAL); they change what was believed in the past.
	LateSystem int64 `json:"num_late_system_sequence,omitempty"`
}

// Rows counts rows of the change feed: postimages count as updated.
type Rows struct {
	Inserted int64 `json:"inserted"`
	Updated  int64 `json:"updated"`
	Deleted  int64 `json:"deleted"`
}

// Files counts data files added and removed and change files written.
type Files struct {
	Added   int64 `json:"added"`
	Removed int64 `json:"removed"`
	Change  int64 `json:"change"`
}

// Bytes counts source bytes read and table bytes written.
type Bytes struct {
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
	// Spilled is what went to temporary files because a batch did not fit into memory.
	Spilled int64 `json:"spilled,omitempty"`
}

// TargetResult is what a run did to one target.
type TargetResult struct {
	Target  string `json:"target"`
	Flow    string `json:"flow"`
	Version int64  `json:"version"`
	Batches int64  `json:"batches"`
	Events  Events `json:"events"`
	Rows    Rows   `json:"rows"`
	Files   Files  `json:"files"`
	Bytes   Bytes  `json:"bytes"`
	// Snapshots is how many snapshots were applied.
	Snapshots int64 `json:"snapshots,omitempty"`
	// Expectations counts by name; nil without any.
	Expectations map[string]ExpectationCount `json:"expectations,omitempty"`
	// Plan, of a dry run, is how the target would stand; nil: no event came.
	Plan *TargetPlan `json:"plan,omitempty"`
	// Parked is why this target stopped while others went on; nil if it did not.
	Parked *Error `json:"parked,omitempty"`
}

// Result is what a run did. The embedded totals are those of all targets;
// Version and Target are those of the only one.
type Result struct {
	Flow    string  `json:"flow"`
	Target  string  `json:"target"`
	Version int64   `json:"version"`
	Batches int64   `json:"batches"`
	Events  Events  `json:"events"`
	Rows    Rows    `json:"rows"`
	Files   Files   `json:"files"`
	Bytes   Bytes   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Snapshots is how many snapshots were applied.
	Snapshots    int64                       `json:"snapshots,omitempty"`
	Expectations map[string]ExpectationCount `json:"expectations,omitempty"`
	// Plan is that of the only target of a dry run.
	Plan     *TargetPlan    `json:"plan,omitempty"`
	Targets  []TargetResult `json:"targets,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
	// Resume is set where the run read its input to the end and some targets, not all,
	// are parked: for those who read on without them. A run without it reads again, from
	// where the parked targets stopped, and tries them anew.
	Resume *Resume `json:"-"`
}

// Resume is where a run ended that parked targets.
type Resume struct {
	positions map[string]event.Position
	decoder   string
	parked    map[string]*Error // by directory
}
