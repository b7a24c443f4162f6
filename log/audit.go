package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// Severity grades a [Finding].
type Severity string

const (
	// SevereError: rows or versions are lost, doubled or wrong.
	SevereError Severity = "error"
	// SevereWarning: readers get by, at a cost or for now.
	SevereWarning Severity = "warning"
	// SevereNote: nothing is wrong, a reader of the report wants to know it.
	SevereNote Severity = "note"
)

// Finding is one thing that an audit found wrong.
type Finding struct {
	// Code is stable, FSCK_ and what is wrong (docs/fsck.md lists them).
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// File is the key in the store, or the path in the log of a file outside of it.
	File string `json:"file,omitempty"`
	// Version is the table version concerned, -1 for none.
	Version int64 `json:"version"`
	// Line counts from 1, 0 when no line is meant.
	Line   int    `json:"line,omitempty"`
	Detail string `json:"detail"`
	// Repair says what a repair does, "" when nothing can be done without loss.
	Repair string `json:"repair,omitempty"`
}

// Codes of findings in the log.
const (
	FsckCommitMissing     = "FSCK_COMMIT_MISSING"
	FsckCommitUnreadable  = "FSCK_COMMIT_UNREADABLE"
	FsckCommitTime        = "FSCK_COMMIT_TIME"
	FsckMetadata          = "FSCK_METADATA"
	FsckRemoveUnknown     = "FSCK_REMOVE_UNKNOWN"
	FsckFileTwice         = "FSCK_FILE_TWICE"
	FsckCheckpoint        = "FSCK_CHECKPOINT_UNREADABLE"
	FsckCheckpointDiffers = "FSCK_CHECKPOINT_DIFFERS"
	FsckCheckpointPart    = "FSCK_CHECKPOINT_INCOMPLETE"
	FsckHint              = "FSCK_LAST_CHECKPOINT"
	FsckChecksum          = "FSCK_CHECKSUM"
	FsckCompaction        = "FSCK_COMPACTION"
	FsckNoVersion         = "FSCK_NO_VERSION"
)

// Audit is what [Log.Audit] found.
type Audit struct {
	// Latest is the newest version that the log names, -1 if it names none.
	Latest int64 `json:"latest"`
	// Counts of the files that were looked at.
	Commits     int       `json:"commits"`
	Checkpoints int       `json:"checkpoints"`
	Checksums   int       `json:"checksums"`
	Compactions int       `json:"compactions"`
	Findings    []Finding `json:"findings"`
}

// auditor walks the versions upwards and keeps the state that the commits make, so
// that everything derived from them can be held against it.
type auditor struct {
	l     *Log
	files []logFile
	out   *Audit

	st       *fileState // nil while the state is not known
	protocol *Protocol
	metadata *Metadata
	cfg      *TableConfig
	txns     map[string]*Txn
	domains  map[string]*DomainMetadata
	lastTime *int64
	// bad are the checkpoints that are not to be used, by the key of their first file;
	// true: the commits make the same state.
	bad map[string]bool
}

// Audit reads the whole log and holds everything in it that is derived (checkpoints,
// checksums, compaction files, _last_checkpoint) against the commits. What is wrong
// with the log is a finding, not an error; errors are those of the store, and
// [ErrNotFound] when there is no table. It writes nothing.
func (l *Log) Audit(ctx context.Context) (*Audit, error) {
	a, err := l.audit(ctx)
	if err != nil {
		return nil, err
	}
	return a.out, nil
}

func (l *Log) audit(ctx context.Context) (*auditor, error) {
	files, err := l.list(ctx, 0, -1, -1)
	if err != nil {
		return nil, err
	}
	newest := newestVersion(files)
	if newest < 0 {
		return nil, l.notATable()
	}
	a := &auditor{l: l, files: files, out: &Audit{Latest: newest, Findings: []Finding{}}, bad: map[string]bool{},
		txns: map[string]*Txn{}, domains: map[string]*DomainMetadata{}}
	if err := a.walk(ctx, newest); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context) error{a.partial, a.compactions, a.hint, a.newest, a.twice} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *auditor) find(f Finding) { a.out.Findings = append(a.out.Findings, f) }

// damage makes a finding of an error that says the file is bad, and hands back every
// other error: the store's, and the caller's end of the context.
func (a *auditor) damage(err error, f Finding) error {
	var corrupt *CorruptError
	var invalid *InvalidError
	switch {
	case errors.As(err, &corrupt):
		f.Line = corrupt.Line
		if corrupt.File != "" {
			f.File = corrupt.File
		}
	case errors.As(err, &invalid), errors.Is(err, ErrUnsupported), errors.Is(err, errUnusable):
	default:
		return err
	}
	f.Detail = err.Error()
	a.find(f)
	return nil
}

