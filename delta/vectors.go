package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/pipeline"
)

// editPlan is how the edits of one commit are carried out.
type editPlan struct {
	whole    []FileEdit // removed without being rewritten
	rewrites []FileEdit
	masks    []mask
}

// mask is one file that gets a new deletion vector.
type mask struct {
	FileEdit
	physical int64 // rows of the file, deleted ones included
	own      *roaring64.Bitmap
	all      *roaring64.Bitmap // own and those deleted before
}

// needsChangeFiles is W-902: removes of whole files and deletion vectors tell exactly
// which rows went; an update must be told by its two images, and so must the rows
// that a rewrite does not keep.
func (p *editPlan) needsChangeFiles() bool {
	return len(p.rewrites) > 0 || slices.ContainsFunc(p.masks, func(m mask) bool { return len(m.Update) > 0 })
}

// keepAtLeast: where fewer than one row in keepAtLeast of a file would stay alive,
// it is rewritten instead of getting a deletion vector, provided that this takes no
// change files that the commit would do without.
const keepAtLeast = 4

// choose decides for every edit how it is done, and refuses rows that are not live.
func (s *stager) choose(ctx context.Context, files []FileEdit) (*editPlan, error) {
	p := &editPlan{}
	updates := slices.ContainsFunc(files, func(f FileEdit) bool { return len(f.Update) > 0 })
	mayRewrite := updates || !s.cfg.WritesChangeFeed()
	var candidates []FileEdit
	for _, f := range files {
		switch {
		case f.All:
			p.whole = append(p.whole, f)
		case len(f.Update) > 0 && (f.After == nil) == (f.Rewrite == nil):
			return nil, fmt.Errorf("edit %s: exactly one of After and Rewrite is needed", f.File.Path)
		case s.cfg.WritesDeletionVectors():
			candidates = append(candidates, f)
		default:
			p.rewrites = append(p.rewrites, f)
		}
	}
	for m, err := range pipeline.Map(ctx, s.t.opts.Workers, slices.Values(candidates), s.mask) {
		if err != nil {
			return nil, err
		}
		left := m.physical - int64(m.all.GetCardinality())
		switch {
		case left == 0 && len(m.Update) == 0:
			m.All = true
			p.whole = append(p.whole, m.FileEdit)
		case left == 0, mayRewrite && left*keepAtLeast < m.physical:
			p.rewrites = append(p.rewrites, m.FileEdit)
		default:
			p.masks = append(p.masks, m)
		}
	}
	return p, nil
}

// mask computes the deletion vector of an edit: the union with the old one (W-652).
func (s *stager) mask(ctx context.Context, e FileEdit) (mask, error) {
	m := mask{FileEdit: e, own: roaring64.New(), physical: datafile.ParseStats(e.File.Stats).NumRecords}
	if m.physical < 0 {
		var err error
		if m.physical, err = datafile.CountRows(ctx, s.t.store, s.l, e.File); err != nil {
			return m, err
		}
	}
	old, err := datafile.VectorOf(ctx, s.t.store, e.File, m.physical)
	if err != nil {
		return m, err
	}
	for _, rows := range [2][]int64{e.Delete, e.Update} {
		for i, r := range rows {
			if r < 0 || r >= m.physical || i > 0 && rows[i-1] >= r || old != nil && old.Contains(r) || !m.own.CheckedAdd(uint64(r)) {
				return m, fmt.Errorf("edit %s: row %d is not a live row of the file, or is named twice", e.File.Path, r)
			}
		}
	}
	m.all = m.own
	if old != nil {
		m.all = old.Bitmap()
		m.all.Or(m.own)
	}
	return m, nil
}

// apply writes the new rows and the images of files that get a deletion vector. Files
// are read side by side, only for the rows that are needed; the writer is shared.
func (s *stager) apply(ctx, inner context.Context, w *rowWriter, masks []mask, m *Metrics) error {
	var mu sync.Mutex
	err := pipeline.ForEach(inner, s.t.opts.Workers, slices.Values(masks), func(inner context.Context, k mask) error {
		return s.applyMask(ctx, inner, w, &mu, k)
	})
	if err != nil {
		return err
	}
	for _, k := range masks {
		m.RowsDeleted += int64(len(k.Delete))
		m.RowsUpdated += int64(len(k.Update))
	}
	return nil
}

