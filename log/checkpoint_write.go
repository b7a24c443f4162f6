package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/scalar"

	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

const checkpointBatchRows = 8192

// WriteCheckpoint writes the checkpoint of s and then points _last_checkpoint to it
// (W-701 to W-705): a V2 checkpoint with sidecars where delta.checkpointPolicy=v2 and
// the feature is supported, else a classic one (W-707). A checkpoint of that version
// that is there already is left alone (W-104). The table must be writable, and the
// version not protected from checkpoints that are made later (W-308).
func (l *Log) WriteCheckpoint(ctx context.Context, s *Snapshot) error {
	if err := s.Require(OpWrite); err != nil {
		return err
	}
	if err := l.checkpointAllowed(ctx, s); err != nil {
		return err
	}
	if !s.writesV2Checkpoints() {
		h, err := l.writeClassic(ctx, s)
		if err != nil {
			return err
		}
		return l.advanceHint(ctx, *h)
	}
	adds, removes, err := s.checkpointFiles(ctx)
	if err != nil {
		return err
	}
	h, err := l.writeV2Checkpoint(ctx, s, adds, removes)
	if err != nil || h == nil {
		return err
	}
	return l.advanceHint(ctx, *h)
}

// checkpointFiles are the file actions of a checkpoint in a fixed order: live files and
// unexpired tombstones.
func (s *Snapshot) checkpointFiles(ctx context.Context) ([]*Add, []*Remove, error) {
	st, err := s.state(ctx)
	if err != nil {
		return nil, nil, err
	}
	tombstones, err := s.Tombstones(ctx)
	if err != nil {
		return nil, nil, err
	}
	sort.Slice(tombstones, func(i, j int) bool {
		if tombstones[i].Path != tombstones[j].Path {
			return tombstones[i].Path < tombstones[j].Path
		}
		return tombstones[i].DeletionVector.ID() < tombstones[j].DeletionVector.ID()
	})
	return st.sorted, tombstones, nil
}

// writeClassic writes the classic checkpoint of s; the hint names it.
func (l *Log) writeClassic(ctx context.Context, s *Snapshot) (*hint, error) {
	adds, tombstones, err := s.checkpointFiles(ctx)
	if err != nil {
		return nil, err
	}
	w, err := newCheckpointWriter(s, false)
	if err != nil {
		return nil, err
	}
	key := CheckpointKey(s.Version)
	out, err := l.store.NewWriter(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", key, err)
	}
	defer out.Abort()
	size, err := w.write(ctx, out, s, adds, tombstones)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", key, err)
	}
	if err := out.Close(); err != nil && !errors.Is(err, storage.ErrExists) {
		return nil, fmt.Errorf("close %s: %w", key, err)
	} else if err != nil {
		// Another writer's checkpoint of the same version is as good as ours, but its
		// size is its own.
		obj, err := l.store.Head(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("head %s: %w", key, err)
		}
		size = obj.Size
	}
	return &hint{Version: s.Version, Size: w.rows, SizeInBytes: size, NumOfAddFiles: int64(len(adds))}, nil
}

// advanceHint replaces the hint unless it names a newer checkpoint.
func (l *Log) advanceHint(ctx context.Context, h hint) error {
	if l.readHint(ctx) > h.Version {
		return nil
	}
	return l.writeHint(ctx, h)
}

// checkpointWriter builds the rows of a checkpoint.
type checkpointWriter struct {
	schema *schema.Struct
	arrow  *arrow.Schema
	b      *array.RecordBuilder
	rows   int64
	// partitions are the typed columns of partitionValues_parsed, nil without them.
	partitions *schema.Struct
	// statsText, statsStruct: which forms of statistics are written (W-704).
	statsText, statsStruct bool
	// columns are the kinds of actions with a column, in order.
	columns []int
}

