package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// VacuumOptions are settings of [Table.Vacuum]; the zero value deletes what no version
// of the table's retention time needs.
type VacuumOptions struct {
	// Retain is the time back from now of which every version stays readable. Default:
	// the table's delta.deletedFileRetentionDuration.
	Retain *time.Duration
	// AllowShortRetention allows a Retain below the table's: files of running writers
	// and of readers of older versions are then at stake (W-885).
	AllowShortRetention bool
	// DryRun only lists.
	DryRun bool
	// Lite takes the files to delete from the log instead of a listing: it finds what
	// versions left behind, not what no version ever named.
	Lite bool
	// Workers bounds the deletions under way. Default: 16.
	Workers int
	// BeforeDelete, if set, sees the files that are about to be deleted; an error stops
	// before the first.
	BeforeDelete func(ctx context.Context, snap *deltalog.Snapshot, files []VacuumFile) error
	UserMetadata string
}

// VacuumFile is a file that nothing needs.
type VacuumFile struct {
	Key     string // in the table's store
	Size    int64  // bytes
	ModTime time.Time
}

// VacuumResult is what became of a Vacuum.
type VacuumResult struct {
	// Version is that of the commit VACUUM END, or the one that was read.
	Version   int64
	Committed bool
	// Files are those found, by key; Deleted counts those that are gone now.
	Files   []VacuumFile
	Bytes   int64 // of Files
	Deleted int64
	// Retain is the time that was kept.
	Retain time.Duration
	DryRun bool
}

// RetentionError: the time asked for is shorter than what the table promises.
type RetentionError struct{ Asked, Table time.Duration }

func (e *RetentionError) Error() string {
	return fmt.Sprintf("vacuum: keeping %s is less than the table's %s: running writers and readers of older versions could lose files", e.Asked, e.Table)
}

// Code is the stable error code.
func (e *RetentionError) Code() string { return "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT" }

// Is answers the class ErrInvalid.
func (e *RetentionError) Is(target error) bool { return target == ErrInvalid }

// Vacuum deletes files in the table's folder that no version of the retention time
// needs: data files, deletion vectors and change files of older versions, and what
// failed writers left. It never touches the log, hidden files and folders, tables in
// folders below, and anything outside of the folder. On a target of AUTO CDC the files
// that other writers replaced since the last batch stay, since apply reads row versions
// back from them (apply-state 5).
func (t *Table) Vacuum(ctx context.Context, o VacuumOptions) (VacuumResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return VacuumResult{}, err
	}
	// The whole writer protocol, before anything else (W-881).
	if err := snap.Require(deltalog.OpWrite); err != nil {
		return VacuumResult{}, err
	}
	v := &vacuum{t: t, o: o, snap: snap, keep: map[string]bool{}, retain: snap.Props.DeletedFileRetention}
	if o.Retain != nil {
		v.retain = *o.Retain
	}
	switch {
	case v.retain < 0:
		return VacuumResult{}, &deltalog.InvalidError{ErrorCode: "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT", Rule: "W-885", Reason: "the time to keep is negative"}
	case v.retain < snap.Props.DeletedFileRetention && !o.AllowShortRetention:
		return VacuumResult{}, &RetentionError{v.retain, snap.Props.DeletedFileRetention}
	}
	v.cutoff = t.opts.Clock().Add(-v.retain)
	if err := v.plan(ctx); err != nil {
		return VacuumResult{}, err
	}
	out := VacuumResult{Version: snap.Version, Retain: v.retain, DryRun: o.DryRun}
	if o.Lite {
		out.Files, err = v.fromLog(ctx)
	} else {
		out.Files, err = v.fromListing(ctx)
	}
	if err != nil {
		return VacuumResult{}, err
	}
	slices.SortFunc(out.Files, func(a, b VacuumFile) int { return cmp.Compare(a.Key, b.Key) })
	for _, f := range out.Files {
		out.Bytes += f.Size
	}
	if o.DryRun {
		return out, nil
	}
	return v.run(ctx, out)
}

