package apply

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// staged is the file part of a commit, durable and not yet named by anything.
type staged struct {
	adds    []*deltalog.Add
	removes []*deltalog.Remove
	cdc     []*deltalog.CDC
	bytes   int64
	tags    map[string]string // of the commit
	discard func(context.Context) error
}

// stage writes the decided rows. Without changed rows there is nothing to write.
func (a *attempt) stage(ctx context.Context, change *tableChange) (*staged, error) {
	if !a.decision.changesRows() {
		return &staged{}, nil
	}
	t, sh := a.t, a.shape
	opts := delta.StageOptions{
		NewTagger: func() datafile.Tagger { return &rowsTagger{id: t.snap.Metadata.ID} },
		Footer:    map[string]string{propFormat: fmt.Sprint(formatNumber)}, StatsColumns: sh.statsNames(),
		Recompute: true, // a source carries no generated columns
	}
	if change != nil {
		opts.Config = change.config
	}
	if sh.frame != nil {
		opts.Apart = sh.closedRows
	}
	full := &schema.Struct{Fields: append(append([]schema.Field(nil), sh.schema.Fields...), sh.hidden().Fields...)}
	sch, err := schema.ArrowSchema(full)
	if err != nil {
		return nil, err
	}
	if a.out != nil {
		return a.stageLots(ctx, opts)
	}
	var e delta.Edits
	for g := range a.decision.files {
		fc := &a.decision.files[g]
		if len(fc.deletes)+len(fc.updates) == 0 {
			continue
		}
		grp := &a.groups[g]
		fe := delta.FileEdit{File: grp.File}
		for _, r := range fc.deletes {
			fe.Delete = append(fe.Delete, grp.Rows[r])
		}
		for _, r := range fc.updates {
			fe.Update = append(fe.Update, grp.Rows[r])
		}
		// The look-up has read the old rows; where a deletion vector is written, nothing
		// else of the file is.
		if fe.Deleted, err = rowsOf(grp.Batch, fc.deletes); err != nil {
			return nil, err
		}
		if fe.Before, err = rowsOf(grp.Batch, fc.updates); err != nil {
			return nil, err
		}
		if len(fc.updates) > 0 {
			if fe.After, err = sh.build(t.state, sch, fc.after); err != nil {
				return nil, err
			}
		}
		e.Files = append(e.Files, fe)
	}
	if len(a.decision.inserts) > 0 {
		b, err := sh.build(t.state, sch, a.decision.inserts)
		if err != nil {
			return nil, err
		}
		e.Insert = []arrow.RecordBatch{b}
	}
	return a.stageEdits(ctx, e, opts)
}

// stageLots writes the rows that were decided in lots.
func (a *attempt) stageLots(ctx context.Context, opts delta.StageOptions) (*staged, error) {
	files, err := a.t.snap.FileList(ctx)
	if err != nil {
		return nil, err
	}
	e, done := a.out.stage(files)
	defer done()
	return a.stageEdits(ctx, e, opts)
}

func (a *attempt) stageEdits(ctx context.Context, e delta.Edits, opts delta.StageOptions) (*staged, error) {
	s, err := a.t.table.Stage(ctx, a.t.snap, e, opts)
	if err != nil {
		return nil, fmt.Errorf("write rows: %w", err)
	}
	return &staged{adds: s.Adds, removes: s.Removes, cdc: s.CDC, bytes: s.Metrics.BytesAdded + s.Metrics.ChangeBytes,
		tags: s.Tags(nil), discard: s.Discard}, nil
}

// rowsOf is some rows of a batch.
func rowsOf(b arrow.RecordBatch, rows []int) (arrow.RecordBatch, error) {
	at := make([]int64, len(rows))
	for i, r := range rows {
		at[i] = int64(r)
	}
	return datafile.Take(b, at)
}

// rowsTagger makes the tag sluice.rows of a data file: format, target, smallest and
// largest version in it. The tag is a hint; the footer is the truth (apply-state 4.3).
type rowsTagger struct {
	id       string
	min, max []byte
	bare     bool // rows without a version
}

// Add looks at the hidden group of rows on their way into the file.
func (r *rowsTagger) Add(b arrow.RecordBatch) {
	at := b.Schema().FieldIndices(hiddenGroup)
	if len(at) == 0 {
		r.bare = true
		return
	}
	g, ok := b.Column(at[0]).(*array.Struct)
	if !ok || g.NumField() == 0 {
		r.bare = true
		return
	}
	v := g.Field(0)
	var buf []byte
	for i := range v.Len() {
		if g.IsNull(i) || v.IsNull(i) {
			r.bare = true
			continue
		}
		buf = keycode.AppendValue(buf[:0], v, i)
		if r.min == nil || bytes.Compare(buf, r.min) < 0 {
			r.min = bytes.Clone(buf)
		}
		if bytes.Compare(buf, r.max) > 0 {
			r.max = bytes.Clone(buf)
		}
	}
}

// Tags is the tag; a file with rows that have no version has no smallest one.
func (r *rowsTagger) Tags() map[string]string {
	low := hex.EncodeToString(r.min)
	if r.bare {
		low = ""
	}
	return map[string]string{tagRows: fmt.Sprintf("%d;%s;%s;%s", formatNumber, r.id, low, hex.EncodeToString(r.max))}
}
