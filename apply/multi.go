package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
)

// lowWater is the small table DIR/_apply/flow/ of a stream with several targets: up
// to where all of them are complete, and which they are (apply-state 2.6). It saves
// reading; what counts are the targets' own positions.
type lowWater struct {
	table *stateTable
	files *stateFiles
	state *state
}

// kindMember is a target that a flow writes: key its directory, payload its id.
const kindMember = "member"

// openMany reads the low-water positions and checks that every target that the
// flow has written is still there.
func (r *run) openMany(ctx context.Context) (from map[string]event.Position, decoder string, done bool, err error) {
	table, err := newStateTable(storage.Sub(r.spec.Target.Root, "_apply/flow"), r.o)
	if err != nil {
		return nil, "", false, err
	}
	r.low = &lowWater{table: table, state: newState()}
	if err := r.low.load(ctx); err != nil {
		return nil, "", false, err
	}
	if r.flow.Once && r.low.state.once[r.name] {
		return nil, "", true, nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.low.state.members), compareSource) {
		if k.flow != r.name {
			continue
		}
		if err := r.addTarget(k.source); err != nil {
			return nil, "", false, err
		}
		t := r.targets[k.source]
		if x := r.spec.Resume; x != nil {
			t.parked = x.parked[t.dir]
		}
		if err := r.park(t, t.pin(ctx)); err != nil {
			return nil, "", false, err
		}
		id, _, _ := strings.Cut(r.low.state.members[k], " ")
		if t.parked == nil && (t.snap == nil || t.snap.Metadata.ID != id) {
			return nil, "", false, t.named(stored(CodeTargetMissing, "the flow has written table %s here, which is gone or was replaced; restore it, or start a new flow", id))
		}
	}
	from = r.low.state.positionsOf(r.name)
	for _, t := range r.order {
		t.adoptName(r.flow.Name)
		if t.parked == nil && t.memberMark() != r.low.state.members[source{r.name, t.dir}] {
			t.lower(from)
		}
	}
	decoder = from[""].Decoder
	delete(from, "")
	return from, decoder, false, nil
}

// memberMark is what the low-water table knows a target by: its id, and how often it
// went back.
func (t *target) memberMark() string {
	mark := t.state.target
	if mark.Generation == 0 && mark.Resets[t.flow] == 0 {
		return t.snap.Metadata.ID
	}
	return fmt.Sprintf("%s %d/%d", t.snap.Metadata.ID, mark.Generation, mark.Resets[t.flow])
}

// lower takes positions back to where a target that went back needs to read from.
func (t *target) lower(from map[string]event.Position) {
	for src, p := range from {
		have, ok := t.state.position(t.flow, src)
		switch {
		case !ok:
			delete(from, src)
		case have.Offset < p.Offset || p.Done && !have.Done:
			from[src] = have
		}
	}
}

func (l *lowWater) load(ctx context.Context) error {
	if err := l.table.refresh(ctx); err != nil {
		return err
	}
	if l.table.newest == nil {
		return nil
	}
	if l.state.version == l.table.newest.Version {
		return nil
	}
	st, files, err := l.table.load(ctx, l.table.newest.Version)
	if err != nil {
		return err
	}
	l.state, l.files = st, files
	return nil
}

// writeLow moves the low-water positions, unless a target is parked: what it has
// not applied must be read again.
func (r *run) writeLow(ctx context.Context, positions []event.Position) error {
	if r.flow.DryRun {
		return nil
	}
	if err := r.low.load(ctx); err != nil {
		return err
	}
	next, moved := r.low.state.clone(), false
	stopped := slices.ContainsFunc(r.order, func(t *target) bool { return t.parked != nil })
	if !stopped {
		next, moved = nextState(r.low.state, r.name, positions)
	}
	for _, t := range r.order {
		k := source{r.name, t.dir}
		if t.snap == nil || t.result.Version < 0 && next.members[k] == "" {
			continue
		}
		if mark := t.memberMark(); next.members[k] != mark && !stopped {
			next.members[k], moved = mark, true
		}
	}
	if r.flow.Once && !stopped && !next.once[r.name] {
		next.once[r.name], moved = true, true
	}
	if !moved {
		return nil
	}
	version, files, err := r.low.table.write(ctx, r.low.files, next, each(nil), r.o.Clock())
	if err != nil {
		return fmt.Errorf("write low-water positions: %w", err)
	}
	next.version = version
	r.low.state, r.low.files = next, files
	return nil
}
