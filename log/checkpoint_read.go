package deltalog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// Checkpoints are read in two passes: protocol, metadata, marks and domains when
// the snapshot is made, file actions when they are first asked for. Every kind of
// checkpoint may hold V2 content, so the content decides: rows of `sidecar`
// name more files with file actions.

// checkpointSource is an opened checkpoint whose file actions are still to be read.
type checkpointSource struct {
	log      *Log
	set      *checkpointSet
	sidecars []string // keys
	// inline are the file actions of a JSON checkpoint.
	inline *Actions
}

// damagedError is a fault in the bytes of a checkpoint, as of one that was cut off; it
// reads as the fault itself and is errUnusable. Content that breaks the protocol is not:
// what a writer meant by it is not for an older file to say.
type damagedError struct{ error }

func (e damagedError) Unwrap() []error { return []error{e.error, errUnusable} }

// openCheckpoint reads everything but the file actions. A file that is gone or damaged
// makes the error errUnusable.
func (l *Log) openCheckpoint(ctx context.Context, set *checkpointSet) (*checkpointSource, *Actions, error) {
	src := &checkpointSource{log: l, set: set}
	state := &Actions{}
	var sidecars []string
	for _, f := range set.files {
		if strings.HasSuffix(f.key, ".json") {
			if err := src.openJSON(ctx, f, state, &sidecars); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err := l.readState(ctx, f.key, state, &sidecars); err != nil {
			return nil, nil, err
		}
	}
	for _, path := range sidecars {
		key, err := l.sidecarKey(path)
		if err != nil {
			return nil, nil, &CorruptError{ErrorCode: codeCorrupt, File: set.files[0].key, Reason: err.Error()}
		}
		if _, err := l.store.Head(ctx, key); errors.Is(err, storage.ErrNotFound) {
			return nil, nil, unusable(set.files[0].key, key, err)
		} else if err != nil {
			return nil, nil, fmt.Errorf("head %s: %w", key, err)
		}
		src.sidecars = append(src.sidecars, key)
	}
	return src, state, nil
}

// readState reads everything but the file actions of one Parquet file.
func (l *Log) readState(ctx context.Context, key string, state *Actions, sidecars *[]string) error {
	want, err := columns(strings.Join([]string{txnDDL, metadataDDL, protocolDDL, domainDDL, sidecarDDL}, ", "))
	if err != nil {
		return err
	}
	return l.readParquet(ctx, key, func(file *parquetio.File) error {
		for b, err := range file.Read(ctx, want, parquetio.ReadOptions{}) {
			if err != nil {
				return err
			}
			if err := takeState(b.RecordBatch, state, sidecars); err != nil {
				return &CorruptError{ErrorCode: codeCorrupt, File: key, Reason: err.Error()}
			}
		}
		return nil
	})
}

func unusable(checkpoint, key string, cause error) error {
	return errors.Join(errUnusable, &CorruptError{ErrorCode: "DELTA_STATE_RECOVER_ERROR", File: checkpoint, Reason: key + " of the checkpoint is missing", Cause: cause})
}

// sidecarKey places a bare name, or a full URI inside this table.
func (l *Log) sidecarKey(name string) (string, error) {
	p, err := schema.DecodePath(name)
	if err != nil {
		return "", fmt.Errorf("sidecar: %w", err)
	}
	if p == "" || p == "." || p == ".." || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("sidecar %q is no file name", name)
	}
	if !strings.Contains(p, "/") {
		return sidecarDir + p, nil
	}
	root, err := schema.DecodePath(strings.Replace(l.store.URL(), "file://", "file:", 1))
	if err != nil {
		root = l.store.URL()
	}
	for _, prefix := range []string{l.store.URL(), root, strings.TrimPrefix(root, "file:")} {
		if rest, ok := strings.CutPrefix(strings.Replace(p, "file://", "file:", 1), prefix); ok && strings.HasPrefix(rest, LogDir) && path.Clean(rest) == rest {
			return rest, nil
		}
	}
	return "", fmt.Errorf("sidecar %q lies outside of the table", name)
}

