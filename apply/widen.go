package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// widening is the table with the fields that structs of the source have more, at any
// depth, and with wider types for what comes wider where it has
// delta.enableTypeWidening = true and the protocol allows the pair (auto-cdc 1.4); nil:
// nothing is to be changed, and what does not fit is refused by the shape.
func (t *target) widening(plans []*plan) *deltalog.TableConfig {
	if t.snap == nil || t.adopt || t.state.target.Fresh {
		return nil
	}
	incoming := &schema.Struct{}
	for _, p := range plans {
		for _, i := range p.selected {
			c := p.source.Fields[i]
			at := t.snap.Schema.Index(c.Name)
			if at < 0 || c.Type == schema.Void || slices.Contains(p.keys, i) {
				continue
			}
			have := t.snap.Schema.Fields[at]
			if fits(c.Type, have.Type) {
				continue
			}
			if other := incoming.Index(c.Name); other < 0 {
				incoming.Fields = append(incoming.Fields, schema.Field{Name: have.Name, Type: nullable(c.Type), Nullable: true})
			} else if j, ok := joined(c.Name, incoming.Fields[other].Type, c.Type); ok {
				incoming.Fields[other].Type = j
			}
		}
	}
	if len(incoming.Fields) == 0 {
		return nil
	}
	cfg, err := t.table.Evolve(t.snap.TableConfig, incoming)
	if err != nil || cfg == t.snap.TableConfig {
		return nil // the shape refuses the column by name
	}
	for _, f := range incoming.Fields {
		if now := cfg.Schema.Fields[cfg.Schema.Index(f.Name)]; !fits(f.Type, now.Type) {
			return nil
		}
	}
	return cfg
}

// widens tells whether the target's columns may become wider; one that is not there yet
// will have what the flow says.
func (t *target) widens() bool {
	if t.snap != nil {
		return t.snap.WidensTypes()
	}
	for k, v := range t.rules().Properties {
		if strings.EqualFold(k, "delta.enableTypeWidening") {
			return strings.EqualFold(v, "true")
		}
	}
	return false
}

// columnTypes are the data columns of an existing target, whose types records that
// carry none are read as. Nil where none must be: the target's own may become wider.
func (t *target) columnTypes() *schema.Struct {
	if t.snap == nil || t.snap.WidensTypes() {
		return nil
	}
	out := &schema.Struct{}
	for _, f := range t.snap.Schema.Fields {
		if !slices.ContainsFunc(frameColumns, func(n string) bool { return strings.EqualFold(n, f.Name) }) && f.Name != rescuedColumn {
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}

// widen commits the wider types by themselves; the batch is tried again on them.
func (t *target) widen(ctx context.Context, cfg *deltalog.TableConfig) error {
	var changed []string
	for _, f := range cfg.Schema.Fields {
		if at := t.snap.Schema.Index(f.Name); at >= 0 && !schema.EqualIgnoringNullability(plainType(t.snap.Schema.Fields[at].Type), plainType(f.Type)) {
			changed = append(changed, fmt.Sprintf("%s from %s to %s", f.Name, t.snap.Schema.Fields[at].Type, f.Type))
		}
	}
	t.run.warn(fmt.Sprintf("%s: type widened: %s", t.title, strings.Join(changed, ", ")))
	p := &proposal{t: t, began: t.run.o.Clock(), facts: t.walked, config: &tableChange{metadata: cfg.Metadata, config: cfg}, operation: "CHANGE COLUMN"}
	if _, err := p.commit(ctx); err != nil {
		return fmt.Errorf("widen columns: %w", err)
	}
	return nil
}
