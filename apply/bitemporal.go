package apply

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// decideBeliefs decides one key of a bitemporal target. Every event goes into the
// state, since an earlier report can change past beliefs; [freezeBeliefs] says when one
// may leave it.
func (f *fold) decideBeliefs(d *decision, h *historian, t told, hides map[*register]bool, now int64) error {
	k := t.k
	have := f.state.hidden[k.key]
	need, index := slices.Clone(have), factIndex(have)
	var newest []byte // system sequence known before
	for i := range k.list {
		if e := &k.list[i]; e.event < 0 && bytes.Compare(e.sys, newest) > 0 {
			newest = e.sys
		}
	}
	for i := range k.list {
		e := &k.list[i]
		if e.event < 0 {
			continue
		}
		fact, err := f.eventFact(h, e, now)
		if err != nil {
			return err
		}
		if _, again := index[fact.id()]; again {
			f.count(duplicate)
			continue
		}
		index[fact.id()] = len(need)
		if bytes.Compare(e.sys, newest) < 0 {
			f.counts.LateSystem++
		}
		f.count(applied)
		need = append(need, fact)
	}
	d.place(f, h, k, shown(t.rows, hides))
	f.keep(d, k, need)
	return nil
}

// systemOf is the system sequence of a bitemporal event in the state; nil: damage.
func (f hiddenFact) systemOf() []byte {
	r := cellReader{rest: f.payload}
	sys := r.text()
	if r.bad {
		return nil
	}
	return sys
}

// deletes tells whether a hidden event is a delete.
func (f hiddenFact) deletes() bool {
	if f.kind != kindEvent {
		return f.payload == nil
	}
	r := cellReader{rest: f.payload}
	r.text()
	op := r.take(1)
	return !r.bad && op[0] == 0
}

// eventFact is a bitemporal event as it is kept: its system sequence, 0 for a delete
// or 1, then the upsert.
func (f *fold) eventFact(h *historian, e *happening, now int64) (hiddenFact, error) {
	payload := append(binary.AppendUvarint(nil, uint64(len(e.sys))), e.sys...)
	if e.del {
		return hiddenFact{kind: kindEvent, seq: e.seq, payload: append(payload, 0), at: now}, nil
	}
	quiet := h.joiner
	var reg register
	quiet.upsert(&reg, e.seq, e.at)
	if e.fill != nil {
		quiet.fill(&reg, e.seq, e.fill)
	}
	payload, err := f.shape.encodeUpsert(append(payload, 1), &reg, e.seq)
	return hiddenFact{kind: kindEvent, seq: e.seq, payload: payload, at: now}, err
}
