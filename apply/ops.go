package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// Operator is a target on which operations run that are no batch of a flow.
type Operator struct {
	Store storage.Store
	// Name is how messages call the target.
	Name string
	// State opens the state table where it lies elsewhere, StatePath is what it
	// opens (see [Flow]).
	State     func(target string) (storage.Store, error)
	StatePath string
}

// OperationResult is what an operation did.
type OperationResult struct {
	Operation string `json:"operation"`
	Target    string `json:"target"`
	// Version is the target's version afterwards, To the one that a rewind went back to.
	Version   int64 `json:"version"`
	To        int64 `json:"to_version,omitempty"`
	Files     Files `json:"files"`
	Committed bool  `json:"committed"`
}

// propResetAllowed, if false, refuses a full refresh (auto-cdc 1.5).
const propResetAllowed = "pipelines.reset.allowed"

func (m Operator) target(o Options) (*target, error) {
	if m.Store == nil {
		return nil, analysis("INVALID_OPTION", "an operation needs a target")
	}
	r := &run{spec: Spec{Target: Targets{Store: m.Store, Name: m.Name}}, o: o.withDefaults(), flow: Flow{State: m.State, StatePath: m.StatePath},
		targets: map[string]*target{}, tables: map[event.Table]string{}, warned: map[string]bool{}}
	return newTarget(r, "", m.Name, m.Store), nil
}

// pinned is the operator's target as it stands; rewound says whether a target whose
// rows others replaced is taken as it is.
func (m Operator) pinned(ctx context.Context, o Options, rewound bool) (*target, error) {
	t, err := m.target(o)
	if err != nil {
		return nil, err
	}
	t.run.flow.AcceptRows = rewound
	return t, t.again(ctx)
}

// again pins a target that must be one of apply's.
func (t *target) again(ctx context.Context) error {
	if err := t.pin(ctx); err != nil {
		return t.named(err)
	}
	if t.snap == nil {
		return t.named(&Error{Code: CodeTargetMissing, Phase: PhaseState, Message: "there is no table"})
	}
	if !t.isApply() {
		return t.named(stored(CodeInvalidTarget, "the table is no target of apply"))
	}
	return nil
}

// Refresh empties a target and everything that apply knows of it: rows, hidden
// state, positions, once marks, snapshot versions, stored types and sets
// (auto-cdc 2.11). The next run reads what the source still has.
func Refresh(ctx context.Context, m Operator, o Options) (OperationResult, error) {
	t, err := m.target(o)
	if err != nil {
		return OperationResult{}, err
	}
	t.run.flow.AcceptRows, t.lenient = true, true
	out := OperationResult{Operation: "refresh", Target: m.Name}
	for range maxTries {
		if err := t.again(ctx); err != nil {
			return out, err
		}
		if strings.EqualFold(t.snap.Metadata.Configuration[propResetAllowed], "false") {
			return out, t.named(stored(CodeRefreshNotAllowed, "%s is false; set it to true first", propResetAllowed))
		}
		adds, err := t.snap.FileList(ctx)
		if err != nil {
			return out, err
		}
		next := newState()
		next.target = t.state.target
		next.target.ID, next.target.Format = t.snap.Metadata.ID, formatNumber
		next.target.Generation++
		next.target.Refreshes++
		next.target.Fresh = true
		p := &proposal{t: t, replace: next, operation: "REFRESH", staged: &staged{}}
		now := t.run.o.Clock()
		for _, a := range adds {
			p.staged.removes = append(p.staged.removes, a.Remove(now, true))
		}
		if done, err := t.operate(ctx, p, &out); done || err != nil {
			return out, err
		}
	}
	return out, t.named(running(CodeConflict, "the refresh lost %d races against other writers", maxTries))
}

// Reset forgets how far a flow has read; what it reads again changes nothing while
// its tombstones are kept. With forget the flow itself is forgotten: nobody waits
// for it any more.
func Reset(ctx context.Context, m Operator, flow string, forget bool, o Options) (OperationResult, error) {
	out := OperationResult{Operation: "reset", Target: m.Name}
	t, err := m.pinned(ctx, o, false)
	for range maxTries {
		if err != nil {
			return out, err
		}
		if _, ok := t.state.flows[flow]; !ok {
			return out, t.named(stored(CodeUnknownFlow, "the target has no flow %q; it has %s", flow, strings.Join(slices.Sorted(maps.Keys(t.state.flows)), ", ")))
		}
		next := t.state.clone()
		for k := range next.positions {
			if k.flow == flow {
				delete(next.positions, k)
			}
		}
		next.target.Resets = maps.Clone(next.target.Resets)
		if next.target.Resets == nil {
			next.target.Resets = map[string]int{}
		}
		next.target.Resets[flow]++
		d := next.flows[flow] // what it reads next may have another form
		d.Format, d.FormatNamed = "", false
		next.flows[flow] = d
		if forget {
			if len(next.flows) == 1 {
				return out, t.named(stored(CodeUnknownFlow, "%q is the only flow of the target; a full refresh forgets it", flow))
			}
			delete(next.flows, flow)
			delete(next.once, flow)
		}
		p := &proposal{t: t, replace: next, replaceF: t.files, facts: t.walked, operation: "RESET"}
		done, err2 := t.operate(ctx, p, &out)
		if done || err2 != nil {
			return out, err2
		}
		err = t.again(ctx)
	}
	return out, t.named(running(CodeConflict, "the reset lost %d races against other writers", maxTries))
}

