package apply

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// snapshotRow is one row of a snapshot under its key.
type snapshotRow struct {
	batch int
	at    ref
	found bool // with the same values in the target
}

// difference compares a snapshot with the pinned target; nil: there is neither a
// row nor a target.
func (t *target) difference(ctx context.Context, batches []*event.Batch, mark *snapshotMark) (*difference, error) {
	d := &difference{in: &input{}}
	var plans []*plan
	rescued := false
	for _, b := range batches {
		p, err := t.planOf(b)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
		rescued = rescued || b.Rescued != nil
	}
	if cfg := t.widening(plans); cfg != nil && !t.run.flow.DryRun {
		if err := t.widen(ctx, cfg); err != nil {
			return nil, err
		}
		if err := t.pin(ctx); err != nil {
			return nil, err
		}
		return t.difference(ctx, batches, mark)
	}
	if err := t.fitSnapshot(d, plans, rescued, mark); err != nil || d.shape == nil {
		return nil, err
	}
	rows := map[string]*snapshotRow{}
	var order []*snapshotRow
	for i, b := range batches {
		events, o, err := plans[i].intake(d.shape, b, func(int) bool { return true }, nil)
		if err != nil {
			return nil, err
		}
		mark.Epoch = t.state.epochOf(d.shape.authored(plans[i], o))
		for _, e := range events {
			if rows[e.key] != nil {
				return nil, running(CodeDuplicateSnapshotKey, "the snapshot holds key %s twice:%s", keyValueText(d.shape, &origin{keys: o.keys}, e.at.row), lineText(b, e.at.row))
			}
			x := &snapshotRow{batch: i, at: e.at}
			rows[e.key], order = x, append(order, x)
		}
	}
	d.rows = int64(len(order))
	gone, err := t.compareSnapshot(ctx, d, rows, mark)
	if err != nil {
		return nil, err
	}
	for i, b := range batches {
		var pick []int
		for _, x := range order {
			if x.batch != i {
				continue
			}
			if x.found {
				d.unchanged++
			} else {
				pick = append(pick, x.at.row)
			}
		}
		if pick != nil {
			u, err := pickRows(b, pick)
			if err != nil {
				return nil, err
			}
			d.in.batches = append(d.in.batches, u)
		}
	}
	if len(gone) > 0 {
		del, err := t.deletesOf(d.shape, batches, gone, mark)
		if err != nil {
			return nil, err
		}
		d.in.batches = append(d.in.batches, del)
	}
	return d, nil
}

// fitSnapshot makes the shape: of the snapshot's plans, or of the stored table when
// the snapshot is empty.
func (t *target) fitSnapshot(d *difference, plans []*plan, rescued bool, mark *snapshotMark) error {
	if len(plans) > 0 {
		for _, name := range slices.Sorted(maps.Keys(t.state.flows)) {
			if err := interop(t.state.flows[name], plans[0].def(t.flow, nil)); err != nil {
				return err
			}
		}
		a := &attempt{t: t}
		if err := a.makeShape(plans, rescued); err != nil {
			return err
		}
		d.shape, d.def = a.shape, a.def
		d.def.Snapshot = true
		return nil
	}
	def, ok := t.state.flows[t.flow]
	if t.snap == nil {
		return nil
	}
	if !ok || def.unread() {
		// The first snapshot of the flow is empty: it is of what a change flow fixed.
		have, ok := t.anyFlow()
		if !ok {
			return nil
		}
		def = flowDef{Name: t.flow, Keys: have.Keys, Sequence: mark.Type, StoredAs: have.StoredAs, Columns: have.Columns, Split: have.Split, Snapshot: true}
		for _, name := range slices.Sorted(maps.Keys(t.state.flows)) {
			if err := interop(t.state.flows[name], def); err != nil {
				return err
			}
		}
	}
	var err error
	if d.shape, err = t.storedShape(t.keyColumns(&def)); err != nil {
		return err
	}
	d.def = def
	return nil
}

