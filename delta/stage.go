package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// FileEdit says which rows of one live file go or change. Row numbers are physical,
// ascending, and name live rows only.
type FileEdit struct {
	File *deltalog.Add
	// All: every live row goes; the file is removed without being rewritten. Delete
	// and Update are then empty.
	All    bool
	Delete []int64
	Update []int64
	// After are the new rows of Update, aligned with it: logical columns, then the
	// hidden ones if the layout has any (without them they become null). Instead,
	// Rewrite may compute them from the old rows, which carry hidden columns; the
	// batch it is given is valid during the call only.
	After   arrow.RecordBatch
	Rewrite func(before arrow.RecordBatch) (arrow.RecordBatch, error)
	// Deleted and Before are the old rows of Delete and Update, aligned, logical and
	// hidden columns, from a caller that has read them. They save a second read of the
	// rows where a deletion vector is written; nil is read as far as it is needed.
	Deleted, Before arrow.RecordBatch
}

// Edits are the row changes of one commit.
type Edits struct {
	Files []FileEdit
	// Insert are new rows: logical columns, then the hidden ones or not. Batches with
	// fewer columns are matched by name, and what is missing gets its default,
	// identity or generated value, else null.
	Insert []arrow.RecordBatch
	// Inserts are more of them, after Insert, that do not fit into memory: read once, each
	// batch valid until the next.
	Inserts iter.Seq2[arrow.RecordBatch, error]
}

// inserted are all new rows.
func (e *Edits) inserted() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, b := range e.Insert {
			if !yield(b, nil) {
				return
			}
		}
		if e.Inserts != nil {
			e.Inserts(yield)
		}
	}
}

func (e *Edits) inserts() bool { return len(e.Insert) > 0 || e.Inserts != nil }

// StageOptions are the settings of [Table.Stage]; the zero value is the default.
type StageOptions struct {
	// NewTagger makes the tags of each data file.
	NewTagger func() datafile.Tagger
	// Footer are key-value pairs for the footers of data files.
	Footer map[string]string
	// StatsColumns get statistics whatever the table's limits say.
	StatsColumns []string
	// Config is the table as the same commit makes it, where that changes metadata or
	// protocol: files are laid out by it. Default: the snapshot's.
	Config *deltalog.TableConfig
	// Identity: the caller commits Staged.Metadata too. Without it, inserts that need
	// identity values are refused.
	Identity bool
	// Recompute computes generated columns of all new rows instead of verifying them.
	Recompute bool
	// Apart, if set, tells the rows of a batch that go to files of their own, so that
	// those who look for the others need not read them. A row that a rewrite copies is
	// asked for again.
	Apart func(rows arrow.RecordBatch) []bool
	// inserted are files of new rows of the same commit, written before; their rows go
	// into the change files if the commit has any.
	inserted []datafile.WrittenFile
}

// Staged is row changes written and durable, not yet committed.
type Staged struct {
	Adds    []*deltalog.Add
	Removes []*deltalog.Remove
	CDC     []*deltalog.CDC
	Metrics Metrics
	// Metadata, if set, is what the commit sets: new identity high-water marks
	// (StageOptions.Identity). A commit that changes metadata itself takes its schema.
	Metadata *deltalog.Metadata

	// evolved: Metadata changes more than high-water marks.
	evolved bool

	store  storage.Store
	keys   []string
	masked []mask // files that get a deletion vector
	// vectorKey is the file of their vectors, "" without one.
	vectorKey string
	// preserved: rows that were moved kept their row ids (W-803).
	preserved bool
}

// Empty is true when nothing would change.
func (s *Staged) Empty() bool { return len(s.Adds)+len(s.Removes)+len(s.CDC) == 0 }

// Apply puts the actions into a transaction.
func (s *Staged) Apply(tx *deltalog.Transaction) {
	tx.Add(s.Adds...)
	tx.Remove(s.Removes...)
	tx.AddCDC(s.CDC...)
	if s.Metadata != nil {
		tx.SetMetadata(s.Metadata)
	}
}

