package sql

import (
	"maps"

	"github.com/sluice-data/sluice/apply"
)

// Apply is the flow as the engine takes it, with what the target's table says.
// Source, decoder, target store and limits of a run are the caller's.
func (p *FlowPlan) Apply() apply.Flow {
	f := apply.Flow{
		Name:                              plainName(p.FlowName),
		Keys:                              p.KeyColumns,
		SequenceBy:                        p.SequenceBy,
		ApplyAsDeletes:                    p.ApplyAsDeletes,
		ApplyAsTruncates:                  p.ApplyAsTruncates,
		ColumnList:                        p.only(),
		ExceptColumnList:                  columns(p.ExceptColumnList),
		StoredAsSCDType:                   p.SCD,
		IgnoreNullUpdates:                 p.IgnoreNullUpdates,
		IgnoreNullUpdatesColumnList:       columns(p.IgnoreNullUpdatesColumnList),
		IgnoreNullUpdatesExceptColumnList: columns(p.IgnoreNullUpdatesExceptColumnList),
		TrackHistoryColumnList:            columns(p.TrackHistoryColumnList),
		TrackHistoryExceptColumnList:      columns(p.TrackHistoryExceptColumnList),
		SystemSequenceBy:                  p.SystemSequenceBy,
		Snapshot:                          p.Snapshot,
		SnapshotVersion:                   p.SnapshotVersion,
		Once:                              p.Once,
	}
	if p.ColumnsToUpdate != "" {
		f.ColumnsToUpdate = columns([]string{p.ColumnsToUpdate})[0]
	}
	if t := p.Into; t != nil {
		f.PartitionBy = columns(t.PartitionCols)
		f.Properties = maps.Clone(t.TableProperties)
		f.Comment = t.Comment
		for _, e := range t.Expectations {
			f.Expectations = append(f.Expectations, apply.Expectation{Name: e.Name, Expr: e.Expr, OnViolation: string(e.OnViolation)})
		}
	}
	return f
}

// plainName is a name without its quotes.
func plainName(name string) string {
	parts := NameParts(name)
	if len(parts) == 1 {
		return parts[0]
	}
	return name
}
