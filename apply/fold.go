package apply

import (
	"bytes"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
)

// fold turns the events of a batch and what target and state know of their keys
// into one register per key. It reads nothing and writes nothing:
//
//	newFold  which keys are concerned, and is there a new truncate
//	(the caller looks the keys' rows up and hands them over with known)
//	run      joins, takes over departed images, counts
//	keys     one [keyed] per concerned key, in the order they came up
type fold struct {
	joiner
	shape    *shape
	state    *state
	events   []incoming
	index    map[string]*keyed
	keys     []*keyed
	truncate []byte // the largest new truncate above the known one; nil: none
	// leaving are the key changes that the batch concerns.
	leaving map[leave]*departure
	counts  Events
	views   []*storedRows // by group; of a target with history
	expect  []expectation
	judged  map[string]ExpectationCount
	rank    int64 // of the event that is being looked at
}

// keyed is one key of a batch.
type keyed struct {
	key    string
	rank   int64    // of the event that brought it up
	before register // what was known, with its row if it is live
	reg    register // what is known after the batch
	row    *storedRow
	asked  bool       // a key change asks for values below a sequence
	events []incoming // kept only if asked
	rows   []*storedRow
	list   []happening // of a target with history
	asks   [][]byte    // sequences below which a key change asks for values
	// seed is the key's open row where every event comes after all that is known: then
	// nothing older is looked at.
	seed *register
	// frozen is what of a bitemporal key collection has made final; nil: nothing.
	frozen *belief
}

// storedRow is where a key's row is in the target.
type storedRow struct {
	match int      // index of the file group of the look-up
	row   int      // row of the group's batch
	at    ref      // its values
	over  []byte   // physical version; nil: none
	reg   register // of a target with history
}

type leave struct {
	key, seq string
}

// departure is the old side of a key change at a sequence.
type departure struct {
	to    string // new key
	image register
	fresh bool // must be written
}

// newFold collects the keys that events concern.
func newFold(j joiner, s *shape, st *state, events []incoming) (*fold, error) {
	f := &fold{joiner: j, shape: s, state: st, events: events, index: map[string]*keyed{}, leaving: map[leave]*departure{}}
	for i := range events {
		e := &events[i]
		f.rank = e.rank
		if e.op == event.Truncate {
			if bytes.Compare(e.seq, st.truncate.seq) > 0 && bytes.Compare(e.seq, f.truncate) > 0 {
				f.truncate = e.seq
			}
			continue
		}
		f.touch(e.key)
		switch {
		case e.op == event.Delete && e.other != "":
			f.touch(e.key).asked = true
			f.touch(e.other)
			if l := (leave{e.key, string(e.seq)}); f.leaving[l] == nil {
				f.leaving[l] = &departure{to: e.other}
			}
		case e.op == event.Upsert && e.other != "" && !e.at.o.full(e.at.row):
			f.touch(e.other).asked = true
			if err := f.known(e.other); err != nil {
				return nil, err
			}
		}
		if err := f.known(e.key); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		if e.op == event.Truncate {
			continue
		}
		if k := f.index[e.key]; k.asked {
			k.events = append(k.events, e)
		}
	}
	return f, nil
}

func (f *fold) touch(key string) *keyed {
	k := f.index[key]
	if k == nil {
		k = &keyed{key: key, rank: f.rank}
		f.index[key] = k
		f.keys = append(f.keys, k)
	}
	return k
}

// known loads the departed images of a key from the state.
func (f *fold) known(key string) error {
	for _, d := range f.state.departed[key] {
		l := leave{key, string(d.seq)}
		if have := f.leaving[l]; have != nil && have.image.parts != nil {
			continue
		}
		image, to, err := f.shape.decodeImage(d.payload)
		if err != nil {
			return err
		}
		f.touch(key).asked = true
		f.touch(to)
		f.leaving[l] = &departure{to: to, image: image}
	}
	return nil
}

// start hands over what target and state know of a key: its register (floor
// included) and its row, if it has one.
func (k *keyed) start(r register, row *storedRow) { k.before, k.reg, k.row = r, r, row }

