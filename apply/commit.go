package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	deltalog "github.com/sluice-data/sluice/log"
)

// errRaced: a winner's commit touches what the attempt stands on; everything is
// recomputed on a new pin.
var errRaced = errors.New("lost a race that matters")

// attemptAge bounds how old the files of an attempt may become before it starts
// anew (apply-state 3.4).
const attemptAge = time.Hour

// proposal is a commit under way: what it wants the target to become, and what it
// must know to hold its place against winners.
type proposal struct {
	t         *target
	began     time.Time
	staged    *staged
	facts     []stateRow
	folded    []string                // keys whose version entries are void from this commit on
	hidden    map[string][]hiddenFact // what the keys of the batch need of hidden events
	positions []event.Position
	def       *flowDef // nil: positions only
	once      bool
	truncate  []byte
	snapshot  *snapshotMark     // nil: no snapshot
	keys      map[string]*keyed // of the batch; nil: none, or decided in lots
	out       *outcomes         // of a batch that was decided in lots: its facts
	config    *tableChange      // nil: metadata and protocol stay
	operation string
	// replace, if set, is the whole next content of the state, replaceF its files: an
	// operation. It never holds its place against a winner.
	replace *state
	// stream, if set, are the facts of the next state in place of facts, by key; it may
	// move marks of that state.
	stream   func(next *state) iter.Seq2[stateRow, error]
	replaceF *stateFiles
	metrics  map[string]string

	// base is what the last written state version was built from, next its content.
	base    *state
	baseF   *stateFiles
	next    *state
	nextF   *stateFiles
	version int64 // of the state
}

// commit stages files, writes the state and commits the target.
func (a *attempt) commit(ctx context.Context) (done bool, err error) {
	p := &proposal{t: a.t, began: a.t.run.o.Clock(), facts: slices.Concat(a.t.walked, a.decision.facts, a.in.facts), folded: a.decision.folded, hidden: a.decision.hidden, positions: a.positions,
		def: &a.def, truncate: a.decision.truncate, snapshot: a.in.snapshot, keys: a.fold.index, out: a.out, operation: "AUTO CDC"}
	if p.config, err = a.t.tableChange(a.shape); err != nil {
		return false, err
	}
	if p.config != nil && p.config.config.Mode() != a.t.snap.Mode() {
		// Mapping is switched on by a commit of its own: readers of the feed cannot
		// follow one that changes rows as well (W-506). The batch is tried on it again.
		table := &proposal{t: a.t, began: p.began, facts: a.t.walked, config: p.config, operation: "AUTO CDC"}
		if _, err := table.commit(ctx); err != nil {
			return false, fmt.Errorf("switch column mapping on: %w", err)
		}
		return false, nil
	}
	if p.staged, err = a.stage(ctx, p.config); err != nil {
		return false, err
	}
	p.metrics = a.metrics(p.staged)
	done, err = p.commit(ctx)
	if done && err == nil {
		a.t.result.Files.Added += int64(len(p.staged.adds))
		a.t.result.Files.Removed += int64(len(p.staged.removes))
		a.t.result.Files.Change += int64(len(p.staged.cdc))
		a.t.result.Bytes.Written += p.staged.bytes
	}
	return done, err
}

// commit writes state and target; done is false after a race that matters.
func (p *proposal) commit(ctx context.Context) (done bool, err error) {
	t := p.t
	p.base, p.baseF = t.state, t.files
	if err := p.writeState(ctx); err != nil {
		return false, errors.Join(err, p.discard(ctx))
	}
	tx := t.log.Begin(t.snap)
	tx.ReadWholeTable()
	*tx.Actions() = p.actions()
	res, err := tx.Commit(ctx, deltalog.CommitOptions{
		Operation: p.operation, Parameters: p.parameters(), Metrics: p.metrics, NotBlind: true, Tags: p.tags(),
		Isolation: deltalog.Serializable, MaxAttempts: maxTries, OnConflict: p.raced,
	})
	switch {
	case err == nil && !res.AlreadyDone:
		p.take(res.Version)
		return true, nil
	case err == nil, errors.Is(err, errRaced), errors.Is(err, deltalog.ErrConflict):
		return false, p.discard(ctx)
	}
	var unknown *deltalog.UnknownOutcomeError
	if errors.As(err, &unknown) {
		return false, fmt.Errorf("commit target: %w", err) // what was staged may be live
	}
	return false, errors.Join(fmt.Errorf("commit target: %w", err), p.discard(ctx))
}

