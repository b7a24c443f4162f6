package merge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/merge"
	"github.com/sluice-data/sluice/storage"
)

// features are those of delta-protocol 1.5: whether they bind readers, and what turns
// them on.
var features = []struct {
	name  string
	rw    bool
	needs string
	on    map[string]string
}{
	{"appendOnly", false, "", map[string]string{"delta.appendOnly": "true"}},
	{"invariants", false, "", nil},
	{"checkConstraints", false, "", map[string]string{"delta.constraints.c": "id > 0"}},
	{"checkConstraints", false, "", map[string]string{"delta.constraints.c": "quark(id)"}},
	{"changeDataFeed", false, "", map[string]string{"delta.enableChangeDataFeed": "true"}},
	{"generatedColumns", false, "", nil},
	{"columnMapping", true, "", nil},
	{"identityColumns", false, "", nil},
	{"allowColumnDefaults", false, "", nil},
	{"deletionVectors", true, "", map[string]string{"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}},
	{"timestampNtz", true, "", nil},
	{"v2Checkpoint", true, "", map[string]string{"delta.checkpointPolicy": "v2"}},
	{"vacuumProtocolCheck", true, "", nil},
	{"domainMetadata", false, "", nil},
	{"rowTracking", false, "domainMetadata", nil},
	{"inCommitTimestamp", false, "", nil},
	{"clustering", false, "domainMetadata", nil},
	{"typeWidening", true, "", map[string]string{"delta.enableTypeWidening": "true"}},
	{"typeWidening-preview", true, "", nil},
	{"variantType", true, "", nil},
	{"variantType-preview", true, "", nil},
	{"variantShredding", true, "variantType", map[string]string{"delta.enableVariantShredding": "true"}},
	{"variantShredding-preview", true, "variantType", nil},
	{"materializePartitionColumns", false, "", map[string]string{"delta.enableMaterializePartitionColumnsFeature": "true"}},
	{"checkpointProtection", false, "", map[string]string{"delta.requireCheckpointProtectionBeforeVersion": "1"}},
	{"icebergCompatV1", false, "columnMapping", map[string]string{"delta.enableIcebergCompatV1": "true"}},
	{"icebergCompatV2", false, "columnMapping", map[string]string{"delta.enableIcebergCompatV2": "true"}},
	{"icebergCompatV3", false, "columnMapping rowTracking domainMetadata", map[string]string{"delta.enableIcebergCompatV3": "true"}},
	{"icebergWriterCompatV1", false, "icebergCompatV2 columnMapping", nil},
	{"catalogManaged", true, "inCommitTimestamp vacuumProtocolCheck", nil},
	{"catalogOwned-preview", true, "inCommitTimestamp vacuumProtocolCheck", nil},
	{"coordinatedCommits-preview", false, "inCommitTimestamp vacuumProtocolCheck", map[string]string{"delta.coordinatedCommits.commitCoordinator-preview": "x"}},
	{"redirectReaderWriter-preview", true, "", map[string]string{"delta.redirectReaderWriter-preview": "{}"}},
	{"redirectWriterOnly-preview", false, "", map[string]string{"delta.redirectWriterOnly-preview": "{}"}},
	{"adaptiveMetadata-preview", true, "", nil},
	{"geospatial", true, "", nil},
	{"geospatial-dev", true, "", nil},
	{"collations", false, "domainMetadata", nil},
	{"columnMappingUsageTracking", false, "", nil},
	{"timestampNanos", true, "timestampNtz", nil},
	{"quarks", true, "", nil},
	{"quarks", false, "", nil},
}

// properties are those of delta-protocol 4 with values that change what may be done,
// some malformed.
var properties = []map[string]string{
	{"delta.universalFormat.enabledFormats": "iceberg"}, {"delta.universalFormat.enabledFormats": ""},
	{"delta.compatibility.symlinkFormatManifest.enabled": "true"}, {"delta.coordinatedCommits.commitCoordinator-preview": "x"},
	{"delta.coordinatedCommits.commitCoordinatorConf-preview": "{}"}, {"delta.coordinatedCommits.tableConf-preview": "{}"},
	{"delta.redirectReaderWriter-preview": "{}"}, {"delta.redirectWriterOnly-preview": "{}"},
	{"delta.enableIcebergCompatV1": "true"}, {"delta.appendOnly": "false"}, {"delta.appendOnly": "perhaps"}, {"delta.checkpointInterval": "soon"},
	{"delta.checkpointInterval": "3"}, {"delta.dataSkippingNumIndexedCols": "-1"}, {"delta.dataSkippingNumIndexedCols": "x"}, {"delta.dataSkippingStatsColumns": "v"},
	{"delta.columnMapping.mode": "maze"}, {"delta.parquet.compression.codec": "zstd"}, {"delta.parquet.compression.codec": "rar"}, {"delta.parquet.format.version": "9.9"},
	{"delta.isolationLevel": "WriteSerializable"}, {"delta.isolationLevel": "loose"}, {"delta.logRetentionDuration": "interval 5 days"}, {"delta.logRetentionDuration": "for ever"},
	{"delta.deletedFileRetentionDuration": "interval 2 months"}, {"delta.randomizeFilePrefixes": "true"}, {"delta.setTransactionRetentionDuration": "interval 1 days"},
	{"delta.targetFileSize": "1mb"}, {"delta.targetFileSize": "big"}, {"delta.autoOptimize.autoCompact": "true"}, {"delta.unheardOf": "1"}, {"my.own": "2"}, {"delta.enableVariantShredding": "true"},
	{"delta.writePartitionColumnsToParquet": "true"}, {"delta.enableInCommitTimestamps": "yes"}, {"delta.checkpointPolicy": "v9"},
}

// checkedTable is a table with rows and two versions whose third has the given protocol
// and properties.
func checkedTable(t *testing.T, reader, writer []string, props map[string]string) *storage.Memory {
	t.Helper()
	m := storage.NewMemory("t")
	tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, v STRING", Store: m, Rows: []string{testtable.Numbers(1, 4, `,"v":"v%"`), testtable.Numbers(4, 7, `,"v":"v%"`)}})
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := map[string]any{"minReaderVersion": 1, "minWriterVersion": 2}
	if writer != nil {
		p = map[string]any{"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer}
		if len(reader) > 0 {
			p["minReaderVersion"], p["readerFeatures"] = 3, reader
		}
	}
	meta := map[string]any{"id": snap.Metadata.ID, "format": map[string]any{"provider": "parquet", "options": map[string]string{}},
		"schemaString": snap.Metadata.SchemaString, "partitionColumns": []string{}, "configuration": props}
	var text []byte
	for _, a := range []map[string]any{{"protocol": p}, {"metaData": meta}} {
		line, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	if err := m.Create(ctx, deltalog.CommitKey(3), text); err != nil {
		t.Fatal(err)
	}
	return m
}

// doing are the operations that check speaks of, by its names.
func doing(t *testing.T) map[string]func(tb *delta.Table) error {
	const ddl = "id BIGINT, v STRING"
	v1, v3 := int64(1), int64(3)
	drop := func(_ delta.Result, err error) error { return err }
	return map[string]func(tb *delta.Table) error{
		"read": func(tb *delta.Table) error {
			s, err := tb.Scan(ctx, delta.ScanOptions{})
			if err != nil {
				return err
			}
			for _, err := range s.Batches(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"changes": func(tb *delta.Table) error {
			f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &v3, ToVersion: &v3}})
			if err != nil {
				return err
			}
			for _, err := range f.Rows(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"append": func(tb *delta.Table) error {
			return drop(tb.Append(ctx, testtable.Rows(t, ddl, `{"id":9,"v":"x"}`), delta.WriteOptions{}))
		},
		"overwrite": func(tb *delta.Table) error {
			return drop(tb.Overwrite(ctx, testtable.Rows(t, ddl, `{"id":9,"v":"x"}`), delta.OverwriteOptions{}))
		},
		"delete": func(tb *delta.Table) error { return drop(tb.Delete(ctx, "id = 1", delta.DMLOptions{})) },
		"update": func(tb *delta.Table) error { return drop(tb.Update(ctx, "v = 'y'", "id = 1", delta.DMLOptions{})) },
		"merge": func(tb *delta.Table) error {
			st, err := merge.Parse("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *")
			if err != nil {
				t.Fatal(err)
			}
			_, err = merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, ddl), Rows: testtable.Rows(t, ddl, `{"id":1,"v":"m"}`+"\n"+`{"id":8,"v":"n"}`)}, st, merge.IntoOptions{})
			return err
		},
		"alter": func(tb *delta.Table) error {
			return drop(tb.SetProperties(ctx, map[string]string{"my.key": "x"}, delta.PropertyOptions{}))
		},
		"optimize": func(tb *delta.Table) error { _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); return err },
		"vacuum":   func(tb *delta.Table) error { _, err := tb.Vacuum(ctx, delta.VacuumOptions{}); return err },
		"restore": func(tb *delta.Table) error {
			_, err := tb.Restore(ctx, delta.RestoreOptions{Version: &v1})
			return err
		},
		"checkpoint": func(tb *delta.Table) error { _, err := tb.Checkpoint(ctx); return err },
	}
}

// TestCheck_EveryFeature: for every feature and property, what check says of an operation
// is what the operation does, with the same code, and one that is refused changes nothing.
func TestCheck_EveryFeature(t *testing.T) {
	ops := doing(t)
	hold := func(t *testing.T, m *storage.Memory) {
		r, err := delta.Check(ctx, m, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Operations) != len(ops) {
			t.Errorf("check speaks of %d operations, %d are tried", len(r.Operations), len(ops))
		}
		for _, v := range r.Operations {
			inner := m.Crash()
			before := testtable.Files(t, inner)
			tb, err := delta.Open(ctx, inner, delta.Options{Clock: testtable.Clock(), NoCheckpoints: true})
			if err == nil {
				err = ops[v.Operation](tb)
			}
			if (err == nil) != v.Possible {
				t.Errorf("%s: check says %+v, it gives %v", v.Operation, v, err)
				continue
			}
			if err == nil {
				continue
			}
			var c interface{ Code() string }
			if !errors.As(err, &c) || c.Code() != v.Code {
				t.Errorf("%s: check says %s, it gives %v", v.Operation, v.Code, err)
			}
			if after := testtable.Files(t, inner); !slices.Equal(after, before) {
				t.Errorf("%s: refused, and the files are %v", v.Operation, after)
			}
		}
	}
	for _, f := range features {
		for _, on := range []map[string]string{nil, f.on} {
			if on == nil && f.on != nil && f.name == "checkConstraints" && f.on["delta.constraints.c"] != "id > 0" {
				continue
			}
			t.Run(fmt.Sprintf("W-301 R-301 R-305 %s %v", f.name, slices.Sorted(maps.Keys(on))), func(t *testing.T) {
				writer := append([]string{"appendOnly", "invariants", "changeDataFeed"}, strings.Fields(f.needs)...)
				reader := []string{}
				for _, n := range strings.Fields(f.needs) {
					switch n {
					case "columnMapping", "vacuumProtocolCheck", "variantType", "timestampNtz":
						reader = append(reader, n)
					}
				}
				if !slices.Contains(writer, f.name) {
					writer = append(writer, f.name)
				}
				if f.rw {
					reader = append(reader, f.name)
				}
				hold(t, checkedTable(t, reader, writer, on))
			})
			if f.on == nil {
				break
			}
		}
	}
	for _, p := range properties {
		t.Run(fmt.Sprintf("R-305 W-851 %v", p), func(t *testing.T) { hold(t, checkedTable(t, nil, nil, p)) })
	}
}
