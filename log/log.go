package deltalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-data/sluice/storage"
)

// Options of [Open]; the zero value is the default.
type Options struct {
	// Clock tells the time; default time.Now.
	Clock func() time.Time
	// NewID makes a fresh UUID text; default a random one.
	NewID func() string
	// Rand makes back-off jitter in [0,1); default math/rand.
	Rand func() float64
	// Sleep waits for d or until ctx ends; default a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// EngineInfo is commitInfo.engineInfo; default "sluice".
	EngineInfo string
	// Logger hears of what is tolerated (a failed checkpoint); default none.
	Logger *slog.Logger
	// SidecarActions is how many file actions a sidecar of a V2 checkpoint holds at
	// most; default 50,000.
	SidecarActions int
	// NoCheckpoints turns off checkpoints after commits.
	NoCheckpoints bool
	// NoChecksums turns off version checksums after commits.
	NoChecksums bool
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Sleep == nil {
		o.Sleep = func(ctx context.Context, d time.Duration) error {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-t.C:
				return nil
			}
		}
	}
	if o.EngineInfo == "" {
		o.EngineInfo = "sluice"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Log is the transaction log of the table at the root of a store. It holds no
// state between calls and is safe for concurrent use.
type Log struct {
	store storage.Store
	opts  Options
}

// Open returns the log of the table in store; it does no I/O.
func Open(store storage.Store, opts Options) *Log {
	return &Log{store: store, opts: opts.withDefaults()}
}

// Store is the store the log lies in.
func (l *Log) Store() storage.Store { return l.store }

// Now is the log's clock.
func (l *Log) Now() time.Time { return l.opts.Clock() }

// NewID is a fresh UUID from the log's id source.
func (l *Log) NewID() string { return l.opts.NewID() }

// Exists reports whether the location is a Delta table: at least one commit or
// checkpoint.
func (l *Log) Exists(ctx context.Context) (bool, error) {
	files, err := l.listOnce(ctx, 0)
	if err != nil {
		return false, err
	}
	return newestVersion(files) >= 0, nil
}

const latest = math.MaxInt64

// Latest is the snapshot of the newest version. Errors: [ErrNotFound] when there is
// no table, [ErrCorrupt], [ErrUnsupported].
func (l *Log) Latest(ctx context.Context) (*Snapshot, error) { return l.load(ctx, latest) }

// At is the snapshot of one version; DELTA_VERSION_NOT_FOUND when it is outside of
// what the log can rebuild.
func (l *Log) At(ctx context.Context, version int64) (*Snapshot, error) {
	if version < 0 {
		return nil, versionNotFound(version, 0, -1)
	}
	return l.load(ctx, version)
}

func (l *Log) notATable() error {
	return &NotFoundError{ErrorCode: "DELTA_TABLE_NOT_FOUND", Version: -1,
		Reason: fmt.Sprintf("%s is not a Delta table: %s holds no commit and no checkpoint", l.store.URL(), LogDir)}
}

func versionNotFound(version, earliest, newest int64) error {
	reason := fmt.Sprintf("version %d is not available", version)
	if newest >= 0 {
		reason += fmt.Sprintf(": the log can rebuild versions %d to %d", earliest, newest)
	}
	return &NotFoundError{ErrorCode: "DELTA_VERSION_NOT_FOUND", Version: version, Reason: reason}
}

// errUnusable marks a checkpoint that cannot be used though its files are listed (one
// is damaged, a sidecar is gone); an older one is tried, then the commits from version 0
// on.
var errUnusable = errors.New("unusable checkpoint")

// load makes the snapshot of a version: from the hint when it helps, else from a
// whole listing, newest usable checkpoint first.
func (l *Log) load(ctx context.Context, version int64) (*Snapshot, error) {
	s, err := l.loadOnce(ctx, version)
	if errors.Is(err, errVanished) {
		// Another process cleaned the log between listing and reading: list again.
		s, err = l.loadOnce(ctx, version)
	}
	return s, err
}

// errVanished marks a commit that was listed and is gone.
var errVanished = errors.New("file vanished")

func (l *Log) loadOnce(ctx context.Context, version int64) (*Snapshot, error) {
	if from := l.readHint(ctx); from > 0 && from <= version {
		files, err := l.list(ctx, from, -1, -1)
		if err != nil {
			return nil, err
		}
		if sets := checkpointsUpTo(files, version); len(sets) > 0 {
			s, err := l.loadFrom(ctx, files, sets[:1], version)
			// What is not found from the hint on is looked for in the whole log, which knows
			// the versions that can be had.
			if !errors.Is(err, errUnusable) && !errors.Is(err, ErrNotFound) {
				return s, err
			}
		}
	}
	files, err := l.list(ctx, 0, -1, -1)
	if err != nil {
		return nil, err
	}
	if newestVersion(files) < 0 {
		return nil, l.notATable()
	}
	sets := checkpointsUpTo(files, version)
	return l.loadFrom(ctx, files, append(sets, nil), version)
}

// loadFrom tries the checkpoints in order; a nil one is version 0.
func (l *Log) loadFrom(ctx context.Context, files []logFile, sets []*checkpointSet, version int64) (*Snapshot, error) {
	newest := newestVersion(files)
	target := version
	if version == latest {
		target = newest
	} else if version > newest {
		return nil, versionNotFound(version, max(earliestRebuildable(files), 0), newest)
	}
	var unusable error
	for _, set := range sets {
		seg, err := buildSegment(files, set, target)
		if err != nil {
			if unusable != nil {
				return nil, unusable
			}
			if e := earliestRebuildable(files); set == nil && version != latest && e > version {
				return nil, versionNotFound(version, e, newest)
			}
			return nil, err
		}
		s, err := l.newSnapshot(ctx, seg)
		if errors.Is(err, errUnusable) {
			if unusable == nil {
				unusable = err
			}
			continue
		}
		if err == nil && unusable != nil {
			l.opts.Logger.Warn("a checkpoint cannot be used; the version was rebuilt from older files of the log", "version", target, "error", unusable)
		}
		return s, err
	}
	return nil, unusable
}

// insteadOf is the same version without the checkpoint that s was made from, which
// turned out to be unusable.
func (l *Log) insteadOf(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	files, err := l.list(ctx, 0, -1, -1)
	if err != nil {
		return nil, err
	}
	sets := checkpointsUpTo(files, s.Version)
	for i, set := range sets {
		if set.files[0].key == s.checkpoint.set.files[0].key {
			return l.loadFrom(ctx, files, append(sets[i+1:], nil), s.Version)
		}
	}
	return nil, s.log.notATable() // it was cleaned up meanwhile
}

// ReadCommit reads one commit file. A version without one is DELTA_VERSION_NOT_FOUND.
func (l *Log) ReadCommit(ctx context.Context, version int64) (*Commit, error) {
	obj, err := l.store.Head(ctx, CommitKey(version))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, versionNotFound(version, 0, -1)
	}
	if err != nil {
		return nil, fmt.Errorf("head %s: %w", CommitKey(version), err)
	}
	return l.readCommitFile(ctx, logFile{version: version, key: obj.Key, size: obj.Size, modTime: obj.ModTime.UnixMilli()})
}