// walk goes through the versions in order.
func (a *auditor) walk(ctx context.Context, newest int64) error {
	commits := map[int64]logFile{}
	first := newest + 1
	for _, f := range commitFiles(a.files, -1, newest) {
		commits[f.version] = f
		first = min(first, f.version)
	}
	sums := map[int64]bool{}
	for _, f := range a.files {
		if f.kind == checksumFile {
			sums[f.version] = true
		}
	}
	sets := map[int64][]*checkpointSet{}
	usable := int64(-1)
	var versions []int64
	for _, set := range checkpointsUpTo(a.files, newest) {
		sets[set.version] = append(sets[set.version], set)
		usable = max(usable, set.version)
		if set.version < first {
			versions = append(versions, set.version)
		}
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	for v := first; v <= newest; v++ {
		versions = append(versions, v)
	}
	if first == 0 {
		a.st = &fileState{live: map[fileKey]*Add{}, dead: map[fileKey]*Remove{}}
	}
	for _, v := range versions {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if f, ok := commits[v]; ok {
			if err := a.commit(ctx, f); err != nil {
				return err
			}
		} else if v >= first {
			a.missing(v, usable)
		}
		for _, set := range sets[v] {
			if err := a.checkpoint(ctx, set); err != nil {
				return err
			}
		}
		if sums[v] {
			if err := a.checksum(ctx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *auditor) missing(v, usable int64) {
	f := Finding{Code: FsckCommitMissing, Severity: SevereError, File: CommitKey(v), Version: v,
		Detail: "the commit is missing and no later checkpoint stands in for it: its rows, and every later version, cannot be rebuilt"}
	if v <= usable {
		f.Severity = SevereWarning
		f.Detail = "the commit is missing: a later checkpoint stands in for it, but versions between the two and the change feed across them are gone"
	}
	a.find(f)
	a.st = nil
}

func (a *auditor) commit(ctx context.Context, f logFile) error {
	a.out.Commits++
	c, err := a.l.readCommitFile(ctx, f)
	if err != nil {
		a.st = nil
		return a.damage(err, Finding{Code: FsckCommitUnreadable, Severity: SevereError, File: f.key, Version: f.version})
	}
	if c.Protocol != nil || c.Metadata != nil {
		a.take(&c.Actions, f.version, f.key)
	}
	for _, t := range c.Txns {
		a.txns[t.AppID] = t
	}
	for _, d := range c.Domains {
		a.domains[d.Domain] = d
		if d.Removed {
			delete(a.domains, d.Domain)
		}
	}
	a.time(c, f)
	if a.st == nil {
		return nil
	}
	a.strangers(c, f)
	if err := a.st.fold(c); err != nil {
		a.st = nil
		return a.damage(err, Finding{Code: FsckCommitUnreadable, Severity: SevereError, File: f.key, Version: f.version})
	}
	return nil
}

// take makes the configuration that holds from version v on.
func (a *auditor) take(x *Actions, v int64, key string) {
	if x.Protocol != nil {
		a.protocol = x.Protocol
	}
	if x.Metadata != nil {
		a.metadata = x.Metadata
	}
	if a.st == nil && (a.protocol == nil || a.metadata == nil) {
		// A clean-up that died leaves commits with no checkpoint below them: the other
		// action is in a commit that is gone, and in the next checkpoint.
		a.cfg = nil
		return
	}
	cfg, err := NewTableConfig(a.protocol, a.metadata)
	if err != nil {
		a.cfg = nil
		severity := SevereError
		if errors.Is(err, ErrUnsupported) {
			severity = SevereNote // the table may be whole, but not for us
		}
		a.find(Finding{Code: FsckMetadata, Severity: severity, File: key, Version: v, Detail: err.Error()})
		return
	}
	a.cfg = cfg
}

// time checks in-commit timestamps, which must grow.
func (a *auditor) time(c *Commit, f logFile) {
	var now *int64
	if c.Info != nil {
		now = c.Info.InCommitTimestamp
	}
	on := a.cfg != nil && a.cfg.InCommitTimestamps()
	switch {
	case on && now == nil:
		a.find(Finding{Code: FsckCommitTime, Severity: SevereError, File: f.key, Version: f.version,
			Detail: "the table has in-commit timestamps, this commit has none"})
	case on && a.lastTime != nil && *now <= *a.lastTime:
		a.find(Finding{Code: FsckCommitTime, Severity: SevereError, File: f.key, Version: f.version,
			Detail: fmt.Sprintf("the in-commit timestamp %d is not after %d of the version before", *now, *a.lastTime)})
	}
	a.lastTime = now
}

// strangers looks for actions that do not fit the files before them.
func (a *auditor) strangers(c *Commit, f logFile) {
	for _, r := range c.Removes {
		k, err := keyOf(r.Path, r.DeletionVector)
		if err != nil {
			continue // fold reports it
		}
		if a.st.live[k] == nil {
			// Spark's DROP FEATURE deletionVectors removes the files of vectors like this.
			a.find(Finding{Code: FsckRemoveUnknown, Severity: SevereNote, File: f.key, Version: f.version,
				Detail: fmt.Sprintf("%s is removed, but was no file of the table with that deletion vector", k.path)})
		}
	}
}

// checkpoint reads a checkpoint whole and holds it against the state, or takes its
// state where none is known.
func (a *auditor) checkpoint(ctx context.Context, set *checkpointSet) error {
	a.out.Checkpoints++
	key := set.files[0].key
	f := Finding{Code: FsckCheckpoint, Severity: SevereWarning, File: key, Version: set.version, Repair: "delete the checkpoint: the commits make the same state"}
	if a.st == nil {
		f.Severity, f.Repair = SevereError, ""
	}
	src, state, err := a.l.openCheckpoint(ctx, set)
	if err != nil {
		a.bad[key] = a.st != nil
		return a.damage(err, f)
	}
	cfg, err := NewTableConfig(state.Protocol, state.Metadata)
	if errors.Is(err, ErrUnsupported) {
		return nil // it may be whole: not for us to judge, still less to delete
	}
	if err != nil {
		a.bad[key] = a.st != nil
		return a.damage(err, f)
	}
	got := &fileState{live: map[fileKey]*Add{}, dead: map[fileKey]*Remove{}}
	err = src.fileActions(ctx, cfg, func(file string, add *Add, r *Remove) error {
		var k fileKey
		var err error
		if add != nil {
			k, err = keyOf(add.Path, add.DeletionVector)
			got.live[k] = add
		} else {
			k, err = keyOf(r.Path, r.DeletionVector)
			got.dead[k] = r
		}
		if err != nil {
			return &CorruptError{ErrorCode: codeCorrupt, File: file, Reason: "file action", Cause: err}
		}
		return nil
	})
	if err != nil {
		a.bad[key] = a.st != nil
		return a.damage(err, f)
	}
	if a.st == nil {
		a.adopt(state, cfg, got)
		return nil
	}
	if diff := a.differences(state, got); diff != nil {
		a.bad[key] = a.st != nil
		f.Code, f.Severity, f.Detail = FsckCheckpointDiffers, SevereError, "the checkpoint differs from the commits: "+strings.Join(diff, "; ")
		a.find(f)
	}
	return nil
}

// adopt starts from a checkpoint.
func (a *auditor) adopt(x *Actions, cfg *TableConfig, st *fileState) {
	a.protocol, a.metadata, a.cfg, a.st, a.lastTime = x.Protocol, x.Metadata, cfg, st, nil
	a.txns, a.domains = indexTxns(x.Txns), indexDomains(x.Domains)
}

// differences lists what a checkpoint has otherwise than the commits. Marks and
// tombstones may have expired in it.
func (a *auditor) differences(x *Actions, got *fileState) (diff []string) {
	if !reflect.DeepEqual(x.Protocol, a.protocol) {
		diff = append(diff, "the protocol")
	}
	m, n := x.Metadata, a.metadata
	if m.ID != n.ID || compactJSON(m.SchemaString) != compactJSON(n.SchemaString) || !slices.Equal(m.PartitionColumns, n.PartitionColumns) || !maps.Equal(m.Configuration, n.Configuration) {
		diff = append(diff, "the metadata")
	}
	for _, t := range x.Txns {
		if own := a.txns[t.AppID]; own == nil || own.Version != t.Version {
			diff = append(diff, "the transaction mark of "+t.AppID)
		}
	}
	domains := indexDomains(x.Domains)
	for _, name := range slices.Sorted(maps.Keys(a.domains)) {
		if d := domains[name]; d == nil || d.Configuration != a.domains[name].Configuration {
			diff = append(diff, "the domain "+name)
		}
	}
	return append(diff, fileDifferences(a.st, got)...)
}

// fileDifferences names at most three files on each side.
func fileDifferences(want, got *fileState) (diff []string) {
	only := func(what string, a, b map[fileKey]*Add) {
		var paths []string
		for k := range a {
			if b[k] == nil {
				paths = append(paths, k.path)
			}
		}
		if len(paths) == 0 {
			return
		}
		sort.Strings(paths)
		diff = append(diff, fmt.Sprintf("%d files %s, the first %s", len(paths), what, strings.Join(paths[:min(3, len(paths))], ", ")))
	}
	only("are missing in it", want.live, got.live)
	only("are in it and not in the commits", got.live, want.live)
	var sizes []string
	for k, add := range got.live {
		if w := want.live[k]; w != nil && (w.Size != add.Size || !maps.EqualFunc(w.PartitionValues, add.PartitionValues, equalText)) {
			sizes = append(sizes, k.path)
		}
	}
	if sizes != nil {
		sort.Strings(sizes)
		diff = append(diff, "size or partition of "+strings.Join(sizes[:min(3, len(sizes))], ", "))
	}
	return diff
}

// compactJSON is the text without white space, which writers may set as they like.
func compactJSON(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
