package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
)

// versionColumn is the column by which the version of a snapshot travels through
// the engine as the sequence of its rows.
const versionColumn = "_snapshot_version"

// validateSnapshot holds a flow to what FROM SNAPSHOT allows (auto-cdc 1.1).
func (s *Spec) validateSnapshot() error {
	f := &s.Flow
	if s.Source != nil || s.NewDecoder != nil {
		return analysis("INVALID_OPTION", "a flow reads either snapshots or a stream")
	}
	if s.Target.Route != nil {
		return analysis("INVALID_OPTION", "a snapshot flow has one target")
	}
	var set []string
	for _, c := range []struct {
		clause string
		given  bool
	}{{"SEQUENCE BY", f.SequenceBy != ""}, {"APPLY AS DELETE", f.ApplyAsDeletes != ""}, {"APPLY AS TRUNCATE", f.ApplyAsTruncates != ""},
		{"COLUMNS TO UPDATE", f.ColumnsToUpdate != ""}, {"SYSTEM SEQUENCE BY", f.SystemSequenceBy != ""}, {"STORED AS BITEMPORAL", strings.EqualFold(f.StoredAsSCDType, "bitemporal")},
		{"IGNORE NULL UPDATES", f.IgnoreNullUpdates || f.IgnoreNullUpdatesColumnList != nil || f.IgnoreNullUpdatesExceptColumnList != nil}} {
		if c.given {
			set = append(set, c.clause)
		}
	}
	if set != nil {
		return analysis("INVALID_OPTION", "FROM SNAPSHOT does not go with %s", strings.Join(set, ", "))
	}
	if f.MaxDeleteFraction < 0 || f.MaxDeleteFraction > 1 || f.MissingGrace < 0 {
		return analysis("INVALID_OPTION", "the largest share of deleted rows lies between 0 and 1, a grace is no negative number")
	}
	return nil
}

// runSnapshots applies snapshots until the source has none after the last one.
func (r *run) runSnapshots(ctx context.Context) error {
	r.flow.SequenceBy = "`" + versionColumn + "`"
	if len(r.flow.ColumnList) == 0 {
		r.flow.ExceptColumnList = append(slices.Clone(r.flow.ExceptColumnList), versionColumn)
	}
	_, _, done, err := r.open(ctx)
	if err != nil || done {
		return err
	}
	t := r.order[0]
	if m := t.state.snapshot; m != nil && m.Flow != t.flow {
		return t.named(stored(CodeTwoSnapshots, "flow %s already applies snapshots to the target", m.Flow))
	}
	last, err := t.lastSnapshot()
	if err != nil {
		return t.named(err)
	}
	for {
		if err := t.checkHeld(ctx, last); err != nil {
			return t.named(err)
		}
		s, err := r.spec.Snapshots.Next(ctx, last)
		if err != nil {
			return err
		}
		if s == nil {
			return errors.Join(t.settle(ctx, true), t.named(t.upkeep(ctx)))
		}
		version, mark, err := t.versionOf(ctx, s)
		if err != nil {
			return t.named(err)
		}
		batches, err := r.readSnapshot(ctx, s, version)
		if err != nil {
			return t.named(err)
		}
		if t.listed {
			mark.Applied = append(slices.Clone(t.applied), mark.seq)
		}
		if err := t.applySnapshot(ctx, s, batches, mark); err != nil {
			return t.named(err)
		}
		t.applied = mark.Applied
		r.tell(true)
		if last = version; s.Version == nil || r.flow.DryRun {
			return t.settle(ctx, true)
		}
	}
}