// Tags are the commit tags that go with the actions, beside the caller's own: that of
// new identity high-water marks, so that concurrent commits know it is no other change
// of metadata (C-17), and that row ids were kept (W-803).
func (s *Staged) Tags(more map[string]string) map[string]string {
	marks := s.Metadata != nil && !s.evolved
	if !marks && !s.preserved {
		return more
	}
	out := map[string]string{}
	if marks {
		out[identitySchemaTag] = "true"
	}
	if s.preserved {
		out["delta.rowTracking.preserved"] = "true"
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

// Discard deletes the staged files, which no commit names.
func (s *Staged) Discard(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, k := range s.keys {
		errs = append(errs, s.store.Delete(ctx, k))
	}
	s.keys = nil
	return errors.Join(errs...)
}

// Stage writes the row changes against a version. Where the table writes deletion
// vectors, a file with a changed row gets a new one and the new rows go to new files
// (W-651, W-652); elsewhere, and where next to nothing of a file would stay, the file
// is rewritten without its deletion vector, unchanged rows with their hidden columns.
// Change files come from the same pass where the feed is on and the adds and removes
// would not say exactly what changed (W-901, W-902, 2.1). After an error nothing of
// it is left.
func (t *Table) Stage(ctx context.Context, snap *deltalog.Snapshot, e Edits, o StageOptions) (_ *Staged, err error) {
	if err := t.mayChange(snap, len(e.Files) > 0); err != nil {
		return nil, err
	}
	cfg := o.Config
	if cfg == nil {
		cfg = snap.TableConfig
	}
	l, err := t.layoutFor(snap, cfg)
	if err != nil {
		return nil, err
	}
	if len(o.StatsColumns) > 0 {
		l = l.WithStats(o.StatsColumns)
	}
	s := &stager{t: t, l: l, o: o, cfg: cfg, roll: t.opts.FileSize, out: &Staged{store: t.store}}
	if s.roll <= 0 {
		s.roll = l.TargetFileSize
	}
	p, err := s.choose(ctx, e.Files)
	if err != nil {
		return nil, err
	}
	s.feed = cfg.WritesChangeFeed() && p.needsChangeFiles()
	s.moves = l.RowIDs != nil && (len(p.rewrites) > 0 || len(p.masks) > 0)
	s.out.preserved = l.RowIDs != nil
	if err := s.plan(); err != nil {
		return nil, err
	}
	if e.newRows() {
		if s.rules, err = t.Rules(cfg); err != nil {
			return nil, err
		}
		if e.inserts() && !o.Identity && s.rules.identities() {
			return nil, unsupportedIdentity(cfg)
		}
	}
	if err := s.run(ctx, p, &e); err != nil {
		if s.cdc != nil {
			err = errors.Join(err, s.cdc.Abort(context.WithoutCancel(ctx)))
		}
		return nil, errors.Join(err, s.out.Discard(ctx))
	}
	if s.rules != nil {
		s.out.Metadata = s.rules.Metadata()
	}
	return s.out, nil
}

// mayChange refuses what the table forbids before a file is written.
func (t *Table) mayChange(snap *deltalog.Snapshot, removes bool) error {
	if err := snap.Require(deltalog.OpWrite); err != nil {
		return err
	}
	if removes && snap.AppendOnly() {
		return &deltalog.InvalidError{ErrorCode: "DELTA_CANNOT_MODIFY_APPEND_ONLY", Rule: "W-426",
			Reason: "the table is append-only (delta.appendOnly=true): rows cannot be deleted or changed"}
	}
	if err := schema.CheckWritable(snap.Schema); err != nil {
		return invalidSchema(err)
	}
	return nil
}

// stager is one Stage call.
type stager struct {
	t    *Table
	l    *datafile.Layout
	o    StageOptions
	cfg  *deltalog.TableConfig
	feed bool
	roll int64
	out  *Staged
	// rules are those of new rows, nil without any.
	rules *Rules

	rows   *arrow.Schema // logical and hidden columns, row ids if rows are moved
	change *arrow.Schema // logical and hidden columns, and _change_type
	// moves: rows of other files are written, so that row ids are written with them.
	moves bool

	mu  sync.Mutex // cdc and out
	cdc *datafile.Writer
}

func (s *stager) plan() error {
	w, err := s.writer()
	if err != nil {
		return err
	}
	s.rows = w.Schema()
	c, err := datafile.NewWriter(s.t.store, s.l, s.writerOptions(true))
	if err != nil {
		return err
	}
	s.change = c.Schema()
	if s.feed {
		s.cdc = c
	}
	return nil
}

func (s *stager) writerOptions(change bool) datafile.WriterOptions {
	o := datafile.WriterOptions{Roll: s.roll, Hidden: s.l.Carry != nil, Change: change, NewID: s.t.opts.NewID, Clock: s.t.opts.Clock}
	if !change {
		o.RowIDs = s.moves
		o.NewTagger, o.Footer = s.o.NewTagger, s.o.Footer
	}
	return o
}

func (s *stager) writer() (*datafile.Writer, error) {
	return datafile.NewWriter(s.t.store, s.l, s.writerOptions(false))
}

// task is work with one data file writer.
type task struct {
	rewrites []FileEdit
	masks    []mask
	insert   *Edits // nil: none
}

// run does the whole-file removals, the rewrites and the deletion vectors. Small
// files share one writer with the new rows, so that they do not multiply; a large one
// that is rewritten has its own, and those run side by side.
func (s *stager) run(ctx context.Context, p *editPlan, e *Edits) error {
	for _, f := range p.whole {
		if err := s.removeWhole(ctx, f); err != nil {
			return err
		}
	}
	shared := task{masks: p.masks}
	if e.inserts() {
		shared.insert = e
	}
	var tasks []task
	for _, f := range p.rewrites {
		if f.File.Size >= s.roll/2 {
			tasks = append(tasks, task{rewrites: []FileEdit{f}})
		} else {
			shared.rewrites = append(shared.rewrites, f)
		}
	}
	if len(shared.rewrites)+len(shared.masks) > 0 || shared.insert != nil {
		tasks = append(tasks, shared)
	}
	// The files of a task outlive its own context (change files are shared), so they are
	// opened with the outer one; the inner one only says that a sibling failed.
	err := pipeline.ForEach(ctx, s.t.opts.Workers, slices.Values(tasks), func(inner context.Context, t task) error {
		return s.do(ctx, inner, t)
	})
	if err == nil {
		err = s.writeVectors(ctx, p.masks)
	}
	if err != nil || s.cdc == nil {
		return err
	}
	for _, f := range s.o.inserted {
		if err := s.imagesOf(ctx, f.Add(true), "insert"); err != nil {
			return err
		}
	}
	files, err := s.cdc.Close(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		s.out.keys = append(s.out.keys, f.Key)
		s.out.CDC = append(s.out.CDC, f.CDC())
		s.out.Metrics.ChangeFiles++
		s.out.Metrics.ChangeBytes += f.Size
	}
	return nil
}

func (s *stager) do(ctx, inner context.Context, t task) error {
	w, err := s.rowWriter()
	if err != nil {
		return err
	}
	var m Metrics
	err = func() error {
		if err := s.apply(ctx, inner, w, t.masks, &m); err != nil {
			return err
		}
		for _, e := range t.rewrites {
			if err := errors.Join(inner.Err(), s.rewrite(ctx, w, e, &m)); err != nil {
				return err
			}
		}
		if t.insert == nil {
			return nil
		}
		for b, err := range t.insert.inserted() {
			if err != nil {
				return err
			}
			rows, err := s.newRows(b)
			if err != nil {
				return err
			}
			err = errors.Join(w.Write(ctx, rows), s.record(ctx, rows, "insert"))
			rows.Release()
			if err != nil {
				return err
			}
			m.RowsInserted += b.NumRows()
		}
		return nil
	}()
	if err != nil {
		return errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	files, err := w.Close(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range t.rewrites {
		s.remove(e.File)
	}
	for _, f := range files {
		s.out.keys = append(s.out.keys, f.Key)
		s.out.Adds = append(s.out.Adds, f.Add(true))
		m.FilesAdded++
		m.BytesAdded += f.Size
	}
	s.out.Metrics.add(m)
	return nil
}

func (m *Metrics) add(o Metrics) {
	m.RowsInserted += o.RowsInserted
	m.RowsUpdated += o.RowsUpdated
	m.RowsDeleted += o.RowsDeleted
	m.RowsCopied += o.RowsCopied
	m.FilesAdded += o.FilesAdded
	m.FilesRemoved += o.FilesRemoved
	m.ChangeFiles += o.ChangeFiles
	m.BytesAdded += o.BytesAdded
	m.BytesRemoved += o.BytesRemoved
	m.ChangeBytes += o.ChangeBytes
	m.VectorsAdded += o.VectorsAdded
	m.VectorsUpdated += o.VectorsUpdated
	m.VectorsRemoved += o.VectorsRemoved
}

// remove stages the tombstone of a file; the caller holds mu or is alone.
func (s *stager) remove(a *deltalog.Add) {
	s.out.Removes = append(s.out.Removes, a.Remove(s.t.opts.Clock(), true))
	s.out.Metrics.FilesRemoved++
	s.out.Metrics.BytesRemoved += a.Size
	if a.DeletionVector != nil {
		s.out.Metrics.VectorsRemoved++
	}
}

func (s *stager) removeWhole(ctx context.Context, e FileEdit) error {
	s.remove(e.File)
	// Rows that were named are counted without statistics: a MERGE that counts none
	// has changed none for readers of the feed.
	if live, ok := liveRows(e.File); len(e.Delete) > 0 {
		s.out.Metrics.RowsDeleted += int64(len(e.Delete))
	} else if ok {
		s.out.Metrics.RowsDeleted += live
	}
	if !s.feed {
		return nil
	}
	return s.imagesOf(ctx, e.File, "delete")
}

// imagesOf writes every live row of a file into the change files.
func (s *stager) imagesOf(ctx context.Context, a *deltalog.Add, kind string) error {
	for b, err := range datafile.Read(ctx, s.t.store, s.l, a, datafile.ReadOptions{Hidden: true}) {
		if err != nil {
			return err
		}
		if err := s.record(ctx, b.RecordBatch, kind); err != nil {
			return err
		}
	}
	return nil
}

// rewrite streams one file: deleted rows go, updated ones are replaced, the rest is
// copied.
func (s *stager) rewrite(ctx context.Context, w *rowWriter, e FileEdit, m *Metrics) error {
	del, upd := e.Delete, e.Update
	for b, err := range datafile.Read(ctx, s.t.store, s.l, e.File, datafile.ReadOptions{Hidden: true, RowIDs: s.moves}) {
		if err != nil {
			return err
		}
		var kept, gone, changed []int64
		at := int64(len(e.Update) - len(upd)) // of the first updated row in After
		for i, row := range b.Rows {
			switch {
			case len(del) > 0 && del[0] == row:
				gone, del = append(gone, int64(i)), del[1:]
			case len(upd) > 0 && upd[0] == row:
				changed, upd = append(changed, int64(i)), upd[1:]
			default:
				kept = append(kept, int64(i))
			}
		}
		if err := s.write(ctx, w, b.RecordBatch, kept); err != nil {
			return err
		}
		m.RowsCopied += int64(len(kept))
		if err := s.recordRows(ctx, b.RecordBatch, gone, "delete"); err != nil {
			return err
		}
		m.RowsDeleted += int64(len(gone))
		if err := s.update(ctx, w, e, b.RecordBatch, changed, at); err != nil {
			return err
		}
		m.RowsUpdated += int64(len(changed))
	}
	if len(del) > 0 || len(upd) > 0 {
		return fmt.Errorf("edit %s: rows %v are not live rows of the file", e.File.Path, append(slices.Clone(del), upd...)[:1])
	}
	return nil
}

func (s *stager) write(ctx context.Context, w *rowWriter, b arrow.RecordBatch, rows []int64) error {
	if len(rows) == 0 {
		return nil
	}
	part, err := datafile.Take(b, rows)
	if err != nil {
		return err
	}
	defer part.Release()
	return w.Write(ctx, part)
}

func (s *stager) recordRows(ctx context.Context, b arrow.RecordBatch, rows []int64, kind string) error {
	if !s.feed || len(rows) == 0 {
		return nil
	}
	part, err := datafile.Take(b, rows)
	if err != nil {
		return err
	}
	defer part.Release()
	return s.record(ctx, part, kind)
}

// update writes the new form of the changed rows of a batch and both images.
func (s *stager) update(ctx context.Context, w *rowWriter, e FileEdit, b arrow.RecordBatch, changed []int64, at int64) error {
	if len(changed) == 0 {
		return nil
	}
	before, err := datafile.Take(b, changed)
	if err != nil {
		return err
	}
	defer before.Release()
	return s.replace(ctx, w, e, before, int(at), len(changed))
}

// complete adds hidden columns of nulls, and row ids that are null, to rows that have
// none.
func (s *stager) complete(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	n, want := int(b.NumCols()), s.rows.NumFields()
	if n == want {
		b.Retain()
		return b, nil
	}
	carry := 0
	if s.l.Carry != nil {
		carry = len(s.l.Carry.Fields)
	}
	if n != len(s.l.Schema.Fields) && n != len(s.l.Schema.Fields)+carry {
		return nil, fmt.Errorf("rows have %d columns, the table has %d and %d with hidden ones", n, len(s.l.Schema.Fields), want)
	}
	cols := slices.Clone(b.Columns())
	for i := n; i < want; i++ {
		a := datafile.NullArray(s.rows.Field(i).Type, int(b.NumRows()))
		defer a.Release()
		cols = append(cols, a)
	}
	return array.NewRecordBatch(s.rows, cols, b.NumRows()), nil
}

// record writes rows into the change files, if there are any.
func (s *stager) record(ctx context.Context, b arrow.RecordBatch, kind string) error {
	if !s.feed || b == nil || b.NumRows() == 0 {
		return nil
	}
	kb := array.NewStringBuilder(memory.DefaultAllocator)
	defer kb.Release()
	kb.Reserve(int(b.NumRows()))
	for range b.NumRows() {
		kb.Append(kind)
	}
	kinds := kb.NewArray()
	defer kinds.Release()
	cols := slices.Clone(b.Columns()[:s.change.NumFields()-1]) // without row ids
	rows := array.NewRecordBatch(s.change, append(cols, kinds), b.NumRows())
	defer rows.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cdc.Write(ctx, rows)
}
