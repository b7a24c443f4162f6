package apply

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/expr"
	"github.com/sluice-data/sluice/internal/keycode"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/merge"
)

// Explanation is what is still known of the events of one key.
type Explanation struct {
	Key      map[string]string `json:"key"`
	StoredAs string            `json:"stored_as"`
	// Rows are the current rows of the key; framework columns included.
	Rows []map[string]*string `json:"rows"`
	// Events are in sequence order.
	Events []ExplainedEvent `json:"events"`
}

// ExplainedEvent is one event that state, rows or feed still tell.
type ExplainedEvent struct {
	Sequence string `json:"sequence"`
	// System is the system sequence of a bitemporal event.
	System string `json:"system_sequence,omitempty"`
	// Kind is upsert, delete, truncate or snapshot.
	Kind string `json:"kind"`
	// Known is where it is known from: row, state, or the feed.
	Known string `json:"known_from"`
	// Version and Time are of the commit that showed it, where the feed tells.
	Version *int64     `json:"version,omitempty"`
	Time    *time.Time `json:"time,omitempty"`
	// Values are those of the row that showed it; null where they are not known.
	Values map[string]*string `json:"values,omitempty"`
	// Fate is won, lost, joined, cut, kept or hidden (by an expectation); Why says it
	// in words.
	Fate string `json:"fate"`
	Why  string `json:"why"`

	seq, sys []byte
	dropped  bool // it is behind a row that DROP ROW hides
}

// explainer gathers the events of a key.
type explainer struct {
	t      *target
	s      *shape
	key    string
	def    flowDef
	events []*ExplainedEvent
	rows   []map[string]*string
}

// Explain tells every event of a key that rows, state and change feed of a target
// still know, in sequence order, and why each won, lost, joined or was cut. key
// gives a value for each key column, as text.
func Explain(ctx context.Context, m Operator, key map[string]string, o Options) (*Explanation, error) {
	t, err := m.pinned(ctx, o, true)
	if err != nil {
		return nil, err
	}
	x := &explainer{t: t}
	var ok bool
	if x.def, ok = t.anyFlow(); !ok {
		return nil, t.named(stored(CodeUnknownFlow, "no flow has committed to the target yet"))
	}
	if x.s, err = t.storedShape(t.keyColumns(&x.def)); err != nil {
		return nil, t.named(err)
	}
	if x.key, err = x.s.keyOfText(key, t.run.zone()); err != nil {
		return nil, t.named(err)
	}
	if err := t.fetch(ctx, slices.Values([]string{x.key})); err != nil {
		return nil, err
	}
	if err := x.gather(ctx); err != nil {
		return nil, t.named(err)
	}
	out := &Explanation{Key: key, StoredAs: x.def.StoredAs, Rows: x.rows, Events: []ExplainedEvent{}}
	x.judge()
	for _, e := range x.events {
		out.Events = append(out.Events, *e)
	}
	return out, nil
}

// keyOfText makes the key bytes of values given as text.
func (s *shape) keyOfText(key map[string]string, zone expr.Options) (string, error) {
	given := map[string]string{}
	for k, v := range key {
		given[strings.ToLower(k)] = v
	}
	if len(given) != len(s.keys) {
		return "", analysis(CodeColumnsNotFound, "the key is %s; give a value for each", strings.Join(s.keyNames(), ", "))
	}
	one := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
	var cols []arrow.Array
	for _, i := range s.keys {
		f := s.schema.Fields[i]
		text, ok := given[strings.ToLower(f.Name)]
		if !ok {
			return "", analysis(CodeColumnsNotFound, "the key is %s; %s is missing", strings.Join(s.keyNames(), ", "), f.Name)
		}
		e, err := expr.Parse(fmt.Sprintf("CAST('%s' AS %s)", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text), f.Type))
		if err != nil {
			return "", analysis("INVALID_OPTION", "key %s=%s: %v", f.Name, text, err)
		}
		b, err := e.BindWith(&schema.Struct{}, zone)
		if err != nil {
			return "", analysis("INVALID_OPTION", "key %s=%s: %v", f.Name, text, err)
		}
		a, err := b.Eval(one)
		if err != nil || a.IsNull(0) {
			return "", analysis("INVALID_OPTION", "key %s=%s is no %s", f.Name, text, f.Type)
		}
		if a, err = canonical(a, true); err != nil {
			return "", err
		}
		cols = append(cols, a)
	}
	return string(merge.KeyOf(nil, cols, 0)), nil
}