// Rewind makes rows and state of a target what they were at a version, or at the
// newest version that is not younger than a time: rows, hidden state, positions,
// once marks and snapshot versions of all its flows (apply-state 6).
func Rewind(ctx context.Context, m Operator, version *int64, at *time.Time, o Options) (OperationResult, error) {
	out := OperationResult{Operation: "rewind", Target: m.Name}
	if (version == nil) == (at == nil) {
		return out, analysis("INVALID_OPTION", "a rewind goes to a version or to a time")
	}
	t, err := m.pinned(ctx, o, true)
	for range maxTries {
		if err != nil {
			return out, err
		}
		then, err2 := t.asOf(ctx, version, at)
		if err2 != nil {
			return out, t.named(err2)
		}
		p, err2 := t.rewindTo(ctx, then)
		if err2 != nil {
			return out, t.named(err2)
		}
		out.To = then.snap.Version
		done, err2 := t.operate(ctx, p, &out)
		if done || err2 != nil {
			return out, err2
		}
		err = t.again(ctx)
	}
	return out, t.named(running(CodeConflict, "the rewind lost %d races against other writers", maxTries))
}

// asOf is the target pinned at an older version.
func (t *target) asOf(ctx context.Context, version *int64, at *time.Time) (*target, error) {
	var snap *deltalog.Snapshot
	var err error
	if version != nil {
		snap, err = t.log.At(ctx, *version)
	} else {
		snap, err = t.log.AtTime(ctx, *at, deltalog.AtTimeOptions{LatestIfAfter: true})
	}
	if err != nil {
		return nil, err
	}
	then := newTarget(t.run, "", t.title, t.store)
	then.table, then.log, then.states, then.snap = t.table, t.log, t.states, snap
	if err := then.pinned(ctx); err != nil {
		return nil, err
	}
	if !then.isApply() {
		return nil, stored(CodeInvalidTarget, "version %d was no target of apply yet", snap.Version)
	}
	if then.state.target.Refreshes != t.state.target.Refreshes {
		return nil, stored(CodeRewindAcrossRefresh, "a full refresh lies between version %d and now", snap.Version)
	}
	return then, nil
}

// rewindTo proposes the rows and the state of an older version.
func (t *target) rewindTo(ctx context.Context, then *target) (*proposal, error) {
	now, err := t.snap.FileList(ctx)
	if err != nil {
		return nil, err
	}
	old, err := then.snap.FileList(ctx)
	if err != nil {
		return nil, err
	}
	id := func(a *deltalog.Add) string { return a.Path + "\x00" + a.DeletionVector.ID() }
	live := map[string]bool{}
	p := &proposal{t: t, operation: "REWIND", staged: &staged{}, facts: then.walked}
	for _, a := range now {
		live[id(a)] = true
	}
	wanted := map[string]bool{}
	for _, a := range old {
		wanted[id(a)] = true
		if live[id(a)] {
			continue
		}
		name, err := a.Decoded()
		if err != nil {
			return nil, err
		}
		if _, err := t.store.Head(ctx, name); errors.Is(err, storage.ErrNotFound) {
			return nil, &Error{Code: CodeRewindGone, Phase: PhaseState, Message: fmt.Sprintf("version %d needs file %s, which is gone (vacuum?)", then.snap.Version, a.Path), Err: err}
		} else if err != nil {
			return nil, err
		}
		again := *a
		again.DataChange = true
		p.staged.adds = append(p.staged.adds, &again)
	}
	when := t.run.o.Clock()
	for _, a := range now {
		if !wanted[id(a)] {
			p.staged.removes = append(p.staged.removes, a.Remove(when, true))
		}
	}
	next := then.state.clone()
	mark := t.state.target
	mark.Generation++
	mark.Fresh = then.state.target.Fresh
	next.target = mark
	p.replace, p.replaceF = next, then.files
	return p, nil
}

// operate commits an operation; done is false when another writer was faster.
func (t *target) operate(ctx context.Context, p *proposal, out *OperationResult) (done bool, err error) {
	p.began = t.run.o.Clock()
	done, err = p.commit(ctx)
	if err != nil || !done {
		return false, t.named(err)
	}
	out.Version, out.Committed = t.result.Version, true
	if p.staged != nil {
		out.Files = Files{Added: int64(len(p.staged.adds)), Removed: int64(len(p.staged.removes))}
	}
	return true, nil
}

// checkGeneration stops a run whose target went back under it: what its source has
// been read past would be lost.
func (t *target) checkGeneration() error {
	mark := t.state.target
	now := fmt.Sprintf("%d/%d", mark.Generation, mark.Resets[t.flow])
	if t.generation == "" {
		t.generation = now
	}
	if t.generation != now {
		return t.named(running(CodeTargetWentBack, "the target was rewound, refreshed or reset while the flow ran; run it again to read on from there"))
	}
	return nil
}
