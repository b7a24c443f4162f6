package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// target is one table that a run writes, as it was last pinned.
//
// What a pinned target guarantees (apply-state 1.3): state is the content of the
// state version that the commit of snap names, joined with what the walk over
// other writers' commits found; files are the state files of that version.
type target struct {
	run    *run
	dir    string
	title  string
	store  storage.Store
	table  *delta.Table // nil: there is none yet
	log    *deltalog.Log
	states *stateTable
	flow   string

	snap   *deltalog.Snapshot // nil: the table does not exist yet
	layout *datafile.Layout
	state  *state
	files  *stateFiles // nil: the state is empty
	adopt  bool        // an existing table that apply has not written before
	unique bool        // its keys have been checked
	// walked are the version entries that the walk read back; they are part of
	// state and wait for the next commit to be written.
	walked []stateRow

	applied   [][]byte // versions of snapshots that were applied, if the source lists them
	listed    bool
	positions []event.Position // as far as the run has read
	def       *flowDef         // of the last batch that changed nothing; nil: none did
	touched   bool             // the run brought events
	settled   bool             // positions are what the state holds
	plans     map[string]*plan
	result    TargetResult
	parked    *Error
	// generation is what the run pinned first; lenient operations pin a target whose
	// state cannot be read as one without.
	generation string
	lenient    bool
	// looked is when it was last seen what a collection would drop; tidied the time
	// that upkeep of files took, tidyFloor how many small files it left.
	looked    time.Time
	tidied    time.Duration
	tidyFloor int
	quiet     bool              // looks at the state alone, not at what others did since
	own       *Flow             // the flow of its source table; nil: the run's
	mapped    map[string]string // physical names of columns that are about to join
}

func newTarget(r *run, dir, title string, store storage.Store) *target {
	return &target{run: r, dir: dir, title: title, store: store, flow: r.name, plans: map[string]*plan{},
		result: TargetResult{Target: title, Flow: r.name, Version: -1}}
}

// rules is the flow as it is for this target.
func (t *target) rules() *Flow {
	if t.own != nil {
		return t.own
	}
	return &t.run.flow
}

// adoptName takes over the name under which the only flow of the target is stored,
// unless the user named one (apply-state 2.3).
func (t *target) adoptName(given string) {
	if _, known := t.state.flows[t.flow]; !known && given == "" && len(t.state.flows) == 1 {
		for name := range t.state.flows {
			t.flow = name
		}
	}
	t.result.Flow = t.flow
}

// pin reads the newest version of the target and the state that it names.
func (t *target) pin(ctx context.Context) error {
	old := t.snap
	var err error
	if t.table == nil {
		t.table, err = delta.Open(ctx, t.store, t.deltaOptions())
		if errors.Is(err, deltalog.ErrNotFound) && codeOf(err, "") == "DELTA_TABLE_NOT_FOUND" {
			t.table, t.snap, t.state, t.files = nil, nil, newState(), nil
			return t.openState()
		}
		if err != nil {
			return err
		}
		t.log = t.table.Log()
	}
	if t.snap, err = t.table.Snapshot(ctx); err != nil {
		t.snap = old
		return err
	}
	if old != nil && old.Version == t.snap.Version && t.state != nil {
		return nil
	}
	t.result.Version = t.snap.Version
	if err := t.pinned(ctx); err != nil {
		return err
	}
	return t.checkGeneration()
}

// pinned reads what belongs to the snapshot.
func (t *target) pinned(ctx context.Context) (err error) {
	if err := t.checkTable(); err != nil {
		return err
	}
	if err := t.openState(); err != nil {
		return err
	}
	if err := t.pinState(ctx); err != nil {
		return err
	}
	if t.layout, err = datafile.LayoutOf(t.snap.TableConfig, t.run.o.TimeZone); err != nil {
		return err
	}
	if t.quiet {
		return nil
	}
	return t.walk(ctx)
}

// checkTable refuses what apply cannot be true on.
func (t *target) checkTable() error {
	if err := t.snap.Require(deltalog.OpWrite); err != nil {
		return err
	}
	props := t.snap.Metadata.Configuration
	for k := range props {
		if strings.EqualFold(k, propRetention) {
			return t.named(transactionRetention())
		}
	}
	if f := props[propFormat]; f != "" {
		n, err := strconv.Atoi(f)
		if err != nil || n > formatNumber {
			return t.named(stored(CodeFormatTooNew, "the target's row versions have format %s, this version knows %d; use a newer sluice", f, formatNumber))
		}
	}
	for _, c := range t.snap.Schema.Fields {
		if strings.HasPrefix(strings.ToLower(c.Name), hiddenGroup) {
			return t.named(stored(CodeReservedTargetColumn, "target column %q uses the reserved prefix %s; rename or drop it", c.Name, hiddenGroup))
		}
	}
	if t.snap.AppendOnly() {
		return t.named(stored(CodeInvalidTarget, "the target is append-only (delta.appendOnly)"))
	}
	return nil
}

