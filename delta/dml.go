package delta

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/pipeline"
	"github.com/sluice-data/sluice/log/schema"
)

// found are the rows of one version that meet a condition, and what was read to
// find them.
type found struct {
	snap       *deltalog.Snapshot
	hits       []hit
	candidates []*deltalog.Add
	where      *expr.Bound
	layout     *datafile.Layout
}

// hit is one file with at least one row.
type hit struct {
	file *deltalog.Add
	all  bool
	rows []int64 // physical, live; nil when all
}

// find looks the rows up: partition values and statistics first, then only the
// columns of the condition. A nil condition is every row.
func (t *Table) find(ctx context.Context, snap *deltalog.Snapshot, where *expr.Bound) (*found, error) {
	l, err := t.Layout(snap)
	if err != nil {
		return nil, err
	}
	files, err := snap.FileList(ctx)
	if err != nil {
		return nil, err
	}
	out := &found{snap: snap, where: where, layout: l}
	for _, a := range files {
		if l.MayMatch(where, a) {
			out.candidates = append(out.candidates, a)
		}
	}
	for h, err := range pipeline.Map(ctx, t.opts.Workers, slices.Values(out.candidates), func(ctx context.Context, a *deltalog.Add) (hit, error) {
		return t.findIn(ctx, l, a, where)
	}) {
		if err != nil {
			return nil, err
		}
		if h.all || len(h.rows) > 0 {
			out.hits = append(out.hits, h)
		}
	}
	return out, nil
}

func (t *Table) findIn(ctx context.Context, l *datafile.Layout, a *deltalog.Add, where *expr.Bound) (hit, error) {
	h := hit{file: a}
	switch {
	case where == nil:
		h.all = true
		return h, nil
	case where.ReferencesOnly(l.Partition):
		all, err := l.PartitionMatch(where, a)
		h.all = all
		return h, err
	}
	for b, err := range datafile.Read(ctx, t.store, l, a, datafile.ReadOptions{Columns: []string{}, Filter: where}) {
		if err != nil {
			return h, err
		}
		h.rows = append(h.rows, b.Rows...)
	}
	if live, ok := liveRows(a); ok && live == int64(len(h.rows)) && live > 0 {
		h.all, h.rows = true, nil
	}
	return h, nil
}

// record tells the transaction what was read: the files looked at and, of later
// files, those whose partition may hold rows under the condition (C-23).
func (f *found) record(tx *deltalog.Transaction) {
	tx.ReadFiles(f.candidates...)
	if f.where == nil {
		tx.ReadWholeTable()
		return
	}
	var parts []*expr.Bound
	for _, c := range f.where.SplitConjuncts() {
		if c.ReferencesOnly(f.layout.Partition) {
			parts = append(parts, c)
		}
	}
	tx.ReadPartitions(func(values map[string]*string) bool {
		for _, c := range parts {
			if ok, err := f.layout.PartitionMatch(c, &deltalog.Add{PartitionValues: values}); err == nil && !ok {
				return false
			}
		}
		return true
	})
}

// predicate is the parameter text of Spark's DELETE and UPDATE: a JSON list with
// the condition.
func predicate(where *expr.Bound) string {
	if where == nil {
		return `["true"]`
	}
	return jsonText([]string{where.String()})
}

// DMLOptions are settings of Delete and Update; the zero value is the default.
type DMLOptions struct {
	Txn          *Txn
	UserMetadata string
	// Isolation decides which concurrent commits are conflicts (C-01). Default:
	// Serializable; with WriteSerializable, rows that others append meanwhile stay as
	// they are.
	Isolation deltalog.IsolationLevel
}

