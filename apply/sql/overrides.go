package sql

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/apply"
	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/log/schema"
)

// Override is what some source tables of a stream of many have of their own: a flow's
// options, and where their target lies.
type Override struct {
	// Tables are names and patterns of source tables, as [apply.SelectTables] takes them.
	Tables []string
	// Target is the target's path below the root of the targets, with {table} and
	// {schema} for the names; "": as for other tables.
	Target string

	evolution apply.Evolution
	hints     *schema.Struct

	fits  func(event.Table) bool
	given positions
	plan  *FlowPlan
}

// Place is where the override stands in its text.
func (o *Override) Place() Pos { return o.given.of("") }

// Fits tells whether the override is one of the table's.
func (o *Override) Fits(t event.Table) bool { return o.fits(t) }

// PlaceOfTarget is where Target stands in its text.
func (o *Override) PlaceOfTarget() Pos { return o.given.of("target") }

// ParseOverrides reads a mapping with the list tables, each with table (names or
// patterns), target and the options of a flow under their Python names (auto-cdc 1.7).
// Each is held to the rules of phase A. The error is [Errors].
func ParseOverrides(text string) ([]*Override, error) {
	y := &yamlReader{script: &Script{}}
	m := y.root(text)
	var out []*Override
	if m != nil {
		for _, e := range m.items(y, "tables", "a table") {
			out = append(out, y.override(e))
		}
		m.rest(y, "the document")
	}
	if err := y.err(); err != nil {
		return nil, err
	}
	return out, nil
}

func (y *yamlReader) override(m *yamlMap) *Override {
	f := &Flow{at: positions{"": nodePos(m.node)}}
	o := &Override{given: f.at, Tables: m.list(y, "table", f.at), Target: m.str(y, "target", f.at)}
	y.clauses(m, f)
	t := &Table{Name: "t", at: f.at, raw: originals{}}
	t.Comment = m.str(y, "comment", t.at)
	t.TableProperties, t.propertyOrder, _ = m.texts(y, "table_properties", t.at)
	t.PartitionCols = m.list(y, "partition_cols", t.at)
	y.expectations(m, t)
	o.evolution = apply.Evolution(m.str(y, "schema_evolution", f.at))
	if o.evolution != "" && !slices.Contains(apply.Evolutions(), string(o.evolution)) {
		y.add(f.at.item("schema_evolution", 0), CodeSyntax, "modes are: "+strings.Join(apply.Evolutions(), ", "), "there is no schema evolution %q", clip(string(o.evolution)))
	}
	o.hints = y.ddl(m, "schema_hints", f.at)
	m.rest(y, "a table")
	if len(o.Tables) == 0 {
		y.add(o.given.of("table"), CodeSyntax, "write table: NAME, SCHEMA.NAME or a pattern such as sales.*", "the entry names no table")
	}
	for i, p := range o.Tables {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			y.add(o.given.item("table", i), CodeSyntax, "a set is written [a-z]", "the pattern %q is not closed, or it is empty", clip(p))
		}
	}
	if y.list != nil {
		return o
	}
	o.fits, _ = apply.SelectTables(o.Tables, nil) // its only error is that of a pattern
	y.checkOverride(o, f, t)
	return o
}

// checkOverride analyses the options by themselves; what is not given is taken to fit.
func (y *yamlReader) checkOverride(o *Override, f *Flow, t *Table) {
	whole := *f
	whole.Source, whole.Target = "s", "t"
	if whole.Keys == nil {
		whole.Keys = []string{"_"}
		if len(f.ColumnList) > 0 {
			whole.Keys = f.ColumnList[:1] // the engine holds the flow's keys to the list
		}
	}
	if f.TrackHistoryColumnList != nil || f.TrackHistoryExceptColumnList != nil {
		if f.StoredAsSCDType == "" {
			whole.StoredAsSCDType = "2" // that of the flow is not known here
		}
	}
	if whole.StoredAsSCDType == "bitemporal" && whole.SystemSequenceBy == "" || whole.SystemSequenceBy != "" && whole.StoredAsSCDType == "" {
		whole.StoredAsSCDType, whole.SystemSequenceBy = "bitemporal", "_"
	}
	plan, err := Analyze(&Script{Tables: []*Table{t}, Flows: []*Flow{&whole}}, Schemas{"s": {OwnSequence: true}})
	var list Errors
	if errors.As(err, &list) {
		y.list = append(y.list, list...)
		return
	}
	o.plan = plan.Flows[0]
}

// has tells whether the text gives one of the options.
func (o *Override) has(options ...string) bool {
	return slices.ContainsFunc(options, func(x string) bool { _, ok := o.given[x]; return ok })
}

// Apply is the flow of the override's tables: base with what the override gives.
// Options that exclude each other are given together.
func (o *Override) Apply(base apply.Flow) apply.Flow {
	own := o.plan.Apply()
	f := base
	set := func(do func(), options ...string) {
		if o.has(options...) {
			do()
		}
	}
	set(func() { f.Keys = own.Keys }, "keys")
	set(func() { f.SequenceBy = own.SequenceBy }, "sequence_by")
	set(func() { f.SystemSequenceBy = own.SystemSequenceBy }, "system_sequence_by")
	set(func() { f.ApplyAsDeletes = own.ApplyAsDeletes }, "apply_as_deletes")
	set(func() { f.ApplyAsTruncates = own.ApplyAsTruncates }, "apply_as_truncates")
	set(func() { f.ColumnsToUpdate = own.ColumnsToUpdate }, "columns_to_update")
	set(func() { f.StoredAsSCDType = own.StoredAsSCDType }, "stored_as_scd_type")
	set(func() { f.Evolution = o.evolution }, "schema_evolution")
	set(func() {
		f.Hints = o.hints
		if f.Evolution == "" {
			f.Evolution = apply.EvolveAddWiden
		}
	}, "schema_hints")
	set(func() { f.Comment = own.Comment }, "comment")
	set(func() { f.Properties = own.Properties }, "table_properties")
	set(func() { f.PartitionBy = own.PartitionBy }, "partition_cols")
	set(func() { f.Expectations = own.Expectations }, "expect.0")
	set(func() { f.ColumnList, f.ExceptColumnList = own.ColumnList, own.ExceptColumnList }, "column_list", "except_column_list")
	set(func() {
		f.IgnoreNullUpdates, f.IgnoreNullUpdatesColumnList, f.IgnoreNullUpdatesExceptColumnList = own.IgnoreNullUpdates, own.IgnoreNullUpdatesColumnList, own.IgnoreNullUpdatesExceptColumnList
	}, "ignore_null_updates", "ignore_null_updates_column_list", "ignore_null_updates_except_column_list")
	set(func() {
		f.TrackHistoryColumnList, f.TrackHistoryExceptColumnList = own.TrackHistoryColumnList, own.TrackHistoryExceptColumnList
	}, "track_history_column_list", "track_history_except_column_list")
	return f
}

// Keys are the override's key columns; nil: those of other tables.
func (o *Override) Keys() []string {
	if !o.has("keys") {
		return nil
	}
	return o.plan.Apply().Keys
}