// interop are the limits of a snapshot flow beside change flows (auto-cdc 2.8).
func interop(have, want flowDef) error {
	if have.Snapshot || have.unread() {
		return nil
	}
	names := func(d flowDef) string {
		var s []string
		for _, k := range d.Keys {
			s = append(s, strings.ToLower(k.Name))
		}
		return strings.Join(s, ", ")
	}
	switch {
	case names(have) != names(want):
		return analysis(CodeInteropKeys, "the keys of flow %s are %s, those of the snapshot flow %s", have.Name, names(have), names(want))
	case have.StoredAs != "1" || want.StoredAs != "1":
		return analysis(CodeInteropStorage, "a snapshot flow shares its target with flow %s only as SCD type 1", have.Name)
	case have.Mode != "":
		return analysis(CodeInteropIgnoreNull, "flow %s applies partial events (%s), which a snapshot flow cannot share a target with", have.Name, have.Mode)
	case have.Sequence != want.Sequence:
		return analysis(CodeInteropSequence, "the sequence of flow %s has type %s, the version of the snapshots %s", have.Name, have.Sequence, want.Sequence)
	}
	return nil
}

// goneRow is a row of the target whose key the snapshot lacks.
type goneRow struct {
	keys []arrow.Array
	row  int
}

// compareSnapshot reads the target's current rows: found marks the rows of the
// snapshot that it has with the same values; gone are the rows to delete.
func (t *target) compareSnapshot(ctx context.Context, d *difference, rows map[string]*snapshotRow, mark *snapshotMark) ([]goneRow, error) {
	if t.snap == nil {
		return nil, nil
	}
	if err := t.holdState(ctx); err != nil {
		return nil, err
	}
	j := joiner{fields: len(d.shape.fields)}
	var gone []goneRow
	seen := map[string]bool{}
	now := t.state.processedAt(t.run.o.Clock())
	err := t.eachCurrent(ctx, d.shape, func(key string, o *origin, h entry, row int) error {
		if seen[key] {
			return &Error{Code: CodeTargetKeyNotUnique, Phase: PhaseRun, Message: "the target has two rows with key " + keyValueText(d.shape, o, row) + "; remove one"}
		}
		seen[key] = true
		newer := false
		if mark != nil {
			reg := d.shape.registerOf(t.state, h, key, ref{o, row})
			newer = bytes.Compare(reg.u, mark.seq) > 0
		}
		if !newer {
			d.live++
		}
		x := rows[key]
		switch {
		case x != nil:
			same := true
			for f := range d.shape.fields {
				same = same && (!x.at.o.authors(f, x.at.row) || j.compare(x.at, ref{o, row}, f) == 0)
			}
			x.found = same || newer
		case newer:
		case t.graced(key, mark, now, d):
		default:
			d.deleted++
			gone = append(gone, goneRow{o.keys, row})
		}
		return nil
	})
	return gone, err
}

// graced tells whether a missing key does not count as deleted yet, and notes that
// this snapshot lacks it.
func (t *target) graced(key string, mark *snapshotMark, now int64, d *difference) bool {
	grace := t.run.flow.MissingGrace
	if grace <= 1 {
		return false
	}
	count := 1
	if m, ok := t.state.missing[key]; ok && t.state.snapshot != nil && bytes.Equal(m.seq, t.state.snapshot.seq) {
		count += m.count
	}
	if count >= grace {
		return false
	}
	d.facts = append(d.facts, stateRow{Kind: kindMissing, Key: []byte(key), Seq: mark.seq, Payload: mustJSON(count), At: now})
	return true
}

