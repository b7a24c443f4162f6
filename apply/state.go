package apply

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
)

// The kinds of state rows (apply-state 1.1); those of history are in hidden.go. A
// state that holds another kind was written by a newer format and is refused.
const (
	kindPosition  = "position"
	kindTombstone = "tombstone"
	kindFloor     = "floor"
	kindVersion   = "version"
	kindTruncate  = "truncate"
	kindDeparted  = "departed"
	kindEpoch     = "epoch"
	kindFlow      = "flow"
	kindWalk      = "walk"
	kindTarget    = "target"
	kindOnce      = "once"
	kindSnapshot  = "snapshot"
	kindMissing   = "missing"
)

// stateRow is one row of the state table.
type stateRow struct {
	Kind, Flow        string
	Key, Seq, Payload []byte
	At                int64 // processed-at, microseconds since the epoch
}

// state is the content of the state table at one version.
//
// What any state guarantees:
//
//  1. Keyed facts (deletes, version entries, departed images, epochs) only grow
//     and join by maximum; which of two files held the newer one does not matter.
//  2. Of a state that is not held whole, the facts of a key may be asked for only after
//     they were fetched; a key that has none then has none.
//  3. Control rows (positions, flows, walk mark, truncate, target) are few, and
//     lie together in one file that every commit replaces.
type state struct {
	version   int64 // of the state table; -1: no target commit names one
	target    targetMark
	positions map[source]event.Position
	flows     map[string]flowDef
	once      map[string]bool
	walk      int64 // target version up to which other writers have been looked at
	truncate  fact
	epochs    map[int32][]string // physical names of authored fields, sorted
	deletes   map[string]fact    // by key
	entries   map[string][]entry // by key
	departed  map[string][]departed
	hidden    map[string][]hiddenFact // by key
	members   map[source]string       // of low-water tables: metaData.id by flow and directory
	snapshot  *snapshotMark           // the last committed snapshot; nil: none
	// whole: the maps hold all keyed facts; else those of the keys in loaded.
	whole  bool
	loaded map[string]bool
	// void are facts that files of the state may still hold and that nobody needs any
	// more: a row came to tell them. Compaction leaves them out.
	void map[string]bool
	// missing are keys that the last snapshots lacked and whose grace has not passed.
	missing map[string]missing
}

type source struct{ flow, source string }

// targetMark ties a state to its target.
type targetMark struct {
	ID     string `json:"id"` // metaData.id
	Format int    `json:"format"`
	// Generation counts rewinds and refreshes, Refreshes the latter, Resets the
	// resets of each flow: a run that sees them change must read its source again.
	Generation int            `json:"generation,omitempty"`
	Refreshes  int            `json:"refreshes,omitempty"`
	Resets     map[string]int `json:"resets,omitempty"`
	// Fresh: a full refresh has emptied the target and no batch has come since; its
	// columns and types are those of the next one.
	Fresh bool `json:"fresh,omitempty"`
	// Collected is when state was last collected (microseconds), CollectedTo the
	// highest sequence that was.
	Collected   int64  `json:"collected,omitempty"`
	CollectedTo []byte `json:"collected_to,omitempty"`
}

// fact is a sequence and when it was learned.
type fact struct {
	seq []byte
	at  int64
}

// flowDef is what a flow has fixed at its first commit.
type flowDef struct {
	Name     string     `json:"name"`
	Keys     []typedKey `json:"keys"`     // sorted by name
	Sequence string     `json:"sequence"` // type in DDL form
	StoredAs string     `json:"stored_as"`
	Columns  []string   `json:"columns,omitempty"` // of the flow's schema when last seen
	Mode     string     `json:"mode,omitempty"`    // how events author fields
	System   string     `json:"system,omitempty"`  // type of the system sequence
	// Tracked and Untracked are the data columns of the target by whether a change of
	// them starts a new row (SCD2, BITEMPORAL), sorted.
	Tracked   []string `json:"tracked,omitempty"`
	Untracked []string `json:"untracked,omitempty"`
	// Split are the struct columns whose leaves are fields of their own; once split,
	// a column stays split.
	Split []string `json:"split,omitempty"`
	Order []string `json:"-"`
	// Snapshot: the flow reads snapshots; Sequence is the type of their version.
	Snapshot bool `json:"snapshot,omitempty"`
	// Format is the form of the source's records, as the user named it (FormatNamed) or
	// as it was detected when the flow began.
	Format      string `json:"format,omitempty"`
	FormatNamed bool   `json:"format_named,omitempty"`
	// Last is when the flow last committed, in microseconds.
	Last int64 `json:"last,omitempty"`
}