func (x *explainer) gather(ctx context.Context) error {
	if x.s.system != nil { // the state tells all events, and when each was reported
		x.ofState()
	}
	if err := x.ofRows(ctx); err != nil {
		return err
	}
	if x.s.system == nil {
		x.ofState()
	}
	return x.ofFeed(ctx)
}

// sequence prints a sequence.
func (x *explainer) sequence(seq []byte) string { return decodedSequence(x.s.code, seq) }

func decodedSequence(code *keycode.Encoder, seq []byte) string {
	b := array.NewBuilder(memory.DefaultAllocator, code.Types()[0])
	defer b.Release()
	if _, err := code.Decode(seq, []array.Builder{b}); err != nil {
		return "0x" + hex.EncodeToString(seq)
	}
	return b.NewArray().ValueStr(0)
}

// add notes an event; what rows tell counts before the state, and that before the feed.
func (x *explainer) add(e ExplainedEvent, seq []byte) {
	if len(seq) == 0 {
		return
	}
	e.seq, e.Sequence = bytes.Clone(seq), x.sequence(seq)
	if e.sys != nil {
		e.System = decodedSequence(x.s.system, e.sys)
	} else if x.reports(e.Kind, seq) > 1 {
		return // of which a row does not tell
	}
	for _, have := range x.events {
		if have.Kind == e.Kind && bytes.Equal(have.seq, e.seq) && (e.sys == nil || bytes.Equal(have.sys, e.sys)) {
			if have.Values == nil {
				have.Values = e.Values
			}
			have.dropped = have.dropped || e.dropped
			if have.Version == nil {
				have.Version, have.Time = e.Version, e.Time
			}
			return
		}
	}
	x.events = append(x.events, &e)
}

// reports counts the events of one sequence that are known by their system sequence.
func (x *explainer) reports(kind string, seq []byte) int {
	n := 0
	for _, have := range x.events {
		if have.Kind == kind && have.sys != nil && bytes.Equal(have.seq, seq) {
			n++
		}
	}
	return n
}

func valuesOf(b arrow.RecordBatch, names []string, r int) map[string]*string {
	out := map[string]*string{}
	for _, n := range names {
		at := b.Schema().FieldIndices(n)
		if len(at) == 0 {
			continue
		}
		if c := b.Column(at[0]); c.IsNull(r) {
			out[n] = nil
		} else {
			v := c.ValueStr(r)
			out[n] = &v
		}
	}
	return out
}

// dataNames are the columns of events: no key, no framework column.
func (x *explainer) dataNames() []string {
	return slices.DeleteFunc(x.s.schema.Names(), func(n string) bool {
		return slices.Contains(frameColumns, n) || slices.Contains(x.s.keyNames(), n)
	})
}

// ofRows reads the key's rows: their versions, and those of single fields.
func (x *explainer) ofRows(ctx context.Context) error {
	t := x.t
	files, err := t.snap.FileList(ctx)
	if err != nil {
		return err
	}
	groups, err := merge.Find(ctx, t.store, t.layout, files, merge.Keys{Columns: x.s.keyNames(), Set: map[string]int{x.key: 0}}, merge.Options{Hidden: true})
	if err != nil {
		return err
	}
	var ends [][]byte
	for _, g := range groups {
		h, err := hiddenOf(g.Batch)
		if err != nil {
			return err
		}
		for r := range g.Rows {
			x.rows = append(x.rows, valuesOf(g.Batch, x.s.schema.Names(), r))
			x.ofHidden(h.values(r), g.Batch, r, "row", nil, nil)
			if at := g.Batch.Schema().FieldIndices(endColumn); x.def.StoredAs != storedSCD1 && len(at) > 0 && g.Batch.Column(at[0]).IsValid(r) {
				ends = append(ends, keycode.AppendValue(nil, g.Batch.Column(at[0]), r))
			}
		}
	}
	for _, end := range ends { // a version that no other follows at once ends by a delete
		text := x.sequence(end)
		if slices.ContainsFunc(t.state.hidden[x.key], func(h hiddenFact) bool { return h.kind != kindFrozen && !h.deletes() && bytes.Equal(h.seq, end) }) {
			continue // a version that is hidden follows
		}
		if !slices.ContainsFunc(x.rows, func(r map[string]*string) bool { return r[startColumn] != nil && *r[startColumn] == text }) {
			x.add(ExplainedEvent{Kind: "delete", Known: "row"}, end)
		}
	}
	return nil
}

