package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/log/schema"
)

// WriteOptions are settings of Append and Overwrite; the zero value is the default.
type WriteOptions struct {
	// Txn makes the write idempotent: it is skipped when the table has recorded this
	// version of the application or a later one.
	Txn          *Txn
	UserMetadata string
	// MergeSchema lets the rows change the table's schema in the same commit, by the
	// rules of [Table.Evolve]: new columns and fields are added, nullable; types are
	// widened where the table has type widening on.
	MergeSchema bool
}

// Append adds rows. Columns are matched by name ignoring case, missing ones get their
// default, identity or generated value, else null; unknown columns (without MergeSchema)
// and other types are a [*SchemaMismatchError], a row that breaks a constraint of the
// table is a [*ConstraintError]. Without rows nothing is committed.
func (t *Table) Append(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], o WriteOptions) (Result, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return Result{}, err
	}
	if res, done := t.recorded(snap, o.Txn); done {
		return res, nil
	}
	w, err := t.writeNew(ctx, snap, rows, nil, &evolution{merge: o.MergeSchema})
	if err != nil {
		return Result{}, err
	}
	if len(w.files) == 0 {
		return nothing(snap), nil
	}
	params := map[string]string{"mode": "Append", "partitionBy": "[]"}
	if o.MergeSchema {
		params["canMergeSchema"] = "true"
	}
	return w.commit(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		tx := t.log.Begin(snap)
		return t.finish(ctx, tx, w.staged(), o, deltalog.CommitOptions{
			Operation: "WRITE", Parameters: params, Metrics: w.metrics.write(false),
		})
	})
}

// recorded is W-853: the application's version is in the table already.
func (t *Table) recorded(snap *deltalog.Snapshot, txn *Txn) (Result, bool) {
	if txn == nil {
		return Result{}, false
	}
	v, ok := snap.TxnVersion(txn.AppID)
	return Result{Version: snap.Version, AlreadyDone: true}, ok && v >= txn.Version
}

// newRows are rows in files that no commit names yet.
type newRows struct {
	t         *Table
	snap      *deltalog.Snapshot    // the version they were written for
	cfg       *deltalog.TableConfig // the table that they make of it
	rules     *Rules
	files     []datafile.WrittenFile
	metrics   Metrics
	check     func(*schema.Struct, arrow.RecordBatch) error
	evolution *evolution
}

// writeNew writes rows into data files that fit snap, or what e lets them make of it.
// check, if set, sees every batch first. After an error nothing is left.
func (t *Table) writeNew(ctx context.Context, snap *deltalog.Snapshot, rows iter.Seq2[arrow.RecordBatch, error], check func(*schema.Struct, arrow.RecordBatch) error, e *evolution) (*newRows, error) {
	if err := t.mayChange(snap, false); err != nil {
		return nil, err
	}
	rules, err := t.Rules(snap.TableConfig)
	if err != nil {
		return nil, err
	}
	out := &newRows{t: t, snap: snap, cfg: snap.TableConfig, rules: rules, check: check, evolution: e}
	w, err := t.newWriter(snap, out.cfg)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*newRows, error) {
		return nil, errors.Join(err, w.Abort(context.WithoutCancel(ctx)), out.discard(ctx))
	}
	for b, err := range rows {
		if err != nil {
			return fail(err)
		}
		if err := out.evolve(ctx, &w, b.Schema()); err != nil {
			return fail(err)
		}
		fit, err := out.rules.Make(b)
		if err != nil {
			return fail(err)
		}
		if check != nil {
			if err := check(out.cfg.Schema, fit); err != nil {
				fit.Release()
				return fail(err)
			}
		}
		err = w.Write(ctx, fit)
		fit.Release()
		if err != nil {
			return fail(err)
		}
	}
	files, err := w.Close(ctx)
	if err != nil {
		return nil, errors.Join(err, out.discard(ctx))
	}
	out.files = append(out.files, files...)
	for _, f := range out.files {
		out.metrics.FilesAdded++
		out.metrics.BytesAdded += f.Size
		out.metrics.RowsInserted += f.Rows
	}
	return out, nil
}