// unread: the flow has committed positions and has not shown yet what it is of. Only
// its name, its positions and the time of its last commit count (apply-state 7.1).
func (d *flowDef) unread() bool { return d.StoredAs == "" }

type typedKey struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// entry overrides the hidden values of the row of a key whose physical version is
// Over (apply-state 4.5); it is void if there is no such row.
type entry struct {
	Over   []byte       `json:"over"` // nil: a row without version
	V      []byte       `json:"v,omitempty"`
	D      []byte       `json:"d,omitempty"`
	Epoch  int32        `json:"e"`
	Fields []fieldEntry `json:"f,omitempty"`
	at     int64
	all    bool // overrides whatever version the row has
}

// covers tells whether e says everything that o says. Field versions are not looked
// into: such entries stay beside each other.
func (e entry) covers(o entry) bool {
	return bytes.Equal(e.Over, o.Over) && e.Epoch == o.Epoch && len(e.Fields)+len(o.Fields) == 0 &&
		bytes.Compare(e.V, o.V) >= 0 && bytes.Compare(e.D, o.D) >= 0
}

// fieldEntry is the version of one field where it is not the row's.
type fieldEntry struct {
	Name string `json:"n"` // physical
	V    []byte `json:"v"` // nil: never authored
}

// departed is the image that a key change left behind (auto-cdc 2.3).
type departed struct {
	seq     []byte
	payload []byte // see encodeImage
	at      int64
}

// snapshotMark is the last committed snapshot of a target (auto-cdc 2.8). On a
// target of SCD type 1 every live row has at least its version: it was in the
// snapshot, or is newer, since nothing older survives the truncate that a snapshot is.
type snapshotMark struct {
	Flow   string `json:"flow"`
	Column string `json:"column"`
	Type   string `json:"type"`  // DDL form
	Epoch  int32  `json:"epoch"` // of the snapshot's columns
	// Applied are the versions that were applied, of those that the source still
	// showed at the last commit; nil where the source keeps no list.
	Applied [][]byte `json:"applied,omitempty"`
	seq     []byte
	at      int64
}

// missing counts the snapshots in a row, up to version seq, that lacked a key.
type missing struct {
	seq   []byte
	count int
}

func newState() *state {
	return &state{
		version: -1, walk: -1, whole: true, loaded: map[string]bool{}, void: map[string]bool{},
		positions: map[source]event.Position{}, flows: map[string]flowDef{}, once: map[string]bool{},
		epochs: map[int32][]string{}, deletes: map[string]fact{}, entries: map[string][]entry{}, departed: map[string][]departed{},
		hidden: map[string][]hiddenFact{}, members: map[source]string{}, missing: map[string]missing{},
	}
}

// clone copies the maps; what they hold is immutable.
func (s *state) clone() *state {
	c := *s
	c.positions, c.flows, c.once = maps.Clone(s.positions), maps.Clone(s.flows), maps.Clone(s.once)
	c.epochs, c.deletes = maps.Clone(s.epochs), maps.Clone(s.deletes)
	c.entries, c.departed = maps.Clone(s.entries), maps.Clone(s.departed)
	c.hidden, c.members, c.missing = maps.Clone(s.hidden), maps.Clone(s.members), maps.Clone(s.missing)
	c.loaded, c.void = maps.Clone(s.loaded), maps.Clone(s.void)
	return &c
}