func (l *Log) readCommitFile(ctx context.Context, f logFile) (*Commit, error) {
	data, err := l.readText(ctx, f.key, maxTextFile)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, &CorruptError{ErrorCode: "DELTA_VERSIONS_NOT_CONTIGUOUS", File: f.key, Reason: "the commit vanished while the log was read", Cause: errors.Join(errVanished, err)}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.key, err)
	}
	return ParseCommit(f.version, f.key, data, time.UnixMilli(f.modTime).UTC())
}

// Commits yields the commits from..to, both inclusive, oldest first, always from
// plain commit files. A missing version is DELTA_VERSIONS_NOT_CONTIGUOUS; versions
// before the retained log are DELTA_VERSION_NOT_FOUND.
func (l *Log) Commits(ctx context.Context, from, to int64) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		files, err := l.list(ctx, from, from, to)
		if err != nil {
			yield(nil, err)
			return
		}
		next := from
		for _, f := range commitFiles(files, from-1, to) {
			if f.version != next {
				break
			}
			c, err := l.readCommitFile(ctx, f)
			if !yield(c, err) || err != nil {
				return
			}
			next++
		}
		if next > to {
			return
		}
		if next == from {
			yield(nil, versionNotFound(next, 0, -1))
			return
		}
		yield(nil, &CorruptError{ErrorCode: "DELTA_VERSIONS_NOT_CONTIGUOUS", File: CommitKey(next),
			Reason: fmt.Sprintf("the log has a hole: commit %d is missing", next)})
	}
}
