package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/postgres"
)

// ownSlots refuses two flows of one script that read one replication slot: the first
// would move it over what the second has not read (docs/rfcs/statements.md).
func (r *statementRun) ownSlots() error {
	readers := map[string]string{}
	for _, b := range r.flows {
		if !b.readsServer() {
			continue
		}
		settings := map[string]string{}
		maps.Copy(settings, b.flags.option.values)
		o, err := postgres.ParseURL(b.flags.from[0], settings)
		if err != nil {
			return fmt.Errorf("source %s: %w", b.plan.Source, err)
		}
		slot := fmt.Sprintf("%s:%d/%s", o.Conn.Host, o.Conn.Port, o.Slot)
		if other, taken := readers[slot]; taken {
			return &cliError{code: "SLOT_BUSY", exit: exitUsage,
				message: fmt.Sprintf("flows %s and %s both read slot %s, and what one has read is gone for the other", other, b.plan.FlowName, o.Slot),
				hint:    "give each flow a source of its own, with OPTIONS (slot = 'NAME')"}
		}
		readers[slot] = b.plan.FlowName
	}
	return nil
}

// readsServer tells whether the flow follows a database server.
func (b *boundFlow) readsServer() bool {
	return len(b.flags.from) == 1 && postgres.IsURL(b.flags.from[0])
}

// planFlow is planServer of a flow of a script. A table that the server does not have,
// and several without a word which, are refused before anything is made on either side.
func (r *statementRun) planFlow(ctx context.Context, b *boundFlow) (*serverPlan, error) {
	in, err := r.openInput(ctx, &b.flags, b.columns())
	if err != nil {
		return nil, err
	}
	src, ok := in.Source.(*postgres.Source)
	if !ok {
		return nil, errors.Join(fmt.Errorf("source %s is not a server", b.plan.Source), in.Source.Close())
	}
	p, err := r.planTable(ctx, b, src)
	return p, errors.Join(err, src.Close())
}

func (r *statementRun) planTable(ctx context.Context, b *boundFlow, src *postgres.Source) (*serverPlan, error) {
	f := b.flags
	f.into = b.where
	var names []string
	p, err := serverPlanOf(ctx, &f, src, apply.Targets{Name: b.target.Name, Select: func(t event.Table) bool {
		names = append(names, t.Schema+"."+t.Name)
		return f.table == "" || tableMatches(t, f.table)
	}})
	switch {
	case err != nil:
		return nil, err
	case len(p.Tables) == 0:
		return nil, &cliError{code: "SOURCE_TABLE_NOT_FOUND", exit: exitNotFound, message: fmt.Sprintf("the server has no table %s among those that it is asked for", f.table),
			hint: "it has " + strings.Join(names, ", ")}
	case len(p.Tables) > 1:
		return nil, &cliError{code: apply.CodeAmbiguousTable, exit: exitUsage, message: fmt.Sprintf("source %s holds tables %s, and a flow reads one", b.plan.Source, strings.Join(slices.Sorted(slices.Values(names)), ", ")),
			hint: "name it: CREATE SOURCE ... TABLE 'SCHEMA.TABLE', or ?tables=SCHEMA.TABLE in the URL"}
	}
	return p, nil
}
