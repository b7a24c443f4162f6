package sql

import (
	"github.com/sluice-data/sluice/log/schema"
)

// SourceSchema is what is known of a source before it is read.
type SourceSchema struct {
	// Columns are the data columns in source order; nil: not known.
	Columns *schema.Struct
	// OwnSequence: the format carries the position of every event (cdc-formats 0.3),
	// which orders them when SEQUENCE BY is missing; Position is its type, if known.
	OwnSequence bool
	Position    schema.Type
	// ChangeFeed: the source is the change feed of a Delta table (auto-cdc 2.11).
	ChangeFeed bool
}

// Schemas are the sources that are known, by name. A source that is missing is
// analysed as far as the statements go.
type Schemas map[string]SourceSchema

func (s Schemas) of(name string) SourceSchema {
	if have, ok := s[name]; ok {
		return have
	}
	for n, have := range s {
		if fold(n) == fold(name) {
			return have
		}
	}
	return SourceSchema{}
}

// Plan is a validated script: the one spec that all front ends lead to.
type Plan struct {
	Sources  []*Source
	Tables   []*TablePlan
	Flows    []*FlowPlan // in text order
	Warnings []string
}

// TablePlan is a target with the flows into it.
type TablePlan struct {
	*Table
	// Derived is the schema of the target: selected source columns in source order
	// (of the first flow), then the framework columns, in declared order if the
	// table declares columns. nil: a source is not known.
	Derived *schema.Struct
	Flows   []*FlowPlan
}

// FlowPlan is a flow with what its source schema makes of it. Column names are
// plain (not quoted), spelled as in the source if that is known.
type FlowPlan struct {
	*Flow
	FlowName string // never empty
	Into     *TablePlan
	Binding  *Source // CREATE SOURCE of the name, nil if there is none
	SCD      string  // "1", "2" or "bitemporal"

	KeyColumns []string
	// queried are the columns that the query of snapshots selects; nil: all.
	queried []string
	// FieldMode: partial updates, by IGNORE NULL UPDATES or COLUMNS TO UPDATE.
	FieldMode bool

	// What follows is known only with the source's schema (Known).
	Known          bool
	Selected       *schema.Struct // columns that land in the target, in source order
	IgnoreNull     []string       // top-level columns covered by IGNORE NULL UPDATES
	Tracked        []string       // SCD2 and BITEMPORAL: tracked columns
	Sequence       schema.Type    // nil for snapshots
	SystemSequence schema.Type    // BITEMPORAL
	VersionType    schema.Type    // of WITH VERSION, nil if it is not a plain column
}

// The framework columns of SCD2 and BITEMPORAL targets (auto-cdc 1.4 rule 4).
const (
	StartAt       = "__START_AT"
	EndAt         = "__END_AT"
	SystemStartAt = "__SYSTEM_START_AT"
	SystemEndAt   = "__SYSTEM_END_AT"

	reservedPrefix = "__sluice"
)

func frameworkColumns(scd string) []string {
	switch scd {
	case "2":
		return []string{StartAt, EndAt}
	case "bitemporal":
		return []string{StartAt, EndAt, SystemStartAt, SystemEndAt}
	}
	return nil
}

// fieldMode is the mode in words, by which flows of one target must agree.
func (f *Flow) fieldMode() string {
	switch {
	case f.ColumnsToUpdate != "":
		return "COLUMNS TO UPDATE"
	case f.ignoresNulls():
		return "IGNORE NULL UPDATES"
	}
	return "whole rows"
}

func (f *Flow) ignoresNulls() bool {
	return f.IgnoreNullUpdates || f.IgnoreNullUpdatesColumnList != nil || f.IgnoreNullUpdatesExceptColumnList != nil
}
