package deltalog

import (
	"fmt"

	"github.com/sluice-data/sluice/log/schema"
)

// The columns of a checkpoint (1.11 of the checklist), in the DDL of log/schema.
const (
	dvDDL = "STRUCT<storageType: STRING, pathOrInlineDv: STRING, `offset`: INT, sizeInBytes: INT, cardinality: BIGINT>"

	txnDDL      = "txn STRUCT<appId: STRING, version: BIGINT, lastUpdated: BIGINT>"
	metadataDDL = "metaData STRUCT<id: STRING, name: STRING, description: STRING, format: STRUCT<provider: STRING, options: MAP<STRING, STRING>>, " +
		"schemaString: STRING, partitionColumns: ARRAY<STRING>, configuration: MAP<STRING, STRING>, createdTime: BIGINT>"
	protocolDDL = "protocol STRUCT<minReaderVersion: INT, minWriterVersion: INT, readerFeatures: ARRAY<STRING>, writerFeatures: ARRAY<STRING>>"
	domainDDL   = "domainMetadata STRUCT<domain: STRING, configuration: STRING, removed: BOOLEAN>"
	sidecarDDL  = "sidecar STRUCT<path: STRING, sizeInBytes: BIGINT, modificationTime: BIGINT>"

	addFields = "path: STRING, partitionValues: MAP<STRING, STRING>, size: BIGINT, modificationTime: BIGINT, dataChange: BOOLEAN, " +
		"tags: MAP<STRING, STRING>, deletionVector: " + dvDDL + ", baseRowId: BIGINT, defaultRowCommitVersion: BIGINT, clusteringProvider: STRING"
	addDDL    = "add STRUCT<" + addFields + ", stats: STRING>"
	removeDDL = "remove STRUCT<path: STRING, deletionTimestamp: BIGINT, dataChange: BOOLEAN, extendedFileMetadata: BOOLEAN, " +
		"partitionValues: MAP<STRING, STRING>, size: BIGINT, deletionVector: " + dvDDL + ", baseRowId: BIGINT, defaultRowCommitVersion: BIGINT>"
)

func columns(ddl string) (*schema.Struct, error) {
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		return nil, fmt.Errorf("checkpoint columns: %w", err)
	}
	return s, nil
}

// statsSchema is the type of stats_parsed for a table: its physical columns without
// the partition columns (W-602). It is nil when no column has statistics.
func (c *TableConfig) statsSchema() *schema.Struct {
	parts := map[string]bool{}
	for _, p := range c.PhysicalPartitionColumns() {
		parts[p] = true
	}
	data := &schema.Struct{}
	for _, f := range c.PhysicalSchema().Fields {
		if !parts[f.Name] {
			data.Fields = append(data.Fields, f)
		}
	}
	out := &schema.Struct{Fields: []schema.Field{{Name: "numRecords", Type: schema.Long, Nullable: true}}}
	bounds, nulls := boundsOf(data, false), boundsOf(data, true)
	if len(bounds.Fields) > 0 {
		out.Fields = append(out.Fields, schema.Field{Name: "minValues", Type: bounds, Nullable: true}, schema.Field{Name: "maxValues", Type: bounds, Nullable: true})
	}
	if len(nulls.Fields) > 0 {
		out.Fields = append(out.Fields, schema.Field{Name: "nullCount", Type: nulls, Nullable: true})
	}
	out.Fields = append(out.Fields, schema.Field{Name: "tightBounds", Type: schema.Boolean, Nullable: true})
	return out
}

// boundsOf keeps the leaves that have min and max, or, for counts, all of them as
// long; everything nullable, without metadata.
func boundsOf(s *schema.Struct, counts bool) *schema.Struct {
	out := &schema.Struct{}
	for _, f := range s.Fields {
		t := f.Type
		if sub, ok := t.(*schema.Struct); ok {
			inner := boundsOf(sub, counts)
			if len(inner.Fields) == 0 {
				continue
			}
			t = inner
		} else if t == schema.Void {
			continue
		} else if counts {
			t = schema.Long
		} else if !hasBounds(t) {
			continue
		}
		out.Fields = append(out.Fields, schema.Field{Name: f.Name, Type: t, Nullable: true})
	}
	return out
}

func hasBounds(t schema.Type) bool {
	switch t := t.(type) {
	case schema.Decimal:
		return true
	case schema.Primitive:
		switch t {
		case schema.Boolean, schema.Binary, schema.Void, schema.Variant:
			return false
		}
		return true
	}
	return false
}
