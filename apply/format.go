package apply

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/storage"
)

// StoredFormat is the form of records that the flow of a spec keeps (Flow.Format), and
// whether its user named it; "" before its first commit. Only the target and the names
// of the spec count. A state that cannot be read is for [Run] to report.
func StoredFormat(ctx context.Context, spec Spec, o Options) (format string, named bool) {
	r := &run{spec: spec, o: o.withDefaults(), flow: spec.Flow, targets: map[string]*target{}, tables: map[event.Table]string{}, warned: map[string]bool{}}
	if r.name = r.flow.Name; r.name == "" {
		r.name = path.Base(strings.TrimSuffix(spec.Target.Name, "/"))
	}
	of := func(t *target) (string, bool) {
		t.quiet = true
		if t.pin(ctx) != nil {
			return "", false
		}
		t.adoptName(r.flow.Name)
		d := t.state.flows[t.flow]
		return d.Format, d.FormatNamed
	}
	if spec.Target.Route == nil {
		return of(newTarget(r, "", spec.Target.Name, spec.Target.Store))
	}
	table, err := newStateTable(storage.Sub(spec.Target.Root, "_apply/flow"), r.o)
	if err != nil {
		return "", false
	}
	low := &lowWater{table: table, state: newState()}
	if low.load(ctx) != nil {
		return "", false
	}
	for _, k := range slices.SortedFunc(maps.Keys(low.state.members), compareSource) {
		if k.flow != r.name || r.addTarget(k.source) != nil {
			continue
		}
		if format, named = of(r.targets[k.source]); format != "" {
			return format, named
		}
	}
	return "", false
}
