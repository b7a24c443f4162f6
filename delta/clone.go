package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// CloneOptions are settings of [Clone]; the zero value copies the newest version with
// its files.
type CloneOptions struct {
	// Version or Timestamp choose the version to copy.
	Version   *int64
	Timestamp *time.Time
	// Shallow copies no file: the new table refers to those of the source, whose VACUUM
	// may take them away. Both must lie on the local file system.
	Shallow bool
	// Workers bounds the files copied at once. Default: 8.
	Workers      int
	UserMetadata string
}

// CloneResult is what became of a Clone.
type CloneResult struct {
	Result
	// Source is the version that was copied.
	Source int64
	// FilesCopied and BytesCopied count data and deletion-vector files.
	FilesCopied, BytesCopied int64
}

// Clone makes a new table at the root of store with the rows, schema, properties and
// protocol of a version of from, under an id of its own and without its history. Files
// are copied as they are, a few at a time and in small pieces, also from one kind of
// store to another. After an error nothing of it is left.
func Clone(ctx context.Context, from *Table, store storage.Store, c CloneOptions, o Options) (*Table, CloneResult, error) {
	t := newTable(store, o)
	k := &clone{from: from, to: t, o: c}
	out, err := k.run(ctx)
	if err != nil {
		return nil, out, err
	}
	return t, out, nil
}

// clone is one run.
type clone struct {
	from, to *Table
	o        CloneOptions
	snap     *deltalog.Snapshot
	adds     []*deltalog.Add
	copies   []fileCopy

	mu   sync.Mutex
	done []string // keys of files that are ours
}

// fileCopy is a file to copy: its path in the source's log and its key in the new table.
type fileCopy struct {
	from   string
	to     string
	size   int64 // -1: unknown
	vector bool  // of deletion vectors
}

func (k *clone) run(ctx context.Context) (CloneResult, error) {
	var out CloneResult
	exists, err := k.to.log.Exists(ctx)
	if err != nil {
		return out, err
	}
	if exists {
		return out, &ExistsError{k.to.store.URL()}
	}
	switch {
	case k.o.Version != nil && k.o.Timestamp != nil:
		return out, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_CLONE", Reason: "clone takes a version or a timestamp, not both"}
	case k.o.Version != nil:
		k.snap, err = k.from.log.At(ctx, *k.o.Version)
	case k.o.Timestamp != nil:
		k.snap, err = k.from.log.AtTime(ctx, *k.o.Timestamp, deltalog.AtTimeOptions{})
	default:
		k.snap, err = k.from.Snapshot(ctx)
	}
	if err != nil {
		return out, err
	}
	out.Source = k.snap.Version
	m := k.metadata()
	cfg, err := deltalog.NewTableConfig(k.snap.Protocol, m)
	if err != nil {
		return out, err
	}
	if err := cfg.Require(deltalog.OpWrite); err != nil {
		return out, err
	}
	if err := k.to.checkFolder(ctx, m.PartitionColumns); err != nil {
		return out, err
	}
	if err := k.plan(ctx); err != nil {
		return out, err
	}
	if err := k.copyFiles(ctx, &out); err != nil {
		return out, errors.Join(err, k.discard(ctx))
	}
	res, err := k.commit(ctx, m, &out)
	if err != nil && !unknownOutcome(err) {
		err = errors.Join(err, k.discard(ctx))
	}
	if errors.Is(err, ErrConflict) {
		err = errors.Join(&ExistsError{k.to.store.URL()}, err)
	}
	out.Result = res
	return out, err
}

// metadata is that of the source for a table whose history begins now.
func (k *clone) metadata() *deltalog.Metadata {
	m := *k.snap.Metadata
	now := k.to.opts.Clock().UnixMilli()
	m.ID, m.CreatedTime, m.Configuration = k.to.opts.NewID(), &now, maps.Clone(m.Configuration)
	maps.DeleteFunc(m.Configuration, func(key, _ string) bool {
		l := strings.ToLower(key)
		return strings.HasPrefix(l, "delta.incommittimestampenablement") || l == "delta.requirecheckpointprotectionbeforeversion"
	})
	return &m
}

