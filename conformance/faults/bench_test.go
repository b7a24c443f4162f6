package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/fsck"
	"github.com/sluice-data/sluice/internal/dv"
	"github.com/sluice-data/sluice/internal/rowio"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// bench is where an operation works: a root that holds its tables.
type bench struct {
	ctx   context.Context
	root  storage.Store
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	// files is a local folder for the sources of flows.
	files   string
	workers int
}

func newBench(root storage.Store, files string) *bench {
	return &bench{ctx: context.Background(), root: root, now: time.Now, files: files}
}

// on is the same bench over another root.
func (b *bench) on(root storage.Store) *bench {
	c := *b
	c.root = root
	return &c
}

func (b *bench) store(dir string) storage.Store { return storage.Sub(b.root, dir) }

func (b *bench) options() delta.Options {
	return delta.Options{Clock: b.now, Sleep: b.sleep, Workers: b.workers}
}

func (b *bench) open(dir string) (*delta.Table, error) {
	return delta.Open(b.ctx, b.store(dir), b.options())
}

// on runs an operation of an opened table.
func with[R any](dir string, run func(b *bench, t *delta.Table) (R, error)) func(*bench) error {
	return func(b *bench) error {
		t, err := b.open(dir)
		if err == nil {
			_, err = run(b, t)
		}
		return err
	}
}

// run applies the lines of a file as a flow.
func (b *bench) run(lines string, flow apply.Flow) error {
	file := filepath.Join(b.files, "events.jsonl")
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		return err
	}
	in, err := source.Open(b.ctx, source.Spec{Format: source.Rows, From: []string{file}, Keys: []string{"id"}, Host: "test"})
	if err != nil {
		return err
	}
	flow.Name, flow.Keys, flow.SequenceBy, flow.BatchRows, flow.OnPoison = "f", []string{"id"}, "at", 3, apply.PoisonQuarantine
	flow.ExceptColumnList = []string{"at"}
	_, err = apply.Run(b.ctx, apply.Spec{Source: in.Source, NewDecoder: in.NewDecoder, Target: apply.Targets{Store: b.store("t"), Name: "t"}, Flow: flow},
		apply.Options{Clock: b.now})
	return errors.Join(err, in.Source.Close())
}

