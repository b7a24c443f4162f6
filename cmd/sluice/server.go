package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/postgres"
)

// followServer: a database server is followed unless the user says otherwise.
func (f *applyFlags) followServer(said bool) {
	if !said && !f.once && !f.dryRun && !f.snapshot && slices.ContainsFunc(f.from, postgres.IsURL) {
		f.follow = true
	}
}

// serverPlan is the result of a dry run over a server.
type serverPlan struct {
	Server           string        `json:"server"`
	Slot             string        `json:"slot"`
	Publication      string        `json:"publication"`
	MakesSlot        bool          `json:"makes_slot"`
	MakesPublication bool          `json:"makes_publication"`
	Tables           []serverTable `json:"tables"`
}

type serverTable struct {
	Table           string   `json:"table"`
	Target          string   `json:"target"`
	Keys            []string `json:"keys"`
	ReplicaIdentity string   `json:"replica_identity"`
	EstimatedRows   int64    `json:"estimated_rows"`
	Bytes           int64    `json:"bytes"`
	LeftOut         []string `json:"left_out,omitempty"`
}

// planServer says what an apply from a server would read and where it would go; it
// changes nothing on either side.
func (a *app) planServer(ctx context.Context, f *applyFlags, src *postgres.Source, targets apply.Targets) error {
	r, err := serverPlanOf(ctx, f, src, targets)
	if err != nil {
		return err
	}
	return a.printResult(r, "dry run, nothing was written\n"+r.summary())
}

// serverPlanOf is what an apply from a server would read, of the tables that it selects.
func serverPlanOf(ctx context.Context, f *applyFlags, src *postgres.Source, targets apply.Targets) (*serverPlan, error) {
	p, err := src.Plan(ctx)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	r := &serverPlan{Server: p.Server, Slot: p.Slot, Publication: p.Publication, MakesSlot: p.MakesSlot, MakesPublication: p.MakesPublication, Tables: []serverTable{}}
	for _, t := range p.Tables {
		id := event.Table{Schema: t.Schema, Name: t.Name}
		if targets.Select != nil && !targets.Select(id) {
			continue
		}
		row := serverTable{Table: t.String(), Target: f.into, Keys: t.Keys, ReplicaIdentity: identityWords[t.Identity], EstimatedRows: t.Rows, Bytes: t.Bytes, LeftOut: t.Generated}
		if len(f.keys.values) > 0 {
			row.Keys = f.keys.values
		}
		if x := f.own.of(id); x != nil && x.Keys() != nil {
			row.Keys = x.Keys()
		}
		if targets.Route != nil {
			dir, err := targets.Route(id)
			if err != nil {
				return nil, err
			}
			row.Target = strings.TrimSuffix(targets.Name, "/") + "/" + dir
		}
		r.Tables = append(r.Tables, row)
	}
	return r, nil
}

var identityWords = map[string]string{"d": "default", "f": "full", "i": "index", "n": "nothing"}

func (r *serverPlan) summary() string {
	var b strings.Builder
	verb := func(makes bool) string {
		if makes {
			return "would be made"
		}
		return "is there"
	}
	fmt.Fprintf(&b, "%s: slot %s %s, publication %s %s\n", r.Server, r.Slot, verb(r.MakesSlot), r.Publication, verb(r.MakesPublication))
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "%s: about %s, %s; keys %s; replica identity %s; into %s", t.Table, plural(t.EstimatedRows, "row", "rows"), humanSize(t.Bytes), strings.Join(t.Keys, ", "), t.ReplicaIdentity, t.Target)
		if len(t.LeftOut) > 0 {
			fmt.Fprintf(&b, "; generated columns are left out: %s", strings.Join(t.LeftOut, ", "))
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
