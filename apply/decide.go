package apply

import (
	"bytes"
	"slices"

	"github.com/sluice-data/sluice/merge"
)

// decision is what a batch does to the target and its state, decided before
// anything is written.
type decision struct {
	files   []fileChange // aligned with the groups of the look-up; some change nothing
	inserts []*register
	ranks   []int64    // of the events that brought the keys of inserts up
	facts   []stateRow // keyed facts to add to the state
	// folded are keys whose version entries went into a rewritten row, or whose row
	// is gone: their entries are void and leave the state when it is next compacted.
	folded []string
	rows   Rows
	// truncate is the new truncate sequence; nil: none.
	truncate []byte
	// hidden are the hidden events that the keys of the batch need from now on.
	hidden map[string][]hiddenFact
}

// fileChange is what happens to the matched rows of one file: indices into the
// group, ascending.
type fileChange struct {
	deletes []int
	updates []int
	after   []*register // of updates
}

// insert adds a new row of a key.
func (d *decision) insert(k *keyed, r *register) {
	d.inserts, d.ranks, d.rows.Inserted = append(d.inserts, r), append(d.ranks, k.rank), d.rows.Inserted+1
}

func (d *decision) changesRows() bool { return d.rows != Rows{} }

// start hands the found rows and the floors of all keys to the fold. Rows that
// only a truncate concerns join as keys of their own.
func (f *fold) start(s *shape, groups []merge.Group) error {
	for g := range groups {
		grp := &groups[g]
		o, err := s.storedImage(grp.Batch)
		if err != nil {
			return err
		}
		h, err := hiddenOf(grp.Batch)
		if err != nil {
			return err
		}
		for r := range grp.Rows {
			var k *keyed
			if i := grp.Index[r]; i >= 0 {
				k = f.keys[i]
			} else {
				k = f.touch(string(grp.Keys[r]))
			}
			if k.row != nil {
				return &Error{Code: CodeTargetKeyNotUnique, Phase: PhaseRun,
					Message: "the target has two rows with key " + keyValueText(s, o, r) + "; remove one"}
			}
			hidden := h.values(r)
			at := ref{o, r}
			k.start(s.registerOf(f.state, hidden, k.key, at), &storedRow{match: g, row: r, at: at, over: hidden.V})
		}
	}
	for _, k := range f.keys {
		if k.row == nil {
			d := f.state.floor(k.key)
			k.start(register{d: d}, nil)
		}
	}
	if len(f.state.hidden) > 0 {
		return f.readDropped()
	}
	return nil
}

// decide compares before and after.
func (f *fold) decide(s *shape, groups []merge.Group, now int64) (*decision, error) {
	d := &decision{files: make([]fileChange, len(groups)), truncate: f.truncate, hidden: map[string][]hiddenFact{}}
	hides, err := f.judgeKeys()
	if err != nil {
		return nil, err
	}
	for i, k := range f.keys {
		before, after := &k.before, &k.reg
		hidden := hides != nil && hides[i]
		switch {
		case !after.live || hidden:
			if k.row != nil {
				fc := &d.files[k.row.match]
				fc.deletes = append(fc.deletes, k.row.row)
				d.rows.Deleted++
				d.fold(f, k)
			}
			f.tombstone(d, k, now)
			if !hidden {
				break
			}
			facts, err := f.droppedFacts(after, now)
			if err != nil {
				return nil, err
			}
			f.keep(d, k, facts)
			continue
		case k.row == nil:
			d.insert(k, after)
		case !f.sameRow(before, after):
			fc := &d.files[k.row.match]
			fc.updates = append(fc.updates, k.row.row)
			fc.after = append(fc.after, after)
			d.rows.Updated++
			d.fold(f, k)
		case !f.sameHidden(before, after):
			f.hiddenChange(d, s, k, now)
		}
		if len(f.state.hidden[k.key]) > 0 {
			f.keep(d, k, nil)
		}
	}
	d.sort()
	for _, l := range sortedLeaves(f.leaving) {
		dep := f.leaving[l]
		if !dep.fresh {
			continue
		}
		payload, err := s.encodeImage(dep)
		if err != nil {
			return nil, err
		}
		d.facts = append(d.facts, stateRow{Kind: kindDeparted, Key: []byte(l.key), Seq: []byte(l.seq), Payload: payload, At: now})
	}
	return d, nil
}

// sort brings the changed rows of each file into their order.
func (d *decision) sort() {
	for i := range d.files {
		fc := &d.files[i]
		slices.Sort(fc.deletes)
		order := make([]int, len(fc.updates))
		for j := range order {
			order[j] = j
		}
		slices.SortFunc(order, func(a, b int) int { return fc.updates[a] - fc.updates[b] })
		updates, after := make([]int, len(order)), make([]*register, len(order))
		for j, o := range order {
			updates[j], after[j] = fc.updates[o], fc.after[o]
		}
		fc.updates, fc.after = updates, after
	}
}

// judgeKeys tests the rows of the keys against the expectations and tells which
// rows DROP ROW hides; nil: there are no expectations.
func (f *fold) judgeKeys() ([]bool, error) {
	if len(f.expect) == 0 {
		return nil, nil
	}
	var live []*register
	var at []int
	for i, k := range f.keys {
		if k.reg.live {
			live, at = append(live, &k.reg), append(at, i)
		}
	}
	meets, err := f.judge(live)
	if err != nil {
		return nil, err
	}
	hides := make([]bool, len(f.keys))
	for r, i := range at {
		k := f.keys[i]
		hides[i] = f.hides(meets, r)
		if !k.before.live || !f.sameRow(&k.before, &k.reg) {
			if err := f.tally(meets, r, k, &k.reg); err != nil {
				return nil, err
			}
		}
	}
	return hides, nil
}

func (d *decision) fold(f *fold, k *keyed) {
	if len(f.state.entries[k.key]) > 0 {
		d.folded = append(d.folded, k.key)
	}
}

// tombstone keeps the floor of a dead key, unless a truncate says as much.
func (f *fold) tombstone(d *decision, k *keyed, now int64) {
	s := k.reg.d
	if s == nil || bytes.Compare(s, f.state.floor(k.key)) <= 0 || bytes.Compare(s, f.truncate) <= 0 {
		return
	}
	d.facts = append(d.facts, stateRow{Kind: kindTombstone, Key: []byte(k.key), Seq: s, At: now})
}

// hiddenChange keeps what changed of a row that shows the same as before: a floor,
// or a version entry for its file's row (apply-state 4.5).
func (f *fold) hiddenChange(d *decision, s *shape, k *keyed, now int64) {
	same := k.reg
	same.d = k.before.d
	if f.sameHidden(&k.before, &same) {
		if bytes.Compare(k.reg.d, f.truncate) > 0 { // else the truncate row says it
			d.facts = append(d.facts, stateRow{Kind: kindFloor, Key: []byte(k.key), Seq: k.reg.d, At: now})
		}
		return
	}
	e := s.hiddenFor(f.state, &k.reg)
	e.Over = k.row.over
	d.facts = append(d.facts, stateRow{Kind: kindVersion, Key: []byte(k.key), Seq: e.V, Payload: mustJSON(e), At: now})
}
