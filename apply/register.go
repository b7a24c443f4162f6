package apply

import (
	"bytes"
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/keycode"
)

// A register is what is known of one key: its delete floor d, the largest
// upsert sequence u, and per field the value authored at the largest sequence at
// or above d (auto-cdc 2.5). Registers join: the order in which facts are joined
// does not show (within the guarantee of 2.4 rule 4).
//
// What any register guarantees:
//
//  1. live means that the key is visible: u exists and no delete above u is known.
//  2. parts == nil means that every field was authored at u by the row at; a
//     stream of full events never leaves this form.
//  3. Otherwise parts has one entry per field, with ver <= u. An empty ver is
//     lower than any sequence: never authored, cut off by d, or a row without version.
//  4. u is empty for a live row without version (written by another engine).
type register struct {
	live  bool
	u     []byte // memcomparable sequence
	at    ref    // row of version u: its key columns and native sequence
	epoch int32  // schema epoch of the event that authored u
	parts []part
	d     []byte // memcomparable; nil: no delete known
	span  *span  // of a row with history; nil in SCD1
}

// part is the version and value of one field; at.o == nil is NULL.
type part struct {
	ver []byte
	at  ref
}

// ref names one row of an origin.
type ref struct {
	o   *origin
	row int
}

// origin is where values come from: the events of a batch or stored images, in
// columns aligned with the target's fields (data columns that are no key).
type origin struct {
	fields  []arrow.Array // nil: the schema of the origin lacks the field
	unauth  []event.Bits  // per field; rows that do not author it
	unavail []event.Bits  // per field; the subset that came as a placeholder
	keys    []arrow.Array // per key column, normalised
	epoch   int32
	whole   bool // the schema has every field of the target
}

// authors tells whether row r authors field f.
func (o *origin) authors(f, r int) bool {
	return o.fields[f] != nil && (o.unauth == nil || o.unauth[f] == nil || !o.unauth[f].Get(r))
}

// full tells whether row r authors every field.
func (o *origin) full(r int) bool {
	if !o.whole {
		return false
	}
	for _, b := range o.unauth {
		if b != nil && b.Get(r) {
			return false
		}
	}
	return true
}

// outcome is what joining one event did.
type outcome uint8

const (
	applied   outcome = iota
	stale             // older than what is known, nothing new
	duplicate         // same key, sequence and content as what is known
)

// joiner joins events into registers; it holds what all keys share.
type joiner struct {
	fields int
	// byField: ties are settled field by field (field mode), not row by row.
	byField bool
	// covers tells whether a schema epoch has every field.
	covers    func(epoch int32) bool
	conflicts int64 // num_sequence_conflicts
}

// upsert joins the event at r with sequence s.
func (j *joiner) upsert(k *register, s []byte, r ref) outcome {
	if k.d != nil && bytes.Compare(s, k.d) < 0 {
		return stale
	}
	c := 1
	if k.live {
		c = bytes.Compare(s, k.u)
	}
	switch {
	case c > 0:
		parts := []part(nil)
		if !r.o.full(r.row) {
			parts = j.dense(k)
			for f := range parts {
				if r.o.authors(f, r.row) {
					parts[f] = part{s, r}
				}
			}
		}
		k.live, k.u, k.at, k.epoch, k.parts = true, s, r, r.o.epoch, parts
		return applied
	case c == 0:
		return j.tie(k, s, r)
	}
	if k.parts == nil {
		return stale
	}
	out := stale
	var parts []part
	for f := range k.parts {
		if !r.o.authors(f, r.row) {
			continue
		}
		switch c := bytes.Compare(s, k.parts[f].ver); {
		case c < 0, c == 0 && j.compare(r, k.parts[f].at, f) <= 0:
			continue
		}
		if parts == nil {
			parts = j.dense(k)
		}
		parts[f], out = part{s, r}, applied
	}
	if parts != nil {
		k.parts = parts
	}
	return out
}

// tie joins an upsert at the register's own u (auto-cdc 2.4 rules 1 and 4).
func (j *joiner) tie(k *register, s []byte, r ref) outcome {
	if !j.byField && r.o.whole && j.covers(k.epoch) {
		return j.tieTuples(k, s, r)
	}
	old := j.dense(k)
	parts := j.dense(k)
	changed, differ := false, false
	for f := range parts {
		if !r.o.authors(f, r.row) {
			continue
		}
		if bytes.Compare(old[f].ver, s) < 0 {
			parts[f], changed = part{s, r}, true
			continue
		}
		c := j.compare(r, old[f].at, f)
		differ = differ || c != 0
		if c > 0 {
			parts[f], changed = part{s, r}, true
		}
	}
	if differ {
		j.conflicts++
	}
	switch {
	case changed:
		k.parts = parts
		return applied
	case differ:
		return stale
	}
	return duplicate
}

