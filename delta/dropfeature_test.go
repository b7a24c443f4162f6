package delta_test

import (
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/storage"
)

// TestTable_DropEveryFeature: every feature that a table may list is dropped from a table
// that uses it, rows and writes going on, or refused by what uses it, nothing being
// written.
func TestTable_DropEveryFeature(t *testing.T) {
	on := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	listed := func(f deltalog.Feature) map[string]string {
		return on("delta.feature."+string(f), "supported")
	}
	const traces, needed, kept = "DELTA_FEATURE_DROP_TRACES", "DELTA_FEATURE_DROP_DEPENDENT_FEATURE", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"
	for _, c := range []struct {
		f       deltalog.Feature
		ddl     string
		props   map[string]string
		cluster []string
		check   string
		code    string // "" is dropped
		names   string // what the refusal names
	}{
		{f: deltalog.AppendOnly, props: on("delta.appendOnly", "true", "delta.feature.appendOnly", "supported")},
		{f: deltalog.Invariants, props: listed(deltalog.Invariants)},
		{f: deltalog.CheckConstraints, props: listed(deltalog.CheckConstraints)},
		{f: deltalog.CheckConstraints, check: "id >= 0", code: traces, names: "delta.constraints.c"},
		{f: deltalog.ChangeDataFeed, props: on("delta.enableChangeDataFeed", "true")},
		{f: deltalog.GeneratedColumns, props: listed(deltalog.GeneratedColumns)},
		{f: deltalog.GeneratedColumns, ddl: "id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)", code: traces, names: "twice"},
		{f: deltalog.IdentityColumns, ddl: "id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY", code: traces, names: "column n"},
		{f: deltalog.ColumnDefaults, props: listed(deltalog.ColumnDefaults)},
		{f: deltalog.ColumnDefaults, ddl: "id BIGINT, d BIGINT DEFAULT 5", props: listed(deltalog.ColumnDefaults), code: traces, names: "column d"},
		{f: deltalog.ColumnMapping, props: on("delta.columnMapping.mode", "name")},
		{f: deltalog.DeletionVectors, props: on("delta.enableDeletionVectors", "true")},
		{f: deltalog.TimestampNTZ, props: listed(deltalog.TimestampNTZ)},
		{f: deltalog.TimestampNTZ, ddl: "id BIGINT, s ARRAY<STRUCT<at: TIMESTAMP_NTZ>>", code: traces, names: "column s"},
		{f: deltalog.VariantType, ddl: "id BIGINT, s STRUCT<v: VARIANT>", code: traces, names: "column s"},
		{f: deltalog.VariantTypePreview, props: listed(deltalog.VariantTypePreview), code: kept, names: "variantType-preview"},
		{f: deltalog.V2Checkpoint, props: on("delta.checkpointPolicy", "v2")},
		{f: deltalog.VacuumProtocolCheck, props: listed(deltalog.VacuumProtocolCheck)},
		{f: deltalog.DomainMetadataF, props: listed(deltalog.DomainMetadataF)},
		{f: deltalog.DomainMetadataF, cluster: []string{"id"}, code: needed, names: "clustering"},
		{f: deltalog.Clustering, cluster: []string{"id"}},
		{f: deltalog.RowTracking, props: on("delta.enableRowTracking", "true")},
		{f: deltalog.InCommitTimestamp, props: on("delta.enableInCommitTimestamps", "true")},
		{f: deltalog.TypeWidening, props: on("delta.enableTypeWidening", "true")},
		{f: deltalog.MaterializePartitions, props: listed(deltalog.MaterializePartitions)},
		{f: deltalog.CheckpointProtection, props: listed(deltalog.CheckpointProtection)},
		{f: "icebergCompatV1", props: listed("icebergCompatV1")},
		{f: "icebergCompatV2", props: listed("icebergCompatV2")},
		{f: "icebergCompatV3", props: listed("icebergCompatV3"), code: kept, names: "icebergCompatV3"},
		{f: "variantShredding", props: listed("variantShredding"), code: kept, names: "variantShredding"},
	} {
		name := "W-303 " + string(c.f) + " " + c.names
		t.Run(strings.TrimSpace(name), func(t *testing.T) {
			ddl := c.ddl
			if ddl == "" {
				ddl = "id BIGINT"
			}
			tb, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: testtable.Struct(t, ddl), ClusterBy: c.cluster, Properties: c.props}, delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if c.check != "" {
				if _, err := tb.AddConstraint(ctx, "c", c.check, delta.ConstraintOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			more := func(rows string) {
				t.Helper()
				if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT", rows), delta.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			more(`{"id":1}{"id":2}`)
			before, files := testtable.Read(t, tb, delta.ScanOptions{}), testtable.Files(t, tb.Store())
			if !mustSnapshot(t, tb).Supports(c.f) {
				t.Fatal("the table has no such feature")
			}
			_, err = tb.DropFeature(ctx, c.f, deltalog.DropFeatureOptions{})
			if codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.names) {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			snap := mustSnapshot(t, tb)
			if (c.code == "") == snap.Supports(c.f) {
				t.Errorf("protocol %+v", snap.Protocol)
			}
			if after := testtable.Files(t, tb.Store()); c.code != "" && len(after) != len(files) {
				t.Errorf("left behind %v", after)
			}
			for key := range c.props {
				if _, ok := snap.Metadata.Configuration[key]; ok && c.code == "" {
					t.Errorf("%s stays", key)
				}
			}
			wantRows(t, tb, delta.ScanOptions{}, before...)
			more(`{"id":3}`)
			if got := testtable.Read(t, tb, delta.ScanOptions{}); len(got) != 3 {
				t.Errorf("got %v", got)
			}
		})
	}
}