// newWriter is a writer of data files of a table.
func (t *Table) newWriter(snap *deltalog.Snapshot, cfg *deltalog.TableConfig) (*datafile.Writer, error) {
	l, err := t.layoutFor(snap, cfg)
	if err != nil {
		return nil, err
	}
	w, err := datafile.NewWriter(t.store, l, datafile.WriterOptions{Roll: t.opts.FileSize, NewID: t.opts.NewID, Clock: t.opts.Clock})
	if err != nil {
		return nil, invalidSchema(err)
	}
	return w, nil
}

// discard deletes the files.
func (w *newRows) discard(ctx context.Context) error {
	s := w.staged()
	for _, f := range w.files {
		s.keys = append(s.keys, f.Key)
	}
	return s.Discard(ctx)
}

func (w *newRows) staged() *Staged {
	s := &Staged{store: w.t.store, Metrics: w.metrics, Metadata: w.rules.Metadata(), evolved: w.cfg != w.snap.TableConfig}
	if s.evolved && s.Metadata == nil {
		s.Metadata = w.cfg.Metadata
	}
	for _, f := range w.files {
		s.Adds = append(s.Adds, f.Add(true))
	}
	return s
}

// commit runs try until it succeeds; the files stay for the next try as long as the
// newer version stores rows in the same way. When it fails for good they are deleted.
func (w *newRows) commit(ctx context.Context, try func(snap *deltalog.Snapshot) (Result, error)) (Result, error) {
	first := true
	res, err := w.t.again(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		if first {
			// Deciding on the version the rows were written for keeps the race honest.
			first, snap = false, w.snap
		}
		if err := w.follow(ctx, snap); err != nil {
			return Result{}, err
		}
		if err := snap.Require(deltalog.OpWrite); err != nil {
			return Result{}, err
		}
		return try(snap)
	})
	if err != nil && !unknownOutcome(err) {
		err = errors.Join(err, w.discard(ctx))
	}
	return res, err
}

// sameLayout reports whether files written for one version fit another.
func sameLayout(a, b *deltalog.Metadata) bool {
	return a.ID == b.ID && withoutMarks(a.SchemaString) == withoutMarks(b.SchemaString) && slices.Equal(a.PartitionColumns, b.PartitionColumns) &&
		a.Configuration["delta.columnMapping.mode"] == b.Configuration["delta.columnMapping.mode"] &&
		a.Configuration[datafile.PropCarry] == b.Configuration[datafile.PropCarry]
}

// finish commits staged actions.
func (t *Table) finish(ctx context.Context, tx *deltalog.Transaction, s *Staged, o WriteOptions, c deltalog.CommitOptions) (Result, error) {
	s.Apply(tx)
	c.Tags = s.Tags(c.Tags)
	if o.Txn != nil {
		tx.SetTxn(o.Txn.AppID, o.Txn.Version)
	}
	c.UserMetadata = o.UserMetadata
	r, err := tx.Commit(ctx, c)
	if err != nil {
		return Result{}, err
	}
	if r.CheckpointErr != nil {
		t.opts.Logger.Warn("checkpoint was not written", "version", r.Version, "cause", r.CheckpointErr)
	}
	return Result{Version: r.Version, Committed: !r.AlreadyDone, AlreadyDone: r.AlreadyDone, Time: r.Time, Metrics: s.Metrics}, nil
}

// OverwriteOptions say what the new rows replace; the zero value is every row.
type OverwriteOptions struct {
	WriteOptions
	// Where: only rows for which the condition is TRUE are replaced; every new row must
	// meet it.
	Where string
	// Dynamic: only partitions that the new rows fall into are replaced.
	Dynamic bool
	// OverwriteSchema gives the table the columns of the new rows instead of its own,
	// nullable, in a whole overwrite only; a column that stays under the same name and
	// type keeps what the table knows of it.
	OverwriteSchema bool
	// PartitionBy are the partition columns from then on, with OverwriteSchema; nil
	// keeps them.
	PartitionBy []string
}

