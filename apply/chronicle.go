package apply

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/merge"
)

// This file connects the function of history.go to what is stored: the events of a
// key are read off its rows and its hidden events, and what the new rows do not
// tell is kept as hidden events again.

// newHistoryFold collects the keys that events concern in a target with history.
func newHistoryFold(j joiner, s *shape, st *state, events []incoming) (*fold, error) {
	f := &fold{joiner: j, shape: s, state: st, events: events, index: map[string]*keyed{}}
	for i := range events {
		e := &events[i]
		f.rank = e.rank
		if e.op == event.Truncate {
			return nil, running(CodeTruncateRequiresSCD1, "a truncate cannot be applied to a target that keeps history; the event comes from line %d", e.line)
		}
		k := f.touch(e.key)
		k.list = append(k.list, happening{seq: e.seq, sys: e.sys, del: e.op == event.Delete, at: e.at, event: i})
		if e.op == event.Upsert && e.other != "" && !e.at.o.full(e.at.row) {
			old := f.touch(e.other)
			old.asks = append(old.asks, e.seq)
		}
	}
	f.counts.Read = int64(len(events))
	return f, nil
}

// storedRows are the rows of a group with their effective hidden values and periods.
type storedRows struct {
	o     *origin
	frame [4]arrow.Array
	extra map[extraOrigin]*origin
}

// extraOrigin is a view of stored rows: what their events of one schema epoch
// author. A row may stand for several events; each has a view of its own.
type extraOrigin struct {
	epoch int32
	slot  int
}

// view names what an event at a row authors; slot tells the events of a row apart.
func (g *storedRows) view(r *register, row, slot int, covers func(int32) bool, authors func(f int) bool) ref {
	k := extraOrigin{r.epoch, slot}
	o := g.extra[k]
	if o == nil {
		c := *g.o
		o = &c
		o.epoch, o.whole, o.unauth = r.epoch, covers(r.epoch), make([]event.Bits, len(g.o.fields))
		g.extra[k] = o
	}
	for f := range o.fields {
		if !authors(f) {
			o.unauth[f] = o.unauth[f].Set(row)
		}
	}
	return ref{o, row}
}

