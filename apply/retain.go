package apply

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// keepHidden says which hidden events of a key must stay once the retention of those
// learned before a time has passed (auto-cdc 3). Under the lateness contract nothing
// at or below W, the largest sequence among them, can arrive any more. Then:
//
//   - An upsert below W goes if a later one at or below W authors every field: that
//     one is the anchor of what comes. The first member of a run that goes with it is
//     told by its row, whose tracked values it had.
//   - A delete at or below W that no row tells ended no version. It may still stand
//     before an upsert at its own sequence and cut what that one inherits, so it goes
//     below the anchor, with that upsert, and elsewhere only where nothing is ever
//     inherited (whole).
//   - Events behind rows that DROP ROW hides stay, and so do bitemporal ones.
//
// authorsAll tells whether a payload authors every field. highest is the largest
// sequence that goes; nil: nothing does.
func keepHidden(facts []hiddenFact, before int64, whole bool, authorsAll func(payload []byte) bool) (keep []hiddenFact, highest []byte) {
	var w, anchor []byte
	for _, f := range facts {
		if f.at < before && (f.kind == kindUpsert || f.kind == kindBoundary) && bytes.Compare(f.seq, w) > 0 {
			w = f.seq
		}
	}
	for _, f := range facts {
		if f.kind == kindUpsert && bytes.Compare(f.seq, w) <= 0 && bytes.Compare(f.seq, anchor) > 0 && authorsAll(f.payload) {
			anchor = f.seq
		}
	}
	keep = slices.DeleteFunc(slices.Clone(facts), func(f hiddenFact) bool {
		gone := (f.kind == kindUpsert || f.kind == kindBoundary) && bytes.Compare(f.seq, anchor) < 0 ||
			f.kind == kindBoundary && whole && bytes.Compare(f.seq, w) <= 0
		if gone && bytes.Compare(f.seq, highest) > 0 {
			highest = f.seq
		}
		return gone
	})
	return keep, highest
}

// freezeBeliefs says which events of a bitemporal key must stay. Under the lateness
// contract no report below W can arrive any more, W being the largest system sequence
// among the events learned before a time: what was believed below W is final and stands
// in rows. Events at or below W that a later report of the same business sequence, also
// at or below W, has replaced take no part in any belief from W on, and go. The others
// stay, however old: a report of an earlier business time may still split what they show.
// A fact of kind frozen then keeps W.
func freezeBeliefs(facts []hiddenFact, before int64) (keep []hiddenFact, highest []byte) {
	system := make([][]byte, len(facts))
	var w []byte
	var at int64
	for i, f := range facts {
		if f.kind != kindEvent {
			continue
		}
		if system[i] = f.systemOf(); system[i] == nil {
			return facts, nil // damaged: reading it says so
		}
		if f.at < before && bytes.Compare(system[i], w) > 0 {
			w, at = system[i], f.at
		}
	}
	newest := map[string][]byte{} // system sequence up to W, by business sequence
	for i, f := range facts {
		if s := string(f.seq); system[i] != nil && bytes.Compare(system[i], w) <= 0 && bytes.Compare(system[i], newest[s]) > 0 {
			newest[s] = system[i]
		}
	}
	for i, f := range facts {
		if system[i] != nil && bytes.Compare(system[i], newest[string(f.seq)]) < 0 {
			if bytes.Compare(system[i], highest) > 0 {
				highest = system[i]
			}
			continue
		}
		keep = append(keep, f)
	}
	if highest == nil {
		return facts, nil
	}
	keep = slices.DeleteFunc(keep, func(f hiddenFact) bool { return f.kind == kindFrozen && bytes.Compare(f.seq, w) <= 0 })
	return append(keep, hiddenFact{kind: kindFrozen, seq: bytes.Clone(w), at: at}), bytes.Clone(highest)
}

// keepEntries says which version entries of a row must stay once the retention of those
// learned before a time has passed. The version itself stays: it decides what is newer.
// But nothing below the newest one, V, can arrive any more, so that versions of single
// fields below it, and floors, count as older than anything, and so does an entry below V
// as a whole. highest is the largest version that goes; nil: nothing changes.
func keepEntries(list []entry, before int64) (keep []entry, highest []byte) {
	newest := map[string][]byte{} // by the version that is overridden
	for _, e := range list {
		if over := string(e.Over); e.at < before && bytes.Compare(e.V, newest[over]) > 0 {
			newest[over] = e.V
		}
	}
	drop := func(seq []byte) {
		if bytes.Compare(seq, highest) > 0 {
			highest = seq
		}
	}
	for _, e := range list {
		w := newest[string(e.Over)]
		switch {
		case e.at >= before:
			keep = append(keep, e)
			continue
		case bytes.Compare(e.V, w) < 0:
			drop(e.V)
			continue
		}
		if e.D != nil {
			drop(e.D)
			e.D = nil
		}
		fields := slices.Clone(e.Fields)
		for i := range fields {
			if v := fields[i].V; v != nil && bytes.Compare(v, w) < 0 {
				drop(v)
				fields[i].V = nil
			}
		}
		e.Fields = fields
		keep = append(keep, e)
	}
	return keep, highest
}

// inheritsNothing tells whether every event of the target authors every field.
func (s *state) inheritsNothing() bool {
	for _, d := range s.flows {
		if d.Mode != modeWhole {
			return false
		}
	}
	return len(s.epochs) <= 1
}

// authorsAll tells whether an upsert in the state authors every field of its schema
// epoch, and that epoch all that any epoch has.
func (s *state) authorsAll(payload []byte) bool {
	r := cellReader{rest: payload}
	e, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return false
	}
	r.rest = r.rest[n:]
	var names []string
	for len(r.rest) > 0 && !r.bad {
		names = append(names, string(r.text()))
		r.text()
	}
	if r.bad {
		return false
	}
	slices.Sort(names)
	own := s.epochs[int32(uint32(e))]
	for _, all := range s.epochs {
		for _, name := range all {
			if !inEpoch(names, name) || !inEpoch(own, name) {
				return false
			}
		}
	}
	return true
}
