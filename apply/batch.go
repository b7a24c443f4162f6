package apply

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/apply/event"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// maxTries ends a batch of one row that keeps losing its race.
const maxTries = 200

// apply commits what one flush brings. Positions are noted even if nothing came.
func (t *target) apply(ctx context.Context, in *input) error {
	if t.parked != nil {
		return nil
	}
	t.positions, t.settled = in.positions, false
	n := in.rows()
	if n == 0 && len(in.poison) == 0 {
		return nil
	}
	t.touched = true
	if t.state != nil && t.walked == nil {
		t.state.forget()
	}
	t.result.Bytes.Read += in.raw
	return t.commitRange(ctx, in, 0, n, in.positions)
}

// commitRange commits the rows lo..hi of the input. After five lost races the
// range is halved; only its last part moves the positions, since the first part's
// end may lie inside a source's record.
func (t *target) commitRange(ctx context.Context, in *input, lo, hi int, positions []event.Position) error {
	for losses := 0; ; losses++ {
		if losses >= maxLostRaces && hi-lo > 1 {
			mid := (lo + hi) / 2
			if err := t.commitRange(ctx, in, lo, mid, nil); err != nil {
				return err
			}
			return t.commitRange(ctx, in, mid, hi, positions)
		}
		if losses >= maxTries {
			return t.named(running(CodeConflict, "the batch lost %d races against other writers", losses))
		}
		if err := t.pin(ctx); err != nil {
			return err
		}
		a := &attempt{t: t, in: in, lo: lo, hi: hi, positions: positions}
		done, err := a.run(ctx)
		if err = also(err, a.out.close()); err != nil {
			return t.named(err)
		}
		if done {
			return nil
		}
	}
}

// attempt is one try of one batch on the pinned target.
type attempt struct {
	t         *target
	in        *input
	lo, hi    int
	positions []event.Position

	shape    *shape
	def      flowDef
	field    bool // ties are settled field by field
	expect   []expectation
	widen    *deltalog.TableConfig // the table must take wider types first
	fold     *fold
	groups   []merge.Group
	decision *decision
	poison   []event.Poison
	late     int64     // events that may come too late (auto-cdc 3)
	lots     *lots     // nil: the batch is decided in one piece
	out      *outcomes // of lots; nil: the decision has everything
}

// run decides, then writes. done is false when the batch must be tried again on a
// new pin.
func (a *attempt) run(ctx context.Context) (done bool, err error) {
	if err := a.decide(ctx); err != nil {
		return false, err
	}
	if a.widen != nil && !a.t.run.flow.DryRun {
		return false, a.t.widen(ctx, a.widen)
	}
	if err := a.judgePoison(ctx); err != nil {
		return false, err
	}
	if !a.changes() || a.t.run.flow.DryRun {
		if a.t.run.flow.DryRun {
			a.t.result.Plan = a.plan()
		}
		if a.fold != nil && !a.shape.grown { // columns that join come with a batch that changes something
			a.t.def = &a.def
		}
		a.account()
		return true, nil
	}
	if a.t.snap == nil {
		return false, a.t.create(ctx, a.shape)
	}
	done, err = a.commit(ctx)
	if done && err == nil {
		a.account()
	}
	return done, err
}

// changes tells whether there is anything that must become durable now.
func (a *attempt) changes() bool {
	d := a.decision
	// Columns that join are a change: whether they do may not hang on how batches were cut.
	joins := a.t.snap != nil && a.shape != nil && a.shape.grown && a.fold != nil && a.fold.counts.Read > 0
	return d != nil && (d.changesRows() || len(d.facts) > 0 || a.out != nil && len(a.out.facts) > 0 || d.truncate != nil || joins)
}

// decide computes the batch's effect; it reads the target and writes nothing to it.
func (a *attempt) decide(ctx context.Context) error {
	chunks, err := a.chunks()
	if err != nil || len(chunks) == 0 {
		return err
	}
	var plans []*plan
	rescued := false
	for _, c := range chunks {
		if !slices.Contains(plans, c.plan) {
			plans = append(plans, c.plan)
		}
		rescued = rescued || c.rescued
	}
	if a.widen = a.t.widening(plans); a.widen != nil {
		return nil
	}
	if err := a.makeShape(plans, rescued); err != nil {
		return err
	}
	if a.in.spool != nil {
		return a.decideLots(ctx, chunks)
	}
	l := a.newLot()
	for _, c := range chunks {
		if err := l.take(c.plan, c.b, a.keeps(c.b, c.start), nil); err != nil {
			return err
		}
	}
	return a.decideLot(ctx, l)
}