// Delete removes the rows for which the condition is TRUE; "" is every row. Files of
// which all rows go are removed without being read when partition values say so.
func (t *Table) Delete(ctx context.Context, where string, o DMLOptions) (Result, error) {
	return t.change(ctx, "DELETE", where, o, func(f *found) ([]FileEdit, error) {
		edits := make([]FileEdit, len(f.hits))
		for i, h := range f.hits {
			edits[i] = FileEdit{File: h.file, All: h.all, Delete: h.rows}
		}
		return edits, nil
	})
}

// Update sets columns of the rows for which the condition is TRUE ("" is every row).
// set is a list of assignments in SQL: "a = a + 1, s.x = 'y'".
func (t *Table) Update(ctx context.Context, set, where string, o DMLOptions) (Result, error) {
	assigned, err := expr.ParseAssignments(set)
	if err != nil {
		return Result{}, err
	}
	return t.change(ctx, "UPDATE", where, o, func(f *found) ([]FileEdit, error) {
		plan, err := t.planUpdate(f.snap.TableConfig, f.layout, assigned)
		if err != nil {
			return nil, err
		}
		edits := make([]FileEdit, len(f.hits))
		for i, h := range f.hits {
			rows := h.rows
			if h.all {
				if rows, err = t.allRows(ctx, f.layout, h.file); err != nil {
					return nil, err
				}
			}
			edits[i] = FileEdit{File: h.file, Update: rows, Rewrite: plan.apply}
		}
		return edits, nil
	})
}

// allRows are the live rows of a file.
func (t *Table) allRows(ctx context.Context, l *datafile.Layout, a *deltalog.Add) ([]int64, error) {
	var rows []int64
	for b, err := range datafile.Read(ctx, t.store, l, a, datafile.ReadOptions{Columns: []string{}}) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, b.Rows...)
	}
	return rows, nil
}

// change is one DELETE or UPDATE, done again from the start after a lost race.
func (t *Table) change(ctx context.Context, operation, text string, o DMLOptions, plan func(*found) ([]FileEdit, error)) (Result, error) {
	start := t.opts.Clock()
	return t.Change(ctx, o, func(ctx context.Context, snap *deltalog.Snapshot) (*Change, error) {
		if err := t.mayChange(snap, true); err != nil {
			return nil, err
		}
		where, err := t.condition(snap.Schema, text, start)
		if err != nil {
			return nil, err
		}
		f, err := t.find(ctx, snap, where)
		if err != nil {
			return nil, err
		}
		edits, err := plan(f)
		if err != nil {
			return nil, err
		}
		s, err := t.Stage(ctx, snap, Edits{Files: edits}, StageOptions{})
		if err != nil {
			return nil, err
		}
		return &Change{Staged: s, Read: f.record, Rows: t.rowReads(f), Operation: operation,
			Parameters: map[string]string{"predicate": predicate(where)},
			Metrics:    s.Metrics.rewrite(operation, t.opts.Clock().Sub(start))}, nil
	})
}

// rowReads: a row matters when the condition is TRUE for it, and for itself alone.
func (t *Table) rowReads(f *found) *RowReads {
	return &RowReads{Matters: func(ctx context.Context, a *deltalog.Add) (bool, error) {
		h, err := t.findIn(ctx, f.layout, a, f.where)
		return h.all || len(h.rows) > 0, err
	}}
}

// updatePlan is a list of assignments bound to a schema.
type updatePlan struct {
	sets  []boundSet
	rules *Rules
	given []string // columns assigned
}

type boundSet struct {
	path  []int // field index at each level
	value *expr.Bound
	name  string
}

