package delta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	deltalog "github.com/sluice-data/sluice/log"

	"github.com/sluice-data/sluice/log/schema"
)

// Evolve is the table of a version with a schema that takes rows of the incoming
// one, by the rules of [schema.Merge]: what is new is added, types are widened where
// the table has type widening on, and columns of a mapped table get fresh ids and
// physical names (W-503). It is snap's own configuration when nothing is new. Nothing
// is written: the caller stages Metadata and, if it differs, Protocol in the commit
// that needs the columns (B21), and lays files out by the answer.
//
// Errors, before any file is written: [*SchemaMismatchError] for types that cannot
// be merged, [*UpgradeError] for a type whose feature the table lacks,
// deltalog.ErrInvalid for names that may not be columns of the table.
func (t *Table) Evolve(snap *deltalog.TableConfig, incoming *schema.Struct) (*deltalog.TableConfig, error) {
	var o schema.MergeOptions
	if snap.WidensTypes() {
		o.Widen = func(from, to schema.Type) bool {
			// The new type may need a feature of its own, which is not added unasked.
			return schema.CanEvolve(from, to) && (to != schema.TimestampNTZ || snap.Supports(deltalog.TimestampNTZ))
		}
	}
	s, err := schema.Merge(snap.Schema, incoming, o)
	if err != nil {
		var r *schema.RuleError
		if errors.As(err, &r) {
			return nil, &SchemaMismatchError{r.Column, r.Reason}
		}
		return nil, err
	}
	if s == snap.Schema {
		return snap, nil
	}
	return t.withSchema(snap, s, snap.PartitionColumns(), true)
}

// withSchema is a table with another schema, checked as the commit will check it;
// changesData is whether the same commit changes rows.
func (t *Table) withSchema(cfg *deltalog.TableConfig, s *schema.Struct, partition []string, changesData bool) (*deltalog.TableConfig, error) {
	m := *cfg.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	if cfg.Mode() != schema.ModeNone {
		var maxID int32
		s, maxID = schema.AssignMapping(s, cfg.Props.ColumnMappingMaxID, func() string { return "col-" + t.opts.NewID() })
		m.Configuration["delta.columnMapping.maxColumnId"] = strconv.Itoa(int(maxID))
	}
	if err := schema.CheckNewTable(s, partition); err != nil && schema.CheckNewTable(cfg.Schema, cfg.PartitionColumns()) == nil {
		return nil, invalidSchema(err)
	}
	if err := schema.CheckWritable(s); err != nil && changesData {
		return nil, invalidSchema(err)
	}
	if err := t.checkFeatures(cfg, s); err != nil {
		return nil, err
	}
	m.SchemaString, m.PartitionColumns = s.JSON(), partition
	after, err := deltalog.NewTableConfig(cfg.Protocol, &m)
	if err != nil {
		return nil, err
	}
	if err := deltalog.CheckTable(cfg, after, changesData); err != nil {
		return nil, err
	}
	return after, nil
}

// checkFeatures refuses columns whose type needs a feature that the table lacks.
func (t *Table) checkFeatures(cfg *deltalog.TableConfig, s *schema.Struct) error {
	var missing []deltalog.Feature
	if uses(s, schema.TimestampNTZ) && !cfg.Supports(deltalog.TimestampNTZ) {
		missing = append(missing, deltalog.TimestampNTZ)
	}
	if uses(s, schema.Variant) && !cfg.Supports("variantType") && !cfg.Supports("variantType-preview") {
		missing = append(missing, "variantType")
	}
	if missing != nil {
		return &UpgradeError{Features: missing}
	}
	return nil
}

// Replaced is the table of a version with a schema of its own for a whole overwrite
// (W-407, W-408): the columns of incoming, nullable, in its order. A column that the
// table has under the same name with the same type keeps what the table knows of it;
// any other of a mapped table is a new column with a fresh physical name. partition
// nil keeps the partition columns. CHECK constraints must still have their columns.
func (t *Table) replaced(snap *deltalog.Snapshot, incoming *schema.Struct, partition []string) (*deltalog.TableConfig, error) {
	s := schema.Nullable(incoming)
	for i, f := range s.Fields {
		if j := snap.Schema.Index(f.Name); j >= 0 && schema.EqualIgnoringNullability(snap.Schema.Fields[j].Type, f.Type) {
			s.Fields[i] = snap.Schema.Fields[j]
		}
	}
	if partition == nil {
		partition = snap.PartitionColumns()
	}
	own := make([]string, len(partition))
	for i, p := range partition {
		j := s.Index(p)
		if j < 0 {
			return nil, &deltalog.InvalidError{ErrorCode: "DELTA_INVALID_PARTITION_COLUMN", Rule: "W-408",
				Reason: fmt.Sprintf("partition column %s is not among the new columns; name the new partition columns", p)}
		}
		own[i] = s.Fields[j].Name
	}
	if schema.Equal(s, snap.Schema) && s.JSON() == snap.Schema.JSON() && slices.Equal(own, snap.PartitionColumns()) {
		return snap.TableConfig, nil
	}
	if schema.Equal(s, snap.Schema) {
		s = snap.Schema
	}
	for _, f := range snap.Schema.Fields {
		if j := s.Index(f.Name); j >= 0 && schema.Equal(s.Fields[j].Type, f.Type) {
			continue
		}
		if by := dependents(snap, snap.Schema, []string{f.Name}); by != "" {
			return nil, dependent("replaced", f.Name, by)
		}
	}
	return t.withSchema(snap.TableConfig, s, own, true)
}

// evolution says what a write may do with the table's schema.
type evolution struct {
	merge   bool
	replace bool
	// partition are the partition columns of a replaced schema, nil keeps them.
	partition []string
	// last is the schema that was fitted last; batches of one stream mostly share it.
	last *arrow.Schema
}

// fit is the table that takes batches of schema b, cfg itself when it does.
func (e *evolution) fit(t *Table, snap *deltalog.Snapshot, cfg *deltalog.TableConfig, b *arrow.Schema) (*deltalog.TableConfig, error) {
	if !e.merge && !e.replace || e.last != nil && e.last.Equal(b) {
		return cfg, nil
	}
	first := e.last == nil
	incoming, err := schema.FromArrow(b)
	if err != nil {
		return nil, &SchemaMismatchError{Column: "", Reason: err.Error()}
	}
	e.last = b
	switch {
	case first && e.replace:
		return t.replaced(snap, incoming, e.partition)
	case e.merge:
		return t.Evolve(cfg, incoming)
	}
	return cfg, nil
}

// dependents says what of a table would break if the column (a path of names) were
// dropped, renamed or got another type (W-504), "" if nothing does.
func dependents(snap *deltalog.Snapshot, s *schema.Struct, path []string) string {
	if by := rulesOn(s, snap.Metadata.Configuration, path); by != "" {
		return by
	}
	// A domain that cannot be read shuts no column out; optimize says what is wrong with it.
	columns, _ := snap.ClusteringColumns()
	if slices.ContainsFunc(columns, func(c []string) bool { c = logicalPath(snap.Schema, c); return prefixed(c, path) || prefixed(path, c) }) {
		return "clustering"
	}
	return ""
}

func dependent(what, column, by string) error {
	return &deltalog.InvalidError{ErrorCode: "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE", Rule: "W-504",
		Reason: fmt.Sprintf("column %s cannot be %s: %s uses it", column, what, by)}
}

// prefixed reports whether path begins with prefix, ignoring case.
func prefixed(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.EqualFunc(path[:len(prefix)], prefix, strings.EqualFold)
}