func (s *stager) applyMask(ctx, inner context.Context, w *rowWriter, mu *sync.Mutex, k mask) error {
	deleted, err := s.image(k.Deleted, len(k.Delete))
	if err != nil {
		return err
	}
	before, err := s.image(k.Before, len(k.Update))
	if err != nil {
		return err
	}
	for _, b := range []arrow.RecordBatch{deleted, before} {
		if b != nil {
			defer b.Release()
		}
	}
	var wanted []int64
	if s.feed && deleted == nil {
		wanted = append(wanted, k.Delete...)
	}
	need := s.feed || k.Rewrite != nil || s.needsBefore()
	if before == nil && need {
		wanted = append(wanted, k.Update...)
	}
	if err := s.record(ctx, deleted, "delete"); err != nil {
		return err
	}
	if len(k.Update) > 0 && (before != nil || !need) {
		mu.Lock()
		err := s.replace(ctx, w, k.FileEdit, before, 0, len(k.Update))
		mu.Unlock()
		if err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		return inner.Err()
	}
	slices.Sort(wanted)
	updated := map[int64]bool{}
	for _, r := range k.Update {
		updated[r] = true
	}
	done, read := 0, 0
	for b, err := range datafile.Read(inner, s.t.store, s.l, k.File, datafile.ReadOptions{Hidden: true, RowIDs: s.moves, Rows: wanted, KeepDeleted: true}) {
		if err != nil {
			return err
		}
		var gone, changed []int64
		for i, row := range b.Rows {
			if updated[row] {
				changed = append(changed, int64(i))
			} else {
				gone = append(gone, int64(i))
			}
		}
		read += len(b.Rows)
		if err := s.recordRows(ctx, b.RecordBatch, gone, "delete"); err != nil {
			return err
		}
		if len(changed) == 0 {
			continue
		}
		before, err := datafile.Take(b.RecordBatch, changed)
		if err != nil {
			return err
		}
		mu.Lock()
		err = s.replace(ctx, w, k.FileEdit, before, done, len(changed))
		mu.Unlock()
		before.Release()
		if err != nil {
			return err
		}
		done += len(changed)
	}
	if read != len(wanted) {
		return fmt.Errorf("edit %s: %d of %d rows could be read", k.File.Path, read, len(wanted))
	}
	return nil
}

// image is rows that the caller has read, if they have the columns that are written.
// Where the same commit gives the table its hidden columns, rows read without them
// get null ones: what they were read as. Those of a table whose other columns change
// in the same commit are read again. The caller releases the answer.
func (s *stager) image(b arrow.RecordBatch, rows int) (arrow.RecordBatch, error) {
	if b == nil || b.NumRows() != int64(rows) {
		return nil, nil
	}
	n := int(b.NumCols())
	if n != s.rows.NumFields() && (n != len(s.l.Schema.Fields) || s.moves) {
		return nil, nil
	}
	for i, c := range b.Columns() {
		if want := s.rows.Field(i); !arrow.TypeEqual(c.DataType(), want.Type) || b.ColumnName(i) != want.Name {
			return nil, nil
		}
	}
	return s.complete(b)
}

// writeVectors writes the deletion vectors of a commit into one file and stages the
// pairs of remove and add (W-652, W-653, W-608).
func (s *stager) writeVectors(ctx context.Context, masks []mask) error {
	if len(masks) == 0 {
		return nil
	}
	bitmaps := make([]*roaring64.Bitmap, len(masks))
	for i, m := range masks {
		bitmaps[i] = m.all
	}
	places, key, err := s.t.storeVectors(ctx, s.cfg, bitmaps)
	if err != nil {
		return err
	}
	if key != "" {
		s.out.keys, s.out.vectorKey = append(s.out.keys, key), key
	}
	for i, m := range masks {
		s.out.Removes = append(s.out.Removes, m.File.Remove(s.t.opts.Clock(), true))
		s.out.Adds = append(s.out.Adds, withVector(m.File, places[i], m.physical))
		s.out.masked = append(s.out.masked, m)
		s.out.Metrics.VectorsAdded++
		if m.File.DeletionVector != nil {
			s.out.Metrics.VectorsUpdated++
			s.out.Metrics.VectorsRemoved++
		}
	}
	return nil
}