func (t *Table) planUpdate(cfg *deltalog.TableConfig, l *datafile.Layout, assigned []expr.Assignment) (*updatePlan, error) {
	rules, err := t.Rules(cfg)
	if err != nil {
		return nil, err
	}
	p := &updatePlan{rules: rules}
	now := t.opts.Clock() // one time for all rows
	for _, a := range assigned {
		set := boundSet{name: strings.Join(a.Path, ".")}
		st := l.Schema
		var target schema.Type
		for d, name := range a.Path {
			i := -1
			if st != nil {
				i = st.Index(name)
			}
			if i < 0 {
				return nil, &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: fmt.Sprintf("set %s: no such column at %s", set.name, a.Pos)}
			}
			set.path = append(set.path, i)
			target = st.Fields[i].Type
			if st, _ = target.(*schema.Struct); st == nil && d < len(a.Path)-1 {
				return nil, &deltalog.InvalidError{ErrorCode: expr.CodeUnresolvedColumn, Reason: fmt.Sprintf("set %s: %s is not a struct", set.name, name)}
			}
		}
		for _, other := range p.sets {
			n := min(len(other.path), len(set.path))
			if slices.Equal(other.path[:n], set.path[:n]) {
				return nil, &deltalog.InvalidError{ErrorCode: "DELTA_CONFLICT_SET_COLUMN", Reason: fmt.Sprintf("set %s: it overlaps with %s", set.name, other.name)}
			}
		}
		b, err := a.Value.BindWith(l.Schema, expr.Options{Zone: t.opts.TimeZone, Target: target, Now: &now})
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", set.name, err)
		}
		set.value = b
		p.sets = append(p.sets, set)
		p.given = append(p.given, l.Schema.Fields[set.path[0]].Name)
	}
	if err := rules.MayAssign(p.given...); err != nil {
		return nil, err
	}
	return p, nil
}

// apply computes the new rows; every value is computed from the old ones, and
// generated columns from the new ones.
func (p *updatePlan) apply(before arrow.RecordBatch) (arrow.RecordBatch, error) {
	cols := slices.Clone(before.Columns())
	for _, s := range p.sets {
		v, err := s.value.Eval(before)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", s.name, err)
		}
		if cols[s.path[0]], err = setPath(cols[s.path[0]], s.path[1:], v); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	after := array.NewRecordBatch(before.Schema(), cols, before.NumRows())
	defer after.Release()
	return p.rules.Regenerate(after, p.given)
}

// SetField replaces the field of a at path, indices of struct fields from the outside
// in, by v; without a path it is v itself. v must hold values of the field's type.
func SetField(a arrow.Array, path []int, v arrow.Array) (arrow.Array, error) {
	return setPath(a, path, v)
}

// setPath replaces a, or the field of it at path; a null struct on the way becomes
// one whose other fields are null.
func setPath(a arrow.Array, path []int, v arrow.Array) (arrow.Array, error) {
	if len(path) == 0 {
		return retype(v, a.DataType()), nil
	}
	st, ok := a.(*array.Struct)
	if !ok {
		return nil, fmt.Errorf("column type %s is not a struct", a.DataType())
	}
	children := make([]arrow.ArrayData, st.NumField())
	for i := range children {
		child := st.Field(i)
		if st.NullN() > 0 {
			masked, err := maskNulls(child, st)
			if err != nil {
				return nil, err
			}
			child = masked
		}
		if i == path[0] {
			next, err := setPath(child, path[1:], v)
			if err != nil {
				return nil, err
			}
			child = next
		}
		children[i] = child.Data()
	}
	return array.NewStructData(array.NewData(st.DataType(), st.Len(), []*memory.Buffer{nil}, children, 0, 0)), nil
}

// retype gives a value the exact type of its column: the two differ in the names and
// nullability inside of nested types at most.
func retype(v arrow.Array, want arrow.DataType) arrow.Array {
	if arrow.TypeEqual(v.DataType(), want) {
		return v
	}
	return datafile.Rename(v, want)
}

// maskNulls is child with null where the struct around it is null.
func maskNulls(child arrow.Array, around *array.Struct) (arrow.Array, error) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range around.Len() {
		if around.IsNull(i) {
			b.AppendNull()
		} else {
			b.Append(int64(i))
		}
	}
	idx := b.NewArray()
	defer idx.Release()
	return datafile.TakeArray(child, idx)
}
