package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// RestoreOptions name the version to go back to: exactly one of Version and Timestamp.
type RestoreOptions struct {
	Version *int64
	// Timestamp is the newest version that is not younger; after the last one it is the
	// newest.
	Timestamp *time.Time
	// IgnoreMissing leaves out files that are not there any more, with their rows.
	IgnoreMissing bool
	UserMetadata  string
}

// RestoreResult is what became of a Restore.
type RestoreResult struct {
	Result
	// To is the version whose content the table has now.
	To int64
	// Missing are the paths of files left out by IgnoreMissing.
	Missing []string
}

// MissingFilesError: files that a version needs are not there any more.
type MissingFilesError struct {
	Version int64
	// Files are their paths in the log, all of them.
	Files []string
}

func (e *MissingFilesError) Error() string {
	shown := e.Files[:min(len(e.Files), 3)]
	return fmt.Sprintf("version %d cannot be restored: %d of its files are gone (were they removed by VACUUM, or by hand?): %s", e.Version, len(e.Files), strings.Join(shown, ", "))
}

// Code is the stable error code.
func (e *MissingFilesError) Code() string { return "RESTORE_FILES_MISSING" }

// Is answers the class ErrNotFound.
func (e *MissingFilesError) Is(target error) bool { return target == ErrNotFound }

// Restore makes the rows, schema and properties of an older version those of a new
// one, by taking back file by file what was removed and removing what was added since.
// The change feed shows the difference. Protocol features, in-commit timestamps, row
// tracking and identity marks do not go back. Any commit that comes in between is a
// conflict (C-27): whoever looked at the table before asking for it should look again.
func (t *Table) Restore(ctx context.Context, o RestoreOptions) (RestoreResult, error) {
	if (o.Version == nil) == (o.Timestamp == nil) {
		return RestoreResult{}, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_RESTORE", Reason: "restore needs a version or a timestamp, and not both"}
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return RestoreResult{}, err
	}
	if err := errors.Join(t.mayChange(snap, false), checkApplyFormat(snap, "restore")); err != nil {
		return RestoreResult{}, err
	}
	params := map[string]string{}
	var to *deltalog.Snapshot
	if o.Version != nil {
		params["version"] = itoa(*o.Version)
		to, err = t.log.At(ctx, *o.Version)
	} else {
		params["timestamp"] = o.Timestamp.UTC().Format("2006-01-02 15:04:05.999999")
		to, err = t.log.AtTime(ctx, *o.Timestamp, deltalog.AtTimeOptions{LatestIfAfter: true})
	}
	if err != nil {
		return RestoreResult{}, err
	}
	r := &restore{t: t, o: o, snap: snap, to: to, out: RestoreResult{To: to.Version}}
	if err := r.files(ctx); err != nil {
		return RestoreResult{}, err
	}
	tx := t.log.Begin(snap)
	if err := r.table(tx); err != nil {
		return RestoreResult{}, err
	}
	if len(r.staged.Removes) > 0 {
		if err := t.mayChange(snap, true); err != nil {
			return RestoreResult{}, err
		}
	}
	if r.staged.Empty() && tx.Actions().Empty() {
		r.out.Result = nothing(snap)
		return r.out, nil
	}
	tx.ReadWholeTable()
	r.out.Result, err = t.finish(ctx, tx, &r.staged, WriteOptions{UserMetadata: o.UserMetadata}, deltalog.CommitOptions{
		Operation: "RESTORE", Parameters: params, NotBlind: true, NoRebase: true,
		Metrics: map[string]string{
			"numRestoredFiles": itoa(r.staged.Metrics.FilesAdded), "restoredFilesSize": itoa(r.staged.Metrics.BytesAdded),
			"numRemovedFiles": itoa(r.staged.Metrics.FilesRemoved), "removedFilesSize": itoa(r.staged.Metrics.BytesRemoved),
			"numOfFilesAfterRestore": itoa(r.count), "tableSizeAfterRestore": itoa(r.size),
		},
	})
	r.out.Attempts = 1
	return r.out, err
}

// restore is one run.
type restore struct {
	t        *Table
	o        RestoreOptions
	snap, to *deltalog.Snapshot
	staged   Staged
	// count and size are those of the table afterwards.
	count, size int64
	out         RestoreResult
}

// fileKey tells logical files apart: the decoded path and the deletion vector.
func fileKey(a *deltalog.Add) (string, error) {
	p, err := a.Decoded()
	return p + "\x00" + a.DeletionVector.ID(), err
}

// files stages the difference between the two sets of files.
func (r *restore) files(ctx context.Context) error {
	now, err := r.snap.FileList(ctx)
	if err != nil {
		return err
	}
	then, err := r.to.FileList(ctx)
	if err != nil {
		return err
	}
	have, want := map[string]bool{}, map[string]bool{}
	for _, a := range now {
		k, err := fileKey(a)
		if err != nil {
			return err
		}
		have[k] = true
	}
	var back []*deltalog.Add
	for _, a := range then {
		k, err := fileKey(a)
		if err != nil {
			return err
		}
		want[k] = true
		r.count, r.size = r.count+1, r.size+a.Size
		if !have[k] {
			back = append(back, a)
		}
	}
	missing, err := r.t.missing(ctx, back)
	if err != nil {
		return err
	}
	if len(missing) > 0 && !r.o.IgnoreMissing {
		return &MissingFilesError{r.to.Version, missing}
	}
	r.out.Missing = missing
	lost := map[string]bool{}
	for _, p := range missing {
		lost[p] = true
	}
	for _, a := range back {
		if lost[a.Path] {
			r.count, r.size = r.count-1, r.size-a.Size
			continue
		}
		b := *a
		b.DataChange = true
		r.staged.Adds = append(r.staged.Adds, &b)
		r.staged.Metrics.FilesAdded++
		r.staged.Metrics.BytesAdded += a.Size
	}
	var gone []*deltalog.Add
	for _, a := range now {
		k, err := fileKey(a)
		if err != nil {
			return err
		}
		if !want[k] {
			gone = append(gone, a)
			r.staged.Removes = append(r.staged.Removes, a.Remove(r.t.opts.Clock(), true))
			r.staged.Metrics.FilesRemoved++
			r.staged.Metrics.BytesRemoved += a.Size
		}
	}
	if deleted, inserted, ok := r.t.countDifference(ctx, r.snap.TableConfig, gone, r.staged.Adds); ok {
		r.staged.Metrics.RowsDeleted, r.staged.Metrics.RowsInserted = deleted, inserted
	}
	return nil
}