// newCheckpointWriter makes the writer of a whole checkpoint or of a sidecar, which
// has file actions only.
func newCheckpointWriter(s *Snapshot, sidecar bool) (*checkpointWriter, error) {
	w := &checkpointWriter{statsText: s.Props.CheckpointStatsAsJSON, statsStruct: s.Props.CheckpointStatsAsStruct}
	w.columns = []int{colTxn, colAdd, colRemove, colMetadata, colProtocol, colDomain}
	if sidecar {
		w.columns = []int{colAdd, colRemove}
	}
	ddl := make([]string, len(w.columns))
	for i, c := range w.columns {
		ddl[i] = [...]string{txnDDL, "add STRUCT<" + addFields + ">", removeDDL, metadataDDL, protocolDDL, domainDDL}[c]
	}
	all, err := columns(strings.Join(ddl, ", "))
	if err != nil {
		return nil, err
	}
	add := all.Fields[slices.Index(w.columns, colAdd)].Type.(*schema.Struct)
	if w.statsText {
		add.Fields = append(add.Fields, schema.Field{Name: "stats", Type: schema.String, Nullable: true})
	}
	if w.statsStruct {
		if names := s.PartitionColumns(); len(names) > 0 {
			w.partitions = &schema.Struct{}
			for i, physical := range s.PhysicalPartitionColumns() {
				f := s.Schema.Fields[s.Schema.Index(names[i])]
				w.partitions.Fields = append(w.partitions.Fields, schema.Field{Name: physical, Type: f.Type, Nullable: true})
			}
			add.Fields = append(add.Fields, schema.Field{Name: "partitionValues_parsed", Type: w.partitions, Nullable: true})
		}
		add.Fields = append(add.Fields, schema.Field{Name: "stats_parsed", Type: s.statsSchema(), Nullable: true})
	}
	w.schema = all
	if w.arrow, err = schema.ArrowSchema(all); err != nil {
		return nil, fmt.Errorf("checkpoint columns: %w", err)
	}
	w.b = array.NewRecordBuilder(memory.DefaultAllocator, w.arrow)
	return w, nil
}

// countingWriter counts bytes on their way to a storage.Writer.
type countingWriter struct {
	w storage.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// write writes the state of s, nil for a sidecar, and the file actions; it answers
// the size in bytes.
func (w *checkpointWriter) write(ctx context.Context, out storage.Writer, s *Snapshot, adds []*Add, removes []*Remove) (int64, error) {
	count := &countingWriter{w: out}
	pw, err := parquetio.NewWriter(count, w.schema, parquetio.WriterOptions{AllOptional: true})
	if err != nil {
		return 0, err
	}
	next := func() error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		return w.flush(pw)
	}
	if s != nil {
		w.protocol(s.Protocol)
		w.metadata(s.Metadata)
		for _, t := range s.Txns() {
			w.txn(t)
		}
		for _, d := range s.Domains() {
			w.domain(d)
		}
	}
	for i, r := range removes {
		w.remove(r)
		if i%checkpointBatchRows == checkpointBatchRows-1 {
			if err := next(); err != nil {
				return 0, err
			}
		}
	}
	for i, a := range adds {
		if err := w.add(a); err != nil {
			return 0, err
		}
		if i%checkpointBatchRows == checkpointBatchRows-1 {
			if err := next(); err != nil {
				return 0, err
			}
		}
	}
	if err := next(); err != nil {
		return 0, err
	}
	if err := pw.Close(); err != nil {
		return 0, err
	}
	return count.n, nil
}

func (w *checkpointWriter) flush(pw *parquetio.Writer) error {
	rec := w.b.NewRecordBatch()
	defer rec.Release()
	if rec.NumRows() == 0 {
		return nil
	}
	return pw.Write(rec)
}

// The kinds of actions in the order of their columns.
const (
	colTxn = iota
	colAdd
	colRemove
	colMetadata
	colProtocol
	colDomain
)

// row starts a row in which only the column of a kind is set and returns its builder.
func (w *checkpointWriter) row(kind int) *array.StructBuilder {
	w.rows++
	var b *array.StructBuilder
	for i, c := range w.columns {
		if c == kind {
			b = w.b.Field(i).(*array.StructBuilder)
			b.Append(true)
		} else {
			w.b.Field(i).AppendNull()
		}
	}
	return b
}

func text(b array.Builder, s string)  { b.(*array.StringBuilder).Append(s) }
func integer(b array.Builder, n int)  { b.(*array.Int32Builder).Append(int32(n)) }
func long(b array.Builder, n int64)   { b.(*array.Int64Builder).Append(n) }
func boolean(b array.Builder, v bool) { b.(*array.BooleanBuilder).Append(v) }

func optionalText(b array.Builder, s string) {
	if s == "" {
		b.AppendNull()
		return
	}
	text(b, s)
}

func optionalLong(b array.Builder, n *int64) {
	if n == nil {
		b.AppendNull()
		return
	}
	long(b, *n)
}

func list(b array.Builder, items []string, present bool) {
	l := b.(*array.ListBuilder)
	if !present {
		l.AppendNull()
		return
	}
	l.Append(true)
	for _, s := range items {
		text(l.ValueBuilder(), s)
	}
}

