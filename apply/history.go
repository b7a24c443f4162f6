package apply

import (
	"bytes"
	"cmp"
	"slices"
)

// This file is the function of auto-cdc 2.6 and 2.7 for one key: from the set of
// its events to its rows. It knows no storage; SCD1 has its own fast form of it
// ([joiner]), which the effective values here are taken from as well.

// happening is one event of a key.
type happening struct {
	seq  []byte
	sys  []byte // BITEMPORAL
	del  bool
	at   ref
	fill []part // values taken over from the old key of a key change
	// event is the index of the batch's event, -1 for what was known before.
	event int
}

// span is the validity of a row; an empty end is open.
type span struct {
	start, end       []byte
	sysStart, sysEnd []byte
}

func (s *span) equal(o *span) bool {
	return bytes.Equal(s.start, o.start) && bytes.Equal(s.end, o.end) && bytes.Equal(s.sysStart, o.sysStart) && bytes.Equal(s.sysEnd, o.sysEnd)
}

// historian turns the events of a key into its rows.
type historian struct {
	joiner
	tracked []bool // fields whose change starts a new row
}

// known is the effective row at one upsert sequence.
type known struct {
	seq []byte
	reg register
}

// chronicle is what the events of a key mean.
type chronicle struct {
	rows     []*register // in the order of their start, each with its span
	upserts  []known     // in the order of their sequences
	deletes  [][]byte    // distinct, ascending
	outcomes map[int]outcome
}

// before orders happenings: by sequence, deletes first, what was known first.
func (h *happening) before(o *happening) int {
	kind := func(x *happening) int {
		if x.del {
			return 0
		}
		return 1
	}
	return cmp.Or(bytes.Compare(h.seq, o.seq), kind(h)-kind(o), h.event-o.event)
}

// run computes the rows (auto-cdc 2.6). A seed is the newest row known, where the
// events all come after its last member.
func (h *historian) run(list []happening, seed *register) *chronicle {
	slices.SortStableFunc(list, func(a, b happening) int { return a.before(&b) })
	c := &chronicle{outcomes: map[int]outcome{}}
	var reg register
	var row *register
	if seed != nil {
		reg = *seed
		sp := *seed.span
		reg.span = nil
		r := reg
		r.span = &sp
		row = &r
		c.upserts = append(c.upserts, known{reg.u, reg})
		if reg.d != nil {
			c.deletes = append(c.deletes, reg.d)
		}
	}
	quiet := h.joiner
	for i := 0; i < len(list); {
		s := list[i].seq
		first := true
		for ; i < len(list) && list[i].del && bytes.Equal(list[i].seq, s); i++ {
			if e := list[i].event; e >= 0 {
				if c.outcomes[e] = duplicate; first {
					c.outcomes[e] = applied
				}
			}
			if first {
				quiet.remove(&reg, s)
				c.deletes = append(c.deletes, s)
				if row != nil && row.span.end == nil {
					row.span.end = s
				}
			}
			first = false
		}
		from := i
		for ; i < len(list) && bytes.Equal(list[i].seq, s); i++ {
			e := &list[i]
			j := &quiet
			if e.event >= 0 {
				j = &h.joiner
			}
			out := j.upsert(&reg, s, e.at)
			if e.fill != nil && quiet.fill(&reg, s, e.fill) {
				out = applied
			}
			if e.event >= 0 {
				c.outcomes[e.event] = out
			}
		}
		if i == from {
			continue
		}
		c.upserts = append(c.upserts, known{s, reg})
		if row != nil && row.span.end == nil {
			row.span.end = s
		}
		if row != nil && bytes.Equal(row.span.end, s) && h.sameTracked(row, &reg) {
			sp := row.span
			sp.end = nil
			*row = reg
			row.span = sp
			continue
		}
		if row != nil {
			c.rows = append(c.rows, row)
		}
		r := reg
		r.span = &span{start: s}
		row = &r
	}
	if row != nil {
		c.rows = append(c.rows, row)
	}
	return c
}