// plan makes the add actions and the list of files to copy.
func (k *clone) plan(ctx context.Context) error {
	if k.o.Shallow && (!strings.HasPrefix(k.from.store.URL(), "file://") || !strings.HasPrefix(k.to.store.URL(), "file://")) {
		return &deltalog.InvalidError{ErrorCode: "DELTA_UNSUPPORTED_CLONE", Reason: "a shallow clone needs both tables on the local file system; make a deep one"}
	}
	files, err := k.snap.FileList(ctx)
	if err != nil {
		return err
	}
	// Files with a place of their own come first.
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *deltalog.Add) int { return outside(a) - outside(b) })
	taken := map[string]bool{}
	vectors := map[string]string{} // path in the source -> descriptor path in the copy
	for _, a := range files {
		b := *a
		b.DataChange = true
		if k.o.Shallow {
			err = k.refer(&b)
		} else {
			err = k.planCopy(&b, taken, vectors)
		}
		if err != nil {
			return err
		}
		k.adds = append(k.adds, &b)
	}
	return nil
}

func outside(a *deltalog.Add) int {
	if p, err := a.Decoded(); err == nil && deltalog.IsAbsolute(p) {
		return 1
	}
	return 0
}

// refer makes the paths of an add absolute; those that are stay as they are (W-203).
func (k *clone) refer(a *deltalog.Add) error {
	p, err := a.Decoded()
	if err != nil {
		return err
	}
	// With one slash, as Hadoop spells it: Spark finds rows to delete by this text.
	root := "file:/" + strings.TrimPrefix(k.from.store.URL(), "file:///")
	if !deltalog.IsAbsolute(p) {
		a.Path = root + a.Path
	}
	d := a.DeletionVector
	if d == nil || d.StorageType != "u" {
		return nil
	}
	key, _, err := dv.Descriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv}.Path()
	if err != nil {
		return err
	}
	moved := *d
	moved.StorageType, moved.PathOrInlineDv = "p", root+schema.EncodePath(key)
	a.DeletionVector = &moved
	return nil
}

// planCopy gives the file a place in the new table: the one it has, or for files from
// outside of the source's folder, one by partition.
func (k *clone) planCopy(a *deltalog.Add, taken map[string]bool, vectors map[string]string) error {
	p, err := a.Decoded()
	if err != nil {
		return err
	}
	key := path.Clean(p)
	if deltalog.IsAbsolute(p) {
		values := make([]*string, 0, len(a.PartitionValues))
		for _, c := range k.snap.PhysicalPartitionColumns() {
			values = append(values, a.PartitionValues[c])
		}
		dir, ok := schema.PartitionDir(k.snap.PhysicalPartitionColumns(), values)
		if !ok {
			dir = k.to.opts.NewID()[:2]
		}
		key = path.Join(dir, path.Base(p))
	}
	if err := storage.ValidateKey(key); err != nil {
		return &datafile.FileError{ErrorCode: datafile.CodePath, Path: a.Path, Reason: "the path is not one of a data file", Cause: err}
	}
	if deltalog.IsAbsolute(p) {
		for taken[key] {
			key = path.Join(path.Dir(key), k.to.opts.NewID()+"-"+path.Base(key))
		}
	}
	// The same file may be there twice: R-222 keys files by path and deletion vector.
	if !taken[key] {
		taken[key] = true
		k.copies = append(k.copies, fileCopy{from: a.Path, to: key, size: a.Size})
	}
	if key != p {
		a.Path = schema.EncodePath(key)
	}
	return k.planVector(a, taken, vectors)
}

func (k *clone) planVector(a *deltalog.Add, taken map[string]bool, vectors map[string]string) error {
	d := a.DeletionVector
	if d == nil || d.StorageType == "i" {
		return nil
	}
	p, absolute, err := dv.Descriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv}.Path()
	if err != nil {
		return err
	}
	if !absolute {
		if !taken[p] {
			taken[p] = true
			k.copies = append(k.copies, fileCopy{from: schema.EncodePath(p), to: p, size: -1, vector: true})
		}
		return nil
	}
	text, ok := vectors[p]
	if !ok {
		id, err := uuid.Parse(k.to.opts.NewID())
		if err != nil {
			return fmt.Errorf("name a deletion vector: %w", err)
		}
		text = dv.EncodePath("", id)
		key, _, err := dv.Descriptor{StorageType: "u", PathOrInlineDv: text}.Path()
		if err != nil {
			return err
		}
		vectors[p], taken[key] = text, true
		k.copies = append(k.copies, fileCopy{from: p, to: key, size: -1, vector: true})
	}
	moved := *d
	moved.StorageType, moved.PathOrInlineDv = "u", text
	a.DeletionVector = &moved
	return nil
}