// chunk is one event batch of the input.
type chunk struct {
	plan    *plan
	b       *event.Batch // nil: it is spooled
	piece   *spooled
	start   int // number of its first row
	rescued bool
}

// chunks are those of the input that reach into the range of the attempt, as the flow's
// mode of schema evolution lets them into the target.
func (a *attempt) chunks() ([]chunk, error) {
	var out []chunk
	at := 0
	take := func(n int, make func() (chunk, error)) error {
		if at+n > a.lo && at < a.hi {
			c, err := make()
			if err != nil {
				return err
			}
			c.start = at
			out = append(out, c)
		}
		at += n
		return nil
	}
	if s := a.in.spool; s != nil {
		for i := range s.pieces {
			x := &s.pieces[i]
			if err := take(int(x.at.Rows), func() (chunk, error) { return a.spooledChunk(x) }); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	for _, b := range a.in.batches {
		if err := take(int(b.Rows.NumRows()), func() (chunk, error) {
			b, p, err := a.t.evolve(b)
			return chunk{plan: p, b: b, rescued: err == nil && rescues(b)}, err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// spooledChunk is a chunk of which no row is held. How it evolves is told by its columns
// alone; its rows are looked at only where that may put some of them aside.
func (a *attempt) spooledChunk(x *spooled) (chunk, error) {
	head := x.p.empty()
	plain, err := a.t.planOf(head)
	if err != nil {
		return chunk{}, err
	}
	out, p, err := a.t.evolve(head)
	if err != nil {
		return chunk{}, err
	}
	c := chunk{plan: p, piece: x, rescued: x.rescued && out.Rescued != nil}
	if p == plain || c.rescued {
		return c, nil
	}
	_, b, err := a.read(c)
	if err != nil {
		return chunk{}, err
	}
	c.rescued = rescues(b)
	return c, nil
}

// rescues tells whether some event has values that the target has no place for.
func rescues(b *event.Batch) bool {
	return slices.ContainsFunc(b.Rescued, func(text string) bool { return text != "" })
}

// keeps tells which rows of an event batch the attempt is about.
func (a *attempt) keeps(b *event.Batch, start int) func(r int) bool {
	return func(r int) bool {
		return start+r >= a.lo && start+r < a.hi && !a.t.consumed(b.Source, b.Offsets[r])
	}
}

// lot is events that are decided together: all of the batch, or of a batch that is too
// large for memory those of some keys.
type lot struct {
	a      *attempt
	events []incoming
	span   *merge.Range
}

func (a *attempt) newLot() *lot {
	return &lot{a: a, span: merge.NewRange(a.shape.schema, a.shape.keyNames())}
}

// take adds the rows of an event batch for which keep is true; ranks are the numbers of
// its rows in the input (nil: they do not matter).
func (l *lot) take(p *plan, b *event.Batch, keep func(int) bool, ranks []int64) (err error) {
	a, t := l.a, l.a.t
	from := len(l.events)
	var o *origin
	p.setsAside, p.aside = t.run.flow.OnPoison == PoisonQuarantine, nil // plans are shared
	if l.events, o, err = p.intake(a.shape, b, keep, l.events); err != nil {
		return err
	}
	if p.textNumbers {
		t.run.warn(fmt.Sprintf("the sequence %s is text that holds numbers, and as text 9 comes after 10: say CAST(... AS BIGINT) in its expression, "+
			"or give the columns of the source their types; a target keeps the type of its first sequence", t.rules().SequenceBy))
	}
	a.in.setAside(p.aside)
	o.epoch = t.state.epochOf(a.shape.authored(p, o))
	for i := from; i < len(l.events); i++ {
		e := &l.events[i]
		if ranks != nil {
			e.rank = ranks[e.at.row]
		}
		if e.op != event.Truncate {
			l.span.Add(o.keys, e.at.row)
		}
		if e.other != "" {
			l.span.Open()
		}
	}
	return nil
}

// decideLot decides a lot.
func (a *attempt) decideLot(ctx context.Context, l *lot) error {
	t, events, span := a.t, l.events, l.span
	j := joiner{fields: len(a.shape.fields), covers: a.covers(), byField: a.field}
	a.late += a.lateBeyond(events)
	err := t.fetch(ctx, func(yield func(string) bool) {
		for i := range events {
			if e := &events[i]; !yield(e.key) || e.other != "" && !yield(e.other) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if a.shape.frame != nil {
		return a.decideHistory(ctx, j, events, span)
	}
	if a.fold, err = newFold(j, a.shape, t.state, events); err != nil {
		return err
	}
	if err := t.fetch(ctx, maps.Keys(a.fold.index)); err != nil { // the new keys of departed images
		return err
	}
	a.fold.expect, a.fold.judged = a.expect, map[string]ExpectationCount{}
	if a.groups, err = a.find(ctx, span); err != nil {
		return err
	}
	if a.fold.truncate != nil { // it concerns rows of other keys
		err := t.fetch(ctx, func(yield func(string) bool) {
			for _, g := range a.groups {
				for _, k := range g.Keys {
					if !yield(string(k)) {
						return
					}
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if err := a.fold.start(a.shape, a.groups); err != nil {
		return err
	}
	a.fold.run()
	a.decision, err = a.fold.decide(a.shape, a.groups, t.state.processedAt(t.run.o.Clock()))
	return err
}

// decideHistory is decide for a target that keeps history.
func (a *attempt) decideHistory(ctx context.Context, j joiner, events []incoming, span *merge.Range) (err error) {
	if a.fold, err = newHistoryFold(j, a.shape, a.t.state, events); err != nil {
		return err
	}
	a.fold.expect, a.fold.judged = a.expect, map[string]ExpectationCount{}
	if err := a.findHistory(ctx, span); err != nil {
		return err
	}
	if err := a.fold.readHidden(); err != nil {
		return err
	}
	a.decision, err = a.fold.runHistory(a.groups, a.t.state.processedAt(a.t.run.o.Clock()))
	return err
}

// makeShape fits the plans to the table and to what the state holds of its flows.
func (a *attempt) makeShape(plans []*plan, rescued bool) (err error) {
	t := a.t
	a.field = plans[0].mode != modeWhole
	var table *schema.Struct
	if t.snap != nil && !t.state.target.Fresh {
		table = t.snap.Schema
	}
	for _, name := range slices.Sorted(maps.Keys(t.state.flows)) {
		if err := checkDef(t.state.flows[name], plans[0].def(t.flow, table)); err != nil {
			return err
		}
	}
	if err := t.checkKeysThere(table, plans[0]); err != nil {
		return err
	}
	split := t.splitColumns(plans)
	if a.shape, err = newShape(table, plans, split, rescued, t.widens(), t.rules(), t.run.zone()); err != nil {
		return err
	}
	partitions := t.rules().PartitionBy
	if t.snap != nil {
		partitions = t.snap.PartitionColumns()
	}
	a.shape.partitions = map[string]bool{}
	for _, name := range partitions {
		a.shape.partitions[strings.ToLower(name)] = true
	}
	if err := a.shape.checkAbsent(plans); err != nil {
		return err
	}
	if a.expect, err = t.rules().bindExpectations(a.shape.schema, t.run.zone()); err != nil {
		return err
	}
	a.def = plans[0].def(t.flow, a.shape.schema)
	a.def.Split = slices.Sorted(maps.Keys(split))
	if err := a.track(plans); err != nil {
		return err
	}
	if t.snap == nil {
		return nil
	}
	if t.state.target.Fresh {
		return t.refit(a.shape)
	}
	if err := t.physicalFor(a.shape); err != nil {
		return err
	}
	return a.checkHidden()
}

// checkKeysThere refuses a target whose key columns another writer renamed or dropped:
// the key would join as a new column, and no row would be found by it.
func (t *target) checkKeysThere(table *schema.Struct, p *plan) error {
	if _, committed := t.anyFlow(); table == nil || !committed {
		return nil
	}
	for _, k := range p.keys {
		if name := p.source.Fields[k].Name; table.Index(name) < 0 {
			return stored(CodeKeySchemaDrift, "key column %q is gone from the target (%s): renamed or dropped by another writer; give it its name back, or refresh in full",
				name, strings.Join(table.Names(), ", "))
		}
	}
	return nil
}

// splitColumns are the lower names of struct columns whose leaves are fields: those
// whose nulls a flow ignores, or once ignored.
func (t *target) splitColumns(plans []*plan) map[string]bool {
	out := map[string]bool{}
	for _, d := range t.state.flows {
		for _, c := range d.Split {
			out[c] = true
		}
	}
	for _, p := range plans {
		for i := range p.covered {
			if c := p.source.Fields[i]; isStruct(c.Type) {
				out[strings.ToLower(c.Name)] = true
			}
		}
	}
	return out
}

// covers tells, once per epoch, whether it has every field of the shape.
func (a *attempt) covers() func(int32) bool {
	seen := map[int32]bool{}
	return func(epoch int32) bool {
		c, ok := seen[epoch]
		if !ok {
			names := a.t.state.epochs[epoch]
			c = names != nil
			for f := range a.shape.fields {
				c = c && inEpoch(names, a.shape.fields[f].name)
			}
			seen[epoch] = c
		}
		return c
	}
}

// find looks the rows of the batch's keys up and, for a new truncate, all rows
// that it concerns: older ones, and those with a field older than it.
func (a *attempt) find(ctx context.Context, span *merge.Range) ([]merge.Group, error) {
	t := a.t
	if t.snap == nil {
		return nil, nil
	}
	files, err := t.snap.FileList(ctx)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	if err := a.checkUnique(ctx, files); err != nil {
		return nil, err
	}
	return a.findIn(ctx, files, a.fold.keys, span)
}

// findIn looks keys up in some of the target's files.
func (a *attempt) findIn(ctx context.Context, files []*deltalog.Add, keyed []*keyed, span *merge.Range) (_ []merge.Group, err error) {
	t := a.t
	keys := merge.Keys{Columns: a.shape.keyNames(), Set: make(map[string]int, len(keyed))}
	for i, k := range keyed {
		keys.Set[k.key] = i
		if len(t.state.departed[k.key]) > 0 {
			span.Open() // the new keys of its images are known as bytes only
		}
	}
	if keys.Bounds, err = span.Bound(t.snap.Schema); err != nil {
		return nil, err
	}
	o := merge.Options{Hidden: true}
	if a.fold.truncate != nil {
		o.Also = func(b arrow.RecordBatch) ([]int, error) { return a.olderThan(b, len(keys.Columns)) }
	}
	return merge.Find(ctx, t.store, t.layout, files, keys, o)
}

// olderThan are the rows whose version, or that of a field, is below the new truncate,
// and whose keys are decided now. The first n columns are those of the key.
func (a *attempt) olderThan(b arrow.RecordBatch, n int) ([]int, error) {
	s := a.fold.truncate
	h, err := hiddenOf(b)
	if err != nil {
		return nil, err
	}
	var out []int
	for r := range int(b.NumRows()) {
		e := h.values(r)
		old := bytes.Compare(e.V, s) < 0
		for _, f := range e.Fields {
			old = old || bytes.Compare(f.V, s) < 0
		}
		if old && (a.lots == nil || a.lots.now(merge.KeyOf(nil, columnsOf(b, n), r))) {
			out = append(out, r)
		}
	}
	return out, nil
}

func (r *TargetResult) addExpectations(judged map[string]ExpectationCount) {
	for name, c := range judged {
		if r.Expectations == nil {
			r.Expectations = map[string]ExpectationCount{}
		}
		sum := r.Expectations[name]
		sum.add(c)
		r.Expectations[name] = sum
	}
}

// account adds a batch that is done to the result.
func (a *attempt) account() {
	r := &a.t.result
	if a.fold != nil {
		r.Events.add(a.fold.counts)
		r.Events.LateBeyondRetention += a.late
		r.addExpectations(a.fold.judged)
	}
	for _, p := range a.poison {
		r.Events.Read++
		r.Events.Poison++
		if p.Delete {
			r.Events.PoisonDeletes++
		}
	}
	if a.decision != nil {
		r.Rows.Inserted += a.decision.rows.Inserted
		r.Rows.Updated += a.decision.rows.Updated
		r.Rows.Deleted += a.decision.rows.Deleted
	}
	if a.fold != nil || len(a.poison) > 0 {
		r.Batches++
	}
}