// add joins one row.
func (s *state) add(r stateRow) error {
	switch r.Kind {
	case kindPosition:
		var p event.Position
		if err := json.Unmarshal(r.Payload, &p); err != nil {
			return fmt.Errorf("read state row %s of flow %q: %w", r.Kind, r.Flow, err)
		}
		s.positions[source{r.Flow, string(r.Key)}] = p
	case kindFlow:
		var d flowDef
		if err := json.Unmarshal(r.Payload, &d); err != nil {
			return fmt.Errorf("read state row %s of flow %q: %w", r.Kind, r.Flow, err)
		}
		s.flows[r.Flow] = d
	case kindMember:
		s.members[source{r.Flow, string(r.Key)}] = string(r.Payload)
	case kindOnce:
		s.once[r.Flow] = true
	case kindSnapshot:
		m := &snapshotMark{seq: r.Seq, at: r.At}
		if err := json.Unmarshal(r.Payload, m); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
		s.snapshot = m
	case kindMissing:
		m := missing{seq: r.Seq}
		if err := json.Unmarshal(r.Payload, &m.count); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
		if old, ok := s.missing[string(r.Key)]; !ok || bytes.Compare(r.Seq, old.seq) > 0 {
			s.missing[string(r.Key)] = m
		}
	case kindWalk:
		if err := json.Unmarshal(r.Payload, &s.walk); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
	case kindTarget:
		if err := json.Unmarshal(r.Payload, &s.target); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
	case kindTruncate:
		if bytes.Compare(r.Seq, s.truncate.seq) > 0 {
			s.truncate = fact{r.Seq, r.At}
		}
	case kindEpoch:
		var id int32
		var names []string
		if err := json.Unmarshal(r.Key, &id); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
		if err := json.Unmarshal(r.Payload, &names); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
		s.epochs[id] = names
	case kindTombstone, kindFloor:
		if old, ok := s.deletes[string(r.Key)]; !ok || bytes.Compare(r.Seq, old.seq) > 0 {
			s.deletes[string(r.Key)] = fact{r.Seq, r.At}
		}
	case kindVersion:
		var e entry
		if err := json.Unmarshal(r.Payload, &e); err != nil {
			return fmt.Errorf("read state row %s: %w", r.Kind, err)
		}
		e.at = r.At
		var list []entry
		for _, old := range s.entries[string(r.Key)] {
			if old.covers(e) {
				return nil
			}
			if !e.covers(old) {
				list = append(list, old)
			}
		}
		s.entries[string(r.Key)] = append(list, e)
	case kindDeparted:
		list := slices.DeleteFunc(slices.Clone(s.departed[string(r.Key)]), func(d departed) bool {
			return bytes.Equal(d.seq, r.Seq) && d.at <= r.At
		})
		s.departed[string(r.Key)] = append(list, departed{r.Seq, r.Payload, r.At})
	case kindUpsert, kindBoundary, kindDropped, kindEvent, kindFrozen:
		fact := hiddenFact{kind: r.Kind, seq: r.Seq, payload: r.Payload, at: r.At}
		s.hidden[string(r.Key)] = addFact(s.hidden[string(r.Key)], fact)
	default:
		return &Error{Code: CodeFormatTooNew, Phase: PhaseState,
			Message: fmt.Sprintf("the state holds rows of kind %q, which this version does not know; use a newer sluice", r.Kind)}
	}
	return nil
}

// control are the rows that every commit writes anew.
func (s *state) control(at int64) []stateRow {
	rows := []stateRow{
		{Kind: kindTarget, Payload: mustJSON(s.target), At: at},
		{Kind: kindWalk, Payload: mustJSON(s.walk), At: at},
	}
	if s.truncate.seq != nil {
		rows = append(rows, stateRow{Kind: kindTruncate, Seq: s.truncate.seq, At: s.truncate.at})
	}
	if m := s.snapshot; m != nil {
		rows = append(rows, stateRow{Kind: kindSnapshot, Flow: m.Flow, Seq: m.seq, Payload: mustJSON(m), At: m.at})
	}
	for _, id := range slices.Sorted(maps.Keys(s.epochs)) {
		rows = append(rows, stateRow{Kind: kindEpoch, Key: mustJSON(id), Payload: mustJSON(s.epochs[id]), At: at})
	}
	for _, f := range slices.Sorted(maps.Keys(s.flows)) {
		rows = append(rows, stateRow{Kind: kindFlow, Flow: f, Payload: mustJSON(s.flows[f]), At: at})
	}
	for _, f := range slices.Sorted(maps.Keys(s.once)) {
		rows = append(rows, stateRow{Kind: kindOnce, Flow: f, At: at})
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.members), compareSource) {
		rows = append(rows, stateRow{Kind: kindMember, Flow: k.flow, Key: []byte(k.source), Payload: []byte(s.members[k]), At: at})
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.positions), compareSource) {
		rows = append(rows, stateRow{Kind: kindPosition, Flow: k.flow, Key: []byte(k.source), Payload: mustJSON(s.positions[k]), At: at})
	}
	return rows
}