// ofHidden notes what the hidden values of a row tell.
func (x *explainer) ofHidden(e entry, b arrow.RecordBatch, r int, known string, version *int64, at *time.Time) {
	x.add(ExplainedEvent{Kind: "upsert", Known: known, Values: valuesOf(b, x.dataNames(), r), Version: version, Time: at}, e.V)
	x.add(ExplainedEvent{Kind: "delete", Known: known, Version: version, Time: at}, e.D)
	for _, f := range e.Fields {
		x.add(ExplainedEvent{Kind: "upsert", Known: known + ", field " + f.Name, Version: version, Time: at}, f.V)
	}
}

// ofState notes tombstones, floors, version entries, hidden events, truncate, snapshot.
func (x *explainer) ofState() {
	st := x.t.state
	if d, ok := st.deletes[x.key]; ok {
		x.add(ExplainedEvent{Kind: "delete", Known: "state"}, d.seq)
	}
	if st.snapshot != nil {
		x.add(ExplainedEvent{Kind: "snapshot", Known: "state"}, st.snapshot.seq)
	}
	if st.snapshot == nil || !bytes.Equal(st.snapshot.seq, st.truncate.seq) {
		x.add(ExplainedEvent{Kind: "truncate", Known: "state"}, st.truncate.seq)
	}
	for k, list := range st.entries {
		if k != x.key && !strings.HasPrefix(k, x.key) {
			continue
		}
		for _, e := range list {
			x.add(ExplainedEvent{Kind: "upsert", Known: "state"}, e.V)
			x.add(ExplainedEvent{Kind: "delete", Known: "state"}, e.D)
		}
	}
	for _, h := range st.hidden[x.key] {
		kind, sys := "upsert", []byte(nil)
		if h.kind == kindEvent {
			sys = bytes.Clone(h.systemOf())
		}
		switch {
		case h.kind == kindFrozen:
			continue
		case h.deletes():
			kind = "delete"
		}
		x.add(ExplainedEvent{Kind: kind, Known: "state", dropped: h.kind == kindDropped, sys: sys}, h.seq)
	}
	for _, d := range st.departed[x.key] {
		x.add(ExplainedEvent{Kind: "delete", Known: "state, key change"}, d.seq)
	}
}