// openJSON reads a V2 checkpoint with a JSON top level.
func (src *checkpointSource) openJSON(ctx context.Context, f logFile, state *Actions, sidecars *[]string) error {
	data, err := src.log.readText(ctx, f.key, maxTextFile)
	if errors.Is(err, storage.ErrNotFound) {
		return unusable(f.key, f.key, err)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", f.key, err)
	}
	var content error
	err = eachLine(f.key, data, func(l *wireLine) error {
		if l.Sidecar != nil {
			*sidecars = append(*sidecars, l.Sidecar.Path)
		}
		content = state.take(l)
		return content
	})
	if err != nil && content == nil {
		err = damagedError{err} // no line of JSON
	}
	src.inline = &Actions{Adds: state.Adds, Removes: state.Removes}
	state.Adds, state.Removes = nil, nil
	return err
}

// readParquet opens a file of the log and turns its faults into errors of this package.
func (l *Log) readParquet(ctx context.Context, key string, visit func(*parquetio.File) error) (err error) {
	r, err := l.store.Open(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return unusable(key, key, err)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", key, err)
	}
	defer func() {
		if e := r.Close(); e != nil && err == nil {
			err = fmt.Errorf("close %s: %w", key, e)
		}
	}()
	file, err := parquetio.Open(r, r.Size())
	if err == nil {
		err = visit(file)
	}
	var mismatch *parquetio.TypeMismatchError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCorrupt):
		return err
	case errors.Is(err, parquetio.ErrCorrupt), errors.As(err, &mismatch), errors.Is(err, parquetio.ErrUnsupported):
		return damagedError{&CorruptError{ErrorCode: "DELTA_CHECKPOINT_MALFORMED", File: key, Reason: "unreadable checkpoint", Cause: err}}
	}
	return fmt.Errorf("read %s: %w", key, err)
}

// fileActions visits every add and remove of the checkpoint; exactly one of the two
// arguments is set.
func (src *checkpointSource) fileActions(ctx context.Context, cfg *TableConfig, visit func(file string, a *Add, r *Remove) error) error {
	if src.inline != nil {
		for _, a := range src.inline.Adds {
			if err := visit(src.set.files[0].key, a, nil); err != nil {
				return err
			}
		}
		for _, r := range src.inline.Removes {
			if err := visit(src.set.files[0].key, nil, r); err != nil {
				return err
			}
		}
	}
	var keys []string
	for _, f := range src.set.files {
		if !strings.HasSuffix(f.key, ".json") {
			keys = append(keys, f.key)
		}
	}
	for _, key := range append(keys, src.sidecars...) {
		if err := src.log.readFileActions(ctx, key, cfg, visit); err != nil {
			return err
		}
	}
	return nil
}

// readFileActions reads the adds and removes of one Parquet file.
func (l *Log) readFileActions(ctx context.Context, key string, cfg *TableConfig, visit func(string, *Add, *Remove) error) error {
	want, err := columns(addDDL + ", " + removeDDL)
	if err != nil {
		return err
	}
	return l.readParquet(ctx, key, func(file *parquetio.File) error {
		// Statistics that stand only in stats_parsed are put back into text.
		var bare []rowAdd
		parsed := file.HasColumn("add", "stats_parsed")
		row := int64(0)
		keep := newInterner()
		emit := func(a *Add, r *Remove, at int64) error {
			if a != nil && a.Stats == "" && parsed {
				bare = append(bare, rowAdd{at, a})
			}
			return visit(key, a, r)
		}
		for b, err := range file.Read(ctx, want, parquetio.ReadOptions{}) {
			if err != nil {
				return err
			}
			if err := takeFiles(b.RecordBatch, row, keep, emit); err != nil {
				return &CorruptError{ErrorCode: codeCorrupt, File: key, Reason: err.Error()}
			}
			row += b.NumRows()
		}
		if len(bare) > 0 {
			return restoreStats(ctx, file, cfg, bare)
		}
		return nil
	})
}