func mapping(b array.Builder, m map[string]*string) {
	mb := b.(*array.MapBuilder)
	if m == nil {
		mb.AppendNull()
		return
	}
	mb.Append(true)
	for _, k := range sortedKeys(m) {
		text(mb.KeyBuilder(), k)
		if v := m[k]; v == nil {
			mb.ItemBuilder().AppendNull()
		} else {
			text(mb.ItemBuilder(), *v)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func pointers(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}

func vector(b array.Builder, dv *DeletionVectorDescriptor) {
	s := b.(*array.StructBuilder)
	if dv == nil {
		s.AppendNull()
		return
	}
	s.Append(true)
	text(s.FieldBuilder(0), dv.StorageType)
	text(s.FieldBuilder(1), dv.PathOrInlineDv)
	if dv.Offset == nil {
		s.FieldBuilder(2).AppendNull()
	} else {
		integer(s.FieldBuilder(2), int(*dv.Offset))
	}
	integer(s.FieldBuilder(3), int(dv.SizeInBytes))
	long(s.FieldBuilder(4), dv.Cardinality)
}

func (w *checkpointWriter) protocol(p *Protocol) {
	b := w.row(colProtocol)
	integer(b.FieldBuilder(0), p.MinReaderVersion)
	integer(b.FieldBuilder(1), p.MinWriterVersion)
	list(b.FieldBuilder(2), p.ReaderFeatures, p.MinReaderVersion >= 3)
	list(b.FieldBuilder(3), p.WriterFeatures, p.MinWriterVersion >= 7)
}

func (w *checkpointWriter) metadata(m *Metadata) {
	b := w.row(colMetadata)
	text(b.FieldBuilder(0), m.ID)
	optionalText(b.FieldBuilder(1), m.Name)
	optionalText(b.FieldBuilder(2), m.Description)
	f := b.FieldBuilder(3).(*array.StructBuilder)
	f.Append(true)
	text(f.FieldBuilder(0), m.Format.Provider)
	mapping(f.FieldBuilder(1), pointers(m.Format.Options))
	text(b.FieldBuilder(4), m.SchemaString)
	list(b.FieldBuilder(5), m.PartitionColumns, true)
	mapping(b.FieldBuilder(6), pointers(m.Configuration))
	optionalLong(b.FieldBuilder(7), m.CreatedTime)
}

func (w *checkpointWriter) txn(t *Txn) {
	b := w.row(colTxn)
	text(b.FieldBuilder(0), t.AppID)
	long(b.FieldBuilder(1), t.Version)
	optionalLong(b.FieldBuilder(2), t.LastUpdated)
}

func (w *checkpointWriter) domain(d *DomainMetadata) {
	b := w.row(colDomain)
	text(b.FieldBuilder(0), d.Domain)
	text(b.FieldBuilder(1), d.Configuration)
	boolean(b.FieldBuilder(2), d.Removed)
}

// remove writes a tombstone; dataChange is false on every file row (W-701).
func (w *checkpointWriter) remove(r *Remove) {
	b := w.row(colRemove)
	text(b.FieldBuilder(0), r.Path)
	long(b.FieldBuilder(1), r.DeletionTimestamp)
	boolean(b.FieldBuilder(2), false)
	boolean(b.FieldBuilder(3), r.ExtendedFileMetadata)
	mapping(b.FieldBuilder(4), r.PartitionValues)
	optionalLong(b.FieldBuilder(5), r.Size)
	vector(b.FieldBuilder(6), r.DeletionVector)
	optionalLong(b.FieldBuilder(7), r.BaseRowID)
	optionalLong(b.FieldBuilder(8), r.DefaultRowCommitVersion)
}

func (w *checkpointWriter) add(a *Add) error {
	b := w.row(colAdd)
	text(b.FieldBuilder(0), a.Path)
	values := a.PartitionValues
	if values == nil {
		values = map[string]*string{}
	}
	mapping(b.FieldBuilder(1), values)
	long(b.FieldBuilder(2), a.Size)
	long(b.FieldBuilder(3), a.ModificationTime)
	boolean(b.FieldBuilder(4), false)
	mapping(b.FieldBuilder(5), a.Tags)
	vector(b.FieldBuilder(6), a.DeletionVector)
	optionalLong(b.FieldBuilder(7), a.BaseRowID)
	optionalLong(b.FieldBuilder(8), a.DefaultRowCommitVersion)
	if a.ClusteringProvider == nil {
		b.FieldBuilder(9).AppendNull()
	} else {
		text(b.FieldBuilder(9), *a.ClusteringProvider)
	}
	next := 10
	if w.statsText {
		optionalText(b.FieldBuilder(next), a.Stats)
		next++
	}
	if !w.statsStruct {
		return nil
	}
	if w.partitions != nil {
		p := b.FieldBuilder(next).(*array.StructBuilder)
		next++
		p.Append(true)
		for i, f := range w.partitions.Fields {
			v, err := schema.ParsePartitionValue(f.Type, a.PartitionValues[f.Name], nil)
			if err != nil {
				return fmt.Errorf("add %s: %w", a.Path, err)
			}
			if err := scalar.Append(p.FieldBuilder(i), v); err != nil {
				return fmt.Errorf("add %s: %w", a.Path, err)
			}
		}
	}
	appendStats(b.FieldBuilder(next).(*array.StructBuilder), a.Stats)
	return nil
}
