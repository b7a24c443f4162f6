package apply

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/internal/keycode"
)

// The kinds of hidden events (auto-cdc 3): what is known of a key and not to be
// seen in its rows.
const (
	kindUpsert   = "upsert"   // SCD2: a run member that its row does not name
	kindBoundary = "boundary" // SCD2: a delete that no row's end or floor tells
	kindDropped  = "dropped"  // an event behind a row that DROP ROW hides; never collected
	kindEvent    = "event"    // BITEMPORAL: every event
	kindFrozen   = "frozen"   // BITEMPORAL: a system sequence below which beliefs are final
)

// hiddenFact is one hidden event. Facts of a key are a set: one that a row came to
// tell meanwhile is void, harmless, and left out when the state is next compacted.
type hiddenFact struct {
	kind    string
	seq     []byte
	payload []byte // see encodeUpsert; nil: a delete
	at      int64
}

func (f hiddenFact) same(o hiddenFact) bool {
	return f.kind == o.kind && bytes.Equal(f.seq, o.seq) && bytes.Equal(f.payload, o.payload)
}

// id is what tells facts of a key apart.
func (f hiddenFact) id() string { return f.kind + "\x00" + string(f.seq) + "\x00" + string(f.payload) }

// factIndex is facts by their id.
func factIndex(facts []hiddenFact) map[string]int {
	out := make(map[string]int, len(facts))
	for i, f := range facts {
		out[f.id()] = i
	}
	return out
}

// sameFacts compares two sets of facts.
func sameFacts(a, b []hiddenFact) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	x, y := factIndex(a), factIndex(b)
	if len(x) != len(y) {
		return false
	}
	for id := range x {
		if _, ok := y[id]; !ok {
			return false
		}
	}
	return true
}

// addFact adds to a set. Long lists may hold a fact twice, which does no harm.
func addFact(list []hiddenFact, f hiddenFact) []hiddenFact {
	if len(list) < 32 && slices.ContainsFunc(list, f.same) {
		return list
	}
	return append(slices.Clip(list), f)
}

// encodeUpsert is the payload of an upsert with sequence s: its schema epoch, then
// the fields it authors by physical name, each with its value.
func (s *shape) encodeUpsert(dst []byte, r *register, seq []byte) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(uint32(r.epoch)))
	for f := range s.fields {
		if !bytes.Equal(r.version(f), seq) {
			continue
		}
		name := s.fields[f].name
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = append(dst, name...)
		at := r.fieldAt(f)
		var value []byte
		if at.o == nil || at.o.fields[f] == nil {
			value = []byte{0}
		} else {
			var err error
			if value, err = appendCellBytes(nil, at.o.fields[f], at.row, s.fields[f].inner); err != nil {
				return nil, err
			}
		}
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(dst, value...)
	}
	return dst, nil
}

// hiddenReader turns payloads into rows of origins, one origin per schema epoch.
type hiddenReader struct {
	s       *shape
	covers  func(epoch int32) bool
	origins map[int32]*hiddenOrigin
	field   map[string]int
	code    *keycode.Encoder // of keys
}

type hiddenOrigin struct {
	o        *origin
	builders []array.Builder // of fields
	keys     []array.Builder
	rows     int
}

func newHiddenReader(s *shape, covers func(int32) bool) (*hiddenReader, error) {
	r := &hiddenReader{s: s, covers: covers, origins: map[int32]*hiddenOrigin{}, field: map[string]int{}}
	for f := range s.fields {
		r.field[s.fields[f].name] = f
	}
	var types []arrow.DataType
	for _, k := range s.keys {
		types = append(types, s.arrow[k])
	}
	var err error
	r.code, err = keycode.NewEncoder(types)
	return r, err
}

// read adds an upsert; the row it answers can be read after finish. Fields that the
// table no longer has are left out, those of a struct that was split since count
// for its leaves.
func (h *hiddenReader) read(payload []byte, key string) (ref, error) {
	r := cellReader{rest: payload}
	e, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return ref{}, hiddenDamage(errCell)
	}
	r.rest = r.rest[n:]
	epoch := int32(uint32(e))
	ho := h.origins[epoch]
	if ho == nil {
		ho = &hiddenOrigin{o: &origin{fields: make([]arrow.Array, len(h.s.fields)), unauth: make([]event.Bits, len(h.s.fields)), epoch: epoch, whole: h.covers(epoch)}}
		for f := range h.s.fields {
			ho.builders = append(ho.builders, array.NewBuilder(memory.DefaultAllocator, h.s.fields[f].typ))
		}
		for _, t := range h.code.Types() {
			ho.keys = append(ho.keys, array.NewBuilder(memory.DefaultAllocator, t))
		}
		h.origins[epoch] = ho
	}
	row := ho.rows
	ho.rows++
	done := make([]bool, len(h.s.fields))
	for len(r.rest) > 0 && !r.bad {
		name, value := string(r.text()), r.text()
		if r.bad {
			break
		}
		if f, ok := h.field[name]; ok && !done[f] {
			if _, err := readCell(ho.builders[f], value, h.s.fields[f].inner); err != nil {
				return ref{}, hiddenDamage(fmt.Errorf("field %s: %w", name, err))
			}
			done[f] = true
			continue
		}
		if err := h.readSplit(ho, name, value, done); err != nil {
			return ref{}, err
		}
	}
	if r.bad {
		return ref{}, hiddenDamage(errCell)
	}
	for f := range done {
		if !done[f] {
			ho.builders[f].AppendNull()
			ho.o.unauth[f] = ho.o.unauth[f].Set(row)
		}
	}
	if _, err := h.code.Decode([]byte(key), ho.keys); err != nil {
		return ref{}, hiddenDamage(err)
	}
	return ref{ho.o, row}, nil
}

// readSplit reads a struct that was one field when the event was kept.
func (h *hiddenReader) readSplit(ho *hiddenOrigin, name string, value []byte, done []bool) error {
	for col, own := range h.s.ofColumn {
		if len(own) == 0 || h.s.fields[own[0]].path == nil || !concerns(name, h.s.fields[own[0]].name) {
			continue
		}
		b := array.NewBuilder(memory.DefaultAllocator, h.s.arrow[col])
		defer b.Release()
		if _, err := readCell(b, value, innerNamesOf(h.s.schema.Fields[col].Type)); err != nil {
			return hiddenDamage(fmt.Errorf("field %s: %w", name, err))
		}
		a := b.NewArray()
		for _, f := range own {
			leaf, err := h.s.fields[f].leaf(a)
			if err != nil {
				return err
			}
			if err := appendNullable(ho.builders[f], leaf, 0); err != nil {
				return err
			}
			done[f] = true
		}
	}
	return nil
}

// finish makes the rows readable.
func (h *hiddenReader) finish() {
	for _, ho := range h.origins {
		for f, b := range ho.builders {
			ho.o.fields[f] = b.NewArray()
			b.Release()
		}
		for _, b := range ho.keys {
			ho.o.keys = append(ho.o.keys, b.NewArray())
			b.Release()
		}
	}
}

func hiddenDamage(err error) error {
	return &Error{Code: CodeStateMismatch, Phase: PhaseState, Message: "read a hidden event from the state", Err: err}
}
