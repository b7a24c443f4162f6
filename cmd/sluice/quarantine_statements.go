package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source"
	"github.com/sluice-data/sluice/apply/sql"
)

// alone refuses flags of a flow beside the statements that say them.
func (s *statementFlags) alone(cmd *cobra.Command, also ...string) error {
	if s.file == "" {
		if len(s.sources) > 0 {
			return usage("INVALID_FLAG", "--source needs --file")
		}
		return nil
	}
	var wrong []string
	cmd.Flags().VisitAll(func(p *pflag.Flag) {
		if p.Changed && cmd.InheritedFlags().Lookup(p.Name) == nil && !slices.Contains(withStatements, p.Name) && !slices.Contains(also, p.Name) {
			wrong = append(wrong, "--"+p.Name)
		}
	})
	if len(wrong) > 0 {
		return &cliError{code: "INVALID_FLAG", exit: exitUsage, message: strings.Join(wrong, ", ") + " cannot stand beside --file", hint: "say it in the statements"}
	}
	return nil
}

// replayStatements is the flow of a replay, from the statements that made it: the one
// into this table that set the records aside.
func (a *app) replayStatements(ctx context.Context, location string, f *applyFlags, st *statementFlags, records []*event.Record, list []apply.Quarantined) (apply.Spec, error) {
	script, _, err := a.readStatements(st.file)
	if err != nil {
		return apply.Spec{}, err
	}
	flags := *f
	if flags.into, err = folderAbove(location, script); err != nil {
		return apply.Spec{}, err
	}
	r := &statementRun{app: a, st: st, flags: &flags}
	if err := r.bind(ctx, script); err != nil {
		return apply.Spec{}, err
	}
	var of *boundFlow
	for _, b := range r.flows {
		if samePlace(b.where, location) && (of == nil || b.plan.FlowName == list[0].Flow) {
			of = b
		}
	}
	if of == nil || of.flags.snapshot {
		return apply.Spec{}, usage("UNKNOWN_FLOW", "replay: no flow of %s reads events into %s", st.file, location)
	}
	src, err := a.sourceSpec(&of.flags, of.columns())
	if err != nil {
		return apply.Spec{}, err
	}
	opened, err := source.OpenRecords(ctx, src, records)
	if err != nil {
		return apply.Spec{}, fmt.Errorf("open records: %w", err)
	}
	left := applyFlags{exceptColumns: listFlag{values: of.flow.ExceptColumnList}}
	left.withoutOperation(opened)
	of.flow.ExceptColumnList, of.flow.OnPoison = left.exceptColumns.values, apply.PoisonFail
	return apply.Spec{NewDecoder: opened.NewDecoder, Target: of.target, Flow: of.flow}, nil
}

// folderAbove is the --into with which a table of the script lies at the location.
func folderAbove(location string, script *sql.Script) (string, error) {
	location = strings.TrimRight(location, "/")
	var names []string
	for _, f := range script.Flows {
		var parts []string
		for _, s := range sql.NameParts(f.Target) {
			parts = append(parts, pathElement(s))
		}
		name := path.Join(parts...)
		if location == name {
			return ".", nil
		}
		if above, ok := strings.CutSuffix(location, "/"+name); ok && name != "" {
			return above, nil
		}
		names = append(names, f.Target)
	}
	return "", usage("UNKNOWN_FLOW", "replay: no flow of the statements has the target %s; they are of %s", location, strings.Join(names, ", "))
}
