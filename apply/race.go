package apply

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/dv"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
)

// raced tests every winner of a lost race (apply-state 3.2). If none matters, the
// state is built anew on the newest winner's pin and the same files are tried at the
// next version; else the attempt ends with errRaced. Changes of metadata and
// protocol never get here: the log refuses them first.
func (p *proposal) raced(ctx context.Context, winners []*deltalog.Commit) (*deltalog.Rebased, error) {
	t := p.t
	if p.replace != nil {
		return nil, fmt.Errorf("version %d came first: %w", winners[0].Version, errRaced)
	}
	if age := t.run.o.Clock().Sub(p.began); age > attemptAge {
		return nil, fmt.Errorf("files are %s old: %w", age, errRaced)
	}
	if p.out != nil { // its keys are not held to test the winners against
		return nil, fmt.Errorf("version %d came first: %w", winners[0].Version, errRaced)
	}
	base, files := p.base, p.baseF
	for _, w := range winners {
		if p.clashesFiles(w) {
			return nil, fmt.Errorf("version %d rewrote a file: %w", w.Version, errRaced)
		}
		if s, ok := statePin(w); ok {
			st, f, err := t.states.load(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("state of version %d: %w: %w", w.Version, errRaced, err)
			}
			if err := t.states.fetch(ctx, st, f, maps.Keys(p.keys)); err != nil {
				return nil, fmt.Errorf("state of version %d: %w: %w", w.Version, errRaced, err)
			}
			if p.clashesState(base, st) {
				return nil, fmt.Errorf("version %d changed what the batch knows: %w", w.Version, errRaced)
			}
			base, files = st, f
		}
		clash, err := p.clashesKeys(ctx, w)
		if err != nil || clash {
			return nil, fmt.Errorf("version %d changed a key of the batch: %w", w.Version, errRaced)
		}
	}
	p.base, p.baseF = base, files
	if err := p.writeState(ctx); err != nil {
		return nil, err
	}
	return &deltalog.Rebased{Actions: p.actions(), Parameters: p.parameters()}, nil
}

// statePin is the state version that a commit names.
func statePin(c *deltalog.Commit) (int64, bool) {
	for _, txn := range c.Txns {
		if txn.AppID == stateTxn {
			return txn.Version, true
		}
	}
	return 0, false
}

// clashesFiles: the winner removed, re-added or changed the deletion vector of a
// file that this attempt removes or re-adds.
func (p *proposal) clashesFiles(w *deltalog.Commit) bool {
	if p.staged == nil {
		return false
	}
	mine := map[string]bool{}
	for _, r := range p.staged.removes {
		mine[r.Path] = true
	}
	for _, a := range p.staged.adds {
		mine[a.Path] = true
	}
	for _, r := range w.Removes {
		if mine[r.Path] {
			return true
		}
	}
	for _, a := range w.Adds {
		if mine[a.Path] {
			return true
		}
	}
	return false
}

// clashesState: a truncate, a change of this flow's positions or definition, or a
// state row of a key of the batch.
func (p *proposal) clashesState(before, after *state) bool {
	flow := p.t.flow
	if before.target.Generation != after.target.Generation || before.target.Resets[flow] != after.target.Resets[flow] {
		return true
	}
	if !bytes.Equal(before.truncate.seq, after.truncate.seq) ||
		!maps.Equal(before.positionsOf(flow), after.positionsOf(flow)) || before.once[flow] != after.once[flow] {
		return true
	}
	if p.snapshot != nil || sequenceOf(before.snapshot) != sequenceOf(after.snapshot) {
		return true // a snapshot concerns every key: compare again
	}
	if p.truncate != nil && p.keys != nil {
		return true // a truncate concerns every key: think again
	}
	for _, d := range after.flows {
		if p.def != nil && checkDef(d, *p.def) != nil {
			return true
		}
	}
	for key := range p.keys {
		b, a := before.deletes[key], after.deletes[key]
		if !bytes.Equal(b.seq, a.seq) || len(before.entries[key]) != len(after.entries[key]) || len(before.departed[key]) != len(after.departed[key]) ||
			!sameFacts(before.hidden[key], after.hidden[key]) {
			return true
		}
	}
	return false
}

func sequenceOf(m *snapshotMark) string {
	if m == nil {
		return ""
	}
	return string(m.seq)
}

// clashesKeys reads the keys that the winner changed: from its change files, or
// from its data files where it has none.
func (p *proposal) clashesKeys(ctx context.Context, w *deltalog.Commit) (bool, error) {
	if len(p.keys) == 0 && p.snapshot == nil {
		return false, nil
	}
	if p.truncate != nil || p.snapshot != nil {
		return len(w.Adds)+len(w.Removes) > 0, nil
	}
	type part struct {
		datafile.Source
		o datafile.ReadOptions
	}
	var parts []part
	if len(w.CDC) > 0 {
		for _, c := range w.CDC {
			parts = append(parts, part{Source: datafile.Source{Path: c.Path, PartitionValues: c.PartitionValues, Size: c.Size}})
		}
	} else {
		added := map[string]*deltalog.Add{}
		for _, a := range w.Adds {
			added[a.Path] = a
		}
		for _, r := range w.Removes {
			if a := added[r.Path]; a != nil {
				// Another deletion vector of the same file: only the rows that one of the
				// two has changed.
				delete(added, r.Path)
				rows, err := flipped(ctx, p.t.store, r.DeletionVector, a.DeletionVector)
				if err != nil {
					return true, err
				}
				if len(rows) > 0 {
					parts = append(parts, part{datafile.SourceOf(a), datafile.ReadOptions{Rows: rows, KeepDeleted: true}})
				}
				continue
			}
			s := datafile.Source{Path: r.Path, PartitionValues: r.PartitionValues, Size: -1, DeletionVector: r.DeletionVector}
			if r.Size != nil {
				s.Size = *r.Size
			}
			parts = append(parts, part{Source: s})
		}
		for _, a := range w.Adds {
			if added[a.Path] != nil {
				parts = append(parts, part{Source: datafile.SourceOf(a)})
			}
		}
	}
	for _, s := range parts {
		for key, err := range merge.EachKey(ctx, p.t.store, p.t.layout, s.Source, p.t.keyColumns(p.def), s.o) {
			if err != nil {
				return true, err
			}
			if p.keys[string(key)] != nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// flipped are the rows that exactly one of two deletion vectors has.
func flipped(ctx context.Context, store storage.Store, before, after *deltalog.DeletionVectorDescriptor) ([]int64, error) {
	var rows []int64
	vectors := [2]*dv.Vector{}
	for i, d := range [2]*deltalog.DeletionVectorDescriptor{before, after} {
		v, err := datafile.LoadVector(ctx, store, d)
		if err != nil {
			return nil, fmt.Errorf("deletion vector of a winner: %w", err)
		}
		vectors[i] = v
	}
	for i, v := range vectors {
		if v != nil {
			rows = slices.AppendSeq(rows, v.Minus(vectors[1-i]).Rows())
		}
	}
	slices.Sort(rows)
	return rows, nil
}

// keyColumns are the target's names of a flow's keys, in key order.
func (t *target) keyColumns(d *flowDef) []string {
	out := make([]string, len(d.Keys))
	for i, k := range d.Keys {
		out[i] = k.Name
		if at := t.snap.Schema.Index(k.Name); at >= 0 {
			out[i] = t.snap.Schema.Fields[at].Name
		}
	}
	return out
}
