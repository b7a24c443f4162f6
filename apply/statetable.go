package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// stateTable is the state table of one target (apply-state 1). It never decides
// anything: which version counts is what the target's commits say.
type stateTable struct {
	store  storage.Store
	log    *deltalog.Log
	layout *datafile.Layout
	clock  func() time.Time
	newID  func() string
	newest *deltalog.Snapshot // newest seen; nil: none seen yet
	// budget is the bytes of facts up to which a state is held whole, maxFacts the
	// number of their files at which they are compacted.
	budget   int64
	maxFacts int
	// config is what a state table that is created takes over from its target.
	config map[string]string
}

// errStateGone marks a state that a target names and that is not there as written.
var errStateGone = errors.New("state is gone or damaged")

// stateFiles are the files of a state version: one with the control rows, and the
// keyed facts in the order they were added.
type stateFiles struct {
	control *deltalog.Add
	facts   []*deltalog.Add
}

const (
	tagState     = "sluice.state"
	stateControl = "control"
	// maxFactFiles is where facts are gathered into one file.
	maxFactFiles = 24
	stateRaces   = 100
)

func stateSchema() *schema.Struct {
	f := func(name string, t schema.Type) schema.Field {
		return schema.Field{Name: name, Type: t, Nullable: true}
	}
	return &schema.Struct{Fields: []schema.Field{f("kind", schema.String), f("flow", schema.String), f("key", schema.Binary),
		f("seq", schema.Binary), f("payload", schema.Binary), f("processed_at", schema.Timestamp)}}
}

func newStateTable(store storage.Store, o Options) (*stateTable, error) {
	t := &stateTable{store: store, clock: o.Clock, newID: o.NewID, budget: o.stateBudget, maxFacts: o.factFiles}
	if t.budget == 0 {
		t.budget = wholeState
	}
	if t.maxFacts == 0 {
		t.maxFacts = maxFactFiles
	}
	cfg, err := deltalog.NewTableConfig(stateProtocol(), t.metadata(o.Clock()))
	if err != nil {
		return nil, err
	}
	if t.layout, err = datafile.LayoutOf(cfg, time.UTC); err != nil {
		return nil, err
	}
	t.log = deltalog.Open(store, deltalog.Options{Clock: o.Clock, NewID: o.NewID, EngineInfo: o.EngineInfo, Logger: o.Logger})
	return t, nil
}

// load reads the state at a version that a target commit names.
func (t *stateTable) load(ctx context.Context, version int64) (*state, *stateFiles, error) {
	mismatch := func(err error) error {
		return &Error{Code: CodeStateMismatch, Phase: PhaseState,
			Message: fmt.Sprintf("version %d of the apply state, which the target names, cannot be read", version), Err: fmt.Errorf("%w: %w", errStateGone, err)}
	}
	snap, err := t.log.At(ctx, version)
	if err != nil {
		if errors.Is(err, deltalog.ErrNotFound) || errors.Is(err, deltalog.ErrCorrupt) {
			return nil, nil, mismatch(err)
		}
		return nil, nil, fmt.Errorf("read apply state: %w", err)
	}
	if !schema.EqualIgnoringNullability(plainType(snap.Schema), plainType(stateSchema())) {
		return nil, nil, &Error{Code: CodeFormatTooNew, Phase: PhaseState, Message: "the apply state has another layout than this version knows; use a newer sluice"}
	}
	adds, err := snap.FileList(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read apply state: %w", err)
	}
	s, files := newState(), &stateFiles{}
	s.version = version
	read := make([]*deltalog.Add, 0, len(adds))
	for _, a := range adds {
		if tag := a.Tags[tagState]; tag != nil && *tag == stateControl {
			files.control = a
			read = append(read, a)
		} else {
			files.facts = append(files.facts, a)
		}
	}
	if s.whole = t.holdsWhole(files); s.whole {
		read = append(read, files.facts...)
	}
	for _, a := range read {
		if err := t.eachRow(ctx, a, s.add); err != nil {
			var fe *datafile.FileError
			if errors.As(err, &fe) {
				return nil, nil, mismatch(err)
			}
			return nil, nil, err
		}
	}
	return s, files, nil
}

