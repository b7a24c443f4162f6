package deltalog

import (
	"context"
	"time"
)

// IsolationLevel decides which concurrent commits are conflicts (C-01).
type IsolationLevel string

// The levels. Serializable is the default.
const (
	Serializable      IsolationLevel = "Serializable"
	WriteSerializable IsolationLevel = "WriteSerializable"
	SnapshotIsolation IsolationLevel = "SnapshotIsolation"
)

// Transaction collects what was read from one snapshot and the actions to commit on
// top of it. It is used by one goroutine and committed once.
type Transaction struct {
	log  *Log
	snap *Snapshot // nil: the commit creates the table

	wholeTable bool
	predicates []func(partitionValues map[string]*string) bool
	readFiles  map[string]bool // canonical paths
	readApps   map[string]bool

	actions Actions
	used    bool
}

// Begin starts a transaction on s; s is nil to create the table (version 0).
func (l *Log) Begin(s *Snapshot) *Transaction {
	return &Transaction{log: l, snap: s, readFiles: map[string]bool{}, readApps: map[string]bool{}}
}

// Snapshot is what the transaction reads from, nil when it creates the table.
func (t *Transaction) Snapshot() *Snapshot { return t.snap }

// ReadWholeTable records that the result depends on every row.
func (t *Transaction) ReadWholeTable() { t.wholeTable = true }

// ReadPartitions records a read predicate: match is given the partitionValues of an
// add (physical names) and is false only when no row of that file can matter. For
// unpartitioned tables every file matters.
func (t *Transaction) ReadPartitions(match func(partitionValues map[string]*string) bool) {
	t.predicates = append(t.predicates, match)
}

// ReadFiles records files whose rows were read.
func (t *Transaction) ReadFiles(files ...*Add) {
	for _, f := range files {
		// A path that does not decode is refused when the snapshot is replayed.
		if p, err := canonicalPath(f.Path); err == nil {
			t.readFiles[p] = true
		}
	}
}

// ReadTxn returns the version an application recorded and records that it was read:
// a concurrent commit of that application is a conflict (C-22).
func (t *Transaction) ReadTxn(appID string) (version int64, ok bool) {
	t.readApps[appID] = true
	if t.snap == nil {
		return 0, false
	}
	return t.snap.TxnVersion(appID)
}

// Add stages files.
func (t *Transaction) Add(files ...*Add) { t.actions.Adds = append(t.actions.Adds, files...) }

// Remove stages tombstones; see [Add.Remove].
func (t *Transaction) Remove(files ...*Remove) {
	t.actions.Removes = append(t.actions.Removes, files...)
}

// AddCDC stages change files.
func (t *Transaction) AddCDC(files ...*CDC) { t.actions.CDC = append(t.actions.CDC, files...) }

// SetMetadata stages new table metadata.
func (t *Transaction) SetMetadata(m *Metadata) { t.actions.Metadata = m }

// SetProtocol stages a protocol; see [Protocol.With].
func (t *Transaction) SetProtocol(p *Protocol) { t.actions.Protocol = p }

// SetTxn stages an application's mark, which counts as read too (W-853).
func (t *Transaction) SetTxn(appID string, version int64) {
	now := t.log.Now().UnixMilli()
	t.readApps[appID] = true
	t.actions.Txns = append(t.actions.Txns, &Txn{AppID: appID, Version: version, LastUpdated: &now})
}

// Actions is what is staged so far; the caller may change it before Commit.
func (t *Transaction) Actions() *Actions { return &t.actions }

// CommitOptions of [Transaction.Commit]. Only Operation is required.
type CommitOptions struct {
	// Operation is the name in the history, Spark's where it has one: WRITE, DELETE,
	// UPDATE, MERGE, CREATE TABLE, SET TBLPROPERTIES, OPTIMIZE.
	Operation string
	// Parameters are texts that are JSON where Spark's are: "mode":"Append",
	// "partitionBy":"[]".
	Parameters map[string]string
	// Metrics are texts, also for numbers.
	Metrics      map[string]string
	UserMetadata string
	Tags         map[string]string
	// Isolation of this transaction; default Serializable.
	Isolation IsolationLevel
	// NotBlind records isBlindAppend=false even for a commit of adds alone.
	NotBlind bool
	// drops is the feature that this commit may take out of the protocol.
	drops Feature
	// Unmaps allows metadata without column mapping on a mapped table: the commit puts
	// files under plain column names in the place of all that are live. It needs NoRebase.
	Unmaps bool
	// InfoOnly allows a commit of commitInfo alone, as VACUUM leaves them.
	InfoOnly bool
	// NoRebase makes any lost race a conflict (C-27): restore, clone, convert.
	NoRebase bool
	// MaxAttempts bounds the versions tried; default 1000. ctx bounds them too.
	MaxAttempts int
	// OnConflict, if set, replaces the checks C-20 to C-26 after a lost race: it is
	// given every winner since the last try, oldest first, and returns what to commit
	// instead (nil: the same again) or an error that ends the commit. The checks of
	// protocol and metadata have passed when it is called.
	OnConflict func(ctx context.Context, winners []*Commit) (*Rebased, error)
	// RowLevel, if set, is asked after a lost race about what C-23 to C-26 refuse only
	// because rows are not looked at: files whose deletion vector a winner replaced and
	// files it added (3.5). It returns what to commit instead (nil: the same again), or
	// an error, such as that of [RowConflicts.Conflict], which ends the commit. It is
	// not called when nothing is in question. OnConflict goes before it.
	RowLevel func(ctx context.Context, r *RowConflicts) (*Rebased, error)
}

// Rebased is a transaction made anew on top of the winners of a lost race.
type Rebased struct {
	Actions Actions
	// Parameters and Metrics replace those of the options unless nil.
	Parameters, Metrics map[string]string
}

// CommitResult is what became of a commit.
type CommitResult struct {
	// Version is the committed version, or the read version when AlreadyDone.
	Version int64
	// AlreadyDone: the table had recorded this txn version before; nothing was written
	// (W-853).
	AlreadyDone bool
	// Time is commitInfo.timestamp, or the in-commit timestamp.
	Time  time.Time
	TxnID string
	// Attempts counts versions tried, Winners the commits this one was rebased on.
	Attempts, Winners int
	// Checkpoint is true when a checkpoint of Version was written; CheckpointErr says
	// why it was not though it was due. It never fails the commit (W-705).
	Checkpoint    bool
	CheckpointErr error
	// LogFilesDeleted counts what the log clean-up after the checkpoint deleted.
	LogFilesDeleted int
}

// UnknownOutcomeError: the commit may or may not have been written and could not be
// read back. Nothing that it references may be deleted.
type UnknownOutcomeError struct {
	Version int64
	TxnID   string
	Cause   error
}

func (e *UnknownOutcomeError) Error() string {
	return "commit of version " + itoa(e.Version) + " has an unknown outcome: " + e.Cause.Error()
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Cause }

// Code is the stable error code.
func (e *UnknownOutcomeError) Code() string { return "COMMIT_OUTCOME_UNKNOWN" }