// tags are those of the commit; a commit of positions alone has none.
func (p *proposal) tags() map[string]string {
	if p.staged == nil {
		return nil
	}
	return p.staged.tags
}

// take makes the committed state the pinned one. The snapshot follows at the next
// pin, which walks over the winners that this commit was rebased on.
func (p *proposal) take(version int64) {
	t := p.t
	if version == t.snap.Version+1 {
		p.next.walk = version // nobody came between
	}
	t.state, t.files, t.walked = p.next, p.nextF, nil
	if t.state.whole = t.state.whole && t.states.holdsWhole(t.files); !t.state.whole {
		t.state.forget()
	}
	t.adopt = false
	t.result.Version = version
	t.run.commit = t.run.o.Clock()
}

// writeState writes S' from the base.
func (p *proposal) writeState(ctx context.Context) error {
	t := p.t
	if p.replace != nil {
		next := p.replace.clone()
		next.walk = t.snap.Version
		return p.putState(ctx, p.replaceF, next, t.run.o.Clock())
	}
	next, _ := nextState(p.base, t.flow, p.positions)
	next.target.ID, next.target.Format = t.snap.Metadata.ID, formatNumber
	next.target.Fresh = next.target.Fresh && p.def == nil
	next.walk = t.snap.Version
	next.takeEpochs(t.state)
	now := t.run.o.Clock()
	if p.def != nil {
		next.flows[t.flow] = *p.def
	}
	d, ok := next.flows[t.flow]
	if !ok && (p.positions != nil || p.once) {
		d, ok = flowDef{Name: t.flow}, true // its positions come first
		if t.def != nil {
			d = *t.def
		}
	}
	if ok {
		d.Format, d.FormatNamed = p.base.flows[t.flow].Format, p.base.flows[t.flow].FormatNamed
		if f := &t.run.flow; f.Format != "" {
			d.Format, d.FormatNamed = f.Format, f.FormatNamed
		}
		d.Last = p.base.processedAt(now)
		next.flows[t.flow] = d
	}
	if p.once {
		next.once[t.flow] = true
	}
	if p.truncate != nil {
		if err := next.add(stateRow{Kind: kindTruncate, Seq: p.truncate, At: p.base.processedAt(now)}); err != nil {
			return err
		}
	}
	if p.snapshot != nil {
		mark := *p.snapshot
		mark.at = p.base.processedAt(now)
		next.snapshot = &mark
		if p.def.StoredAs == "1" && bytes.Compare(mark.seq, next.truncate.seq) > 0 {
			next.truncate = fact{mark.seq, mark.at}
		}
	}
	for _, f := range p.facts {
		if err := next.add(f); err != nil {
			return err
		}
	}
	next.voids(p.folded, p.hidden, next.void)
	for _, key := range p.folded {
		delete(next.entries, key)
	}
	for key, list := range p.hidden {
		if next.hidden[key] = list; len(list) == 0 {
			delete(next.hidden, key)
		}
	}
	if err := p.takeOut(next); err != nil {
		return err
	}
	return p.putState(ctx, p.baseF, next, now)
}

// voids adds the facts that no key needs from now on: version entries of rows that are
// written anew, and hidden events.
func (s *state) voids(folded []string, hidden map[string][]hiddenFact, void map[string]bool) {
	for _, key := range folded {
		for _, e := range s.entries[key] {
			r := e.row(key)
			void[factID(&r)] = true
		}
	}
	for key, list := range hidden {
		for _, h := range s.hidden[key] {
			r := h.row(key)
			void[factID(&r)] = true
		}
		for _, h := range list {
			r := h.row(key)
			delete(void, factID(&r))
		}
	}
}

