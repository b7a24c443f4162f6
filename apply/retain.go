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
//     only where nothing is ever inherited (whole).
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
		gone := f.kind == kindUpsert && bytes.Compare(f.seq, anchor) < 0 || f.kind == kindBoundary && whole && bytes.Compare(f.seq, w) <= 0
		if gone && bytes.Compare(f.seq, highest) > 0 {
			highest = f.seq
		}
		return gone
	})
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
