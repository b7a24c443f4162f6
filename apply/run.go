package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/expr"
)

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.EngineInfo == "" {
		o.EngineInfo = defaultEngine
	}
	if o.TimeZone == nil {
		o.TimeZone = time.UTC
	}
	return o
}

func (o *Options) validate() error {
	if o.Memory > 0 && o.Memory < LeastMemory {
		return analysis("INVALID_OPTION", "memory of %d bytes: must be at least %d MiB", o.Memory, int64(LeastMemory)>>20)
	}
	return nil
}

func (s *Spec) validate() error {
	var errs []error
	if s.Snapshots != nil {
		if err := s.validateSnapshot(); err != nil {
			errs = append(errs, err)
		}
	} else if s.Flow.Snapshot != "" {
		errs = append(errs, analysis("INVALID_OPTION", "a snapshot flow needs snapshots to read"))
	} else if s.Source == nil || s.NewDecoder == nil {
		errs = append(errs, analysis("INVALID_OPTION", "a source and a decoder are needed"))
	}
	if (s.Target.Store == nil) == (s.Target.Route == nil) {
		errs = append(errs, analysis("INVALID_OPTION", "either one target or a route to targets is needed"))
	}
	if s.Target.Route != nil && (s.Target.Root == nil || s.Target.Open == nil) {
		errs = append(errs, analysis("INVALID_OPTION", "a route to targets needs their root"))
	}
	if err := s.Flow.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// run is one call of [Run].
type run struct {
	spec    Spec
	o       Options
	flow    Flow // with defaults
	name    string
	targets map[string]*target // by directory; "" is the only target
	order   []*target
	tables  map[event.Table]string // directory of each source table, "-" for deselected ones
	low     *lowWater              // nil with one target
	dec     event.Decoder
	// unplaced counts poison whose table is not known.
	unplaced Events
	result   Result
	commit   time.Time // of the last commit or of the start
	told     time.Time
	started  time.Time
	warned   map[string]bool
	budget   *budget
	inputs   map[*target]*input        // of the batch that is being read
	cost     int64                     // of deciding what they hold in memory
	from     map[string]event.Position // where reading began
}

// positionEvery bounds how long a position waits for a commit (apply-state 2.5).
const positionEvery = 10 * time.Minute

// Run reads the source from where this flow's positions end until its present
// input ends, and applies what it reads. On an error Result says what was
// committed before it. Errors are [*Error] where the flow, a record or the target
// is at fault; those of storage and log keep their classes.
func Run(ctx context.Context, spec Spec, o Options) (Result, error) {
	r := &run{spec: spec, o: o.withDefaults(), flow: spec.Flow, targets: map[string]*target{}, tables: map[event.Table]string{},
		warned: map[string]bool{}, result: Result{Version: -1}, inputs: map[*target]*input{}}
	r.budget = newBudget(r.o)
	if err := also(spec.validate(), r.o.validate()); err != nil {
		return r.result, err
	}
	if r.flow.BatchRows == 0 {
		r.flow.BatchRows = defaultRows
	}
	if r.flow.BatchBytes == 0 {
		r.flow.BatchBytes = defaultBytes
	}
	start := r.o.Clock()
	r.commit, r.told, r.started = start, start, start
	work := r.run
	if spec.Snapshots != nil {
		work = r.runSnapshots
	}
	err := also(work(ctx), r.drop())
	r.sum()
	r.result.Seconds = r.o.Clock().Sub(start).Seconds()
	return r.result, err
}

func (r *run) run(ctx context.Context) error {
	from, state, done, err := r.open(ctx)
	if err != nil || done {
		return err
	}
	if x := r.spec.Resume; x != nil && r.low != nil {
		from, state = maps.Clone(x.positions), x.decoder
	}
	if r.from = from; from == nil {
		r.from = map[string]event.Position{}
	}
	r.dec = r.spec.NewDecoder()
	if state != "" && !r.otherFormat() {
		if err := r.dec.Restore(state); err != nil {
			return &Error{Code: CodeFormatChanged, Phase: PhaseState, Message: "the flow has read records of another format, or its state is damaged; give this stream a flow of its own, or refresh in full", Err: err}
		}
	}
	if h, ok := r.dec.(event.Hinted); ok && r.spec.Target.Route == nil {
		if types := r.order[0].columnTypes(); types != nil {
			h.Hint(types)
		}
	}
	mostRows, mostBytes := r.budget.decode()
	taken, takenBytes := 0, int64(0) // of the batch, from the decoder
	for rec, err := range r.spec.Source.Records(ctx, from) {
		if err != nil {
			return err
		}
		if err := r.dec.Add(ctx, rec); err != nil {
			return err
		}
		rows, bytes := r.dec.Pending()
		switch {
		case taken+rows >= r.flow.BatchRows || takenBytes+bytes >= r.flow.BatchBytes:
			if err := r.flush(ctx, false); err != nil {
				return err
			}
			taken, takenBytes = 0, 0
		case r.budget.total > 0 && (rows >= mostRows || bytes >= mostBytes):
			if err := r.gather(ctx); err != nil {
				return err
			}
			taken, takenBytes = taken+rows, takenBytes+bytes
		}
		r.tell(false)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return r.flush(ctx, true)
}

// otherFormat tells whether the user named another format than the flow has read so
// far: what its decoder remembered is not for this one.
func (r *run) otherFormat() bool {
	return slices.ContainsFunc(r.order, func(t *target) bool {
		have := t.state.flows[t.flow].Format
		return have != "" && r.flow.Format != "" && have != r.flow.Format
	})
}

// open pins the known targets and answers where to read on.
func (r *run) open(ctx context.Context) (from map[string]event.Position, decoder string, done bool, err error) {
	r.name = r.flow.Name
	if r.name == "" {
		r.name = path.Base(strings.TrimSuffix(r.spec.Target.Name, "/"))
	}
	if r.spec.Target.Route != nil {
		return r.openMany(ctx)
	}
	t := newTarget(r, "", r.spec.Target.Name, r.spec.Target.Store)
	r.targets[""], r.order = t, append(r.order, t)
	if err := t.pin(ctx); err != nil {
		return nil, "", false, err
	}
	t.adoptName(r.flow.Name)
	r.name = t.flow
	if err := r.flow.checkKeys(t.state); err != nil {
		return nil, "", false, t.named(err)
	}
	if r.flow.Once && t.state.once[t.flow] {
		return nil, "", true, nil
	}
	from = t.state.positionsOf(t.flow)
	decoder = from[""].Decoder
	delete(from, "")
	return from, decoder, false, nil
}

// flush hands what the decoder has over to the targets. Positions are taken after
// the decoder gave everything away, so they cover nothing that is still inside it.
func (r *run) flush(ctx context.Context, last bool) error {
	if err := r.gather(ctx); err != nil {
		return err
	}
	positions, err := r.spec.Source.Positions()
	if err != nil {
		return err
	}
	if s := r.dec.State(); s != "" && len(positions) > 0 {
		positions = append(positions, event.Position{Decoder: s})
	}
	for _, t := range slices.Clone(r.order) {
		in := r.inputs[t]
		if in == nil {
			in = &input{}
		}
		in.positions = positions
		if err := r.park(t, t.apply(ctx, in)); err != nil {
			return err
		}
	}
	if err := r.drop(); err != nil {
		return err
	}
	if last || r.o.Clock().Sub(r.commit) > positionEvery {
		for _, t := range r.order {
			if err := r.park(t, t.settle(ctx, last)); err != nil {
				return err
			}
		}
		r.commit = r.o.Clock()
		if r.low != nil {
			if err := r.writeLow(ctx, positions); err != nil {
				return err
			}
		}
		if err := r.cleanSource(ctx); err != nil {
			return err
		}
	}
	for _, t := range r.order {
		if err := r.park(t, t.named(t.upkeep(ctx))); err != nil {
			return err
		}
	}
	r.tell(true)
	if last {
		r.remember(positions)
	}
	return r.parked(last)
}

// cleanSource tells a source that takes away what was read how far commits go.
func (r *run) cleanSource(ctx context.Context) error {
	c, ok := r.spec.Source.(event.Cleaner)
	if !ok || r.flow.DryRun {
		return nil
	}
	if r.low != nil {
		return c.Committed(ctx, r.low.state.positionsOf(r.name))
	}
	t := r.order[0]
	if t.snap == nil || t.adopt || !t.settled {
		return nil // nothing that a position could stand on was committed
	}
	return c.Committed(ctx, t.state.positionsOf(t.flow))
}

// remember notes how a run ended of whose targets some are parked.
func (r *run) remember(positions []event.Position) {
	parked := map[string]*Error{}
	for _, t := range r.order {
		if t.parked != nil {
			parked[t.dir] = t.parked
		}
	}
	if len(parked) == 0 || len(parked) == len(r.order) || r.flow.StopTogether {
		return
	}
	next := &Resume{positions: maps.Clone(r.from), parked: parked, decoder: r.dec.State()}
	for _, p := range positions {
		if p.Source != "" && !p.Gone {
			next.positions[p.Source] = p
		}
	}
	r.result.Resume = next
}

// input is what one flush brings for one target.
type input struct {
	batches   []*event.Batch
	poison    []event.Poison
	positions []event.Position
	// snapshot: the input is what a snapshot changes, and commits as a whole; facts
	// go into the state with it.
	snapshot *snapshotMark
	facts    []stateRow
	// counted and quarantined are done once, however often the batch is tried.
	quarantined bool
	// aside are rows of the batches that cannot be applied; they go with the poison.
	aside   []event.Poison
	asideID map[string]bool
	// spool has the batches where they do not fit into memory; cost is the estimated
	// bytes that deciding them takes, raw the bytes of the source behind them.
	spool     *spool
	cost, raw int64
}

// setAside notes rows, each once however often the batch is tried.
func (in *input) setAside(list []event.Poison) {
	for _, p := range list {
		id := recordID(&p.Record)
		if in.asideID[id] {
			continue
		}
		if in.asideID == nil {
			in.asideID = map[string]bool{}
		}
		in.asideID[id] = true
		in.aside = append(in.aside, p)
	}
}

func (in *input) rows() int {
	if in.spool != nil {
		return in.spool.rows
	}
	n := 0
	for _, b := range in.batches {
		n += int(b.Rows.NumRows())
	}
	return n
}

// targetOf is the target of a source table; nil if it is not selected.
func (r *run) targetOf(table event.Table) (*target, error) {
	dir, known := r.tables[table]
	if !known {
		var err error
		if dir, err = r.place(table); err != nil {
			return nil, err
		}
		r.tables[table] = dir
	}
	if dir == "-" {
		return nil, nil
	}
	return r.targets[dir], nil
}

// place decides where a source table that was not seen before goes.
func (r *run) place(table event.Table) (string, error) {
	if r.spec.Target.Select != nil && !r.spec.Target.Select(table) {
		return "-", nil
	}
	if r.spec.Target.Route == nil {
		for other, dir := range r.tables {
			if dir == "" && other != table {
				return "", running(CodeAmbiguousTable, "the stream holds tables %s and %s; name one, or make one target per table with DIR/{table}",
					tableText(other), tableText(table))
			}
		}
		return "", nil
	}
	dir, err := r.spec.Target.Route(table)
	if err != nil {
		return "", err
	}
	for other, d := range r.tables {
		if d == dir && other != table {
			return "", running(CodeTargetClash, "source tables %s and %s would both go to %s; use {schema} in the path too",
				tableText(other), tableText(table), dir)
		}
	}
	if r.targets[dir] == nil {
		if err := r.addTarget(dir); err != nil {
			return "", err
		}
	}
	return dir, r.ownFlow(r.targets[dir], table)
}

// ownFlow gives a target the flow of its source table.
func (r *run) ownFlow(t *target, table event.Table) error {
	if r.spec.FlowOf == nil {
		return nil
	}
	own := r.spec.FlowOf(table)
	if err := own.Validate(); err != nil {
		return fmt.Errorf("flow of table %s: %w", tableText(table), err)
	}
	t.own = &own
	return nil
}

func (r *run) addTarget(dir string) error {
	store, err := r.spec.Target.Open(dir)
	if err != nil {
		return fmt.Errorf("open target %s: %w", dir, err)
	}
	t := newTarget(r, dir, strings.TrimSuffix(r.spec.Target.Name, "/")+"/"+dir, store)
	if x := r.spec.Resume; x != nil {
		t.parked = x.parked[dir] // also of one that has no table yet
	}
	r.targets[dir], r.order = t, append(r.order, t)
	return nil
}

// targetOfPoison: poison of an unknown table goes to the only target, or with
// several to none.
func (r *run) targetOfPoison(ctx context.Context, p event.Poison) (*target, error) {
	if r.spec.Target.Route == nil {
		if p.Table != (event.Table{}) && r.spec.Target.Select != nil && !r.spec.Target.Select(p.Table) {
			return nil, nil
		}
		return r.targets[""], nil
	}
	if p.Table != (event.Table{}) {
		return r.targetOf(p.Table)
	}
	return nil, r.rootPoison(ctx, p)
}

// park keeps a refused target aside when there are others, also where the flow does
// not fit its table; every other error ends the run.
func (r *run) park(t *target, err error) error {
	var e *Error
	if err == nil || r.low == nil || r.flow.StopTogether || !errors.As(err, &e) {
		return err
	}
	if t.parked == nil {
		t.parked = e
		r.o.Logger.Warn("target parked", "target", t.title, "code", e.Code, "reason", e.Message)
	}
	return nil
}

// parked is the error of a run whose targets are all, or at its end partly, parked.
func (r *run) parked(last bool) error {
	var first *Error
	n := 0
	for _, t := range r.order {
		if t.parked != nil {
			n++
			if first == nil {
				first = t.parked
			}
		}
	}
	if n == 0 || !last && n < len(r.order) {
		return nil
	}
	return &Error{Code: first.Code, Phase: first.Phase, Target: first.Target,
		Message: fmt.Sprintf("%s (%d of %d targets stopped, the others went on)", first.Message, n, len(r.order)), Err: first.Err}
}

func (r *run) warn(text string) {
	if !r.warned[text] {
		r.warned[text] = true
		r.result.Warnings = append(r.result.Warnings, text)
		r.o.Logger.Info(text) // the caller gets it as a warning with the result
	}
}

// sum makes the totals of the result from those of the targets.
func (r *run) sum() {
	r.result.Flow = r.name
	r.result.Target = strings.TrimSuffix(r.spec.Target.Name, "/")
	r.result.Targets = nil
	all := TargetResult{}
	r.result.Batches, r.result.Events, r.result.Rows, r.result.Files, r.result.Bytes = 0, Events{}, Rows{}, Files{}, Bytes{}
	r.result.Snapshots = 0
	r.result.Events.add(r.unplaced)
	for _, t := range r.order {
		x := t.result
		r.result.Batches += x.Batches
		r.result.Events.add(x.Events)
		r.result.Rows.Inserted += x.Rows.Inserted
		r.result.Rows.Updated += x.Rows.Updated
		r.result.Rows.Deleted += x.Rows.Deleted
		r.result.Files.Added += x.Files.Added
		r.result.Files.Removed += x.Files.Removed
		r.result.Files.Change += x.Files.Change
		r.result.Bytes.Read += x.Bytes.Read
		r.result.Bytes.Written += x.Bytes.Written
		r.result.Snapshots += x.Snapshots
		x.Parked = t.parked
		all.addExpectations(x.Expectations)
		if r.spec.Target.Route != nil {
			r.result.Targets = append(r.result.Targets, x)
		} else {
			r.result.Version, r.result.Plan = x.Version, x.Plan
		}
	}
	r.result.Bytes.Spilled = r.budget.spilled.Load()
	r.result.Expectations = all.Expectations
}

func (e *Events) add(x Events) {
	e.Read += x.Read
	e.Applied += x.Applied
	e.Stale += x.Stale
	e.Duplicate += x.Duplicate
	e.Poison += x.Poison
	e.PoisonDeletes += x.PoisonDeletes
	e.SequenceConflicts += x.SequenceConflicts
	e.LateBeyondRetention += x.LateBeyondRetention
	e.LateSystem += x.LateSystem
}

// tell reports progress: after batches, else about once a second.
func (r *run) tell(batch bool) {
	if r.spec.Progress == nil {
		return
	}
	now := r.o.Clock()
	if !batch && now.Sub(r.told) < time.Second {
		return
	}
	r.told = now
	r.sum()
	p := Progress{Version: -1, Batches: r.result.Batches, Events: r.result.Events, Bytes: r.result.Bytes.Read}
	for _, t := range r.order {
		p.Target, p.Version = t.title, t.result.Version
	}
	r.spec.Progress(p)
}

func (r *run) zone() expr.Options { return expr.Options{Zone: r.o.TimeZone} }
