package delta

import (
	"context"
	"iter"
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

// follow makes the rows fit a newer version. After a lost race another writer may have
// used the same identity values, added a constraint, or changed the schema that these
// rows change too (B21): then the rows are read back from the files that no commit
// names and written anew, and the old files are deleted.
func (w *newRows) follow(ctx context.Context, snap *deltalog.Snapshot) error {
	if snap == w.snap {
		return nil
	}
	old, now := w.snap.Metadata, snap.Metadata
	same := sameLayout(old, now)
	if evolves := w.evolution.merge || w.evolution.replace; !same && (!evolves || old.ID != now.ID) {
		return &deltalog.InvalidError{ErrorCode: "DELTA_SCHEMA_CHANGED", Reason: "the table's schema, partitioning or column mapping changed while rows were written; write them again"}
	}
	moved := w.rules.Metadata() != nil
	spent := moved && old.SchemaString != now.SchemaString
	// A commit with metadata carries all of it, so it is made of the newest.
	stale := (moved || w.cfg != w.snap.TableConfig) && !maps.Equal(old.Configuration, now.Configuration)
	if same && !spent && !stale && sameRules(w.snap.TableConfig, snap.TableConfig) {
		return nil
	}
	if err := snap.Require(deltalog.OpWrite); err != nil {
		return err
	}
	if err := w.rules.mixed(); err != nil && spent {
		return err
	}
	e := *w.evolution
	e.last = nil
	next, err := w.t.writeNew(ctx, snap, w.rows(ctx, w.rules.madeAnew()), w.check, &e)
	if err != nil {
		return err
	}
	if err := w.discard(ctx); err != nil {
		w.t.opts.Logger.Warn("files of a failed attempt stay behind", "cause", err)
	}
	*w = *next
	return nil
}

// rows reads the files back without the columns in drop.
func (w *newRows) rows(ctx context.Context, drop map[string]bool) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		l, err := datafile.LayoutOf(w.cfg, w.t.opts.TimeZone)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, f := range w.files {
			for b, err := range datafile.Read(ctx, w.t.store, l, f.Add(true), datafile.ReadOptions{}) {
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(dropColumns(b.RecordBatch, drop), nil) {
					return
				}
			}
		}
	}
}

// evolve makes the table fit rows of another schema, if it may: what was written so
// far stays in files of its own. On an error w is the writer to abort.
func (w *newRows) evolve(ctx context.Context, to **datafile.Writer, rows *arrow.Schema) error {
	cfg, err := w.evolution.fit(w.t, w.snap, w.cfg, rows)
	if err != nil || cfg == w.cfg {
		return err
	}
	rules, err := w.t.Rules(cfg)
	if err != nil {
		return err
	}
	next, err := w.t.newWriter(w.snap, cfg)
	if err != nil {
		return err
	}
	files, err := (*to).Close(ctx)
	*to = next
	if err != nil {
		return err
	}
	rules.succeed(w.rules)
	w.cfg, w.rules, w.files = cfg, rules, append(w.files, files...)
	return nil
}

// succeed takes over the identity counters of rules of the same commit.
func (r *Rules) succeed(old *Rules) {
	for i, c := range r.columns {
		j := old.schema.Index(r.schema.Fields[i].Name)
		if j >= 0 && c.identity != nil && old.columns[j].identity != nil {
			*c.identity = *old.columns[j].identity
		}
	}
	r.moved = old.moved
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
