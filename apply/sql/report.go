package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// TableReport says in words what a plan means for one target.
type TableReport struct {
	Table string `json:"table"`
	// Schema is the DDL of the target's columns; "" while a source is not known.
	Schema       string            `json:"schema,omitempty"`
	StoredAs     string            `json:"stored_as,omitempty"`
	Keys         []string          `json:"keys,omitempty"`
	PartitionBy  []string          `json:"partition_by,omitempty"`
	ClusterBy    []string          `json:"cluster_by,omitempty"`
	Properties   map[string]string `json:"properties,omitempty"`
	Expectations []string          `json:"expectations,omitempty"`
	Flows        []FlowReport      `json:"flows"`
}

// FlowReport is one flow of a [TableReport].
type FlowReport struct {
	Flow         string `json:"flow"`
	Source       string `json:"source,omitempty"`
	Snapshot     string `json:"snapshot,omitempty"`
	Version      string `json:"version,omitempty"`
	Sequence     string `json:"sequence,omitempty"`
	SequenceType string `json:"sequence_type,omitempty"`
	System       string `json:"system_sequence,omitempty"`
	SystemType   string `json:"system_sequence_type,omitempty"`
	Deletes      string `json:"deletes,omitempty"`
	Truncates    string `json:"truncates,omitempty"`
	// Mode is how partial events are taken: "whole rows" or a clause.
	Mode       string   `json:"mode"`
	IgnoreNull []string `json:"ignore_null,omitempty"`
	Tracked    []string `json:"tracked,omitempty"`
	Once       bool     `json:"once,omitempty"`
}

// Report describes every table of the plan, in text order.
func (p *Plan) Report() []TableReport {
	out := make([]TableReport, 0, len(p.Tables))
	for _, t := range p.Tables {
		r := TableReport{Table: t.Name, PartitionBy: columns(t.PartitionCols), ClusterBy: columns(t.ClusterBy), Properties: t.TableProperties, Flows: []FlowReport{}}
		if t.ClusterByAuto {
			r.ClusterBy = []string{"AUTO"}
		}
		if s := t.Derived; s != nil {
			r.Schema = ddl(s)
		}
		for _, e := range t.Expectations {
			text := e.Name + ": " + canonicalExpr(e.Expr)
			if e.OnViolation != Warn {
				text += " ON VIOLATION " + string(e.OnViolation)
			}
			r.Expectations = append(r.Expectations, text)
		}
		for _, f := range t.Flows {
			if r.StoredAs == "" {
				r.StoredAs = "SCD TYPE " + f.SCD
				if f.SCD == "bitemporal" {
					r.StoredAs = "BITEMPORAL"
				}
				r.Keys = slices.Clone(f.KeyColumns)
			}
			r.Flows = append(r.Flows, f.report())
		}
		out = append(out, r)
	}
	return out
}

func ddl(s *schema.Struct) string {
	cols := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		cols[i] = columnText(f)
	}
	return strings.Join(cols, ", ")
}

func (f *FlowPlan) report() FlowReport {
	typ := func(t schema.Type) string {
		if t == nil {
			return ""
		}
		return t.String()
	}
	return FlowReport{Flow: f.FlowName, Source: f.Source, Snapshot: f.Snapshot, Version: f.SnapshotVersion, Sequence: canonicalExpr(f.SequenceBy),
		SequenceType: typ(f.Sequence), System: canonicalExpr(f.SystemSequenceBy), SystemType: typ(f.SystemSequence), Deletes: canonicalExpr(f.ApplyAsDeletes),
		Truncates: canonicalExpr(f.ApplyAsTruncates), Mode: f.fieldMode(), IgnoreNull: f.IgnoreNull, Tracked: f.Tracked, Once: f.Once}
}

// String is the report as lines of a human.
func (r TableReport) String() string {
	var b strings.Builder
	line := func(indent, what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, what, value)
		}
	}
	line("", "table", r.Table)
	line("  ", "columns", r.Schema)
	line("  ", "stored as", r.StoredAs)
	line("  ", "keys", strings.Join(r.Keys, ", "))
	line("  ", "partitioned by", strings.Join(r.PartitionBy, ", "))
	line("  ", "clustered by", strings.Join(r.ClusterBy, ", "))
	if len(r.Properties) > 0 {
		line("  ", "properties", properties(r.Properties, nil))
	}
	for _, e := range r.Expectations {
		line("  ", "expects", e)
	}
	for _, f := range r.Flows {
		line("  ", "flow", f.Flow)
		line("    ", "source", f.Source)
		line("    ", "snapshot", f.Snapshot)
		line("    ", "version", f.Version)
		line("    ", "sequence", typed(f.Sequence, f.SequenceType))
		line("    ", "system sequence", typed(f.System, f.SystemType))
		line("    ", "deletes when", f.Deletes)
		line("    ", "truncates when", f.Truncates)
		line("    ", "mode", f.Mode)
		line("    ", "nulls ignored in", strings.Join(f.IgnoreNull, ", "))
		line("    ", "tracked", strings.Join(f.Tracked, ", "))
		if f.Once {
			line("    ", "once", "yes")
		}
	}
	return b.String()
}

func typed(expr, typ string) string {
	if typ == "" {
		return expr
	}
	return expr + " (" + typ + ")"
}