// sameTracked tells whether two effective rows are equal on every tracked field.
func (h *historian) sameTracked(a, b *register) bool {
	for f := range h.fields {
		if !h.tracked[f] {
			continue
		}
		if x, y := a.fieldAt(f), b.fieldAt(f); x != y && h.order(x, y, f) != 0 {
			return false
		}
	}
	return true
}

// equalValues tells whether two rows are equal, their periods aside.
func (h *historian) equalValues(a, b *register) bool {
	for f := range h.fields {
		if x, y := a.fieldAt(f), b.fieldAt(f); x != y && h.order(x, y, f) != 0 {
			return false
		}
	}
	return true
}

// sameValues tells whether two rows show the same, their periods aside.
func (h *historian) sameValues(a, b *register) bool {
	for f := range h.fields {
		if x, y := a.fieldAt(f), b.fieldAt(f); x != y && h.compare(x, y, f) != 0 {
			return false
		}
	}
	return true
}

// below is the effective row of a key just below a sequence.
func (h *historian) below(list []happening, s []byte, seed *register) register {
	var r register
	if seed != nil {
		if bytes.Compare(seed.u, s) >= 0 {
			return r
		}
		r = *seed
		r.span = nil
	}
	var old []happening
	for _, e := range list {
		if bytes.Compare(e.seq, s) < 0 {
			old = append(old, e)
		}
	}
	slices.SortStableFunc(old, func(a, b happening) int { return a.before(&b) })
	quiet := h.joiner
	for i := range old {
		if old[i].del {
			quiet.remove(&r, old[i].seq)
			continue
		}
		quiet.upsert(&r, old[i].seq, old[i].at)
		if old[i].fill != nil {
			quiet.fill(&r, old[i].seq, old[i].fill)
		}
	}
	return r
}

// belief is what was believed just before a system sequence, where beliefs below it
// are final: events that only those needed may be gone.
type belief struct {
	before []byte
	rows   []*register
}

// beliefs computes the rows of a bitemporal key (auto-cdc 2.7): the SCD2 rows of
// what was known at each system sequence, each for as long as it was believed. With a
// frozen belief only its rows and later ones.
func (h *historian) beliefs(list []happening, frozen *belief) []*register {
	slices.SortStableFunc(list, func(a, b happening) int {
		return cmp.Or(bytes.Compare(a.sys, b.sys), a.before(&b))
	})
	quiet := *h // each event is joined many times
	var out []*register
	open := map[string]*register{} // rows of the last belief, by start
	from := 0
	if frozen != nil {
		for from < len(list) && bytes.Compare(list[from].sys, frozen.before) < 0 {
			from++
		}
		for _, r := range frozen.rows {
			c, sp := *r, *r.span
			c.span, sp.sysEnd = &sp, nil
			open[string(sp.start)] = &c
			out = append(out, &c)
		}
	}
	for i := from; i < len(list); {
		sys := list[i].sys
		for i < len(list) && bytes.Equal(list[i].sys, sys) {
			i++
		}
		next := map[string]*register{}
		for _, r := range quiet.run(latest(list[:i]), nil).rows {
			start := string(r.span.start)
			if o := open[start]; o != nil && bytes.Equal(o.span.end, r.span.end) && h.equalValues(o, r) {
				sp := o.span
				*o = *r
				o.span = sp
				next[start] = o
				delete(open, start)
				continue
			}
			r.span.sysStart = sys
			next[start] = r
			out = append(out, r)
		}
		for _, o := range open {
			o.span.sysEnd = sys
		}
		open = next
	}
	return out
}

// latest keeps, of the events with one business sequence, those of the largest
// system sequence. The list is sorted by system sequence.
func latest(list []happening) []happening {
	newest := map[string][]byte{}
	for i := range list {
		newest[string(list[i].seq)] = list[i].sys
	}
	var out []happening
	for i := range list {
		if bytes.Equal(newest[string(list[i].seq)], list[i].sys) {
			out = append(out, list[i])
		}
	}
	return out
}