// Overwrite replaces rows by new ones in one commit. New rows are held to the same
// rules as in [Table.Append].
func (t *Table) Overwrite(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], o OverwriteOptions) (Result, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return Result{}, err
	}
	if o.Dynamic && o.Where != "" {
		return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE", Reason: "a condition and dynamic partition overwrite exclude each other"}
	}
	if o.OverwriteSchema && (o.Dynamic || o.Where != "") {
		return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE", Rule: "W-408",
			Reason: "the schema can only be replaced together with every row: a condition or dynamic partition overwrite excludes it"}
	}
	if o.PartitionBy != nil && !o.OverwriteSchema {
		return Result{}, &deltalog.InvalidError{ErrorCode: "DELTA_PARTITION_COLUMNS_CHANGED", Rule: "W-408",
			Reason: "partition columns can only be replaced together with the schema (OverwriteSchema, --overwrite-schema)"}
	}
	if res, done := t.recorded(snap, o.Txn); done {
		return res, nil
	}
	if err := t.mayChange(snap, true); err != nil {
		return Result{}, err
	}
	now := t.opts.Clock() // the whole command has one
	where, err := t.condition(snap.Schema, o.Where, now)
	if err != nil {
		return Result{}, err
	}
	check := func(s *schema.Struct, b arrow.RecordBatch) error {
		bound, err := t.condition(s, o.Where, now) // against the columns that the rows may have added
		if err != nil {
			return err
		}
		return meets(bound, b)
	}
	w, err := t.writeNew(ctx, snap, rows, check, &evolution{merge: o.MergeSchema, replace: o.OverwriteSchema, partition: o.PartitionBy})
	if err != nil {
		return Result{}, err
	}
	return w.commit(ctx, func(snap *deltalog.Snapshot) (Result, error) {
		switch {
		case where != nil:
			return t.replaceWhere(ctx, snap, w, where, o)
		case o.Dynamic && len(snap.PartitionColumns()) > 0:
			return t.replaceFiles(ctx, snap, w, w.touched(snap), o)
		}
		return t.replaceFiles(ctx, snap, w, nil, o)
	})
}

// meets checks that every new row falls under the condition it replaces.
func meets(where *expr.Bound, b arrow.RecordBatch) error {
	if where == nil {
		return nil
	}
	hits, err := where.EvalFilter(b)
	if err != nil {
		return err
	}
	if int64(len(hits)) == b.NumRows() {
		return nil
	}
	row := 0
	for row < len(hits) && hits[row] == int32(row) {
		row++
	}
	return &deltalog.InvalidError{ErrorCode: "DELTA_REPLACE_WHERE_MISMATCH", Reason: fmt.Sprintf("new row %d does not meet %s", row, where)}
}

// touched tells which files lie in a partition of the new rows.
func (w *newRows) touched(snap *deltalog.Snapshot) func(map[string]*string) bool {
	keys := snap.PhysicalPartitionColumns()
	text := func(values map[string]*string) string {
		var b strings.Builder
		for _, k := range keys {
			if v := values[k]; v == nil || *v == "" {
				b.WriteByte(0)
			} else {
				b.WriteString("\x01" + w.canonical(snap, k, *v) + "\x00")
			}
		}
		return b.String()
	}
	have := map[string]bool{}
	for _, f := range w.files {
		have[text(f.PartitionValues)] = true
	}
	return func(values map[string]*string) bool { return have[text(values)] }
}

// canonical is one text for all spellings of a partition value.
func (w *newRows) canonical(snap *deltalog.Snapshot, physical, raw string) string {
	for _, f := range snap.Schema.Fields {
		if schema.PhysicalName(f) != physical {
			continue
		}
		v, err := schema.ParsePartitionValue(f.Type, &raw, w.t.opts.TimeZone)
		if err != nil {
			return raw
		}
		a, err := datafile.Repeat(v, 1)
		if err != nil {
			return raw
		}
		defer a.Release()
		if text, _, err := schema.FormatPartitionValue(a, 0); err == nil {
			return text
		}
	}
	return raw
}

