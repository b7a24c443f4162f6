package delta

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/log/schema"
)

// withoutMarks is a schema text without identity high-water marks, which say nothing
// of how rows are stored.
func withoutMarks(text string) string {
	if !strings.Contains(text, keyIdentityMark) {
		return text
	}
	s, err := schema.ParseJSON([]byte(text))
	if err != nil {
		return text
	}
	for i, f := range s.Fields {
		s.Fields[i].Metadata = slices.DeleteFunc(slices.Clone(f.Metadata), func(e schema.MetadataEntry) bool { return e.Key == keyIdentityMark })
	}
	return s.JSON()
}

// sameRules reports whether rows that were made by the rules of a are right for b.
func sameRules(a, b *deltalog.TableConfig) bool {
	constraints := func(c *deltalog.TableConfig) map[string]string {
		out := map[string]string{}
		for _, f := range []deltalog.Feature{deltalog.Invariants, deltalog.CheckConstraints, deltalog.GeneratedColumns, deltalog.IdentityColumns} {
			if c.Supports(f) {
				out[string(f)] = "on"
			}
		}
		for _, k := range Constraints(c.Metadata) {
			out[k.Name+"\x00"] = k.Expression
		}
		return out
	}
	return maps.Equal(constraints(a), constraints(b))
}

// follow makes the rows fit a newer version: after a lost race another writer may
// have used the same identity values or added a constraint. The rows are read back
// from the files that no commit names and written anew; the old files are deleted.
func (w *newRows) follow(ctx context.Context, snap *deltalog.Snapshot) error {
	spent := w.rules.Metadata() != nil && w.snap.Metadata.SchemaString != snap.Metadata.SchemaString
	if !spent && sameRules(w.snap.TableConfig, snap.TableConfig) || !sameLayout(w.snap.Metadata, snap.Metadata) {
		return nil
	}
	if err := snap.Require(deltalog.OpWrite); err != nil {
		return err
	}
	if err := w.rules.mixed(); err != nil && spent {
		return err
	}
	anew := w.rules.madeAnew()
	l, err := w.t.Layout(w.snap)
	if err != nil {
		return err
	}
	old := w.files
	next, err := w.t.writeNew(ctx, snap, func(yield func(arrow.RecordBatch, error) bool) {
		for _, f := range old {
			for b, err := range datafile.Read(ctx, w.t.store, l, f.Add(true), datafile.ReadOptions{}) {
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(dropColumns(b.RecordBatch, anew), nil) {
					return
				}
			}
		}
	}, w.check)
	if err != nil {
		return err
	}
	s := &Staged{store: w.t.store}
	for _, f := range old {
		s.keys = append(s.keys, f.Key)
	}
	if err := s.Discard(ctx); err != nil {
		w.t.opts.Logger.Warn("files of a failed attempt stay behind", "cause", err)
	}
	w.snap, w.rules, w.files, w.metrics = snap, next.rules, next.files, next.metrics
	return nil
}

// madeAnew are the columns whose values the rules made: those are made again.
func (r *Rules) madeAnew() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]bool{}
	for i, c := range r.columns {
		if c.generated != nil || c.identity != nil && c.identity.made && !c.identity.given {
			out[r.schema.Fields[i].Name] = true
		}
	}
	return out
}

func dropColumns(b arrow.RecordBatch, drop map[string]bool) arrow.RecordBatch {
	var fields []arrow.Field
	var cols []arrow.Array
	for i, f := range b.Schema().Fields() {
		if !drop[f.Name] {
			fields, cols = append(fields, f), append(cols, b.Column(i))
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, b.NumRows())
}

// mixed reports an identity column for which some rows had values and others none:
// such rows cannot be made again.
func (r *Rules) mixed() error {
	for i, c := range r.columns {
		if c.identity != nil && c.identity.made && c.identity.given {
			return &deltalog.InvalidError{ErrorCode: "DELTA_SCHEMA_CHANGED", Reason: "another writer used the values of identity column " + r.schema.Fields[i].Name + " while rows were written; write them again"}
		}
	}
	return nil
}