// eachRow calls f for the rows of a state file.
func (t *stateTable) eachRow(ctx context.Context, a *deltalog.Add, f func(stateRow) error) error {
	for b, err := range datafile.Read(ctx, t.store, t.layout, a, datafile.ReadOptions{}) {
		if err == nil {
			err = eachRowOf(b.RecordBatch, f)
		}
		if err != nil {
			return fmt.Errorf("read apply state: %w", err)
		}
	}
	return nil
}

func eachRowOf(b arrow.RecordBatch, f func(stateRow) error) error {
	kind, ok1 := b.Column(0).(*array.String)
	flow, ok2 := b.Column(1).(*array.String)
	key, ok3 := b.Column(2).(*array.Binary)
	seq, ok4 := b.Column(3).(*array.Binary)
	payload, ok5 := b.Column(4).(*array.Binary)
	at, ok6 := b.Column(5).(*array.Timestamp)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 {
		return fmt.Errorf("read apply state: unexpected column types %s", b.Schema())
	}
	raw := func(a *array.Binary, r int) []byte {
		if a.IsNull(r) {
			return nil
		}
		return bytes.Clone(a.Value(r))
	}
	for r := range int(b.NumRows()) {
		row := stateRow{Kind: kind.Value(r), Flow: flow.Value(r), Key: raw(key, r), Seq: raw(seq, r), Payload: raw(payload, r), At: int64(at.Value(r))}
		if err := f(row); err != nil {
			return err
		}
	}
	return nil
}

// write makes a state version from a pinned one: base are the pinned files (nil:
// the state was empty), next the content that the new version must have, facts
// what was added to the pinned content. Whatever else lies in the table (leftovers
// of crashed and losing attempts) is removed by the same commit.
func (t *stateTable) write(ctx context.Context, base *stateFiles, next *state, facts iter.Seq2[stateRow, error], now time.Time) (int64, *stateFiles, error) {
	files := &stateFiles{}
	if base != nil {
		files.facts = slices.Clone(base.facts)
	}
	put := func(rows iter.Seq2[stateRow, error]) error {
		adds, err := t.writeRows(ctx, rows, func() datafile.Tagger { return &factTags{} })
		files.facts = append(files.facts, adds...)
		return err
	}
	switch {
	case len(files.facts) < t.maxFacts:
	case next.whole:
		files.facts, facts, next.void = nil, byKey(next.keyed()), map[string]bool{}
	case files.sorted():
		pick, rest := smallest(files.facts)
		files.facts = rest
		if err := put(t.compacted(ctx, next, pick, nil)); err != nil {
			return 0, nil, err
		}
		if len(rest) == 0 {
			next.void = map[string]bool{}
		}
	}
	if err := put(facts); err != nil {
		return 0, nil, err
	}
	control, err := t.writeRows(ctx, each(next.control(now.UnixMicro())), func() datafile.Tagger { return fixedTags{tagState: stateControl} })
	if err != nil {
		return 0, nil, err
	}
	files.control = control[0]
	version, err := t.commit(ctx, files, now)
	return version, files, err
}

// commit makes exactly these files the newest version, whatever was there.
func (t *stateTable) commit(ctx context.Context, files *stateFiles, now time.Time) (int64, error) {
	want := append(slices.Clone(files.facts), files.control)
	for range stateRaces {
		if err := t.refresh(ctx); err != nil {
			return 0, err
		}
		tx := t.log.Begin(t.newest)
		have := map[string]bool{}
		if t.newest == nil {
			tx.SetProtocol(stateProtocol())
			tx.SetMetadata(t.metadata(now))
		} else {
			adds, err := t.newest.FileList(ctx)
			if err != nil {
				return 0, fmt.Errorf("read apply state: %w", err)
			}
			for _, a := range adds {
				if slices.ContainsFunc(want, func(w *deltalog.Add) bool { return w.Path == a.Path }) {
					have[a.Path] = true
				} else {
					tx.Remove(a.Remove(now, true))
				}
			}
		}
		for _, a := range want {
			if !have[a.Path] {
				again := *a
				again.DataChange = true
				tx.Add(&again)
			}
		}
		res, err := tx.Commit(ctx, deltalog.CommitOptions{Operation: "APPLY STATE", NoRebase: true, NotBlind: true})
		if errors.Is(err, deltalog.ErrConflict) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("commit apply state: %w", err)
		}
		return res.Version, nil
	}
	return 0, running(CodeConflict, "the apply state could not be committed: %d others were faster", stateRaces)
}

