package merge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/pipeline"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// IntoOptions are settings of [Into]; the zero value is the default.
type IntoOptions struct {
	Txn          *delta.Txn
	UserMetadata string
	// Isolation decides which concurrent commits are conflicts (C-01). Default:
	// Serializable.
	Isolation deltalog.IsolationLevel
}

// Result is what a merge did.
type Result struct {
	delta.Result
	// SourceRows counts the rows of the source.
	SourceRows int64
	// Rows of the table by the kind of clause that changed them.
	MatchedUpdated, MatchedDeleted, BySourceUpdated, BySourceDeleted int64
}

// insertStep is how many source rows become inserted rows in one piece.
const insertStep = 1 << 15

// Into merges the source into the table in one commit. The source is read once, before
// anything else; after a lost race that matters everything is decided again on the
// newer version. Errors: [*StatementError] and *expr.BindError for a statement that
// does not fit the tables, [*MultipleMatchError], those of [delta.Table.Stage] and of
// a commit.
func Into(ctx context.Context, t *delta.Table, source Source, s *Statement, o IntoOptions) (Result, error) {
	start := t.Options().Clock()
	if _, err := t.Snapshot(ctx); err != nil {
		return Result{}, err
	}
	rows, err := collect(source)
	if err != nil {
		return Result{}, err
	}
	var out Result
	res, err := t.Change(ctx, delta.DMLOptions(o), func(ctx context.Context, snap *deltalog.Snapshot) (*delta.Change, error) {
		m := &merging{t: t, s: s, source: rows, start: start}
		c, err := m.run(ctx, snap)
		out = m.out
		return c, err
	})
	out.Result, out.SourceRows = res, int64(rows.rows())
	return out, err
}

// merging is one attempt.
type merging struct {
	t      *delta.Table
	s      *Statement
	source *sourceRows
	start  time.Time

	cfg   *deltalog.TableConfig
	p     *plan
	rules *delta.Rules
	out   Result
}

func (m *merging) run(ctx context.Context, snap *deltalog.Snapshot) (*delta.Change, error) {
	if err := m.t.MayChange(snap, m.changesRows()); err != nil {
		return nil, err
	}
	if err := m.bind(snap); err != nil {
		return nil, err
	}
	l, err := datafile.LayoutOf(m.cfg, m.t.Options().TimeZone)
	if err != nil {
		return nil, err
	}
	x, err := newIndex(m.p, m.source)
	if err != nil {
		return nil, err
	}
	all, err := snap.FileList(ctx)
	if err != nil {
		return nil, err
	}
	mt := newMatcher(m.p, m.t.Store(), l, m.source, x)
	files := mt.candidates(all)
	partner := make([]bool, m.source.rows())
	paired := map[string][]int64{}
	var edits delta.Edits
	var multiple MultipleMatchError
	for f, err := range pipeline.Map(ctx, m.t.Options().Workers, slices.Values(files), mt.file) {
		if err != nil {
			return nil, err
		}
		if f.several > 0 {
			multiple.Rows += f.several
			multiple.Key = f.key
		}
		for _, s := range f.partners {
			partner[s] = true
		}
		if len(f.paired) > 0 {
			paired[f.file.Path] = f.paired
		}
		if len(f.acts) > 0 {
			edits.Files = append(edits.Files, m.edit(f))
		}
	}
	if multiple.Rows > 0 {
		return nil, &multiple
	}
	if edits.Insert, err = m.inserts(partner); err != nil {
		return nil, err
	}
	so := delta.StageOptions{Identity: true}
	if m.cfg != snap.TableConfig {
		so.Config = m.cfg
	}
	staged, err := m.t.Stage(ctx, snap, edits, so)
	if err != nil {
		return nil, err
	}
	return &delta.Change{Staged: staged, Config: so.Config, Read: func(tx *deltalog.Transaction) { mt.record(tx, files) },
		Rows: mt.reads(paired), Operation: "MERGE", Parameters: m.parameters(), Metrics: m.metrics(staged.Metrics)}, nil
}

// reads says what of the decision stands on single rows: a file with a row that finds a
// partner or that a clause BY SOURCE takes matters, and so does, if source rows without
// a partner are inserted, that a partner is there.
func (m *matcher) reads(paired map[string][]int64) *delta.RowReads {
	return &delta.RowReads{
		Matters: func(ctx context.Context, a *deltalog.Add) (bool, error) {
			f, err := m.file(ctx, a)
			return len(f.acts)+len(f.partners) > 0, err
		},
		Used: func(a *deltalog.Add, rows []int64) bool {
			have := paired[a.Path]
			return slices.ContainsFunc(rows, func(r int64) bool { _, ok := slices.BinarySearch(have, r); return ok })
		},
	}
}

