package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-data/sluice/delta"
	deltalog "github.com/sluice-data/sluice/log"
)

// Retention and upkeep (auto-cdc 3, apply-state 7).
const (
	defaultRetention = 7 * 24 * time.Hour
	defaultFrequency = 30 * time.Minute
	// skew is how far the clocks of two flows may lie apart.
	skew = time.Hour
	// upkeepShare is the share of running time that upkeep may take.
	upkeepShare = 0.10
	// deletedShare and smallFiles are where a file is purged, and small ones packed.
	deletedShare = 0.20
	deletedRows  = 1000 // a small file is not worth a commit
	smallFiles   = 50
	smallSize    = 16 << 20
	upkeepTries  = 3
)

// seconds reads a retention property, its older names, and a trailing s.
func seconds(config map[string]string, name string, otherwise time.Duration) time.Duration {
	for k, v := range config {
		for _, family := range []string{"pipelines.cdc.", "pipelines.applyChanges."} {
			if !strings.EqualFold(k, family+name) {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), "s"), 10, 64); err == nil && n >= 0 && n < 1<<33 {
				return time.Duration(n) * time.Second
			}
		}
	}
	return otherwise
}

// upkeep drops hidden state that the lateness contract no longer needs, and now and
// then packs or purges files. It runs between batches; what it cannot do it leaves.
func (t *target) upkeep(ctx context.Context) error {
	if t.parked != nil || t.snap == nil || t.adopt || t.run.flow.DryRun || t.result.Batches == 0 {
		return nil
	}
	if err := t.collect(ctx); err != nil {
		return err
	}
	return t.tidy(ctx)
}

// keeping is what a collection goes by: facts processed before a time (microseconds)
// have outlived it; hides: expectations hide rows, so that rows do not tell all beliefs.
type keeping struct {
	before int64
	hides  bool
}

// collect is one collection, if the last one is long enough ago.
func (t *target) collect(ctx context.Context) error {
	for range upkeepTries {
		config := t.snap.Metadata.Configuration
		now := t.run.o.Clock()
		if last := t.state.target.Collected; last != 0 && now.Sub(time.UnixMicro(last)) < seconds(config, "tombstoneGCFrequencyInSeconds", defaultFrequency) {
			return nil
		}
		if every := seconds(config, "tombstoneGCFrequencyInSeconds", defaultFrequency); !t.looked.IsZero() && now.Sub(t.looked) < every {
			return nil
		}
		t.looked = now
		// A flow that was down meets its tombstones: the slowest one counts.
		oldest := now.UnixMicro()
		for _, d := range t.state.flows {
			oldest = min(oldest, d.Last)
		}
		cutoff := time.UnixMicro(oldest).Add(-skew - seconds(config, "tombstoneGCThresholdInSeconds", defaultRetention)).UnixMicro()
		keep := keeping{before: cutoff, hides: slices.ContainsFunc(t.rules().Expectations, func(e Expectation) bool { return e.OnViolation == dropRow })}
		any, err := t.collectable(ctx, keep)
		if err != nil || !any {
			return err
		}
		if err := t.pin(ctx); err != nil {
			return err
		}
		next := t.state.clone()
		next.target.Collected = now.UnixMicro()
		p := &proposal{t: t, began: now, replace: next, operation: "COLLECT STATE"}
		if next.whole {
			next.collect(keep)
			p.facts = next.keyed()
		} else {
			files := t.files.facts
			p.stream = func(next *state) iter.Seq2[stateRow, error] {
				return t.states.compacted(ctx, next, files, func(one *state) {
					one.collect(keep)
					next.target.CollectedTo = one.target.CollectedTo
				})
			}
		}
		done, err := p.commit(ctx)
		if err != nil || done {
			return err
		}
		if err := t.pin(ctx); err != nil {
			return err
		}
	}
	return nil // others are busy: next time
}