// tieTuples: the largest tuple of fields wins whole, unauthored below NULL.
func (j *joiner) tieTuples(k *register, s []byte, r ref) outcome {
	order, looks, subset := 0, 0, true
	for f := range j.fields {
		has := k.parts == nil || bytes.Equal(k.parts[f].ver, s)
		authors := r.o.authors(f, r.row)
		c := 0
		switch {
		case authors && !has:
			c, subset = 1, false
		case !authors && has:
			c = -1
		case authors:
			at := k.at
			if k.parts != nil {
				at = k.parts[f].at
			}
			if c = j.order(r, at, f); c != 0 {
				subset = false
			} else if look := j.compare(r, at, f); look != 0 {
				looks, subset = cmp.Or(looks, look), false
			}
		}
		if order == 0 {
			order = c
		}
	}
	if subset {
		return duplicate
	}
	j.conflicts++
	if order = cmp.Or(order, looks); order < 0 {
		return stale
	}
	var parts []part
	if !r.o.full(r.row) {
		parts = j.dense(k)
		for f := range parts {
			switch {
			case r.o.authors(f, r.row):
				parts[f] = part{s, r}
			case bytes.Equal(parts[f].ver, s):
				parts[f] = part{}
			}
		}
	}
	k.at, k.epoch, k.parts = r, r.o.epoch, parts
	return applied
}

// remove joins a delete or truncate at s.
func (j *joiner) remove(k *register, s []byte) outcome {
	if k.d != nil {
		switch c := bytes.Compare(s, k.d); {
		case c < 0:
			return stale
		case c == 0:
			return duplicate
		}
	}
	k.d = s
	if !k.live {
		return applied
	}
	if bytes.Compare(s, k.u) > 0 {
		k.live, k.u, k.at, k.parts = false, nil, ref{}, nil
		return applied
	}
	out := stale
	if k.parts != nil {
		k.parts = j.dense(k)
		for f := range k.parts {
			if p := &k.parts[f]; bytes.Compare(p.ver, s) < 0 && p.at.o != nil {
				*p, out = part{}, applied
			}
		}
	}
	return out
}

// fill authors field values at s that were taken over from another key, where
// nothing at or above s authored the field and the row of s stands.
func (j *joiner) fill(k *register, s []byte, from []part) bool {
	if !k.live || bytes.Compare(k.u, s) < 0 || k.d != nil && bytes.Compare(s, k.d) < 0 || k.parts == nil {
		return false
	}
	changed := false
	for f := range k.parts {
		if from[f].at.o == nil || bytes.Compare(k.parts[f].ver, s) >= 0 {
			continue
		}
		if !changed {
			k.parts, changed = j.dense(k), true
		}
		k.parts[f] = part{s, from[f].at}
	}
	return changed
}

// dense is a fresh copy of the parts, spelled out.
func (j *joiner) dense(k *register) []part {
	parts := make([]part, j.fields)
	switch {
	case !k.live:
	case k.parts != nil:
		copy(parts, k.parts)
	default:
		for f := range parts {
			parts[f] = part{k.u, k.at}
		}
	}
	return parts
}

// compare orders two values of field f, NULL lowest; equal ones by their looks, so
// that which of them shows does not hang on the order of arrival.
func (j *joiner) compare(x, y ref, f int) int {
	c := j.order(x, y, f)
	if c == 0 && x.o != nil && y.o != nil && x.o.fields[f] != nil && y.o.fields[f] != nil {
		return compareForms(x.o.fields[f], x.row, y.o.fields[f], y.row)
	}
	return c
}

// order is the order of auto-cdc 2.1, in which equal values may look different.
func (j *joiner) order(x, y ref, f int) int {
	xn := x.o == nil || x.o.fields[f] == nil || x.o.fields[f].IsNull(x.row)
	yn := y.o == nil || y.o.fields[f] == nil || y.o.fields[f].IsNull(y.row)
	switch {
	case xn && yn:
		return 0
	case xn:
		return -1
	case yn:
		return 1
	}
	if keycode.Equal(x.o.fields[f], x.row, y.o.fields[f], y.row) {
		return 0
	}
	return keycode.Compare(x.o.fields[f], x.row, y.o.fields[f], y.row)
}

// fieldAt is where the register's value of field f is.
func (k *register) fieldAt(f int) ref {
	if k.parts == nil {
		return k.at
	}
	return k.parts[f].at
}

// version is the version of field f; empty: none.
func (k *register) version(f int) []byte {
	if k.parts == nil {
		return k.u
	}
	return k.parts[f].ver
}