// changesRows reports whether some clause changes rows that are there.
func (m *merging) changesRows() bool {
	return slices.ContainsFunc(m.s.clauses, func(c clause) bool { return c.kind != NotMatched })
}

// bind fits the statement to the table, which it may let grow.
func (m *merging) bind(snap *deltalog.Snapshot) error {
	zone := m.t.Options().TimeZone
	m.cfg = snap.TableConfig
	grown, err := m.s.grown(snap.Schema, m.source.schema, zone, m.start)
	if err != nil {
		return err
	}
	if len(grown.Fields) > 0 {
		if m.cfg, err = m.t.Evolve(snap.TableConfig, grown); err != nil {
			return err
		}
	}
	if m.rules, err = m.t.Rules(m.cfg); err != nil {
		return err
	}
	if m.p, err = bindStatement(m.s, m.cfg.Schema, m.source.schema, zone, m.start); err != nil {
		return err
	}
	for _, c := range m.p.clauses {
		if c.action == Update || c.action == UpdateAll {
			if err := m.rules.MayAssign(c.given...); err != nil {
				return err
			}
		}
	}
	return nil
}

// edit turns what happens in a file into a FileEdit.
func (m *merging) edit(f fileMatch) delta.FileEdit {
	e := delta.FileEdit{File: f.file}
	w := &rewriter{m: m}
	for _, a := range f.acts {
		c := m.p.clauses[a.clause]
		bySource := c.kind == NotMatchedBySource
		if c.action == Delete {
			e.Delete = append(e.Delete, a.row)
			if bySource {
				m.out.BySourceDeleted++
			} else {
				m.out.MatchedDeleted++
			}
			continue
		}
		e.Update = append(e.Update, a.row)
		w.acts = append(w.acts, a)
		if bySource {
			m.out.BySourceUpdated++
		} else {
			m.out.MatchedUpdated++
		}
	}
	if len(e.Update) > 0 {
		e.Rewrite = w.rewrite
	}
	return e
}

// rewriter computes the new rows of one file, batch after batch.
type rewriter struct {
	m    *merging
	acts []act
}

func (w *rewriter) rewrite(before arrow.RecordBatch) (arrow.RecordBatch, error) {
	n := int(before.NumRows())
	if n > len(w.acts) {
		return nil, fmt.Errorf("%d rows to change, %d more came", len(w.acts), n)
	}
	acts := w.acts[:n]
	w.acts = w.acts[n:]
	byClause := map[int16][]int64{}
	var order []int16
	for i, a := range acts {
		if byClause[a.clause] == nil {
			order = append(order, a.clause)
		}
		byClause[a.clause] = append(byClause[a.clause], int64(i))
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	back := make([]int64, n) // where each row ends up among the parts
	at := int64(0)
	for _, c := range order {
		rows := byClause[c]
		for _, r := range rows {
			back[r] = at
			at++
		}
		part, err := w.m.assigned(&w.m.p.clauses[c], before, rows, acts)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		parts[0].Retain()
		return parts[0], nil
	}
	joined, err := datafile.Concat(before.Schema(), parts)
	if err != nil {
		return nil, err
	}
	defer joined.Release()
	return datafile.Take(joined, back)
}

// assigned is the new form of some rows that one clause updates.
func (m *merging) assigned(c *boundClause, before arrow.RecordBatch, rows []int64, acts []act) (arrow.RecordBatch, error) {
	part, err := datafile.Take(before, rows)
	if err != nil {
		return nil, err
	}
	defer part.Release()
	left, right := make([]int64, len(rows)), make([]int64, len(rows))
	source := m.source
	for i, r := range rows {
		left[i], right[i] = int64(i), int64(acts[r].source)
	}
	if c.kind == NotMatchedBySource {
		source = nil
	}
	joint, err := pairs(m.p, part, left, source, right, c.values()...)
	if err != nil {
		return nil, err
	}
	defer joint.Release()
	cols := slices.Clone(part.Columns())
	for _, s := range c.sets {
		v, err := s.eval(joint)
		if err != nil {
			return nil, err
		}
		at := s.path[0]
		if cols[at], err = delta.SetField(cols[at], s.path[1:], v); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	after := array.NewRecordBatch(before.Schema(), cols, part.NumRows())
	defer after.Release()
	return m.rules.Regenerate(after, c.given)
}

// eval computes the values of an assignment.
func (s setter) eval(joint arrow.RecordBatch) (arrow.Array, error) {
	v, err := s.value.Eval(joint)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", s.name, err)
	}
	if s.fit == nil {
		return v, nil
	}
	one := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: s.fit.Name, Type: v.DataType(), Nullable: true}}, nil), []arrow.Array{v}, int64(v.Len()))
	fit, err := delta.Conform(&schema.Struct{Fields: []schema.Field{*s.fit}}, one)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", s.name, err)
	}
	return fit.Column(0), nil
}

