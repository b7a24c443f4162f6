package apply

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// track resolves which fields of a target with history are tracked, and holds that
// to what the flows of the target have stored (auto-cdc 1.6): a column that the
// target had keeps its side, whatever form the clause has; a new one joins a default
// or EXCEPT set, and no list.
func (a *attempt) track(plans []*plan) error {
	s := a.shape
	if len(s.frame) == 0 {
		return nil
	}
	had := map[string]bool{} // lower name -> tracked, as stored
	for _, name := range slices.Sorted(maps.Keys(a.t.state.flows)) {
		d := a.t.state.flows[name]
		for _, c := range d.Tracked {
			had[strings.ToLower(c)] = true
		}
		for _, c := range d.Untracked {
			had[strings.ToLower(c)] = false
		}
	}
	now := maps.Clone(had)
	for _, p := range plans {
		for i, tracked := range p.tracked {
			name := p.source.Fields[i].Name
			was, known := had[strings.ToLower(name)]
			switch {
			case known && was != tracked:
				return stored(CodeTrackHistoryDrift, "column %q is %s in the target and %s in the flow; a full refresh is needed to change it",
					name, trackedText(was), trackedText(tracked))
			case !known && len(had) > 0 && tracked && p.tracksList:
				return stored(CodeTrackHistoryDrift, "column %q joins the list of tracked columns; a full refresh is needed to change it", name)
			}
			now[strings.ToLower(name)] = tracked
			if tracked && p.sequence != nil && slices.ContainsFunc(p.sequence.Columns(), func(c string) bool { return strings.EqualFold(c, name) }) {
				a.t.run.warn(fmt.Sprintf("%s: column %q orders the events and is tracked, so that no two versions are equal; leave it out of the target or of the tracked columns", a.t.title, name))
			}
		}
	}
	s.tracked = make([]bool, len(s.fields))
	a.def.Tracked, a.def.Untracked = nil, nil
	for col, own := range s.ofColumn {
		if len(own) == 0 {
			continue
		}
		name := s.schema.Fields[col].Name
		tracked, known := now[strings.ToLower(name)]
		tracked = tracked || !known
		for _, f := range own {
			s.tracked[f] = tracked
		}
		if tracked {
			a.def.Tracked = append(a.def.Tracked, name)
		} else {
			a.def.Untracked = append(a.def.Untracked, name)
		}
	}
	slices.Sort(a.def.Tracked)
	slices.Sort(a.def.Untracked)
	return nil
}

func trackedText(t bool) string {
	if t {
		return "tracked"
	}
	return "not tracked"
}
