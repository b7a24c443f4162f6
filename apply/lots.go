package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/internal/spill"
)

// A batch that is too large for memory is decided in lots: keys are independent of each
// other, so its events are parted by key, and each part is folded, looked up and
// decided like a batch of its own. What the lots decide waits in a temporary file
// (outcomes.go) until all are decided, and is written and committed as one batch.
//
// What any two lots guarantee: no key is in both, the keys of a key change are in one,
// and the events of a lot come in the order of the batch. Truncates are in every lot
// and count in the first.
type lots struct {
	t     *target
	file  *spill.File
	parts []map[*packing][]spill.Segment
	at    int // the lot that is being decided
	// linked are keys that must be decided together: each names another one, or itself.
	linked map[string]string
}

// maxLots bounds how far a batch is parted; one that needs more does not fit.
const maxLots = 512

// of is the lot of a key.
func (l *lots) of(key string) int {
	for {
		next, ok := l.linked[key]
		if !ok || next == key {
			break
		}
		key = next
	}
	return int(keycode.Hash64([]byte(key)) % uint64(len(l.parts)))
}

// now tells whether a key belongs to the lot that is being decided.
func (l *lots) now(key []byte) bool { return l.of(string(key)) == l.at }

func (l *lots) link(a, b string) {
	root := func(k string) string {
		for {
			next, ok := l.linked[k]
			if !ok {
				l.linked[k] = k
				return k
			}
			if next == k {
				return k
			}
			k = next
		}
	}
	x, y := root(a), root(b)
	if x > y {
		x, y = y, x
	}
	l.linked[y] = x
}

// decideLots decides a spooled input.
func (a *attempt) decideLots(ctx context.Context, chunks []chunk) (err error) {
	n := a.t.run.budget.lots(a.in)
	if err := a.t.run.budget.check(a.in, n); err != nil {
		return err
	}
	l := &lots{t: a.t, parts: make([]map[*packing][]spill.Segment, n), linked: map[string]string{}}
	for i := range l.parts {
		l.parts[i] = map[*packing][]spill.Segment{}
	}
	if l.file, err = spill.Create(a.t.run.budget.spill()); err != nil {
		return err
	}
	defer func() { err = also(err, l.file.Close()) }()
	if err := a.findLinks(ctx, l, chunks); err != nil {
		return err
	}
	for _, c := range chunks {
		if err := a.part(l, c); err != nil {
			return err
		}
	}
	if a.out, err = newOutcomes(a); err != nil {
		return err
	}
	for l.at = range l.parts {
		if err := a.decidePart(ctx, l); err != nil {
			return err
		}
	}
	a.lots, a.groups = nil, nil
	a.fold, a.decision = a.out.fold, a.out.decision
	return nil
}

// decidePart decides one lot and keeps what comes of it.
func (a *attempt) decidePart(ctx context.Context, l *lots) error {
	events, err := a.load(l)
	if err != nil || len(events.events) == 0 {
		return err
	}
	a.lots = l
	if err := a.decideLot(ctx, events); err != nil {
		return err
	}
	if err := a.out.keep(a); err != nil {
		return err
	}
	a.fold, a.groups, a.decision = nil, nil, nil
	if a.t.walked == nil {
		a.t.state.forget()
	}
	return context.Cause(ctx)
}

// read is a chunk of a spooled input: as it is stored, and as it goes into the target.
func (a *attempt) read(c chunk) (arrow.RecordBatch, *event.Batch, error) {
	r, err := a.in.spool.file.Read(c.piece.at)
	if err != nil {
		return nil, nil, err
	}
	b, _, err := c.piece.p.unpack(r)
	if err != nil {
		return nil, nil, err
	}
	b, _, err = a.t.evolve(b)
	return r, b, err
}