// readRows takes the rows of the groups from number `from` on up.
func (f *fold) readRows(groups []merge.Group, from int) error {
	s := f.shape
	for g := from; g < len(groups); g++ {
		grp := &groups[g]
		o, err := s.storedImage(grp.Batch)
		if err != nil {
			return err
		}
		h, err := hiddenOf(grp.Batch)
		if err != nil {
			return err
		}
		v := &storedRows{o: o, extra: map[extraOrigin]*origin{}}
		for i, c := range s.frame {
			if at := grp.Batch.Schema().FieldIndices(s.schema.Fields[c].Name); len(at) == 1 {
				v.frame[i] = grp.Batch.Column(at[0])
			}
		}
		f.views = append(f.views, v)
		for r := range grp.Rows {
			if err := f.readRow(v, h, string(grp.Keys[r]), g, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// readHidden completes the events of the keys by those of the state and by what
// their rows tell.
func (f *fold) readHidden() error {
	reader, err := newHiddenReader(f.shape, f.covers)
	if err != nil {
		return err
	}
	for _, k := range f.keys {
		seen := map[string]bool{}
		for _, fact := range f.state.hidden[k.key] {
			if fact.kind == kindFrozen {
				k.freeze(fact.seq)
				continue
			}
			if k.seed != nil && bytes.Compare(fact.seq, k.seed.u) <= 0 {
				continue
			}
			e := happening{seq: fact.seq, event: -1}
			if err := f.readFact(reader, fact, k.key, &e); err != nil {
				return err
			}
			if !e.del {
				seen[string(e.seq)] = true
			}
			k.list = append(k.list, e)
		}
		if f.shape.storedAs == storedSCD2 && k.seed == nil {
			f.deriveEvents(k, f.views, seen)
		}
	}
	reader.finish()
	return nil
}

// plant makes the open row of a key its seed if every event of the batch comes after
// all that the row knows. The key's other rows are then out of reach.
func (k *keyed) plant() bool {
	var open *storedRow
	for _, r := range k.rows {
		if r.reg.span.end != nil {
			continue
		}
		if open != nil {
			return false
		}
		open = r
	}
	if open == nil {
		return false
	}
	for i := range k.list {
		if bytes.Compare(k.list[i].seq, open.reg.u) <= 0 {
			return false
		}
	}
	for _, s := range k.asks {
		if bytes.Compare(s, open.reg.u) <= 0 {
			return false
		}
	}
	k.seed, k.rows = &open.reg, []*storedRow{open}
	return true
}

// freeze puts the rows aside that were believed only before a system sequence, and
// notes those that were believed up to it.
func (k *keyed) freeze(before []byte) {
	if k.frozen != nil && bytes.Compare(k.frozen.before, before) >= 0 {
		return
	}
	b := &belief{before: before}
	k.rows = slices.DeleteFunc(k.rows, func(r *storedRow) bool {
		return r.reg.span.sysEnd != nil && bytes.Compare(r.reg.span.sysEnd, before) < 0
	})
	for _, r := range k.rows {
		if bytes.Compare(r.reg.span.sysStart, before) < 0 {
			b.rows = append(b.rows, &r.reg)
		}
	}
	k.frozen = b
}

// readRow takes one stored row up.
func (f *fold) readRow(v *storedRows, h *hiddenColumns, key string, group, r int) error {
	s, k := f.shape, f.touch(key)
	at := ref{v.o, r}
	cell := func(i int) []byte {
		if v.frame[i] == nil || v.frame[i].IsNull(r) {
			return nil
		}
		return keycode.AppendValue(nil, v.frame[i], r)
	}
	sp := &span{start: cell(0), end: cell(1), sysStart: cell(2), sysEnd: cell(3)}
	if sp.start == nil || len(s.frame) == 4 && sp.sysStart == nil {
		return &Error{Code: CodeInvalidTarget, Phase: PhaseRun, Message: "a row of the target has no start: key " + keyValueText(s, v.o, r)}
	}
	for _, o := range k.rows {
		if bytes.Equal(o.reg.span.start, sp.start) && bytes.Equal(o.reg.span.sysStart, sp.sysStart) {
			return &Error{Code: CodeTargetKeyNotUnique, Phase: PhaseRun,
				Message: "the target has two rows with key " + keyValueText(s, v.o, r) + " and the same start; remove one"}
		}
	}
	hidden := h.values(r)
	reg := s.registerOf(f.state, hidden, rowID(key, sp), at)
	if len(reg.u) == 0 { // written by another engine: a full event at its start
		reg.u, reg.parts = sp.start, nil
	}
	reg.span = sp
	k.rows = append(k.rows, &storedRow{match: group, row: r, at: at, over: hidden.V, reg: reg})
	return nil
}

// readFact is the event of a hidden fact.
func (f *fold) readFact(reader *hiddenReader, fact hiddenFact, key string, e *happening) error {
	payload := fact.payload
	if fact.kind == kindEvent {
		r := cellReader{rest: payload}
		e.sys = bytes.Clone(r.text())
		op := r.take(1)
		if r.bad {
			return hiddenDamage(errCell)
		}
		if payload = r.rest; op[0] == 0 {
			payload = nil
		}
	}
	if payload == nil {
		e.del = true
		return nil
	}
	var err error
	e.at, err = reader.read(payload, key)
	return err
}

// deriveEvents reads off the rows of a key the events that they stand for: the last
// member that a row names, the first one where the state does not hold it any more,
// and the deletes that ended rows or stand below their floors. known are the upsert
// sequences of the hidden events.
func (f *fold) deriveEvents(k *keyed, views []*storedRows, known map[string]bool) {
	for _, row := range k.rows {
		known[string(row.reg.u)] = true
	}
	deletes := map[string]bool{}
	boundary := func(s []byte) {
		if s != nil && !deletes[string(s)] {
			deletes[string(s)] = true
			k.list = append(k.list, happening{seq: s, del: true, event: -1})
		}
	}
	for _, row := range k.rows {
		r, v := &row.reg, views[row.match]
		k.list = append(k.list, happening{seq: r.u, event: -1, at: v.view(r, row.row, 0, f.covers, func(n int) bool { return bytes.Equal(r.version(n), r.u) })})
		boundary(r.d)
		// A member that was collected is told by the row, whose tracked values it had: the
		// first one, and one that stands at a delete inside of the run, where there would
		// be a gap without it.
		for slot, s := range [][]byte{r.span.start, r.d} {
			if bytes.Compare(s, r.span.start) < 0 || known[string(s)] {
				continue
			}
			known[string(s)] = true
			k.list = append(k.list, happening{seq: s, event: -1, at: v.view(r, row.row, 1+slot, f.covers, func(n int) bool { return len(r.version(n)) > 0 })})
		}
	}
	for _, row := range k.rows {
		if e := row.reg.span.end; !known[string(e)] {
			boundary(e)
		}
	}
}

// told is what the function says of one key, before and after the batch.
type told struct {
	k    *keyed
	c    *chronicle // SCD2
	rows []*register
	was  []*register // with the rows that DROP ROW hid; only with expectations
}

// runHistory computes the rows of every key and what becomes of the stored ones.
func (f *fold) runHistory(groups []merge.Group, now int64) (*decision, error) {
	h := &historian{joiner: f.joiner, tracked: f.shape.tracked}
	f.fillMoved(h)
	d := &decision{files: make([]fileChange, len(groups)), hidden: map[string][]hiddenFact{}}
	all := make([]told, 0, len(f.keys))
	for _, k := range f.keys {
		t := told{k: k}
		if len(f.expect) > 0 {
			old := slices.DeleteFunc(slices.Clone(k.list), func(e happening) bool { return e.event >= 0 })
			quiet := *h
			if f.shape.storedAs == storedBitemporal {
				t.was = quiet.beliefs(old, k.frozen)
			} else {
				t.was = quiet.run(old, k.seed).rows
			}
		}
		if f.shape.storedAs == storedBitemporal {
			t.rows = h.beliefs(k.list, k.frozen)
		} else {
			t.c = h.run(k.list, k.seed)
			t.rows = t.c.rows
		}
		all = append(all, t)
	}
	hides, err := f.judgeHistory(h, all)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.c == nil {
			err = f.decideBeliefs(d, h, t, hides, now)
		} else {
			err = f.decideRuns(d, h, t, hides, now)
		}
		if err != nil {
			return nil, err
		}
	}
	d.sort()
	f.counts.SequenceConflicts = h.conflicts
	return d, nil
}

// judgeHistory tests all rows of the keys and answers those that DROP ROW hides.
func (f *fold) judgeHistory(h *historian, all []told) (map[*register]bool, error) {
	if len(f.expect) == 0 {
		return nil, nil
	}
	var rows []*register
	for _, t := range all {
		rows = append(rows, t.rows...)
	}
	meets, err := f.judge(rows)
	if err != nil {
		return nil, err
	}
	hides, at := map[*register]bool{}, 0
	for _, t := range all {
		for _, r := range t.rows {
			if f.hides(meets, at) {
				hides[r] = true
			}
			if !slices.ContainsFunc(t.was, func(o *register) bool { return o.span.equal(r.span) && h.sameValues(o, r) }) {
				if err := f.tally(meets, at, t.k, r); err != nil {
					return nil, err
				}
			}
			at++
		}
	}
	return hides, nil
}

// shown are the rows that DROP ROW does not hide.
func shown(rows []*register, hides map[*register]bool) []*register {
	if len(hides) == 0 {
		return rows
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r *register) bool { return hides[r] })
}

// fillMoved gives creates of a key change the values that they did not carry: those
// of the old key just below their sequence (auto-cdc 2.3).
func (f *fold) fillMoved(h *historian) {
	var list []int
	for i := range f.events {
		if e := &f.events[i]; e.op == event.Upsert && e.other != "" && !e.at.o.full(e.at.row) {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return bytes.Compare(f.events[a].seq, f.events[b].seq) })
	for _, i := range list {
		e := &f.events[i]
		from := f.index[e.other].list
		if e.sys != nil { // what was known then, later reports in place of earlier ones
			from = slices.DeleteFunc(slices.Clone(from), func(x happening) bool { return bytes.Compare(x.sys, e.sys) > 0 })
			slices.SortStableFunc(from, func(a, b happening) int { return bytes.Compare(a.sys, b.sys) })
			from = latest(from)
		}
		old := h.below(from, e.seq, f.index[e.other].seed)
		if !old.live {
			continue
		}
		parts := f.dense(&old)
		for n := range parts {
			// Only what the record held as a placeholder is the old key's.
			if u := e.at.o.unavail[n]; u == nil || !u.Get(e.at.row) {
				parts[n] = part{}
			}
		}
		k := f.index[e.key]
		for n := range k.list {
			if k.list[n].event == i {
				k.list[n].fill = parts
			}
		}
	}
}

func (f *fold) count(out outcome) {
	switch out {
	case applied:
		f.counts.Applied++
	case stale:
		f.counts.Stale++
	case duplicate:
		f.counts.Duplicate++
	}
}

// decideRuns decides one key of an SCD2 target.
func (f *fold) decideRuns(d *decision, h *historian, t told, hides map[*register]bool, now int64) error {
	for _, out := range t.c.outcomes {
		f.count(out)
	}
	rows := shown(t.rows, hides)
	kept := d.place(f, h, t.k, rows)
	need, err := f.untold(h, t.c, rows, kept, now)
	if err != nil {
		return err
	}
	if seed := t.k.seed; seed != nil { // what is older was not looked at and stays
		var old []hiddenFact
		index := factIndex(need)
		for _, fact := range f.state.hidden[t.k.key] {
			if _, again := index[fact.id()]; bytes.Compare(fact.seq, seed.u) <= 0 && !again {
				old = append(old, fact)
			}
		}
		need = append(old, need...)
	}
	for _, r := range t.rows {
		if !hides[r] {
			continue
		}
		for i := range need { // from the first member to the delete that ended the row
			s := need[i].seq
			if bytes.Compare(s, r.span.start) >= 0 && (r.span.end == nil || bytes.Compare(s, r.span.end) <= 0) {
				need[i].kind = kindDropped
			}
		}
	}
	f.keep(d, t.k, need)
	return nil
}

// place compares the rows of a key with the stored ones, by identity (auto-cdc
// 2.10), and answers for each row the stored one that stays as it is, or nil.
func (d *decision) place(f *fold, h *historian, k *keyed, rows []*register) []*storedRow {
	type identity struct{ start, sysStart string }
	have := map[identity]*storedRow{}
	for _, s := range k.rows {
		have[identity{string(s.reg.span.start), string(s.reg.span.sysStart)}] = s
	}
	kept := make([]*storedRow, len(rows))
	for i, r := range rows {
		id := identity{string(r.span.start), string(r.span.sysStart)}
		s := have[id]
		delete(have, id)
		switch {
		case s == nil:
			d.insert(k, r)
		case bytes.Equal(s.reg.span.end, r.span.end) && bytes.Equal(s.reg.span.sysEnd, r.span.sysEnd) && h.sameValues(&s.reg, r):
			kept[i] = s
		default:
			fc := &d.files[s.match]
			fc.updates, fc.after = append(fc.updates, s.row), append(fc.after, r)
			d.rows.Updated++
			d.foldRow(f, k, s)
		}
	}
	for _, s := range k.rows {
		if have[identity{string(s.reg.span.start), string(s.reg.span.sysStart)}] == s {
			fc := &d.files[s.match]
			fc.deletes = append(fc.deletes, s.row)
			d.rows.Deleted++
			d.foldRow(f, k, s)
		}
	}
	return kept
}

// rowID is the key of version entries: those of the identity columns.
func rowID(key string, sp *span) string {
	return string(slices.Concat([]byte(key), sp.start, sp.sysStart))
}

func (d *decision) foldRow(f *fold, k *keyed, s *storedRow) {
	if id := rowID(k.key, s.reg.span); len(f.state.entries[id]) > 0 {
		d.folded = append(d.folded, id)
	}
}

// untold are the events of a key that its rows, as they will be stored, do not
// tell: see [fold.deriveEvents]. rows are the visible ones, kept the stored ones of
// them that stay as they are.
func (f *fold) untold(h *historian, c *chronicle, rows []*register, kept []*storedRow, now int64) ([]hiddenFact, error) {
	told := map[string][]*register{} // by upsert sequence
	ends := map[string]bool{}
	floors := map[string]bool{}
	for i, r := range rows {
		if kept[i] != nil {
			r = &kept[i].reg
		}
		told[string(r.u)] = append(told[string(r.u)], r)
		floors[string(r.d)] = true
		ends[string(r.span.end)] = true
	}
	var out []hiddenFact
	upserts := map[string]bool{}
	for i := range c.upserts {
		u := &c.upserts[i]
		upserts[string(u.seq)] = true
		if slices.ContainsFunc(told[string(u.seq)], func(r *register) bool { return h.tells(r, &u.reg) }) {
			continue
		}
		payload, err := f.shape.encodeUpsert(nil, &u.reg, u.seq)
		if err != nil {
			return nil, err
		}
		out = append(out, hiddenFact{kind: kindUpsert, seq: u.seq, payload: payload, at: now})
	}
	for _, s := range c.deletes {
		if floors[string(s)] || ends[string(s)] && !upserts[string(s)] {
			continue
		}
		out = append(out, hiddenFact{kind: kindBoundary, seq: s, at: now})
	}
	return out, nil
}

// tells: a row names exactly the event of a register's last upsert.
func (h *historian) tells(row, reg *register) bool {
	if row.parts == nil && reg.parts == nil && row.at == reg.at {
		return true
	}
	for f := range h.fields {
		a, b := bytes.Equal(row.version(f), row.u), bytes.Equal(reg.version(f), reg.u)
		if a != b {
			return false
		}
		if x, y := row.fieldAt(f), reg.fieldAt(f); a && x != y && h.compare(x, y, f) != 0 {
			return false
		}
	}
	return true
}

// keep writes what is new among the hidden events that a key needs; those that it
// needs no more are void.
func (f *fold) keep(d *decision, k *keyed, need []hiddenFact) {
	have := f.state.hidden[k.key]
	index := factIndex(have)
	for i := range need {
		if at, ok := index[need[i].id()]; ok {
			need[i].at = have[at].at
			continue
		}
		n := &need[i]
		d.facts = append(d.facts, stateRow{Kind: n.kind, Key: []byte(k.key), Seq: n.seq, Payload: n.payload, At: n.at})
	}
	if len(have)+len(need) > 0 {
		d.hidden[k.key] = need
	}
}