type rowAdd struct {
	row int64
	add *Add
}

// interner shares the strings that repeat from row to row: partition columns and
// values, tag names.
type interner map[string]string

func newInterner() interner { return interner{} }

func (in interner) get(s string) string {
	if v, ok := in[s]; ok {
		return v
	}
	v := strings.Clone(s)
	if len(in) < 1<<16 {
		in[v] = v
	}
	return v
}

// structColumn gives typed access to the members of one struct column of a batch.
type structColumn struct{ *array.Struct }

func column(b arrow.RecordBatch, i int) structColumn {
	return structColumn{b.Column(i).(*array.Struct)}
}

func (c structColumn) text(field, i int) (string, bool) {
	a := c.Field(field).(*array.String)
	if a.IsNull(i) {
		return "", false
	}
	return strings.Clone(a.Value(i)), true
}

func (c structColumn) long(field, i int) *int64 {
	a := c.Field(field).(*array.Int64)
	if a.IsNull(i) {
		return nil
	}
	v := a.Value(i)
	return &v
}

func (c structColumn) integer(field, i int) *int32 {
	a := c.Field(field).(*array.Int32)
	if a.IsNull(i) {
		return nil
	}
	v := a.Value(i)
	return &v
}

func (c structColumn) boolean(field, i int) bool {
	a := c.Field(field).(*array.Boolean)
	return a.IsValid(i) && a.Value(i)
}

func (c structColumn) list(field, i int) []string {
	a := c.Field(field).(*array.List)
	if a.IsNull(i) {
		return nil
	}
	from, to := a.ValueOffsets(i)
	items := a.ListValues().(*array.String)
	out := make([]string, 0, to-from)
	for j := from; j < to; j++ {
		out = append(out, strings.Clone(items.Value(int(j))))
	}
	return out
}

// mapping is nil for a null map; null values stay nil.
func (c structColumn) mapping(field, i int, keep interner) map[string]*string {
	a := c.Field(field).(*array.Map)
	if a.IsNull(i) {
		return nil
	}
	from, to := a.ValueOffsets(i)
	keys, items := a.Keys().(*array.String), a.Items().(*array.String)
	out := make(map[string]*string, to-from)
	for j := int(from); j < int(to); j++ {
		k := keep.get(keys.Value(j))
		if items.IsNull(j) {
			out[k] = nil
			continue
		}
		v := keep.get(items.Value(j))
		out[k] = &v
	}
	return out
}

func (c structColumn) vector(field, i int) (*DeletionVectorDescriptor, error) {
	a := structColumn{c.Field(field).(*array.Struct)}
	if a.IsNull(i) {
		return nil, nil
	}
	kind, ok1 := a.text(0, i)
	path, ok2 := a.text(1, i)
	size, card := a.integer(3, i), a.long(4, i)
	if !ok1 && !ok2 && size == nil && card == nil {
		// Some writers cannot tell a null struct from a struct of nulls.
		return nil, nil
	}
	if !ok1 || !ok2 || size == nil || card == nil {
		return nil, fmt.Errorf("deletion vector with missing fields")
	}
	return &DeletionVectorDescriptor{StorageType: kind, PathOrInlineDv: path, Offset: a.integer(2, i), SizeInBytes: *size, Cardinality: *card}, nil
}