// run joins everything. Key changes come first, in the order of their sequences,
// so that chains of them see each other's result.
func (f *fold) run() {
	fills := f.takeOver()
	for i := range f.events {
		e := &f.events[i]
		var out outcome
		switch e.op {
		case event.Truncate:
			out = applied
			if c := bytes.Compare(e.seq, f.state.truncate.seq); c == 0 {
				out = duplicate
			} else if c < 0 {
				out = stale
			}
			if e.again {
				continue
			}
		case event.Delete:
			out = f.remove(&f.index[e.key].reg, e.seq)
		default:
			k := &f.index[e.key].reg
			out = f.upsert(k, e.seq, e.at)
			if p := fills[i]; p != nil && f.fill(k, e.seq, p) {
				out = applied
			}
		}
		f.counts.Read++
		f.count(out)
	}
	if f.truncate != nil {
		for _, k := range f.keys {
			f.remove(&k.reg, f.truncate)
		}
	}
	f.depart()
	f.counts.SequenceConflicts = f.conflicts
}

// takeOver computes the values that creates of a key change take over from the
// old key, by index of the event.
func (f *fold) takeOver() map[int][]part {
	var list []int
	for i := range f.events {
		if e := &f.events[i]; e.op == event.Upsert && e.other != "" && !e.at.o.full(e.at.row) {
			list = append(list, i)
		}
	}
	if list == nil {
		return nil
	}
	sort.SliceStable(list, func(a, b int) bool { return bytes.Compare(f.events[list[a]].seq, f.events[list[b]].seq) < 0 })
	out := map[int][]part{}
	byRow := map[ref][]part{}
	for _, i := range list {
		e := &f.events[i]
		old := f.below(f.index[e.other], e.seq, byRow)
		if !old.live {
			continue
		}
		parts := f.dense(&old)
		for n := range parts {
			// Only what the record held as a placeholder: an absent column is not
			// part of what the source says about the new key.
			if u := e.at.o.unavail[n]; u == nil || !u.Get(e.at.row) {
				parts[n] = part{}
			}
		}
		out[i], byRow[e.at] = parts, parts
	}
	return out
}

// below is the register of a key just below a sequence.
func (f *fold) below(k *keyed, s []byte, fills map[ref][]part) register {
	var r register
	dep := f.leaving[leave{k.key, string(s)}]
	switch {
	case dep != nil && dep.image.parts != nil:
		r = dep.image
	case k.before.live && bytes.Compare(k.before.u, s) < 0:
		r = k.before
		if bytes.Compare(r.d, s) >= 0 {
			r.d = nil
		}
	default:
		if d := k.before.d; d != nil && bytes.Compare(d, s) < 0 {
			r.d = d
		}
	}
	quiet := f.joiner // counts nothing
	for _, e := range k.events {
		if bytes.Compare(e.seq, s) >= 0 {
			continue
		}
		if e.op == event.Delete {
			quiet.remove(&r, e.seq)
			continue
		}
		quiet.upsert(&r, e.seq, e.at)
		if p := fills[e.at]; p != nil {
			quiet.fill(&r, e.seq, p)
		}
	}
	for i := range f.events {
		if e := &f.events[i]; e.op == event.Truncate && bytes.Compare(e.seq, s) < 0 {
			quiet.remove(&r, e.seq)
		}
	}
	return r
}

// depart brings the images of key changes up to date and fills what their new
// keys still lack: a late old value fills the hole (auto-cdc 2.3).
func (f *fold) depart() {
	for _, l := range sortedLeaves(f.leaving) {
		d := f.leaving[l]
		now := f.below(f.index[l.key], []byte(l.seq), nil)
		had := d.image
		parts := f.dense(&now)
		d.fresh = had.parts == nil
		for n := range parts {
			if had.parts != nil && !bytes.Equal(parts[n].ver, had.parts[n].ver) {
				d.fresh = true
			}
		}
		now.parts = parts
		d.image = now
		if k := f.index[d.to]; now.live && d.fresh {
			f.fill(&k.reg, []byte(l.seq), parts)
		}
	}
}

func sortedLeaves(m map[leave]*departure) []leave {
	return slices.SortedFunc(maps.Keys(m), func(a, b leave) int {
		if a.seq != b.seq {
			return strings.Compare(a.seq, b.seq)
		}
		return strings.Compare(a.key, b.key)
	})
}
