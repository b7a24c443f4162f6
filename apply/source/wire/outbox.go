package wire

import (
	"fmt"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// Outbox is what a decoder has for its next Flush beside the batches of its
// tables. Decoders embed it; it is used from one goroutine.
type Outbox struct {
	rows     int
	bytes    int64
	poison   []event.Poison
	controls map[event.ControlKind]int64
	warnings []string
	warned   map[string]bool
}

// Pending is the number of change rows and source bytes counted since the last
// Handover (event.Decoder).
func (o *Outbox) Pending() (rows int, bytes int64) { return o.rows, o.bytes }

// Count adds change rows and the source bytes behind them.
func (o *Outbox) Count(rows int, bytes int64) {
	o.rows += rows
	o.bytes += bytes
}

// Control counts n records that carry no row.
func (o *Outbox) Control(k event.ControlKind, n int64) {
	if o.controls == nil {
		o.controls = map[event.ControlKind]int64{}
	}
	o.controls[k] += n
}

// Quarantine takes a record that cannot be applied.
func (o *Outbox) Quarantine(p event.Poison) { o.poison = append(o.poison, p) }

// Warn says something once in the life of the decoder.
func (o *Outbox) Warn(format string, args ...any) {
	w := fmt.Sprintf(format, args...)
	if o.warned[w] {
		return
	}
	if o.warned == nil {
		o.warned = map[string]bool{}
	}
	o.warned[w] = true
	o.warnings = append(o.warnings, w)
}

// Handover is everything since the last one; the batches are for the decoder to add.
func (o *Outbox) Handover() *event.Decoded {
	out := &event.Decoded{Poison: o.poison, Controls: o.controls, Warnings: o.warnings}
	if out.Controls == nil {
		out.Controls = map[event.ControlKind]int64{}
	}
	*o = Outbox{warned: o.warned}
	return out
}

// TypedColumn is a column with its type as a decoder's state keeps it.
type TypedColumn struct {
	Name string `json:"n"`
	Type string `json:"t"`
}

// Remember lists the columns whose types were inferred, for a decoder's state.
func (t *Table) Remember() []TypedColumn {
	var out []TypedColumn
	for _, f := range t.InferredTypes() {
		out = append(out, TypedColumn{f.Name, f.Type.String()})
	}
	return out
}

// Recall gives the types that an earlier run remembered; texts that are no types
// are passed over.
func (t *Table) Recall(cols []TypedColumn) {
	var preset []schema.Field
	for _, c := range cols {
		if typ, err := schema.ParseType(c.Type); err == nil {
			preset = append(preset, schema.Field{Name: c.Name, Type: typ})
		}
	}
	t.Preset(preset)
}

// TableKey names a source table in a decoder's state.
func TableKey(t event.Table) string { return t.Database + "/" + t.Schema + "/" + t.Name }

// Asked tells whether a list of tables, of which an empty one means all, names t.
func Asked(t event.Table, tables []string) bool {
	for _, want := range tables {
		if SameTable(t, want) {
			return true
		}
	}
	return len(tables) == 0
}