// pickRows are some rows of a batch.
func pickRows(b *event.Batch, pick []int) (*event.Batch, error) {
	out := &event.Batch{Table: b.Table, Columns: b.Columns, Keys: b.Keys, Ops: make([]event.Op, len(pick)), Offsets: make([]int64, len(pick))}
	cols := make([]arrow.Array, len(b.Columns.Fields))
	for c := range cols {
		var err error
		col := b.Rows.Column(c)
		if cols[c], err = gather(col.DataType(), len(pick), func(i int) cell { return cell{col, pick[i]} }); err != nil {
			return nil, err
		}
	}
	take := func(bits []event.Bits) []event.Bits {
		if bits == nil {
			return nil
		}
		list := make([]event.Bits, len(bits))
		for c := range bits {
			for i, r := range pick {
				if bits[c] != nil && bits[c].Get(r) {
					list[c] = list[c].Set(i)
				}
			}
		}
		return list
	}
	out.Unauthored, out.Unavailable = take(b.Unauthored), take(b.Unavailable)
	for i, r := range pick {
		out.Ops[i] = event.Upsert
		if b.Lines != nil {
			out.Lines = append(out.Lines, b.Lines[r])
		}
		if b.Rescued != nil {
			out.Rescued = append(out.Rescued, b.Rescued[r])
		}
	}
	out.Rows = array.NewRecordBatch(b.Rows.Schema(), cols, int64(len(pick)))
	return out, nil
}

// deletesOf are deletes of the given keys at the version of the mark, under the
// snapshot's columns, or the target's when the snapshot is empty. Keys have the
// target's types.
func (t *target) deletesOf(s *shape, batches []*event.Batch, gone []goneRow, mark *snapshotMark) (*event.Batch, error) {
	st, err := schema.ParseDDL("v " + mark.Type)
	if err != nil {
		return nil, fmt.Errorf("read type of the snapshot version: %w", err)
	}
	base := s.schema
	if len(batches) > 0 {
		base = &schema.Struct{Fields: batches[0].Columns.Fields[:len(batches[0].Columns.Fields)-1]}
	}
	columns := &schema.Struct{Fields: slices.Clone(base.Fields)}
	if len(batches) == 0 {
		columns.Fields = slices.DeleteFunc(columns.Fields, func(f schema.Field) bool { return slices.Contains(frameColumns, f.Name) })
		// The flow's lists may name columns that never reach the target.
		for _, c := range slices.Concat(t.run.flow.ColumnList, t.run.flow.ExceptColumnList) {
			if c != versionColumn && columns.Index(c) < 0 {
				columns.Fields = append(columns.Fields, schema.Field{Name: c, Type: schema.String, Nullable: true})
			}
		}
	}
	out := &event.Batch{Ops: make([]event.Op, len(gone)), Offsets: make([]int64, len(gone))}
	for i := range out.Ops {
		out.Ops[i] = event.Delete
	}
	if len(batches) > 0 {
		out.Table, out.Keys = batches[0].Table, batches[0].Keys
	} else {
		out.Keys = s.keyNames()
	}
	cols := make([]arrow.Array, len(columns.Fields))
	for c := range columns.Fields {
		f := &columns.Fields[c]
		k := slices.IndexFunc(s.keys, func(i int) bool { return strings.EqualFold(s.schema.Fields[i].Name, f.Name) })
		if k >= 0 {
			f.Type = s.schema.Fields[s.keys[k]].Type
		}
		dt, err := schema.ArrowType(f.Type)
		if err != nil {
			return nil, err
		}
		cols[c], err = gather(dt, len(gone), func(i int) cell {
			if k < 0 {
				return cell{}
			}
			return cell{gone[i].keys[k], gone[i].row}
		})
		if err != nil {
			return nil, err
		}
		f.Nullable = true
	}
	last, err := t.lastOf(mark)
	if err != nil {
		return nil, err
	}
	version, err := gather(last.DataType(), len(gone), func(int) cell { return cell{last, 0} })
	if err != nil {
		return nil, err
	}
	out.Columns, out.Rows, err = withVersion(columns, cols, st.Fields[0].Type, version)
	return out, err
}

// frameColumns are the columns that histories add (auto-cdc 1.4).
var frameColumns = []string{"__START_AT", "__END_AT", "__SYSTEM_START_AT", "__SYSTEM_END_AT"}

// lastOf is the version of a mark as a value.
func (t *target) lastOf(m *snapshotMark) (arrow.Array, error) {
	v, err := (&target{state: &state{snapshot: m}}).lastSnapshot()
	if err != nil {
		return nil, err
	}
	return v.Value, nil
}