// inserts makes the rows of source rows without a partner.
func (m *merging) inserts(partner []bool) ([]arrow.RecordBatch, error) {
	var clauses []int
	for i, c := range m.p.clauses {
		if c.kind == NotMatched {
			clauses = append(clauses, i)
		}
	}
	if len(clauses) == 0 {
		return nil, nil
	}
	var rows []int64
	for i, p := range partner {
		if !p {
			rows = append(rows, int64(i))
		}
	}
	var out []arrow.RecordBatch
	for part := range slices.Chunk(rows, insertStep) {
		taken := make([][]int64, len(m.p.clauses))
		err := firstTrue(m.p, clauses, len(part), func(open []int32, when *expr.Bound) (arrow.RecordBatch, error) {
			right := make([]int64, len(open))
			for i, o := range open {
				right[i] = part[o]
			}
			return pairs(m.p, nil, nil, m.source, right, when)
		}, func(i int32, clause int) { taken[clause] = append(taken[clause], part[i]) })
		if err != nil {
			return nil, err
		}
		for _, c := range clauses {
			if len(taken[c]) == 0 {
				continue
			}
			slices.Sort(taken[c])
			b, err := m.inserted(&m.p.clauses[c], taken[c])
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
	}
	return out, nil
}

// inserted is new rows with the columns that a clause gives; the table makes the
// others.
func (m *merging) inserted(c *boundClause, rows []int64) (arrow.RecordBatch, error) {
	joint, err := pairs(m.p, nil, nil, m.source, rows, c.values()...)
	if err != nil {
		return nil, err
	}
	defer joint.Release()
	fields, cols := make([]arrow.Field, len(c.sets)), make([]arrow.Array, len(c.sets))
	for i, s := range c.sets {
		v, err := s.eval(joint)
		if err != nil {
			return nil, err
		}
		f := m.p.target.Fields[s.path[0]]
		want, err := schema.ArrowType(f.Type)
		if err != nil {
			return nil, err
		}
		cols[i] = datafile.Rename(v, want)
		fields[i] = arrow.Field{Name: f.Name, Type: want, Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(len(rows))), nil
}

// parameters are those of Spark's MERGE: lists of conditions as JSON text.
func (m *merging) parameters() map[string]string {
	type entry struct {
		Predicate  string `json:"predicate,omitempty"`
		ActionType string `json:"actionType"`
	}
	lists := map[Kind][]entry{Matched: {}, NotMatched: {}, NotMatchedBySource: {}}
	names := map[Action]string{Update: "update", UpdateAll: "update", Delete: "delete", Insert: "insert", InsertAll: "insert"}
	for _, c := range m.s.clauses {
		e := entry{ActionType: names[c.action]}
		if c.when != nil {
			e.Predicate = c.when.String()
		}
		lists[c.kind] = append(lists[c.kind], e)
	}
	return map[string]string{
		"predicate": jsonText([]string{m.s.on.String()}), "matchedPredicates": jsonText(lists[Matched]),
		"notMatchedPredicates": jsonText(lists[NotMatched]), "notMatchedBySourcePredicates": jsonText(lists[NotMatchedBySource]),
	}
}

func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "[]" // lists of strings always encode
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// metrics are those of Spark's MERGE.
func (m *merging) metrics(d delta.Metrics) map[string]string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return map[string]string{
		"numSourceRows": n(int64(m.source.rows())), "numOutputRows": n(d.RowsInserted + d.RowsUpdated + d.RowsCopied),
		"numTargetRowsInserted": n(d.RowsInserted), "numTargetRowsUpdated": n(d.RowsUpdated), "numTargetRowsDeleted": n(d.RowsDeleted),
		"numTargetRowsMatchedUpdated": n(m.out.MatchedUpdated), "numTargetRowsMatchedDeleted": n(m.out.MatchedDeleted),
		"numTargetRowsNotMatchedBySourceUpdated": n(m.out.BySourceUpdated), "numTargetRowsNotMatchedBySourceDeleted": n(m.out.BySourceDeleted),
		"numTargetRowsCopied": n(d.RowsCopied), "numTargetFilesAdded": n(d.FilesAdded), "numTargetFilesRemoved": n(d.FilesRemoved),
		"numTargetBytesAdded": n(d.BytesAdded), "numTargetBytesRemoved": n(d.BytesRemoved), "numTargetChangeFilesAdded": n(d.ChangeFiles),
		"numTargetDeletionVectorsAdded": n(d.VectorsAdded), "numTargetDeletionVectorsUpdated": n(d.VectorsUpdated),
		"numTargetDeletionVectorsRemoved": n(d.VectorsRemoved), "executionTimeMs": n(m.t.Options().Clock().Sub(m.start).Milliseconds()),
	}
}