// vacuum is one run.
type vacuum struct {
	t      *Table
	o      VacuumOptions
	snap   *deltalog.Snapshot
	retain time.Duration
	cutoff time.Time
	// first is the version that was current at the cutoff, the oldest to stay readable;
	// -1 when the log holds none that old.
	first int64
	// nested are folders of other tables, with a slash.
	nested []string
	// keep are keys in lower case: on some file systems names differ in case only to us.
	keep map[string]bool
}

// plan finds the retained versions and everything they need.
func (v *vacuum) plan(ctx context.Context) error {
	timeline, err := v.snap.Timeline(ctx)
	if err != nil {
		return err
	}
	first, ok, err := timeline.AtOrBefore(ctx, v.cutoff)
	if err != nil {
		return err
	}
	if v.first = first; !ok {
		v.first = -1
	}
	for a, err := range v.snap.Files(ctx) {
		if err != nil {
			return err
		}
		v.need(a.Path, a.DeletionVector)
	}
	dead, err := v.snap.Tombstones(ctx)
	if err != nil {
		return err
	}
	for _, r := range dead {
		if time.UnixMilli(r.DeletionTimestamp).After(v.cutoff) {
			v.need(r.Path, r.DeletionVector)
		}
	}
	if err := v.needCommits(ctx, max(v.first+1, timeline.First()), v.snap.Version); err != nil {
		return err
	}
	return v.needForApply(ctx, timeline)
}

// need keeps a file and its deletion vector.
func (v *vacuum) need(uri string, d *deltalog.DeletionVectorDescriptor) {
	if key, ok := datafile.Key(v.t.store, uri); ok {
		v.keep[strings.ToLower(key)] = true
	}
	if key, ok := vectorKey(v.t.store, d); ok {
		v.keep[strings.ToLower(key)] = true
	}
}

// vectorKey is the file of a deletion vector, if it has one in the table's folder.
func vectorKey(store storage.Store, d *deltalog.DeletionVectorDescriptor) (string, bool) {
	if d == nil {
		return "", false
	}
	p, absolute, err := dv.Descriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv}.Path()
	if err != nil || p == "" {
		return "", false
	}
	if !absolute {
		p = schema.EncodePath(p)
	}
	return datafile.Key(store, p)
}

// needCommits keeps whatever the commits of retained versions name: what they removed
// was live in the version before, and change files belong to their feed.
func (v *vacuum) needCommits(ctx context.Context, from, to int64) error {
	if from > to {
		return nil
	}
	for c, err := range v.t.log.Commits(ctx, from, to) {
		if err != nil {
			return err
		}
		for _, a := range c.Adds {
			v.need(a.Path, a.DeletionVector)
		}
		for _, r := range c.Removes {
			v.need(r.Path, r.DeletionVector)
		}
		for _, f := range c.CDC {
			v.need(f.Path, nil)
		}
	}
	return nil
}

// applyApp is the application of the commits of AUTO CDC.
const applyApp = "sluice-state"

// needForApply keeps, on a target of AUTO CDC, the files that other writers replaced
// after the newest commit of apply, which has looked at everything before it.
func (v *vacuum) needForApply(ctx context.Context, timeline *deltalog.Timeline) error {
	if _, ok := v.snap.TxnVersion(applyApp); !ok {
		return nil
	}
	for version := v.snap.Version; version >= timeline.First(); version-- {
		c, err := v.t.log.ReadCommit(ctx, version)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Txns, func(x *deltalog.Txn) bool { return x.AppID == applyApp }) {
			return nil
		}
		for _, r := range c.Removes {
			v.need(r.Path, r.DeletionVector)
		}
	}
	return nil
}