// replaceFiles removes whole files (all, or those in touched partitions) for the new
// rows. Removes and adds tell exactly what changed, so no change files.
func (t *Table) replaceFiles(ctx context.Context, snap *deltalog.Snapshot, w *newRows, in func(map[string]*string) bool, o OverwriteOptions) (Result, error) {
	files, err := snap.FileList(ctx)
	if err != nil {
		return Result{}, err
	}
	s := w.staged()
	tx := t.log.Begin(snap)
	params := o.params(w.cfg)
	if in == nil {
		tx.ReadWholeTable()
	} else {
		tx.ReadPartitions(in)
		params["isDynamicPartitionOverwrite"] = "true"
	}
	var gone []*deltalog.Add
	for _, a := range files {
		if in != nil && !in(a.PartitionValues) {
			continue
		}
		tx.ReadFiles(a)
		gone = append(gone, a)
		s.Removes = append(s.Removes, a.Remove(t.opts.Clock(), true))
		s.Metrics.FilesRemoved++
		s.Metrics.BytesRemoved += a.Size
	}
	if s.Empty() && s.Metadata == nil {
		return nothing(snap), nil
	}
	if n, ok := t.countRows(ctx, snap.TableConfig, gone); ok {
		s.Metrics.RowsDeleted = n
	}
	return t.finish(ctx, tx, s, o.WriteOptions, deltalog.CommitOptions{
		Operation: "WRITE", Parameters: params, Metrics: s.Metrics.write(true), NotBlind: true,
	})
}

// params are the operationParameters of Spark's WRITE.
func (o OverwriteOptions) params(cfg *deltalog.TableConfig) map[string]string {
	p := map[string]string{"mode": "Overwrite", "partitionBy": "[]"}
	if o.MergeSchema {
		p["canMergeSchema"] = "true"
	}
	if o.OverwriteSchema {
		p["canOverwriteSchema"] = "true"
		if o.PartitionBy != nil {
			p["partitionBy"] = jsonText(cfg.PartitionColumns())
		}
	}
	return p
}

// replaceWhere deletes the rows under the condition and adds the new ones.
func (t *Table) replaceWhere(ctx context.Context, snap *deltalog.Snapshot, w *newRows, where *expr.Bound, o OverwriteOptions) (Result, error) {
	found, err := t.find(ctx, snap, where)
	if err != nil {
		return Result{}, err
	}
	edits := make([]FileEdit, len(found.hits))
	for i, h := range found.hits {
		edits[i] = FileEdit{File: h.file, All: h.all, Delete: h.rows}
	}
	s, err := t.Stage(ctx, snap, Edits{Files: edits}, StageOptions{inserted: w.files, Config: w.cfg})
	if err != nil {
		return Result{}, err
	}
	added := w.staged()
	s.Adds = append(s.Adds, added.Adds...)
	s.Metadata, s.evolved = added.Metadata, added.evolved
	s.Metrics.add(w.metrics)
	if s.Empty() {
		return nothing(snap), nil
	}
	tx := t.log.Begin(snap)
	found.record(tx)
	params := o.params(w.cfg)
	params["predicate"] = where.String()
	res, err := t.finish(ctx, tx, s, o.WriteOptions, deltalog.CommitOptions{
		Operation: "WRITE", Metrics: s.Metrics.write(true), NotBlind: true,
		Parameters: params, RowLevel: t.rowLevel(w.cfg, s, t.rowReads(found), tx),
	})
	if err != nil && !unknownOutcome(err) {
		err = errors.Join(err, s.Discard(ctx))
	}
	return res, err
}

// Batches is the stream of the given batches, for Append and Overwrite.
func Batches(batches ...arrow.RecordBatch) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// RecordReader is the stream of an Arrow record reader.
func RecordReader(r array.RecordReader) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for r.Next() {
			if !yield(r.RecordBatch(), nil) {
				return
			}
		}
		if err := r.Err(); err != nil {
			yield(nil, err)
		}
	}
}