func (k *clone) copyFiles(ctx context.Context, out *CloneResult) error {
	workers := k.o.Workers
	if workers <= 0 {
		workers = 8
	}
	for n, err := range pipeline.Map(ctx, workers, slices.Values(k.copies), k.copyFile) {
		if err != nil {
			return err
		}
		out.FilesCopied++
		out.BytesCopied += n
	}
	return nil
}

// copyFile copies one file in pieces and counts its bytes.
func (k *clone) copyFile(ctx context.Context, f fileCopy) (n int64, err error) {
	r, err := datafile.Open(ctx, k.from.store, f.from)
	if err != nil {
		if errors.Is(err, storage.ErrNotFound) {
			return 0, &datafile.FileError{ErrorCode: datafile.CodeMissing, Path: f.from, Reason: "the log names it, but it is not there", Cause: err}
		}
		return 0, err
	}
	defer r.Close()
	if f.size > 0 && r.Size() < f.size {
		return 0, &datafile.FileError{ErrorCode: datafile.CodeTruncated, Path: f.from, Reason: fmt.Sprintf("it has %d bytes, the log says %d", r.Size(), f.size)}
	}
	if err := looksRight(r, f); err != nil {
		return 0, err
	}
	w, err := k.to.store.NewWriter(ctx, f.to)
	if err != nil {
		return 0, fmt.Errorf("copy %s: %w", f.from, err)
	}
	defer w.Abort()
	if n, err = io.CopyBuffer(struct{ io.Writer }{w}, io.NewSectionReader(r, 0, r.Size()), make([]byte, 1<<20)); err != nil {
		return 0, fmt.Errorf("copy %s: %w", f.from, err)
	}
	if err := w.Close(); err != nil {
		if errors.Is(err, storage.ErrAmbiguous) {
			k.own(f.to)
		}
		return 0, fmt.Errorf("copy %s: %w", f.from, err)
	}
	k.own(f.to)
	return n, nil
}

// looksRight refuses to copy what is neither a Parquet file nor one of deletion vectors,
// so that a log cannot make a copy of any file it names.
func looksRight(r storage.Reader, f fileCopy) error {
	magic, at := []byte("PAR1"), r.Size()-4
	if f.vector {
		magic, at = []byte{1}, 0
	}
	got := make([]byte, len(magic))
	if at < 0 || r.Size() < int64(len(magic)) {
		return &datafile.FileError{ErrorCode: datafile.CodeCorrupt, Path: f.from, Reason: fmt.Sprintf("it has %d bytes", r.Size())}
	}
	if _, err := r.ReadAt(got, at); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("copy %s: %w", f.from, err)
	}
	if !bytes.Equal(got, magic) {
		return &datafile.FileError{ErrorCode: datafile.CodeCorrupt, Path: f.from, Reason: "it is neither a Parquet file nor one of deletion vectors"}
	}
	return nil
}

func (k *clone) own(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = append(k.done, key)
}

func (k *clone) discard(ctx context.Context) error {
	s := &Staged{store: k.to.store, keys: k.done}
	return s.Discard(ctx)
}

func (k *clone) commit(ctx context.Context, m *deltalog.Metadata, out *CloneResult) (Result, error) {
	tx := k.to.log.Begin(nil)
	tx.SetProtocol(k.snap.Protocol)
	tx.SetMetadata(m)
	for _, d := range k.snap.Domains() {
		switch {
		case d.Domain == deltalog.ClusteringDomain, d.Domain == "delta.rowTracking", !strings.HasPrefix(strings.ToLower(d.Domain), "delta."):
			tx.SetDomain(&deltalog.DomainMetadata{Domain: d.Domain, Configuration: d.Configuration})
		}
	}
	s := &Staged{store: k.to.store, Adds: k.adds}
	var size int64
	for _, a := range k.adds {
		size += a.Size
	}
	s.Metrics.FilesAdded, s.Metrics.BytesAdded = int64(len(k.adds)), size
	return k.to.finish(ctx, tx, s, WriteOptions{UserMetadata: k.o.UserMetadata}, deltalog.CommitOptions{
		Operation: "CLONE", NotBlind: true, NoRebase: true,
		Parameters: map[string]string{"source": "delta.`" + k.from.store.URL() + "`", "sourceVersion": itoa(out.Source), "isShallow": fmt.Sprint(k.o.Shallow)},
		Metrics: map[string]string{
			"sourceTableSize": itoa(size), "sourceNumOfFiles": itoa(int64(len(k.adds))), "numRemovedFiles": "0", "removedFilesSize": "0",
			"numCopiedFiles": itoa(out.FilesCopied), "copiedFilesSize": itoa(out.BytesCopied),
		},
	})
}