// fromListing are the old files of the folder that are not kept (W-882 to W-886).
func (v *vacuum) fromListing(ctx context.Context) ([]VacuumFile, error) {
	var found []storage.Object
	kept := map[string]bool{}
	iceberg := false
	for o, err := range v.t.store.List(ctx, "", "") {
		if err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
		if i := strings.Index(o.Key, "/"+deltalog.LogDir); i > 0 {
			if dir := o.Key[:i+1]; len(v.nested) == 0 || v.nested[len(v.nested)-1] != dir {
				v.nested = append(v.nested, dir)
			}
			continue
		}
		iceberg = iceberg || strings.HasPrefix(o.Key, "metadata/") && (strings.HasSuffix(o.Key, ".metadata.json") || strings.HasSuffix(o.Key, "version-hint.text"))
		switch {
		case v.hidden(o.Key):
		case v.keep[strings.ToLower(o.Key)]:
			// On a local disk the tag is the file's identity. Object stores make it of the
			// bytes, and a dead file may have those of a live one.
			if o.ETag != "" && strings.HasPrefix(v.t.store.URL(), "file:") {
				kept[o.ETag] = true
			}
		case o.ModTime.Before(v.cutoff):
			found = append(found, o)
		}
	}
	var out []VacuumFile
	// What processes left that were killed in a write: also in the log and in what apply
	// keeps below the table, which no vacuum of its own visits. A write of the retention
	// time may be under way.
	for o, err := range storage.UnfinishedIn(ctx, v.t.store) {
		if err != nil {
			return nil, fmt.Errorf("list unfinished files: %w", err)
		}
		apart := !strings.HasPrefix(o.Key, "_apply/") && slices.ContainsFunc(v.nested, func(dir string) bool { return strings.HasPrefix(o.Key, dir) })
		if o.ModTime.Before(v.cutoff) && !apart {
			out = append(out, VacuumFile{o.Key, o.Size, o.ModTime})
		}
	}
	for _, o := range found {
		if kept[o.ETag] || iceberg && strings.HasPrefix(o.Key, "metadata/") || slices.ContainsFunc(v.nested, func(dir string) bool { return strings.HasPrefix(o.Key, dir) }) {
			continue // a kept file under another name, Iceberg's metadata, another table
		}
		out = append(out, VacuumFile{o.Key, o.Size, o.ModTime})
	}
	return out, nil
}

// hidden tells whether a file is none of the table's (W-883).
func (v *vacuum) hidden(key string) bool {
	return hiddenKey(key, v.snap.PartitionColumns(), v.snap.PhysicalPartitionColumns())
}