// checkHeld refuses to go on beside a snapshot whose version is not above the last
// one and that was never applied: it came too late, and to pass over it would hide
// that its rows are missing (auto-cdc 2.8).
func (t *target) checkHeld(ctx context.Context, last *event.SnapshotVersion) error {
	held, err := t.run.spec.Snapshots.Held(ctx, last)
	if t.listed = held != nil; err != nil || !t.listed {
		return err
	}
	known := t.applied
	if m := t.state.snapshot; m != nil {
		known = append(slices.Clone(known), m.Applied...)
	}
	t.applied = nil
	for _, s := range held {
		v := keycode.AppendValue(nil, s.Version.Value, 0)
		switch {
		case last == nil || keycode.Compare(s.Version.Value, 0, last.Value, 0) > 0:
			continue
		case len(known) > 0 && !slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, v) }):
			return running(CodeOutOfOrderSnapshot, "%s came after a snapshot with a newer version had been applied, and was never applied itself; "+
				"take it away, give it a version above the last one, or refresh in full to apply all in their order", s.Name)
		}
		t.applied = append(t.applied, v)
	}
	return nil
}

// lastSnapshot is the last committed version; nil: none.
func (t *target) lastSnapshot() (*event.SnapshotVersion, error) {
	m := t.state.snapshot
	if m == nil {
		return nil, nil
	}
	s, err := schema.ParseDDL("v " + m.Type)
	if err != nil {
		return nil, fmt.Errorf("read snapshot version of the state: %w", err)
	}
	dt, err := schema.ArrowType(s.Fields[0].Type)
	if err != nil {
		return nil, fmt.Errorf("read snapshot version of the state: %w", err)
	}
	code, err := keycode.NewEncoder([]arrow.DataType{dt})
	if err != nil {
		return nil, fmt.Errorf("read snapshot version of the state: %w", err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	defer b.Release()
	if _, err := code.Decode(m.seq, []array.Builder{b}); err != nil {
		return nil, fmt.Errorf("read snapshot version of the state: %w", err)
	}
	return &event.SnapshotVersion{Column: m.Column, Type: s.Fields[0].Type, Value: b.NewArray()}, nil
}

// versionOf checks the version of a snapshot against the last one.
func (t *target) versionOf(ctx context.Context, s *event.Snapshot) (*event.SnapshotVersion, *snapshotMark, error) {
	v, last := s.Version, t.state.snapshot
	if v == nil {
		if last != nil || t.snap != nil {
			files := 0
			if t.snap != nil {
				adds, err := t.snap.FileList(ctx)
				if err != nil {
					return nil, nil, err
				}
				files = len(adds)
			}
			if last != nil || files > 0 {
				return nil, nil, stored(CodeSnapshotWithoutVersion, "a snapshot without version can only fill an empty target; say what orders the snapshots, or refresh in full")
			}
		}
		b := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
		b.Append(arrow.Timestamp(t.run.started.UnixMicro()))
		v = &event.SnapshotVersion{Type: schema.Timestamp, Value: b.NewArray()}
	}
	if !expr.Orderable(v.Type) || v.Type == schema.Void {
		return nil, nil, analysis(CodeSnapshotNotSortable, "the version of %s has type %s, which has no order", s.Name, v.Type)
	}
	switch why := badSequence(v.Value, 0); why {
	case CodeNullSequence:
		return nil, nil, running(CodeNullSnapshotVersion, "the version of %s is null", s.Name)
	case CodeNaNSequence:
		return nil, nil, running(CodeNaNSequence, "the version of %s contains NaN", s.Name)
	}
	m := &snapshotMark{Flow: t.flow, Column: v.Column, Type: typeName(v.Type), seq: keycode.AppendValue(nil, v.Value, 0)}
	if last == nil {
		return v, m, nil
	}
	if last.Column != m.Column || last.Type != m.Type {
		return nil, nil, stored(CodeSnapshotVersionChanged, "the versions were %s %s, that of %s is %s %s; refresh in full to start over", last.Column, last.Type, s.Name, m.Column, m.Type)
	}
	if bytes.Compare(m.seq, last.seq) <= 0 {
		return nil, nil, running(CodeOutOfOrderSnapshot, "the version of %s, %s, is not above the last committed one", s.Name, v.Value.ValueStr(0))
	}
	return v, m, nil
}

// belong keeps the rows of a snapshot that its WHERE lets in.
func (r *run) belong(b *event.Batch, name string) (*event.Batch, error) {
	if r.flow.SnapshotWhere == "" {
		return b, nil
	}
	fail := func(phase Phase, code string, err error) error {
		return &Error{Code: codeOf(err, code), Phase: phase, Message: fmt.Sprintf("WHERE of %s: %s", name, r.flow.SnapshotWhere), Err: err}
	}
	parsed, err := expr.Parse(r.flow.SnapshotWhere)
	if err != nil {
		return nil, fail(PhaseAnalysis, CodeSyntax, err)
	}
	bound, err := parsed.BindWith(b.Columns, r.zone())
	if err != nil {
		return nil, fail(PhaseAnalysis, CodeExpressionNotAllowed, err)
	}
	if t := bound.Type(); t != schema.Boolean && t != schema.Void {
		return nil, analysis(CodeConditionNotBoolean, "WHERE of %s has type %s, not BOOLEAN: %s", name, t, r.flow.SnapshotWhere)
	}
	rows, err := bound.EvalFilter(b.Rows)
	if err != nil {
		return nil, fail(PhaseRun, "EXPRESSION_FAILED", err)
	}
	if len(rows) == int(b.Rows.NumRows()) {
		return b, nil
	}
	pick := make([]int, len(rows))
	for i, r := range rows {
		pick[i] = int(r)
	}
	return pickRows(b, pick)
}

// readSnapshot holds the rows of a snapshot, each with its version as a column.
func (r *run) readSnapshot(ctx context.Context, s *event.Snapshot, v *event.SnapshotVersion) ([]*event.Batch, error) {
	var out []*event.Batch
	for b, err := range s.Rows {
		if err == nil {
			b, err = r.belong(b, s.Name)
		}
		if err != nil {
			return nil, err
		}
		n := int(b.Rows.NumRows())
		if n == 0 && out != nil {
			continue
		}
		if len(out) == 1 && out[0].Rows.NumRows() == 0 {
			out = nil // it was there for its columns
		}
		if b.Columns.Index(versionColumn) >= 0 {
			return nil, analysis(CodeReservedPrefix, "the source has a column %s, which snapshots keep for themselves; leave it out", versionColumn)
		}
		x := &event.Batch{Table: b.Table, Source: "", Keys: b.Keys, Ops: make([]event.Op, n), Offsets: make([]int64, n), Lines: b.Lines,
			Unauthored: padBits(b.Unauthored, len(b.Columns.Fields)), Unavailable: padBits(b.Unavailable, len(b.Columns.Fields)), RawSize: b.RawSize, Rescued: b.Rescued}
		for r := range x.Ops {
			x.Ops[r] = event.Upsert
		}
		b.Rows.Retain()
		version, err := gather(v.Value.DataType(), n, func(int) cell { return cell{v.Value, 0} })
		if err != nil {
			return nil, err
		}
		if x.Columns, x.Rows, err = withVersion(b.Columns, b.Rows.Columns(), v.Type, version); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, context.Cause(ctx)
}

func padBits(bits []event.Bits, n int) []event.Bits {
	if bits == nil {
		return nil
	}
	return append(slices.Clone(bits), make([]event.Bits, n+1-len(bits))...)
}

// withVersion adds the version column to rows.
func withVersion(s *schema.Struct, columns []arrow.Array, t schema.Type, version arrow.Array) (*schema.Struct, arrow.RecordBatch, error) {
	out := &schema.Struct{Fields: append(slices.Clone(s.Fields), schema.Field{Name: versionColumn, Type: t, Nullable: true})}
	as, err := schema.ArrowSchema(out)
	if err != nil {
		return nil, nil, err
	}
	return out, array.NewRecordBatch(as, append(slices.Clone(columns), version), int64(version.Len())), nil
}

// difference is what a snapshot changes of a target: the keys that are new or
// differ, and those that it lacks (auto-cdc 2.8: the snapshot form equals the
// difference form).
type difference struct {
	in        *input
	def       flowDef
	shape     *shape
	rows      int64 // of the snapshot
	unchanged int64
	deleted   int64
	live      int64 // rows of the target that the snapshot is newer than
	facts     []stateRow
}

// applySnapshot commits one snapshot.
func (t *target) applySnapshot(ctx context.Context, s *event.Snapshot, batches []*event.Batch, mark *snapshotMark) error {
	for range maxTries {
		if err := t.pin(ctx); err != nil {
			return err
		}
		if m := t.state.snapshot; m != nil && (m.Flow != t.flow || bytes.Compare(mark.seq, m.seq) <= 0) {
			return running(CodeOutOfOrderSnapshot, "another run has committed a snapshot at or above that of %s", s.Name)
		}
		d, err := t.difference(ctx, batches, mark)
		if err != nil {
			return err
		}
		if d == nil {
			t.run.warn(fmt.Sprintf("%s is empty and tells no columns, so that there is no target yet; it is looked at again by the next run", s.Name))
			return nil
		}
		if err := t.guard(s, d); err != nil {
			return err
		}
		done, err := t.commitSnapshot(ctx, d, mark)
		if err != nil || done {
			return err
		}
	}
	return running(CodeConflict, "the snapshot lost %d races against other writers", maxTries)
}

// guard refuses a snapshot that looks broken.
func (t *target) guard(s *event.Snapshot, d *difference) error {
	f := &t.run.flow
	switch {
	case d.rows == 0 && d.live > 0 && !f.AllowEmptySnapshot:
		return running(CodeSnapshotEmpty, "%s is empty and would delete all %d rows; allow empty snapshots if that is meant", s.Name, d.live)
	case d.deleted > 0 && f.MaxDeleteFraction > 0 && float64(d.deleted)/float64(d.live) > f.MaxDeleteFraction:
		return running(CodeSnapshotDeletes, "%s would delete %d of %d rows, which is more than the allowed share of %g; raise it if that is meant",
			s.Name, d.deleted, d.live, f.MaxDeleteFraction)
	}
	return nil
}

// commitSnapshot makes the difference and the version durable in one commit.
func (t *target) commitSnapshot(ctx context.Context, d *difference, mark *snapshotMark) (done bool, err error) {
	d.in.snapshot = mark
	d.in.facts = d.facts
	a := &attempt{t: t, in: d.in, lo: 0, hi: d.in.rows(), def: d.def, shape: d.shape}
	if a.hi > 0 {
		if err := a.decide(ctx); err != nil {
			return false, err
		}
		a.def.Snapshot = true
		if a.def.StoredAs == "1" {
			a.decision.facts = slices.DeleteFunc(a.decision.facts, func(f stateRow) bool { // the version's truncate says it
				return (f.Kind == kindTombstone || f.Kind == kindFloor) && bytes.Compare(f.Seq, mark.seq) <= 0
			})
		}
	}
	if t.run.flow.DryRun {
		t.result.Plan = a.plan()
		a.accountSnapshot(d)
		return true, nil
	}
	if t.snap == nil {
		return false, t.create(ctx, d.shape)
	}
	if a.hi > 0 {
		done, err = a.commit(ctx)
	} else {
		p := &proposal{t: t, began: t.run.o.Clock(), facts: slices.Concat(t.walked, d.facts), def: &a.def, snapshot: mark, operation: "AUTO CDC"}
		if p.config, err = t.tableChange(d.shape); err != nil {
			return false, err
		}
		done, err = p.commit(ctx)
	}
	if done && err == nil {
		a.accountSnapshot(d)
	}
	return done, err
}

func (a *attempt) accountSnapshot(d *difference) {
	a.account()
	if a.fold == nil {
		a.t.result.Batches++
	}
	a.t.result.Snapshots++
	a.t.result.Events.Read += d.unchanged
	a.t.result.Events.Duplicate += d.unchanged
	if d.in.snapshot != nil && a.t.run.flow.Once {
		a.t.settled = false
	}
}