// missing are the paths of the files that are not there, themselves or their deletion
// vectors.
func (t *Table) missing(ctx context.Context, files []*deltalog.Add) ([]string, error) {
	var out []string
	for p, err := range pipeline.Map(ctx, 16, slices.Values(files), func(ctx context.Context, a *deltalog.Add) (string, error) {
		ok, err := t.there(ctx, a.Path)
		if err != nil || !ok {
			return a.Path, err
		}
		if a.DeletionVector == nil {
			return "", nil
		}
		if _, err := datafile.LoadVector(ctx, t.store, a.DeletionVector); err != nil {
			if errors.Is(err, storage.ErrNotFound) {
				return a.Path, nil
			}
			return "", err
		}
		return "", nil
	}) {
		if err != nil {
			return nil, err
		}
		if p != "" {
			out = append(out, p)
		}
	}
	return out, nil
}

// there reports whether a file that the log names exists.
func (t *Table) there(ctx context.Context, uri string) (bool, error) {
	var err error
	if key, ok := datafile.Key(t.store, uri); ok {
		_, err = t.store.Head(ctx, key)
	} else {
		var f storage.Reader
		if f, err = datafile.Open(ctx, t.store, uri); err == nil {
			err = f.Close()
		}
	}
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// table stages metadata, protocol and clustering of the older version, as far as they
// may go back.
func (r *restore) table(tx *deltalog.Transaction) error {
	p, err := r.snap.Protocol.With(r.to.Protocol.Features()...)
	if err != nil {
		return err
	}
	if p != r.snap.Protocol {
		tx.SetProtocol(p)
	}
	m, err := r.metadata()
	if err != nil {
		return err
	}
	if !sameMetadata(m, r.snap.Metadata) {
		tx.SetMetadata(m)
	}
	for _, d := range r.snap.RestoreDomains(r.to) {
		tx.SetDomain(d)
	}
	return nil
}

func sameMetadata(a, b *deltalog.Metadata) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Description == b.Description && a.SchemaString == b.SchemaString &&
		slices.Equal(a.PartitionColumns, b.PartitionColumns) && maps.Equal(a.Configuration, b.Configuration)
}

// stays are properties that a restore leaves as they are now: times of commits must go
// on growing (W-751), and rows keep their ids only under the same hidden names.
func stays(key string, rowTracking bool) bool {
	k := strings.ToLower(key)
	if k == "delta.enableincommittimestamps" || strings.HasPrefix(k, "delta.incommittimestampenablement") {
		return true
	}
	return rowTracking && (k == "delta.enablerowtracking" || k == "delta.rowtrackingsuspended" || strings.HasPrefix(k, "delta.rowtracking."))
}

func (r *restore) metadata() (*deltalog.Metadata, error) {
	m := *r.to.Metadata
	m.ID = r.snap.Metadata.ID
	m.Configuration = map[string]string{}
	tracked := r.snap.Props.RowTracking
	for k, v := range r.to.Metadata.Configuration {
		if !stays(k, tracked) {
			m.Configuration[k] = v
		}
	}
	for k, v := range r.snap.Metadata.Configuration {
		if stays(k, tracked) {
			m.Configuration[k] = v
		}
	}
	s := mergeIdentity(r.to.Schema, r.snap.Schema)
	const mode, maxID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
	if top := max(r.snap.Props.ColumnMappingMaxID, r.to.Props.ColumnMappingMaxID); top > 0 {
		if r.to.Mode() == schema.ModeNone && r.snap.Mode() != schema.ModeNone {
			// The mapping stays: physical names are the names of that time (W-503).
			s, top = schema.AssignMapping(s, top, nil)
			m.Configuration[mode] = string(r.snap.Mode())
		}
		m.Configuration[maxID] = strconv.Itoa(int(top))
	}
	if s != r.to.Schema {
		m.SchemaString = s.JSON()
	}
	return &m, nil
}

// mergeIdentity is a schema whose identity columns go on from the farther mark of two
// versions, so that no value is given twice.
func mergeIdentity(s, other *schema.Struct) *schema.Struct {
	const mark, step = "delta.identity.highWaterMark", "delta.identity.step"
	out := s
	for i, f := range s.Fields {
		at := other.Index(f.Name)
		if at < 0 {
			continue
		}
		theirs, ok := number(other.Fields[at], mark)
		if !ok {
			continue
		}
		by, ok := number(f, step)
		if !ok {
			continue
		}
		if ours, ok := number(f, mark); ok && (by > 0) == (ours >= theirs) {
			continue
		}
		if out == s {
			out = &schema.Struct{Fields: slices.Clone(s.Fields)}
		}
		out.Fields[i].Metadata = f.Metadata.With(mark, theirs)
	}
	return out
}

func number(f schema.Field, key string) (int64, bool) {
	raw, ok := f.Metadata.Get(key)
	if !ok {
		return 0, false
	}
	var n int64
	return n, json.Unmarshal(raw, &n) == nil
}