// fromLog are the files that the commits since the last vacuum, up to the cutoff, took
// out of the table and that are still there.
func (v *vacuum) fromLog(ctx context.Context) ([]VacuumFile, error) {
	timeline, err := v.snap.Timeline(ctx)
	if err != nil {
		return nil, err
	}
	from := v.t.lastVacuum(ctx) + 1
	if from < timeline.First() {
		return nil, &deltalog.InvalidError{ErrorCode: "DELTA_CANNOT_VACUUM_LITE", Rule: "W-882",
			Reason: fmt.Sprintf("the log begins with version %d, and what versions %d to %d left is not known; run a full vacuum", timeline.First(), from, timeline.First()-1)}
	}
	candidates := map[string]bool{}
	add := func(key string, ok bool) {
		if ok && !v.keep[strings.ToLower(key)] && !v.hidden(key) {
			candidates[key] = true
		}
	}
	// What the commits up to the first version to keep took away, none to keep has.
	if from <= v.first {
		for c, err := range v.t.log.Commits(ctx, from, v.first) {
			if err != nil {
				return nil, err
			}
			for _, r := range c.Removes {
				add(datafile.Key(v.t.store, r.Path))
				add(vectorKey(v.t.store, r.DeletionVector))
			}
			for _, f := range c.CDC {
				add(datafile.Key(v.t.store, f.Path))
			}
		}
	}
	keys := make([]string, 0, len(candidates))
	for k := range candidates {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []VacuumFile
	for o, err := range pipeline.Map(ctx, v.workers(), slices.Values(keys), func(ctx context.Context, key string) (storage.Object, error) {
		o, err := v.t.store.Head(ctx, key)
		if errors.Is(err, storage.ErrNotFound) {
			return storage.Object{}, nil
		}
		return o, err
	}) {
		if err != nil {
			return nil, err
		}
		if o.Key != "" && o.ModTime.Before(v.cutoff) {
			out = append(out, VacuumFile{o.Key, o.Size, o.ModTime})
		}
	}
	return out, nil
}

func (v *vacuum) workers() int {
	if v.o.Workers > 0 {
		return v.o.Workers
	}
	return 16
}

// run deletes the files, between a commit VACUUM START and one VACUUM END.
func (v *vacuum) run(ctx context.Context, out VacuumResult) (VacuumResult, error) {
	if v.o.BeforeDelete != nil {
		if err := v.o.BeforeDelete(ctx, v.snap, out.Files); err != nil {
			return out, err
		}
	}
	if len(out.Files) == 0 {
		return out, errors.Join(v.removeFolders(ctx, nil), v.remember(ctx))
	}
	params := map[string]string{
		"retentionCheckEnabled": fmt.Sprint(!v.o.AllowShortRetention), "defaultRetentionMillis": itoa(v.snap.Props.DeletedFileRetention.Milliseconds()),
	}
	if v.o.Retain != nil {
		params["specifiedRetentionMillis"] = itoa(v.retain.Milliseconds())
	}
	start, err := v.commit(ctx, v.snap, "VACUUM START", params, map[string]string{"numFilesToDelete": itoa(int64(len(out.Files))), "sizeOfDataToDelete": itoa(out.Bytes)})
	if err != nil {
		return out, err
	}
	out.Version, out.Committed = start, true
	// What was committed while files were looked for may need some of them again.
	if err := v.needCommits(ctx, v.snap.Version+1, start-1); err != nil {
		return out, err
	}
	var deleted atomic.Int64
	err = pipeline.ForEach(ctx, v.workers(), slices.Values(out.Files), func(ctx context.Context, f VacuumFile) error {
		if v.keep[strings.ToLower(f.Key)] {
			return nil
		}
		if err := v.t.store.Delete(ctx, f.Key); err != nil {
			return err
		}
		deleted.Add(1)
		return nil
	})
	out.Deleted = deleted.Load()
	status := "COMPLETED"
	if err != nil {
		status = "FAILED"
	} else {
		err = errors.Join(v.removeFolders(ctx, out.Files), v.remember(ctx))
	}
	detached := context.WithoutCancel(ctx)
	snap, endErr := v.t.Snapshot(detached)
	if endErr == nil {
		dirs := map[string]bool{}
		for _, f := range out.Files {
			dirs[path.Dir(f.Key)] = true
		}
		var end int64
		if end, endErr = v.commit(detached, snap, "VACUUM END", map[string]string{"status": status},
			map[string]string{"numDeletedFiles": itoa(out.Deleted), "numVacuumedDirectories": itoa(int64(len(dirs)))}); endErr == nil {
			out.Version = end
		}
	}
	return out, errors.Join(err, endErr)
}

// removeFolders removes the folders that the deletions emptied and, unless only the log
// was looked at, those that have been empty since the cutoff (W-882). Stores without
// folders have none. Hidden folders, the log's among them, are not entered.
func (v *vacuum) removeFolders(ctx context.Context, deleted []VacuumFile) error {
	store, ok := v.t.store.(storage.Folders)
	if !ok {
		return nil
	}
	emptied := map[string]bool{}
	for _, f := range deleted {
		for dir := path.Dir(f.Key); dir != "." && !emptied[dir]; dir = path.Dir(dir) {
			emptied[dir] = true
		}
	}
	_, err := store.RemoveEmptyFolders(ctx, func(dir string, at time.Time) bool {
		if v.hidden(dir) || slices.Contains(v.nested, dir+"/") {
			return false
		}
		return emptied[dir] || !v.o.Lite && at.Before(v.cutoff)
	})
	if err != nil {
		return fmt.Errorf("remove empty folders: %w", err)
	}
	return nil
}

func (v *vacuum) commit(ctx context.Context, snap *deltalog.Snapshot, operation string, params, metrics map[string]string) (int64, error) {
	res, err := v.t.log.Begin(snap).Commit(ctx, deltalog.CommitOptions{
		Operation: operation, Parameters: params, Metrics: metrics, InfoOnly: true, UserMetadata: v.o.UserMetadata,
	})
	return res.Version, err
}
