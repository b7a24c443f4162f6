package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/sql"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/log/schema"
)

// snapshotFlags are those of snapshot flows.
type snapshotFlags struct {
	snapshot          bool
	snapshotVersion   string
	maxDeleteFraction float64
	allowEmpty        bool
	missingGrace      int
}

func (s *snapshotFlags) register(p *pflag.FlagSet) {
	p.BoolVar(&s.snapshot, "snapshot", false, "the source holds whole snapshots of a table (plain rows, or a Delta table): keys that one lacks are deleted")
	p.StringVar(&s.snapshotVersion, "snapshot-version", "", "what orders the snapshots: a path pattern below --from such as {version}/part-*.csv or day={version:DATE},\n"+
		"one snapshot a version, oldest first; an expression over the rows; or _commit_version for each version of a Delta table\n(default: one snapshot, into an empty table)")
	p.Float64Var(&s.maxDeleteFraction, "max-delete-fraction", 0, "refuse a snapshot that would delete a larger share of the rows, 0 to 1 (default 0: any share)")
	p.BoolVar(&s.allowEmpty, "allow-empty-snapshot", false, "let a snapshot without rows empty the table")
	p.IntVar(&s.missingGrace, "missing-grace", 0, "how many snapshots in a row must lack a key before it counts as deleted (default 1)")
}

// problems are what is wrong with the flags.
func (s *snapshotFlags) problems(f *applyFlags) []string {
	var out []string
	if !s.snapshot {
		for flag, set := range map[string]bool{"--snapshot-version": s.snapshotVersion != "", "--max-delete-fraction": s.maxDeleteFraction != 0,
			"--allow-empty-snapshot": s.allowEmpty, "--missing-grace": s.missingGrace != 0} {
			if set {
				out = append(out, flag+" needs --snapshot")
			}
		}
		return out
	}
	for flag, set := range map[string]bool{"--sequence-by": f.sequenceBy != "", "--apply-as-deletes": f.deletes != "", "--apply-as-truncates": f.truncates != "",
		"--table": f.table != "", "--follow": f.follow, "--format": f.format != "auto" && f.format != "rows"} {
		if set {
			out = append(out, flag+" does not go with --snapshot")
		}
	}
	if s.maxDeleteFraction < 0 || s.maxDeleteFraction > 1 {
		out = append(out, "--max-delete-fraction must lie between 0 and 1")
	}
	if s.missingGrace < 0 {
		out = append(out, "--missing-grace must not be negative")
	}
	tables := 0
	for _, src := range f.from {
		if isTable(src) {
			tables++
		}
	}
	if tables > 0 && len(f.from) > 1 {
		out = append(out, "a Delta table must be the only --from")
	}
	if len(f.keys.values) == 0 {
		out = append(out, "--snapshot needs --keys")
	}
	return out
}

// applySnapshots is apply --snapshot.
func (a *app) applySnapshots(ctx context.Context, f *applyFlags, targets apply.Targets, columns *schema.Struct) error {
	zone, err := a.flags.zone()
	if err != nil {
		return err
	}
	snapshots, err := a.openSnapshots(ctx, f, columns)
	if err != nil {
		return err
	}
	flow := a.flowOf(f, targets.Route != nil, apply.PoisonFail)
	flow.MaxDeleteFraction, flow.AllowEmptySnapshot, flow.MissingGrace = f.maxDeleteFraction, f.allowEmpty, f.missingGrace
	p := a.startProgress("applying snapshots", 0, false)
	result, err := apply.Run(ctx, apply.Spec{Snapshots: snapshots, Target: targets, Flow: flow},
		a.applyOptions(&f.memoryFlags, zone))
	p.Stop()
	err = errors.Join(err, snapshots.Close())
	return a.finishApply(f, result, err)
}

// openSnapshots opens --from as snapshots.
func (a *app) openSnapshots(ctx context.Context, f *applyFlags, columns *schema.Struct) (source.Snapshots, error) {
	zone, err := a.flags.zone()
	if err != nil {
		return nil, err
	}
	spec := source.SnapshotSpec{Version: f.snapshotVersion, Spec: source.Spec{From: f.from, Keys: f.keys.values, Schema: columns, Options: f.option.values,
		Stdin: a.stdin, Now: a.clock, TimeZone: zone, OpenStore: a.open}}
	table := len(f.from) == 1 && isTable(f.from[0])
	if len(f.from) == 1 && isObjectURL(f.from[0]) && !strings.Contains(f.snapshotVersion, "{version") {
		snap, err := a.sourceTable(ctx, f.from[0])
		if err != nil {
			return nil, err
		}
		table = snap != nil
	}
	if table {
		spec.Table = func(ctx context.Context) (*delta.Table, error) {
			store, err := a.open(f.from[0])
			if err != nil {
				return nil, err
			}
			return delta.Open(ctx, store, delta.Options{TimeZone: zone})
		}
	}
	out, err := source.OpenSnapshots(spec)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return out, nil
}

// bindSnapshot takes the queries of a snapshot flow apart: SELECT of columns FROM a source,
// with or without WHERE, and a version without FROM. Others stay with the flow, which the engine refuses by name.
func (r *statementRun) bindSnapshot(b *boundFlow) {
	version := ""
	if b.flow.SnapshotVersion != "" {
		var ok bool
		if version, ok = sql.VersionExpr(b.flow.SnapshotVersion); !ok {
			return
		}
	}
	q, ok := sql.ReadSnapshotQuery(b.flow.Snapshot)
	if !ok {
		return
	}
	b.flow.SnapshotWhere = q.Where
	b.flow.Snapshot, b.flow.SnapshotVersion = "", ""
	b.flow.MaxDeleteFraction, b.flow.AllowEmptySnapshot, b.flow.MissingGrace = r.flags.maxDeleteFraction, r.flags.allowEmpty, r.flags.missingGrace
	b.flags.snapshot, b.flags.snapshotVersion = true, version
}

// applySnapshotFlow is applyFlow of a snapshot flow.
func (r *statementRun) applySnapshotFlow(ctx context.Context, b *boundFlow) (apply.Result, error) {
	zone, err := r.app.flags.zone()
	if err != nil {
		return apply.Result{}, err
	}
	snapshots, err := r.openSnapshots(ctx, &b.flags, b.columns())
	if err != nil {
		return apply.Result{}, err
	}
	result, err := apply.Run(ctx, apply.Spec{Snapshots: snapshots, Target: b.target, Flow: b.flow},
		r.applyOptions(&r.flags.memoryFlags, zone))
	return result, errors.Join(err, snapshots.Close())
}