func compareSource(a, b source) int {
	return cmp.Or(strings.Compare(a.flow, b.flow), strings.Compare(a.source, b.source))
}

// keyed are all keyed facts; compaction writes them into one file.
func (s *state) keyed() []stateRow {
	var rows []stateRow
	for _, k := range slices.Sorted(maps.Keys(s.deletes)) {
		if f := s.deletes[k]; bytes.Compare(f.seq, s.truncate.seq) > 0 { // a truncate at or above covers it
			rows = append(rows, stateRow{Kind: kindTombstone, Key: []byte(k), Seq: f.seq, At: f.at})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.entries)) {
		for _, e := range s.entries[k] {
			rows = append(rows, stateRow{Kind: kindVersion, Key: []byte(k), Seq: e.V, Payload: mustJSON(e), At: e.at})
		}
	}
	if s.snapshot != nil {
		for _, k := range slices.Sorted(maps.Keys(s.missing)) {
			if m := s.missing[k]; bytes.Equal(m.seq, s.snapshot.seq) {
				rows = append(rows, stateRow{Kind: kindMissing, Key: []byte(k), Seq: m.seq, Payload: mustJSON(m.count), At: s.snapshot.at})
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.departed)) {
		for _, d := range s.departed[k] {
			rows = append(rows, stateRow{Kind: kindDeparted, Key: []byte(k), Seq: d.seq, Payload: d.payload, At: d.at})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.hidden)) {
		once := factIndex(s.hidden[k])
		for i, h := range s.hidden[k] {
			if once[h.id()] != i {
				continue
			}
			rows = append(rows, stateRow{Kind: h.kind, Key: []byte(k), Seq: h.seq, Payload: h.payload, At: h.at})
		}
	}
	return rows
}

// processedAt is the time of a commit in microseconds, which never goes back behind
// that of an earlier commit of the target, whatever the clocks say (apply-state 7.1): a
// fact that looked older than it is would be collected too early.
func (s *state) processedAt(now time.Time) int64 {
	at := now.UnixMicro()
	for _, d := range s.flows {
		at = max(at, d.Last)
	}
	return at
}

// floor is the largest delete known of a key, truncates included; nil: none.
func (s *state) floor(key string) []byte {
	d := s.deletes[key].seq
	if bytes.Compare(s.truncate.seq, d) > 0 {
		d = s.truncate.seq
	}
	return d
}

// overrides are the version entries of a key, and what the last snapshot says of
// every live row.
func (s *state) overrides(key string) []entry {
	m := s.snapshot
	if m == nil || bytes.Compare(m.seq, s.truncate.seq) > 0 {
		return s.entries[key] // history: snapshots are applied as differences
	}
	return append(slices.Clone(s.entries[key]), entry{V: m.seq, Epoch: m.Epoch, all: true})
}

// epochOf finds or makes the epoch of a set of authored fields. The number is a
// hash of the names, so flows that race to the same schema agree on it.
func (s *state) epochOf(physical []string) int32 {
	names := slices.Sorted(slices.Values(physical))
	h := fnv.New32a()
	for _, n := range names {
		h.Write([]byte(n))
		h.Write([]byte{0})
	}
	id := int32(h.Sum32() & 0x7fffffff)
	for {
		have, ok := s.epochs[id]
		if !ok {
			s.epochs[id] = names
			return id
		}
		if slices.Equal(have, names) {
			return id
		}
		id = (id + 1) & 0x7fffffff
	}
}

// position is how far a flow has read a source; ok is false before the first read.
func (s *state) position(flow, src string) (event.Position, bool) {
	p, ok := s.positions[source{flow, src}]
	return p, ok
}

// positionsOf are a flow's positions by source.
func (s *state) positionsOf(flow string) map[string]event.Position {
	out := map[string]event.Position{}
	for k, p := range s.positions {
		if k.flow == flow {
			out[k.source] = p
		}
	}
	return out
}

// mustJSON encodes plain structs of this package, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