// part spreads the events of a chunk over the lots.
func (a *attempt) part(l *lots, c chunk) error {
	r, b, err := a.read(c)
	if err != nil {
		return err
	}
	events := a.newLot()
	if err := events.take(c.plan, b, a.keeps(b, c.start), nil); err != nil {
		return err
	}
	rows := make([][]int64, len(l.parts))
	for i := range events.events {
		e := &events.events[i]
		if e.op != event.Truncate {
			n := l.of(e.key)
			rows[n] = append(rows[n], int64(e.at.row))
			continue
		}
		for n := range rows {
			rows[n] = append(rows[n], int64(e.at.row))
		}
	}
	for n, take := range rows {
		if len(take) == 0 {
			continue
		}
		some, err := datafile.Take(r, take)
		if err != nil {
			return fmt.Errorf("part events: %w", err)
		}
		at, err := l.file.Append(some)
		some.Release()
		if err != nil {
			return err
		}
		l.parts[n][c.piece.p] = append(l.parts[n][c.piece.p], at)
	}
	return nil
}

// load reads the events of the lot that is to be decided, in the order of the batch.
func (a *attempt) load(l *lots) (*lot, error) {
	out := a.newLot()
	part := l.parts[l.at]
	for p, segments := range part {
		pieces := make([]arrow.RecordBatch, len(segments))
		var err error
		for i, s := range segments {
			if pieces[i], err = l.file.Read(s); err != nil {
				return nil, err
			}
		}
		all, err := datafile.Concat(p.schema, pieces)
		if err != nil {
			return nil, fmt.Errorf("join events: %w", err)
		}
		b, ranks, err := p.unpack(all)
		if err != nil {
			return nil, err
		}
		b, plan, err := a.t.evolve(b)
		if err != nil {
			return nil, err
		}
		if err := out.take(plan, b, func(int) bool { return true }, ranks); err != nil {
			return nil, err
		}
	}
	if len(part) > 1 {
		slices.SortStableFunc(out.events, func(a, b incoming) int { return int(a.rank - b.rank) })
	}
	for i := range out.events {
		out.events[i].again = l.at > 0 && out.events[i].op == event.Truncate
	}
	return out, nil
}

// findLinks finds the keys that must be decided together: the old and the new key of a
// change, now or earlier.
func (a *attempt) findLinks(ctx context.Context, l *lots, chunks []chunk) error {
	t := a.t
	moves := slices.ContainsFunc(chunks, func(c chunk) bool { return c.piece.p.old || c.piece.p.by })
	moved, err := t.states.anyOf(ctx, t.state, t.files, kindDeparted)
	if err != nil {
		return t.named(err)
	}
	if !moves && !moved {
		return nil
	}
	for _, c := range chunks {
		_, b, err := a.read(c)
		if err != nil {
			return err
		}
		events := a.newLot()
		if err := events.take(c.plan, b, a.keeps(b, c.start), nil); err != nil {
			return err
		}
		for i := range events.events {
			if e := &events.events[i]; e.other != "" {
				l.link(e.key, e.other)
			}
		}
		if !moved {
			continue
		}
		if err := t.fetch(ctx, events.keys); err != nil {
			return err
		}
		for key := range events.keys {
			for _, d := range t.state.departed[key] {
				_, to, err := a.shape.decodeImage(d.payload)
				if err != nil {
					return err
				}
				l.link(key, to)
			}
		}
		if t.walked == nil {
			t.state.forget()
		}
	}
	return nil
}

// keys are those that the events of a lot name.
func (l *lot) keys(yield func(string) bool) {
	for i := range l.events {
		if e := &l.events[i]; e.op != event.Truncate && (!yield(e.key) || e.other != "" && !yield(e.other)) {
			return
		}
	}
}

// anyOf tells whether a state holds facts of a kind.
func (t *stateTable) anyOf(ctx context.Context, s *state, files *stateFiles, kind string) (bool, error) {
	if s.whole || files == nil {
		return kind != kindDeparted || len(s.departed) > 0, nil
	}
	for _, f := range files.facts {
		found, err := t.holds(ctx, f, kind)
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// sum adds what was counted of a lot.
func (f *fold) sum(o *fold) {
	f.counts.add(o.counts)
	for name, c := range o.judged {
		s := f.judged[name]
		s.add(c)
		f.judged[name] = s
	}
	if o.truncate != nil {
		f.truncate = o.truncate
	}
}