// takeState reads the columns txn, metaData, protocol, domainMetadata and sidecar.
// A row counts when the field is there that its action cannot be without: some
// writers store a struct of nulls where they mean none.
func takeState(b arrow.RecordBatch, state *Actions, sidecars *[]string) error {
	keep := newInterner()
	txn, meta, proto, domain, side := column(b, 0), column(b, 1), column(b, 2), column(b, 3), column(b, 4)
	for i := range int(b.NumRows()) {
		if app, ok := txn.text(0, i); txn.IsValid(i) && ok {
			v := txn.long(1, i)
			if v == nil {
				return fmt.Errorf("txn without version")
			}
			state.Txns = append(state.Txns, &Txn{AppID: app, Version: *v, LastUpdated: txn.long(2, i)})
		}
		if id, ok := meta.text(0, i); meta.IsValid(i) && ok {
			if state.Metadata != nil {
				return fmt.Errorf("second metaData in one checkpoint")
			}
			state.Metadata = takeMetadata(meta, i, id, keep)
		}
		if r := proto.integer(0, i); proto.IsValid(i) && r != nil {
			w := proto.integer(1, i)
			if state.Protocol != nil || w == nil {
				return fmt.Errorf("second protocol in one checkpoint, or one without minWriterVersion")
			}
			state.Protocol = &Protocol{int(*r), int(*w), proto.list(2, i), proto.list(3, i)}
		}
		if name, ok := domain.text(0, i); domain.IsValid(i) && ok {
			conf, _ := domain.text(1, i)
			state.Domains = append(state.Domains, &DomainMetadata{name, conf, domain.boolean(2, i)})
		}
		if path, ok := side.text(0, i); side.IsValid(i) && ok {
			*sidecars = append(*sidecars, path)
		}
	}
	return nil
}

func takeMetadata(meta structColumn, i int, id string, keep interner) *Metadata {
	m := &Metadata{ID: id, PartitionColumns: meta.list(5, i), CreatedTime: meta.long(7, i), Configuration: map[string]string{}}
	m.Name, _ = meta.text(1, i)
	m.Description, _ = meta.text(2, i)
	format := structColumn{meta.Field(3).(*array.Struct)}
	m.Format.Provider, _ = format.text(0, i)
	m.Format.Options = plainMap(format.mapping(1, i, keep))
	m.SchemaString, _ = meta.text(4, i)
	for k, v := range plainMap(meta.mapping(6, i, keep)) {
		m.Configuration[k] = v
	}
	return m
}

func plainMap(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if v != nil {
			out[k] = *v
		}
	}
	return out
}

// takeFiles reads the columns add and remove; row is the physical row of the batch.
func takeFiles(b arrow.RecordBatch, row int64, keep interner, emit func(*Add, *Remove, int64) error) error {
	add, remove := column(b, 0), column(b, 1)
	for i := range int(b.NumRows()) {
		if path, ok := add.text(0, i); add.IsValid(i) && ok {
			size, modified := add.long(2, i), add.long(3, i)
			if size == nil || modified == nil {
				return fmt.Errorf("add %s without size or modificationTime", path)
			}
			a := &Add{
				Path: path, PartitionValues: add.mapping(1, i, keep), Size: *size, ModificationTime: *modified,
				DataChange: add.boolean(4, i), Tags: add.mapping(5, i, keep), BaseRowID: add.long(7, i), DefaultRowCommitVersion: add.long(8, i),
			}
			if p, ok := add.text(9, i); ok {
				a.ClusteringProvider = &p
			}
			a.Stats, _ = add.text(10, i)
			var err error
			if a.DeletionVector, err = add.vector(6, i); err != nil {
				return fmt.Errorf("add %s: %w", path, err)
			}
			if err := emit(a, nil, row+int64(i)); err != nil {
				return err
			}
		}
		if path, ok := remove.text(0, i); remove.IsValid(i) && ok {
			r := &Remove{
				Path: path, DataChange: remove.boolean(2, i), ExtendedFileMetadata: remove.boolean(3, i),
				PartitionValues: remove.mapping(4, i, keep), Size: remove.long(5, i), BaseRowID: remove.long(7, i), DefaultRowCommitVersion: remove.long(8, i),
			}
			if at := remove.long(1, i); at != nil {
				r.DeletionTimestamp = *at
			}
			var err error
			if r.DeletionVector, err = remove.vector(6, i); err != nil {
				return fmt.Errorf("remove %s: %w", path, err)
			}
			if err := emit(nil, r, row+int64(i)); err != nil {
				return err
			}
		}
	}
	return nil
}