// ofFeed reads the change rows of the key that the log still has.
func (x *explainer) ofFeed(ctx context.Context) error {
	t := x.t
	history, err := t.snap.History(ctx, 0)
	if err != nil {
		return err
	}
	times := map[int64]time.Time{}
	first := t.snap.Version
	for _, h := range history {
		times[h.Version], first = h.Time, min(first, h.Version)
	}
	for c, err := range t.log.Commits(ctx, first, t.snap.Version) {
		if err != nil {
			return err
		}
		var sources []datafile.Source
		for _, f := range c.CDC {
			sources = append(sources, datafile.Source{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size})
		}
		if len(c.CDC) == 0 {
			for _, a := range c.Adds {
				if a.DataChange {
					sources = append(sources, datafile.SourceOf(a))
				}
			}
		}
		version, at := c.Version, times[c.Version]
		for _, s := range sources {
			if err := x.ofChanges(ctx, s, len(c.CDC) > 0, &version, &at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *explainer) ofChanges(ctx context.Context, src datafile.Source, change bool, version *int64, at *time.Time) error {
	for b, err := range datafile.ReadFile(ctx, x.t.store, x.t.layout, src, datafile.ReadOptions{Change: change, Hidden: true}) {
		var fe *datafile.FileError
		if errors.As(err, &fe) {
			return nil // vacuumed: the feed ends there
		}
		if err != nil {
			return err
		}
		o, err := x.s.storedImage(b.RecordBatch)
		if err != nil {
			return nil // written before a key column had this name
		}
		h, err := hiddenOf(b.RecordBatch)
		if err != nil {
			return err
		}
		for r := range int(b.NumRows()) {
			if string(merge.KeyOf(nil, o.keys, r)) != x.key {
				continue
			}
			kind := "insert"
			if k := b.Schema().FieldIndices(datafile.ChangeTypeColumn); len(k) > 0 {
				kind = b.Column(k[0]).ValueStr(r)
			}
			if kind == "insert" || kind == "update_postimage" {
				x.ofHidden(h.values(r), b.RecordBatch, r, "feed", version, at)
			}
		}
	}
	return nil
}

// judge sorts the events and says what became of each.
func (x *explainer) judge() {
	x.events = slices.DeleteFunc(x.events, func(e *ExplainedEvent) bool { // a floor that says what a truncate says
		return e.Kind == "delete" && slices.ContainsFunc(x.events, func(o *ExplainedEvent) bool {
			return (o.Kind == "truncate" || o.Kind == "snapshot") && bytes.Equal(o.seq, e.seq)
		})
	})
	rank := map[string]int{"truncate": 0, "snapshot": 1, "delete": 2, "upsert": 3}
	slices.SortStableFunc(x.events, func(a, b *ExplainedEvent) int {
		return cmp.Or(bytes.Compare(a.seq, b.seq), bytes.Compare(a.sys, b.sys), rank[a.Kind]-rank[b.Kind])
	})
	var d, u *ExplainedEvent
	for _, e := range x.events {
		switch {
		case e.Kind == "upsert":
			u = e
		case e.Kind == "snapshot" && len(x.rows) > 0: // the row was in it, or is newer
		default:
			d = e
		}
	}
	if x.def.StoredAs != storedSCD1 {
		x.judgeHistory()
		return
	}
	for _, e := range x.events {
		switch {
		case e.Kind == "snapshot" && len(x.rows) > 0:
			e.Fate, e.Why = "kept", "the key was in this snapshot, or is newer; older events lose"
		case e.Kind != "upsert" && (u == nil || bytes.Compare(d.seq, u.seq) > 0) && e == d:
			e.Fate, e.Why = "won", "newest event of the key: it is deleted, and older events are rejected"
		case e.Kind != "upsert" && e == d:
			e.Fate, e.Why = "kept", "nothing older may show; the upsert at "+u.Sequence+" stands"
		case e.Kind != "upsert":
			e.Fate, e.Why = "lost", "the "+d.Kind+" at "+d.Sequence+" is newer and says as much"
		case d != nil && bytes.Compare(e.seq, d.seq) < 0:
			e.Fate, e.Why = "cut", "the "+d.Kind+" at "+d.Sequence+" is newer"
		case e == u && e.dropped:
			e.Fate, e.Why = "hidden", "newest event of the key, but its row violates an expectation that drops rows; a later event may show it"
		case e == u:
			e.Fate, e.Why = "won", "newest event of the key"
		case strings.Contains(e.Known, "field "):
			e.Fate, e.Why = "kept", "newest event that set this field; the upsert at "+u.Sequence+" did not"
		default:
			e.Fate, e.Why = "lost", "the upsert at "+u.Sequence+" is newer"
		}
	}
}

// judgeHistory: every upsert starts a version or joins one.
func (x *explainer) judgeHistory() {
	starts, ends := map[string]bool{}, map[string]bool{}
	for _, r := range x.rows {
		if v := r[startColumn]; v != nil {
			starts[*v] = true
		}
		if v := r[endColumn]; v != nil {
			ends[*v] = true
		}
	}
	newest := map[string]*ExplainedEvent{} // of the reports of one sequence
	for _, e := range x.events {
		if n := newest[e.Sequence]; e.sys != nil && (n == nil || bytes.Compare(n.sys, e.sys) < 0) {
			newest[e.Sequence] = e
		}
	}
	for _, e := range x.events {
		n := newest[e.Sequence]
		switch {
		case e.sys != nil && bytes.Compare(e.sys, n.sys) < 0:
			e.Fate, e.Why = "lost", "believed until it was reported anew, as "+n.Kind+", at "+n.System
		case e.Kind == "upsert" && e.dropped && !starts[e.Sequence]:
			e.Fate, e.Why = "hidden", "its version violates an expectation that drops rows; a later event may show it"
		case e.Kind == "upsert" && starts[e.Sequence]:
			e.Fate, e.Why = "won", "starts a version"
		case e.Kind == "upsert":
			e.Fate, e.Why = "joined", "equal to the version before it on every tracked column"
		case ends[e.Sequence]:
			e.Fate, e.Why = "won", "ends a version"
		default:
			e.Fate, e.Why = "kept", "ends what arrives below it"
		}
	}
}