// takeOut adds the facts of lots to the next state. Where its files are sorted they are
// not held: what a batch asks for is fetched.
func (p *proposal) takeOut(next *state) error {
	if p.out == nil {
		return nil
	}
	if p.baseF == nil || p.baseF.sorted() {
		next.whole = false
		next.forgetAll()
		maps.Copy(next.void, p.out.void)
		return nil
	}
	for f, err := range p.out.stateFacts(nil) {
		if err == nil {
			err = next.add(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *proposal) putState(ctx context.Context, base *stateFiles, next *state, now time.Time) error {
	facts := byKey(p.facts)
	if p.out != nil {
		facts = p.out.stateFacts(p.facts)
	}
	if p.stream != nil {
		facts = p.stream(next)
	}
	version, files, err := p.t.states.write(ctx, base, next, facts, now)
	if err != nil {
		return err
	}
	if p.stream != nil {
		next.void = map[string]bool{}
	}
	next.version = version
	p.next, p.nextF, p.version = next, files, version
	return nil
}

func (p *proposal) actions() deltalog.Actions {
	now := p.t.run.o.Clock().UnixMilli()
	a := deltalog.Actions{Txns: []*deltalog.Txn{{AppID: stateTxn, Version: p.version, LastUpdated: &now}}}
	if p.staged != nil {
		a.Adds, a.Removes, a.CDC = p.staged.adds, p.staged.removes, p.staged.cdc
	}
	if p.config != nil {
		a.Metadata, a.Protocol = p.config.metadata, p.config.protocol
	}
	return a
}

func (p *proposal) parameters() map[string]string {
	return map[string]string{"flow": p.t.flow, "state": strconv.FormatInt(p.version, 10)}
}

func (p *proposal) discard(ctx context.Context) error {
	if p.staged == nil || p.staged.discard == nil {
		return nil
	}
	return p.staged.discard(context.WithoutCancel(ctx))
}

func (a *attempt) metrics(s *staged) map[string]string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	r, c := a.decision.rows, a.fold.counts
	out := map[string]string{
		"numTargetRowsInserted": n(r.Inserted), "numTargetRowsUpdated": n(r.Updated), "numTargetRowsDeleted": n(r.Deleted),
		"num_upserted_rows": n(r.Inserted + r.Updated), "num_deleted_rows": n(r.Deleted),
		"num_events_read": n(c.Read), "num_events_applied": n(c.Applied), "num_events_stale": n(c.Stale),
		"num_late_beyond_retention": n(a.late),
		"num_events_duplicate":      n(c.Duplicate), "num_sequence_conflicts": n(c.SequenceConflicts),
		"numTargetFilesAdded": n(int64(len(s.adds))), "numTargetFilesRemoved": n(int64(len(s.removes))),
		"numTargetChangeFilesAdded": n(int64(len(s.cdc))),
	}
	for name, x := range a.fold.judged {
		out["expectation."+name+".passed"], out["expectation."+name+".failed"], out["expectation."+name+".dropped"] = n(x.Passed), n(x.Failed), n(x.Dropped)
	}
	return out
}

// settle commits positions that no other commit took along (apply-state 2.5).
func (t *target) settle(ctx context.Context, last bool) error {
	if t.parked != nil || t.settled || t.run.flow.DryRun || t.run.low != nil && !t.touched {
		return nil
	}
	for range maxTries {
		if err := t.pin(ctx); err != nil {
			return t.named(err)
		}
		if t.snap == nil || t.adopt {
			return nil // nothing was committed that a position could stand on
		}
		_, moved := nextState(t.state, t.flow, t.positions)
		once := last && t.run.flow.Once && !t.state.once[t.flow]
		if !moved && !once && t.walked == nil {
			t.settled = true
			return nil
		}
		p := &proposal{t: t, began: t.run.o.Clock(), facts: t.walked, positions: t.positions, once: once, operation: "AUTO CDC"}
		done, err := p.commit(ctx)
		if err != nil {
			return t.named(err)
		}
		if done {
			t.settled = true
			return nil
		}
	}
	return t.named(running(CodeConflict, "the positions lost %d races against other writers", maxTries))
}

// nextState is the base with a flow's positions moved on; moved is false if none
// did. Positions never go back.
func nextState(base *state, flow string, positions []event.Position) (next *state, moved bool) {
	next = base.clone()
	for _, p := range positions {
		have, ok := base.position(flow, p.Source)
		if p.Gone {
			delete(next.positions, source{flow, p.Source})
			moved = moved || ok
			continue
		}
		if ok && (p == have || p.Source != "" && (p.Offset < have.Offset || have.Done)) {
			continue
		}
		next.positions[source{flow, p.Source}] = p
		moved = moved || p.Source != ""
	}
	return next, moved
}