// openState opens the state table, where the target's property or the flow says.
func (t *target) openState() error {
	if t.states != nil {
		return nil
	}
	recorded := ""
	if t.snap != nil {
		recorded = t.snap.Metadata.Configuration[propState]
	}
	store := storage.Sub(t.store, "_apply/state")
	if f := t.run.flow.State; f != nil {
		var err error
		if store, err = f(t.name()); err != nil {
			return err
		}
		if t.snap != nil && t.isApply() && recorded != t.run.flow.StatePath {
			return t.named(stored(CodeStatePathMismatch, "the target's state lies at %q, not at %q", recorded, t.run.flow.StatePath))
		}
	} else if recorded != "" {
		return t.named(stored(CodeStatePathMismatch, "the target's state lies at %q; name it with --state", recorded))
	}
	states, err := newStateTable(store, t.run.o)
	if err != nil {
		return err
	}
	if t.snap != nil {
		states.config = retention(t.snap.Metadata.Configuration)
	}
	t.states = states
	return nil
}

// retention are the properties that the state table shares with its target, so
// that rewinding is not cut short by the state (apply-state 1.4).
func retention(config map[string]string) map[string]string {
	out := map[string]string{}
	for _, k := range []string{"delta.logRetentionDuration", "delta.deletedFileRetentionDuration"} {
		if v, ok := config[k]; ok {
			out[k] = v
		}
	}
	return out
}

func (t *target) isApply() bool { return t.snap.Metadata.Configuration[propFormat] != "" }

// pinState finds the state that the pinned version names.
func (t *target) pinState(ctx context.Context) error {
	version, named := t.snap.TxnVersion(stateTxn)
	t.adopt = false
	switch {
	case named && !t.isApply():
		return t.mismatch("the target names an apply state but has lost its sluice.apply.* properties")
	case named:
		if t.state != nil && t.state.version == version && t.walked == nil {
			return t.checkTarget()
		}
		st, files, err := t.states.load(ctx, version)
		if t.lenient && errors.Is(err, errStateGone) {
			st, files, err = newState(), nil, nil
			st.target.ID = t.snap.Metadata.ID
		}
		if err != nil {
			return t.named(err)
		}
		t.state, t.files, t.walked = st, files, nil
		return t.checkTarget()
	}
	t.state, t.files, t.walked = newState(), nil, nil
	t.state.target.Format = formatNumber
	if !t.isApply() {
		t.adopt = true
		t.state.walk = t.snap.Version
		return nil
	}
	adds, err := t.snap.FileList(ctx)
	if err != nil {
		return err
	}
	if len(adds) > 0 && !t.lenient {
		return t.mismatch("the target has rows that apply wrote, but no commit names their state (a clone, or its log was changed)")
	}
	t.state.walk = t.snap.Version // born empty, nothing committed yet
	return nil
}

func (t *target) checkTarget() error {
	if id := t.state.target.ID; id != t.snap.Metadata.ID && !t.lenient {
		return t.mismatch(fmt.Sprintf("the state belongs to table %s, the target is table %s (a clone or a replaced table)", id, t.snap.Metadata.ID))
	}
	return nil
}

func (t *target) mismatch(why string) error {
	return t.named(stored(CodeStateMismatch, "%s; a full refresh or a new target is needed", why))
}

// named puts the target's name on an error of this package.
func (t *target) named(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Target == "" {
		e.Target = t.title
	}
	return err
}

func (t *target) name() string {
	if t.dir != "" {
		return t.dir
	}
	return t.title
}

// planOf binds the flow to the schema of a batch, once per schema.
func (t *target) planOf(b *event.Batch) (*plan, error) {
	k := describe(b.Columns, b.Keys, b.SeqType)
	if p := t.plans[k]; p != nil {
		return p, nil
	}
	p, err := t.rules().planFor(b, t.sequenceType(), t.run.zone())
	if err != nil {
		return nil, t.named(err)
	}
	t.plans[k] = p
	return p, nil
}

// sequenceType is the type of the target's sequence; "" while it has none.
func (t *target) sequenceType() string {
	if d, ok := t.anyFlow(); ok {
		return d.Sequence
	}
	return ""
}

// consumed tells whether a record was applied by an earlier commit of the flow.
func (t *target) consumed(src string, end int64) bool {
	p, ok := t.state.position(t.flow, src)
	return ok && src != "" && (p.Done || end <= p.Offset)
}

// epochs that a batch made are kept in the pinned state: numbers are hashes.
func (s *state) takeEpochs(from *state) { maps.Copy(s.epochs, from.epochs) }