// collectable tells whether a collection would drop anything of the pinned state.
func (t *target) collectable(ctx context.Context, keep keeping) (any bool, err error) {
	if t.state.whole {
		return t.state.collectable(keep), nil
	}
	if youngerThan(t.files.facts, keep.before) {
		return false, nil
	}
	err = t.states.merged(ctx, t.state, t.files.facts, func(one *state) error {
		if any = one.collectable(keep); any {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return any, err
}

// collectable tells whether a collection would drop anything.
func (s *state) collectable(keep keeping) bool {
	for _, d := range s.deletes {
		if d.at < keep.before {
			return true
		}
	}
	for _, list := range s.departed {
		for _, d := range list {
			if d.at < keep.before {
				return true
			}
		}
	}
	if !s.anyHistory() {
		for _, list := range s.entries {
			if _, highest := keepEntries(list, keep.before); highest != nil {
				return true
			}
		}
	}
	for _, list := range s.hidden {
		if _, highest := s.keepEvents(list, keep); highest != nil {
			return true
		}
	}
	return false
}

// anyHistory tells whether the target keeps history. What version entries of its rows
// say of single fields and floors stands for events, which [keepHidden] judges.
func (s *state) anyHistory() bool {
	for _, d := range s.flows {
		if d.StoredAs == storedSCD2 || d.StoredAs == storedBitemporal {
			return true
		}
	}
	return false
}

// keepEvents says which hidden events of a key must stay.
func (s *state) keepEvents(list []hiddenFact, keep keeping) (rest []hiddenFact, highest []byte) {
	if !slices.ContainsFunc(list, func(f hiddenFact) bool { return f.kind == kindEvent }) {
		return keepHidden(list, keep.before, s.inheritsNothing(), s.authorsAll)
	}
	if keep.hides {
		return list, nil
	}
	return freezeBeliefs(list, keep.before)
}

// collect drops what was processed before the cutoff and is not needed any more
// (auto-cdc 3): tombstones, floors, images of changed keys, field versions, of
// histories the events below the anchor, and of beliefs those that were replaced.
func (s *state) collect(keep keeping) {
	drop := func(seq []byte) {
		if bytes.Compare(seq, s.target.CollectedTo) > 0 {
			s.target.CollectedTo = bytes.Clone(seq)
		}
	}
	for k, d := range s.deletes {
		if d.at < keep.before {
			delete(s.deletes, k)
			drop(d.seq)
		}
	}
	for k, list := range s.departed {
		var rest []departed
		for _, d := range list {
			if d.at < keep.before {
				drop(d.seq)
			} else {
				rest = append(rest, d)
			}
		}
		if s.departed[k] = rest; rest == nil {
			delete(s.departed, k)
		}
	}
	if !s.anyHistory() {
		for k, list := range s.entries {
			rest, highest := keepEntries(list, keep.before)
			s.entries[k] = rest
			drop(highest)
		}
	}
	for k, list := range s.hidden {
		rest, highest := s.keepEvents(list, keep)
		drop(highest)
		if s.hidden[k] = rest; len(rest) == 0 {
			delete(s.hidden, k)
		}
	}
}

// tidy packs small files or purges deleted rows, one commit, while upkeep has taken
// less than its share of the run.
func (t *target) tidy(ctx context.Context) error {
	start := t.run.o.Clock()
	if t.tidied > time.Duration(float64(start.Sub(t.run.started))*upkeepShare) {
		return nil
	}
	files, err := t.snap.FileList(ctx)
	if err != nil {
		return err
	}
	small, heavy := 0, false
	for _, f := range files {
		if f.Size < smallSize {
			small++
		}
		heavy = heavy || mostlyDeleted(f)
	}
	o := delta.OptimizeOptions{}
	switch {
	case heavy:
		o.Purge, o.MaxDeleted = true, deletedShare
	case small < smallFiles || small < 2*t.tidyFloor:
		return nil
	}
	_, err = t.table.Optimize(ctx, o)
	t.tidied += t.run.o.Clock().Sub(start)
	if err != nil {
		// Others were faster, or the table does not want it: upkeep is no duty.
		t.run.o.Logger.Debug("upkeep left out", "target", t.title, "reason", err.Error())
	}
	if err := t.pin(ctx); err != nil {
		return err
	}
	// What could not be packed (one file a partition) is not tried again at once.
	if files, err = t.snap.FileList(ctx); err != nil {
		return err
	}
	t.tidyFloor = 0
	for _, f := range files {
		if f.Size < smallSize {
			t.tidyFloor++
		}
	}
	return nil
}

func mostlyDeleted(f *deltalog.Add) bool {
	if f.DeletionVector == nil || f.DeletionVector.Cardinality < deletedRows {
		return false
	}
	var stats struct {
		NumRecords int64 `json:"numRecords"`
	}
	if json.Unmarshal([]byte(f.Stats), &stats) != nil || stats.NumRecords == 0 {
		return false
	}
	return float64(f.DeletionVector.Cardinality) > deletedShare*float64(stats.NumRecords)
}

// lateBeyond counts events at or below the highest sequence that was collected:
// what they meet may have been forgotten.
func (a *attempt) lateBeyond(events []incoming) int64 {
	n, to := int64(0), a.t.state.target.CollectedTo
	if to == nil {
		return 0
	}
	for i := range events {
		e := &events[i]
		seq := e.seq
		if e.sys != nil { // beliefs are frozen by what was known when
			seq = e.sys
		}
		if !e.again && bytes.Compare(seq, to) <= 0 {
			n++
		}
	}
	return n
}