// rows are the rows of a version, sorted, nil where there is no table.
func (b *bench) rows(dir string, version *int64) ([]string, int64, error) {
	t, err := b.open(dir)
	if errors.Is(err, delta.ErrNotFound) {
		return nil, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	scan, err := t.Scan(b.ctx, delta.ScanOptions{Version: version})
	if err != nil {
		return nil, -1, err
	}
	var buf bytes.Buffer
	w, err := rowio.NewWriter(&buf, rowio.JSONL, scan.Schema(), rowio.WriteOptions{})
	if err != nil {
		return nil, -1, err
	}
	for batch, err := range scan.Batches(b.ctx) {
		if err == nil {
			err = w.Write(batch)
		}
		if err != nil {
			return nil, -1, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, -1, err
	}
	lines, err := canonical(buf.String())
	return append([]string{}, lines...), scan.Snapshot().Version, err
}

// canonical sorts the fields of each object, then the objects.
func canonical(lines string) ([]string, error) {
	var out []string
	for line := range strings.Lines(lines) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var row map[string]any
		if err := d.Decode(&row); err != nil {
			return nil, err
		}
		delete(row, cdf.CommitTimestampColumn)
		delete(row, cdf.CommitVersionColumn)
		for k, v := range row {
			if v == nil {
				delete(row, k) // a column that came later is null in older changes
			}
		}
		text, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		out = append(out, string(text))
	}
	slices.Sort(out)
	return out, nil
}

// feed replays the change feed from the first version and gives the rows it leads to.
func (b *bench) feed(dir string) ([]string, error) {
	t, err := b.open(dir)
	if err != nil {
		return nil, err
	}
	changes, err := t.Changes(b.ctx, cdf.Options{Range: cdf.Range{FromVersion: new(int64)}})
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w, err := rowio.NewWriter(&buf, rowio.JSONL, changes.Schema, rowio.WriteOptions{})
	if err != nil {
		return nil, err
	}
	for batch, err := range changes.Rows(b.ctx) {
		if err == nil {
			err = w.Write(batch)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	lines, err := canonical(buf.String())
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, line := range lines {
		n := 1
		for _, kind := range []string{"insert", "update_postimage", "delete", "update_preimage"} {
			row := strings.Replace(line, `"_change_type":"`+kind+`",`, "", 1)
			if row == line {
				continue
			}
			if kind == "delete" || kind == "update_preimage" {
				n = -1
			}
			count[row] += n
			break
		}
	}
	out := []string{}
	for row, n := range count {
		if n < 0 {
			return nil, fmt.Errorf("the feed takes %s away more often than it brings it", row)
		}
		for range n {
			out = append(out, row)
		}
	}
	slices.Sort(out)
	return out, nil
}

// fsck fails where the table says what is not so.
func (b *bench) fsck(dir string) error {
	r, err := fsck.Check(b.ctx, b.store(dir), fsck.Options{Table: b.options(), Apply: apply.Options{Clock: b.now}})
	if err != nil {
		return fmt.Errorf("fsck: %w", err)
	}
	if n := r.Count(deltalog.SevereError); n > 0 {
		return fmt.Errorf("fsck: %d errors: %+v", n, r.Findings)
	}
	return nil
}

// vacuumed takes away what the newest version does not need and fails if any other file is
// left then: each that a fault orphaned is one that a vacuum finds.
func (b *bench) vacuumed(dir string) error {
	// A while later: times of commits that follow closely are moved apart, so the
	// last one may be of the next millisecond.
	b = b.on(b.root)
	calm := b.now
	b.now = func() time.Time { return calm().Add(time.Minute) }
	t, err := b.open(dir)
	if err != nil {
		return err
	}
	none := time.Duration(0)
	if _, err := t.Vacuum(b.ctx, delta.VacuumOptions{Retain: &none, AllowShortRetention: true, Workers: b.workers}); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	snap, err := t.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for a, err := range snap.Files(b.ctx) {
		if err != nil {
			return err
		}
		p, err := a.Decoded()
		if err != nil {
			return err
		}
		live[p] = true
		if v := a.DeletionVector; v != nil {
			key, err := dv.Descriptor{StorageType: v.StorageType, PathOrInlineDv: v.PathOrInlineDv}.Location()
			if err != nil {
				return err
			}
			live[key] = true
		}
	}
	for o, err := range t.Store().List(b.ctx, "", "") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(o.Key, "_delta_log/") || strings.HasPrefix(o.Key, "_apply/") {
			continue
		}
		if !live[o.Key] {
			return fmt.Errorf("a vacuum does not find %s", o.Key)
		}
		delete(live, o.Key)
	}
	for key := range live {
		if key != "" {
			return fmt.Errorf("after a vacuum %s is not there", key)
		}
	}
	rows, _, err := b.rows(dir, nil)
	if err == nil && rows == nil {
		err = errors.New("after a vacuum there is no table")
	}
	return err
}

// reference is what an operation makes of its table without a fault.
type reference struct {
	before int64
	// states are the rows of the versions that it passes through, the first that of the
	// table as it was.
	states [][]string
}

func (r *reference) last() []string { return r.states[len(r.states)-1] }

// passes says whether rows are those of a state on the way.
func (r *reference) passes(rows []string) bool {
	return slices.ContainsFunc(r.states, func(s []string) bool { return slices.Equal(s, rows) && (s == nil) == (rows == nil) })
}

// refer does the operation undisturbed on a prepared bench.
func refer(t testing.TB, op operation, b *bench) *reference {
	t.Helper()
	rows, version, err := b.rows(op.table(), nil)
	if err != nil {
		t.Fatalf("%s: before: %v", op.name, err)
	}
	r := &reference{before: version, states: [][]string{rows}}
	if err := op.run(b); err != nil {
		t.Fatalf("%s: without a fault: %v", op.name, err)
	}
	_, last, err := b.rows(op.table(), nil)
	if err != nil {
		t.Fatalf("%s: after: %v", op.name, err)
	}
	for v := version + 1; v <= last; v++ {
		rows, _, err := b.rows(op.table(), &v)
		if err != nil {
			t.Fatalf("%s: version %d: %v", op.name, v, err)
		}
		r.states = append(r.states, rows)
	}
	if err := op.check(b, r); err != nil {
		t.Fatalf("%s: without a fault: %v", op.name, err)
	}
	return r
}

// check holds what invariant 2 says of a table at rest.
func (op operation) check(b *bench, r *reference) error {
	rows, _, err := b.rows(op.table(), nil)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !r.passes(rows) {
		return fmt.Errorf("rows %q are none of %q", rows, r.states)
	}
	if rows == nil {
		return nil
	}
	if !op.noFeed {
		sum, err := b.feed(op.table())
		if err != nil {
			return fmt.Errorf("feed: %w", err)
		}
		if !slices.Equal(sum, rows) {
			return fmt.Errorf("the feed leads to %q, the rows are %q", sum, rows)
		}
	}
	if op.damaged {
		return nil
	}
	return b.fsck(op.table())
}

// survived checks what a fault left on a bench without faults: outcome is what the
// operation answered, died says that nobody heard its answer.
func (op operation) survived(b *bench, r *reference, outcome error, died bool) error {
	rows, _, err := b.rows(op.table(), nil)
	if err != nil {
		return fmt.Errorf("the table cannot be read: %w", err)
	}
	var unknown *deltalog.UnknownOutcomeError
	switch {
	case died:
	case outcome == nil && !slices.Equal(rows, r.last()):
		return fmt.Errorf("acknowledged, but the rows are %q, not %q", rows, r.last())
	case outcome != nil && !errors.As(outcome, &unknown) && len(r.states) == 2 && !op.late && !slices.Equal(rows, r.states[0]):
		return fmt.Errorf("failed with %w, but the rows are %q, not %q", outcome, rows, r.states[0])
	}
	if err := op.check(b, r); err != nil {
		return err
	}
	if err := op.run(b); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	done := op
	done.damaged = false
	if rows, _, err = b.rows(op.table(), nil); err != nil || !slices.Equal(rows, r.last()) {
		return fmt.Errorf("again: rows %q, want %q (%v)", rows, r.last(), err)
	}
	if err := done.check(b, r); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	if op.outside {
		return nil
	}
	return b.vacuumed(op.table())
}
