package delta

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Classes of errors, those of package deltalog. Test with errors.Is.
var (
	ErrNotFound    = deltalog.ErrNotFound
	ErrUnsupported = deltalog.ErrUnsupported
	ErrCorrupt     = deltalog.ErrCorrupt
	ErrInvalid     = deltalog.ErrInvalid
	ErrConflict    = deltalog.ErrConflict
	ErrExists      = storage.ErrExists
)

// Options of a table; the zero value is the default.
type Options struct {
	// Clock tells the time, for several goroutines. Default: time.Now.
	Clock func() time.Time
	// NewID makes UUID texts for files, transactions and tables. Default: random.
	NewID func() string
	// Sleep waits between attempts. Default: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Logger hears of what is tolerated. Default: none.
	Logger *slog.Logger
	// TimeZone is the zone of partition timestamps, and of timestamps in
	// expressions, that name none. Default: UTC.
	TimeZone *time.Location
	// EngineInfo is written to every commit. Default: "sluice".
	EngineInfo string
	// FileSize is where the next data file is begun, in bytes. Default: the table's
	// delta.targetFileSize, else 128 MiB.
	FileSize int64
	// InlineVectorBytes: a deletion vector of at most so many bytes goes into the log
	// itself instead of a file. Default: 0, every one goes to a file as Spark's do
	// (W-654).
	InlineVectorBytes int
	// FileLevelConflicts turns row-level concurrency off: a lost race against a change
	// to a file that an operation reads or changes voids it even if other rows are
	// concerned, and it is done again.
	FileLevelConflicts bool
	// Attempts bounds how often an operation that lost a race is done again.
	// Default: 50.
	Attempts int
	// Workers bounds the files worked on at once. Default: 4.
	Workers int
	// NoCheckpoints turns off checkpoints after commits.
	NoCheckpoints bool
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TimeZone == nil {
		o.TimeZone = time.UTC
	}
	if o.Attempts <= 0 {
		o.Attempts = 50
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	return o
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Table is one Delta table. It is safe for concurrent use.
type Table struct {
	store storage.Store
	log   *deltalog.Log
	opts  Options

	mu struct {
		sync.Mutex
		snap *deltalog.Snapshot // newest seen
	}
}

func newTable(store storage.Store, o Options) *Table {
	o = o.withDefaults()
	return &Table{store: store, opts: o, log: deltalog.Open(store, deltalog.Options{
		Clock: o.Clock, NewID: o.NewID, Sleep: o.Sleep, Logger: o.Logger, EngineInfo: o.EngineInfo, NoCheckpoints: o.NoCheckpoints,
	})}
}

// Open opens the table at the root of store. It reads the newest version and
// writes nothing. What is no table is ErrNotFound, a table that this version
// cannot read ErrUnsupported, a damaged one ErrCorrupt.
func Open(ctx context.Context, store storage.Store, o Options) (*Table, error) {
	t := newTable(store, o)
	if _, err := t.Snapshot(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// Exists reports whether store holds a table.
func Exists(ctx context.Context, store storage.Store) (bool, error) {
	return deltalog.Open(store, deltalog.Options{}).Exists(ctx)
}

// Store is where the table lies.
func (t *Table) Store() storage.Store { return t.store }

// Log is the table's transaction log.
func (t *Table) Log() *deltalog.Log { return t.log }

// Options are those the table was opened with, defaults filled in.
func (t *Table) Options() Options { return t.opts }

// Snapshot is the newest version. Only what was committed since the last call is
// read.
func (t *Table) Snapshot(ctx context.Context) (*deltalog.Snapshot, error) {
	t.mu.Lock()
	snap := t.mu.snap
	t.mu.Unlock()
	var err error
	if snap == nil {
		snap, err = t.log.Latest(ctx)
	} else {
		snap, err = t.log.Update(ctx, snap)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.snap == nil || t.mu.snap.Version < snap.Version {
		t.mu.snap = snap
	}
	return snap, nil
}

// SnapshotAt is one version.
func (t *Table) SnapshotAt(ctx context.Context, version int64) (*deltalog.Snapshot, error) {
	return t.log.At(ctx, version)
}

// SnapshotAsOf is the newest version that is not younger than at.
func (t *Table) SnapshotAsOf(ctx context.Context, at time.Time) (*deltalog.Snapshot, error) {
	return t.log.AtTime(ctx, at, deltalog.AtTimeOptions{})
}

// Layout is the file layout of a version.
func (t *Table) Layout(snap *deltalog.Snapshot) (*datafile.Layout, error) {
	return t.layoutFor(snap, snap.TableConfig)
}

// Schema is the logical schema of the newest version.
func (t *Table) Schema(ctx context.Context) (*schema.Struct, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snap.Schema, nil
}

// Checkpoint writes a checkpoint of the newest version and returns that version. Like
// a checkpoint after a commit it is followed by the clean-up of expired log files,
// whose failure is logged, unless delta.enableExpiredLogCleanup is false.
func (t *Table) Checkpoint(ctx context.Context) (int64, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if err := snap.Require(deltalog.OpWrite); err != nil {
		return 0, err
	}
	if err := t.log.WriteCheckpoint(ctx, snap); err != nil {
		return snap.Version, err
	}
	if snap.Props.EnableExpiredLogCleanup {
		if _, err := t.CleanLog(ctx, deltalog.CleanUpOptions{}); err != nil {
			t.opts.Logger.Warn("log clean-up failed", "error", err)
		}
	}
	return snap.Version, nil
}

// CleanLog deletes the log files that only expired versions need, see
// [deltalog.Log.CleanUp].
func (t *Table) CleanLog(ctx context.Context, o deltalog.CleanUpOptions) (deltalog.CleanUpResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return deltalog.CleanUpResult{Cutoff: -1}, err
	}
	return t.log.CleanUp(ctx, snap, o)
}

// History lists the commits that the log holds, newest first, at most limit of
// them (0: all).
func (t *Table) History(ctx context.Context, limit int) ([]deltalog.HistoryEntry, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snap.History(ctx, limit)
}

// condition parses and binds a WHERE text; "" is nil.
func (t *Table) condition(s *schema.Struct, text string, now time.Time) (*expr.Bound, error) {
	if text == "" {
		return nil, nil
	}
	e, err := expr.Parse(text)
	if err != nil {
		return nil, err
	}
	b, err := e.BindWith(s, expr.Options{Zone: t.opts.TimeZone, Now: &now})
	if err != nil {
		return nil, err
	}
	if b.Type() != schema.Boolean && b.Type() != schema.Void {
		return nil, &deltalog.InvalidError{ErrorCode: expr.CodeTypeMismatch, Reason: fmt.Sprintf("condition %s has type %s, not BOOLEAN at %s", b, b.Type(), e.Pos())}
	}
	return b, nil
}

// pause waits before attempt n (from 1) after a lost race: 5 ms doubling up to a
// second, with jitter.
func (t *Table) pause(ctx context.Context, n int) error {
	d := min(5*time.Millisecond<<min(n, 10), time.Second)
	return t.opts.Sleep(ctx, d/2+rand.N(d/2+1))
}