// refresh brings newest up to date.
func (t *stateTable) refresh(ctx context.Context) error {
	var err error
	if t.newest == nil {
		t.newest, err = t.log.Latest(ctx)
		if errors.Is(err, deltalog.ErrNotFound) {
			t.newest, err = nil, nil
		}
	} else {
		t.newest, err = t.log.Update(ctx, t.newest)
	}
	if err != nil {
		return fmt.Errorf("read apply state: %w", err)
	}
	return nil
}

func stateProtocol() *deltalog.Protocol {
	return &deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
}

func (t *stateTable) metadata(now time.Time) *deltalog.Metadata {
	created := now.UnixMilli()
	config := map[string]string{propFormat: fmt.Sprint(formatNumber)}
	for k, v := range t.config {
		config[k] = v
	}
	return &deltalog.Metadata{ID: t.newID(), Format: deltalog.Format{Provider: "parquet"}, SchemaString: stateSchema().JSON(),
		PartitionColumns: []string{}, CreatedTime: &created, Configuration: config}
}

type fixedTags map[string]string

func (fixedTags) Add(arrow.RecordBatch)     {}
func (f fixedTags) Tags() map[string]string { return f }

func each(rows []stateRow) iter.Seq2[stateRow, error] {
	return func(yield func(stateRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// stateBuilder makes batches of state rows; [eachRowOf] reads them.
type stateBuilder struct{ rb *array.RecordBuilder }

func newStateBuilder() (stateBuilder, error) {
	sch, err := schema.ArrowSchema(stateSchema())
	if err != nil {
		return stateBuilder{}, err
	}
	return stateBuilder{array.NewRecordBuilder(memory.DefaultAllocator, sch)}, nil
}

func (b stateBuilder) add(r stateRow) {
	put := func(i int, v []byte) {
		if v == nil {
			b.rb.Field(i).AppendNull()
		} else {
			b.rb.Field(i).(*array.BinaryBuilder).Append(v)
		}
	}
	b.rb.Field(0).(*array.StringBuilder).Append(r.Kind)
	b.rb.Field(1).(*array.StringBuilder).Append(r.Flow)
	put(2, r.Key)
	put(3, r.Seq)
	put(4, r.Payload)
	b.rb.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(r.At))
}

func (b stateBuilder) take() arrow.RecordBatch { return b.rb.NewRecordBatch() }
func (b stateBuilder) release()                { b.rb.Release() }

// writeRows writes state rows to durable files; no rows make no file.
func (t *stateTable) writeRows(ctx context.Context, rows iter.Seq2[stateRow, error], tagger func() datafile.Tagger) ([]*deltalog.Add, error) {
	rb, err := newStateBuilder()
	if err != nil {
		return nil, err
	}
	defer rb.release()
	var w *datafile.Writer
	n := 0
	flush := func() (err error) {
		if n == 0 {
			return nil
		}
		if w == nil {
			if w, err = datafile.NewWriter(t.store, t.layout, datafile.WriterOptions{NewID: t.newID, Clock: t.clock,
				NewTagger: tagger, Footer: map[string]string{propFormat: fmt.Sprint(formatNumber)}}); err != nil {
				return err
			}
		}
		n = 0
		return w.Write(ctx, rb.take())
	}
	fail := func(err error) ([]*deltalog.Add, error) {
		if w != nil {
			err = errors.Join(err, w.Abort(ctx))
		}
		return nil, fmt.Errorf("write apply state: %w", err)
	}
	for r, err := range rows {
		if err != nil {
			return fail(err)
		}
		rb.add(r)
		if n++; n == stateRows {
			if err := flush(); err != nil {
				return fail(err)
			}
		}
	}
	if err := flush(); err != nil {
		return fail(err)
	}
	if w == nil {
		return nil, nil
	}
	written, err := w.Close(ctx)
	if err != nil {
		return nil, fmt.Errorf("write apply state: %w", err)
	}
	adds := make([]*deltalog.Add, len(written))
	for i, f := range written {
		adds[i] = f.Add(true)
	}
	return adds, nil
}