// storeVectors puts bitmaps into the log where they are small enough, the others into
// one durable file; key is "" when there is none.
func (t *Table) storeVectors(ctx context.Context, cfg *deltalog.TableConfig, bitmaps []*roaring64.Bitmap) (out []*deltalog.DeletionVectorDescriptor, key string, err error) {
	out = make([]*deltalog.DeletionVectorDescriptor, len(bitmaps))
	var stored []*roaring64.Bitmap
	var at []int
	for i, bm := range bitmaps {
		bm.RunOptimize()
		if t.opts.InlineVectorBytes > 0 {
			if d := dv.EncodeInline(bm); int(d.SizeInBytes) <= t.opts.InlineVectorBytes {
				out[i] = descriptor(d)
				continue
			}
		}
		stored, at = append(stored, bm), append(at, i)
	}
	if len(stored) == 0 {
		return out, "", nil
	}
	data, places, err := dv.WriteFile(stored)
	if err != nil {
		return nil, "", err
	}
	id, err := uuid.Parse(t.opts.NewID())
	if err != nil {
		// The caller's ids need not be UUIDs, the name of the file must be one.
		id = uuid.NewSHA1(uuid.Nil, []byte(t.opts.NewID()))
	}
	prefix := ""
	if cfg.Props.RandomizeFilePrefixes {
		for len(prefix) < cfg.Props.RandomPrefixLength {
			prefix += strings.ReplaceAll(uuid.NewSHA1(id, []byte(prefix)).String(), "-", "")
		}
		prefix = prefix[:max(cfg.Props.RandomPrefixLength, 0)]
	}
	place := dv.Descriptor{StorageType: dv.Relative, PathOrInlineDv: dv.EncodePath(prefix, id)}
	if key, _, err = place.Path(); err != nil {
		return nil, "", err
	}
	w, err := t.store.NewWriter(ctx, key)
	if err != nil {
		return nil, "", fmt.Errorf("create %s: %w", key, err)
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return nil, "", fmt.Errorf("write %s: %w", key, err)
	}
	if err := w.Close(); err != nil {
		return nil, "", errors.Join(fmt.Errorf("write %s: %w", key, err), t.store.Delete(context.WithoutCancel(ctx), key))
	}
	for i, d := range places {
		d.StorageType, d.PathOrInlineDv = place.StorageType, place.PathOrInlineDv
		out[at[i]] = descriptor(d)
	}
	return out, key, nil
}

func descriptor(d dv.Descriptor) *deltalog.DeletionVectorDescriptor {
	return &deltalog.DeletionVectorDescriptor{StorageType: d.StorageType, PathOrInlineDv: d.PathOrInlineDv,
		Offset: d.Offset, SizeInBytes: d.SizeInBytes, Cardinality: d.Cardinality}
}

// withVector is the add of the same file with another deletion vector: everything
// else stays, row ids included (W-802), but bounds become wide (W-608).
func withVector(a *deltalog.Add, d *deltalog.DeletionVectorDescriptor, physical int64) *deltalog.Add {
	out := *a
	out.DataChange, out.DeletionVector, out.Stats = true, d, wideStats(a.Stats, physical)
	return &out
}

// wideStats marks statistics as bounds of a file with deleted rows; every number
// keeps its text.
func wideStats(text string, physical int64) string {
	stats := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(text), &stats) != nil || stats == nil {
		stats = map[string]json.RawMessage{}
	}
	stats["numRecords"], stats["tightBounds"] = json.RawMessage(itoa(physical)), json.RawMessage("false")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(stats) != nil {
		return `{"numRecords":` + itoa(physical) + `,"tightBounds":false}`
	}
	return strings.TrimSpace(out.String())
}

// replace writes the new form of n updated rows, the first of which is number at of
// the edit, and both images; before may be nil when neither Rewrite nor the feed
// needs it.
func (s *stager) replace(ctx context.Context, w *rowWriter, e FileEdit, before arrow.RecordBatch, at, n int) error {
	var after arrow.RecordBatch
	if e.Rewrite != nil {
		var err error
		if after, err = e.Rewrite(before); err != nil {
			return err
		}
	} else {
		if int64(at+n) > e.After.NumRows() {
			return fmt.Errorf("edit %s: %d new rows for %d", e.File.Path, e.After.NumRows(), len(e.Update))
		}
		after = e.After.NewSlice(int64(at), int64(at+n))
	}
	defer after.Release()
	if after.NumRows() != int64(n) || before != nil && before.NumRows() != int64(n) {
		return fmt.Errorf("edit %s: %d new rows for %d", e.File.Path, after.NumRows(), n)
	}
	rows, err := s.changedRows(before, after)
	if err != nil {
		return err
	}
	defer rows.Release()
	if err := w.Write(ctx, rows); err != nil {
		return err
	}
	if before == nil {
		return nil
	}
	return errors.Join(s.record(ctx, before, "update_preimage"), s.record(ctx, rows, "update_postimage"))
}
