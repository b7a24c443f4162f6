package deltalog

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/sluice-data/sluice/log/schema"
)

// TableConfig is the validated mix of protocol, metadata, properties and schema.
//
// Any value of it guarantees:
//
//  1. The protocol has a legal shape and passed the reader gate.
//  2. Schema is the parsed schemaString, and every partition column is in it.
//  3. With column mapping on, every field has an id and a physical name.
//  4. Props are typed; malformed ones that bind readers were refused.
type TableConfig struct {
	Protocol *Protocol
	Metadata *Metadata
	// Schema is logical, partition columns included.
	Schema *schema.Struct
	Props  Properties
	bad    []badProperty
	// features are the protocol's, by lower-case name.
	features map[string]bool
}

// NewTableConfig validates a protocol with a metadata; the protocol comes first
// . Errors: [ErrCorrupt], [ErrUnsupported], [ErrInvalid].
func NewTableConfig(p *Protocol, m *Metadata) (*TableConfig, error) {
	if p == nil {
		return nil, &CorruptError{ErrorCode: "DELTA_STATE_RECOVER_ERROR", Reason: "the log has no protocol action"}
	}
	if err := p.checkShape(); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, &CorruptError{ErrorCode: "DELTA_STATE_RECOVER_ERROR", Reason: "the log has no metaData action"}
	}
	c := &TableConfig{Protocol: p, Metadata: m, Schema: &schema.Struct{}, features: map[string]bool{}}
	for _, f := range p.Features() {
		c.features[strings.ToLower(string(f))] = true
	}
	c.Props, c.bad = parseProperties(m.Configuration)
	if err := c.Require(OpRead); err != nil {
		return nil, err
	}
	if c.InCommitTimestamps() {
		if err := checkICT(&c.Props); err != nil {
			return nil, err
		}
	}
	if !strings.EqualFold(m.Format.Provider, "parquet") {
		return nil, &UnsupportedError{ErrorCode: "DELTA_UNSUPPORTED_SOURCE", Op: OpRead, Reason: fmt.Sprintf("data format %q", m.Format.Provider),
			MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
	}
	// A metaData without schemaString is a table without columns, as in the reference.
	if m.SchemaString != "" {
		s, err := schema.ParseJSON([]byte(m.SchemaString))
		if err != nil {
			return nil, &CorruptError{ErrorCode: "DELTA_SCHEMA_NOT_PARSEABLE", Reason: "metaData.schemaString", Cause: err}
		}
		c.Schema = s
	}
	for _, name := range m.PartitionColumns {
		if c.Schema.Index(name) < 0 {
			return nil, &CorruptError{ErrorCode: "DELTA_INVALID_PARTITION_COLUMN", Reason: fmt.Sprintf("partition column %q is not in the schema", name)}
		}
	}
	if c.Supports(TypeWidening) || c.Supports(TypeWideningPreview) {
		if err := schema.CheckTypeChanges(c.Schema); err != nil {
			var rule *schema.RuleError
			errors.As(err, &rule)
			return nil, &UnsupportedError{ErrorCode: rule.Code(), Op: OpRead, Reason: err.Error(),
				MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion}
		}
	}
	if c.Mode() != schema.ModeNone {
		// maxColumnId is the writers' concern; readers only need ids and names.
		if err := schema.CheckMapping(c.Schema, 1<<31-1); err != nil {
			var rule *schema.RuleError
			errors.As(err, &rule)
			return nil, &CorruptError{ErrorCode: rule.Code(), Reason: "column mapping", Cause: err}
		}
	}
	return c, nil
}

// Supports reports whether the protocol lists or implies f.
func (c *TableConfig) Supports(f Feature) bool { return c.features[strings.ToLower(string(f))] }

// Mode is the column mapping in force: the property counts only when the protocol
// supports the feature.
func (c *TableConfig) Mode() schema.Mode {
	if c.Props.ColumnMappingMode != schema.ModeNone && c.Supports(ColumnMapping) {
		return c.Props.ColumnMappingMode
	}
	return schema.ModeNone
}

// AppendOnly is true when removes that change data are illegal (W-426).
func (c *TableConfig) AppendOnly() bool { return c.Props.AppendOnly && c.Supports(AppendOnly) }

// WritesChangeFeed is true when commits must record row changes (section 2).
func (c *TableConfig) WritesChangeFeed() bool {
	return c.Props.ChangeDataFeed && c.Supports(ChangeDataFeed)
}

// WritesDeletionVectors is true when new deletion vectors may be written (W-651).
func (c *TableConfig) WritesDeletionVectors() bool {
	return c.Props.DeletionVectors && c.Supports(DeletionVectors)
}

// WidensTypes is true when column types may be widened (W-831).
func (c *TableConfig) WidensTypes() bool {
	return c.Props.TypeWidening && (c.Supports(TypeWidening) || c.Supports(TypeWideningPreview))
}

// InCommitTimestamps is true when commitInfo.inCommitTimestamp is a commit's time.
func (c *TableConfig) InCommitTimestamps() bool {
	return c.Props.InCommitTimestamps && c.Supports(InCommitTimestamp)
}

// MaterializesPartitions is true when data files hold the partition columns too (W-852).
func (c *TableConfig) MaterializesPartitions() bool {
	v, _ := c.property("enableMaterializePartitionColumnsFeature")
	return strings.EqualFold(v, "true") && c.Supports(MaterializePartitions)
}

// PartitionColumns are the logical names in order.
func (c *TableConfig) PartitionColumns() []string { return c.Metadata.PartitionColumns }

// PhysicalPartitionColumns are the keys of partitionValues, in partition order.
func (c *TableConfig) PhysicalPartitionColumns() []string {
	out := make([]string, len(c.Metadata.PartitionColumns))
	for i, name := range c.Metadata.PartitionColumns {
		out[i] = schema.PhysicalName(c.Schema.Fields[c.Schema.Index(name)])
	}
	return out
}

// PhysicalSchema is the schema with the names that data files use.
func (c *TableConfig) PhysicalSchema() *schema.Struct {
	return schema.PhysicalStruct(c.Schema, c.Mode())
}

// fieldWith names the first field, at any depth, that has the metadata key with a
// value that is not empty.
func (c *TableConfig) fieldWith(key string) string {
	var find func(t schema.Type, path string) string
	find = func(t schema.Type, path string) string {
		switch t := t.(type) {
		case *schema.Struct:
			for _, f := range t.Fields {
				at := strings.TrimPrefix(path+"."+f.Name, ".")
				if raw, ok := f.Metadata.Get(key); ok && string(raw) != "null" && string(raw) != `""` {
					return "column " + at
				}
				if s := find(f.Type, at); s != "" {
					return s
				}
			}
		case *schema.Array:
			return find(t.Elem, path+".element")
		case *schema.Map:
			if s := find(t.Key, path+".key"); s != "" {
				return s
			}
			return find(t.Value, path+".value")
		}
		return ""
	}
	return find(c.Schema, "")
}

func (c *TableConfig) constraint() string {
	var found []string
	for k := range c.Metadata.Configuration {
		if strings.HasPrefix(strings.ToLower(k), "delta.constraints.") {
			found = append(found, k)
		}
	}
	sort.Strings(found)
	return strings.Join(found, " ")
}
