package deltalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

func meta(props map[string]string, fields string) *Metadata {
	if fields == "" {
		fields = `{"name":"id","type":"long","nullable":true,"metadata":{}}`
	}
	return &Metadata{ID: "m", Format: Format{Provider: "parquet"}, SchemaString: `{"type":"struct","fields":[` + fields + `]}`, Configuration: props}
}

func TestProtocol_Shapes(t *testing.T) {
	rw := func(r, w int, readers, writers []string) *Protocol { return &Protocol{r, w, readers, writers} }
	none := []string(nil)
	for _, c := range []struct {
		name string
		p    *Protocol
		want error // nil: readable
	}{
		{"(1,1)", rw(1, 1, none, none), nil},
		{"(1,2)", rw(1, 2, none, none), nil},
		{"(1,4)", rw(1, 4, none, none), nil},
		{"(2,5)", rw(2, 5, none, none), nil},
		{"(1,6)", rw(1, 6, none, none), nil},
		{"(1,7) empty list", rw(1, 7, none, []string{}), nil},
		{"(1,7) writer features", rw(1, 7, none, []string{"appendOnly", "changeDataFeed"}), nil},
		{"(1,7) unknown writer feature", rw(1, 7, none, []string{"somethingNew"}), nil},
		{"(2,7) columnMapping only in writerFeatures", rw(2, 7, none, []string{"columnMapping"}), nil},
		{"(3,7) empty lists", rw(3, 7, []string{}, []string{}), nil},
		{"(3,7) deletionVectors", rw(3, 7, []string{"deletionVectors"}, []string{"deletionVectors"}), nil},
		{"(3,7) another case", rw(3, 7, []string{"DELETIONVECTORS"}, []string{"deletionvectors"}), nil},
		{"(3,7) alias of timestampNtz", rw(3, 7, []string{"timestampWithoutTimezone"}, []string{"timestampNtz"}), nil},
		{"(3,5)", rw(3, 5, []string{}, []string{}), ErrCorrupt},
		{"(3,7) without readerFeatures", rw(3, 7, none, []string{}), ErrCorrupt},
		{"(3,7) without writerFeatures", rw(3, 7, []string{}, none), ErrCorrupt},
		{"(1,7) without writerFeatures", rw(1, 7, none, none), ErrCorrupt},
		{"(2,7) with readerFeatures", rw(2, 7, []string{"deletionVectors"}, []string{"deletionVectors"}), ErrCorrupt},
		{"(1,2) with writerFeatures", rw(1, 2, none, []string{"appendOnly"}), ErrCorrupt},
		{"(3,7) name only in readerFeatures", rw(3, 7, []string{"deletionVectors"}, []string{}), ErrCorrupt},
		{"(3,7) RW feature only in writerFeatures", rw(3, 7, []string{}, []string{"deletionVectors"}), ErrCorrupt},
		{"(1,7) columnMapping needs reader 2", rw(1, 7, none, []string{"columnMapping"}), ErrCorrupt},
		{"(0,2)", rw(0, 2, none, none), ErrCorrupt},
		{"(3,7) unknown reader feature", rw(3, 7, []string{"somethingNew"}, []string{"somethingNew"}), ErrUnsupported},
		{"(4,7)", rw(4, 7, []string{}, []string{}), ErrUnsupported},
		{"(1,8) reads", rw(1, 8, none, []string{}), nil},
	} {
		t.Run("R-301 R-303 R-304 "+c.name, func(t *testing.T) {
			_, err := NewTableConfig(c.p, meta(nil, ""))
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("R-302 all unsupported names at once", func(t *testing.T) {
		_, err := NewTableConfig(rw(3, 7, []string{"zzz", "geospatial", "deletionVectors"}, []string{"zzz", "geospatial", "deletionVectors", "onlyWriters"}), meta(nil, ""))
		var ue *UnsupportedError
		if !errors.As(err, &ue) || !slices.Equal(ue.Features, []string{"geospatial", "zzz"}) || ue.Code() != "DELTA_UNSUPPORTED_FEATURES_FOR_READ" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("R-302 versions", func(t *testing.T) {
		_, err := NewTableConfig(rw(4, 9, nil, nil), meta(nil, ""))
		wantError(t, err, ErrUnsupported, "DELTA_INVALID_PROTOCOL_VERSION")
		cfg, err := NewTableConfig(rw(1, 8, nil, []string{}), meta(nil, ""))
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, cfg.Require(OpWrite), ErrUnsupported, "DELTA_INVALID_PROTOCOL_VERSION")
	})
	t.Run("R-301 the protocol is checked before the schema", func(t *testing.T) {
		m := meta(nil, "")
		m.SchemaString = "garbage"
		_, err := NewTableConfig(rw(3, 7, []string{"zzz"}, []string{"zzz"}), m)
		wantError(t, err, ErrUnsupported, "DELTA_UNSUPPORTED_FEATURES_FOR_READ")
	})
	t.Run("R-851 catalog-managed tables", func(t *testing.T) {
		for _, f := range []string{"catalogManaged", "catalogOwned-preview"} {
			_, err := NewTableConfig(rw(3, 7, []string{f}, []string{f, "inCommitTimestamp", "vacuumProtocolCheck"}), meta(nil, ""))
			// vacuumProtocolCheck binds readers too.
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s without vacuumProtocolCheck for readers: %v", f, err)
			}
			_, err = NewTableConfig(rw(3, 7, []string{f, "vacuumProtocolCheck"}, []string{f, "inCommitTimestamp", "vacuumProtocolCheck"}), meta(nil, ""))
			wantError(t, err, ErrUnsupported, "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED")
		}
	})
	t.Run("provider other than parquet", func(t *testing.T) {
		m := meta(nil, "")
		m.Format.Provider = "orc"
		_, err := NewTableConfig(rw(1, 2, nil, nil), m)
		wantError(t, err, ErrUnsupported, "")
	})
}

// TestTableConfig_Require goes through every feature: what each permits when it is
// only listed, and when metadata turns it on.
func TestTableConfig_Require(t *testing.T) {
	field := func(md string) string {
		return `{"name":"id","type":"long","nullable":true,"metadata":{` + md + `}}`
	}
	mapped := `{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c"}}`
	for _, c := range []struct {
		f           Feature
		read, write bool
		props       map[string]string
		fields      string
	}{
		{AppendOnly, true, true, map[string]string{"delta.appendOnly": "true"}, ""},
		{Invariants, true, true, nil, ""},
		{Invariants, true, true, nil, field(`"delta.invariants":"{\"expression\":{\"expression\":\"id > 3\"}}"`)},
		{CheckConstraints, true, true, nil, ""},
		{CheckConstraints, true, true, map[string]string{"delta.constraints.c": "id > 0"}, ""},
		{ChangeDataFeed, true, true, map[string]string{"delta.enableChangeDataFeed": "true"}, ""},
		{GeneratedColumns, true, true, nil, ""},
		{GeneratedColumns, true, true, nil, field(`"delta.generationExpression":"1"`)},
		{ColumnMapping, true, true, nil, ""},
		{ColumnMapping, true, true, map[string]string{"delta.columnMapping.mode": "name"}, mapped},
		{ColumnMapping, true, true, map[string]string{"delta.columnMapping.mode": "id"}, mapped},
		{IdentityColumns, true, true, nil, ""},
		{IdentityColumns, true, true, nil, field(`"delta.identity.start":1`)},
		{"allowColumnDefaults", true, true, nil, ""},
		{"allowColumnDefaults", true, true, nil, field(`"CURRENT_DEFAULT":"1"`)},
		{DeletionVectors, true, true, map[string]string{"delta.enableDeletionVectors": "true"}, ""},
		{TimestampNTZ, true, true, nil, `{"name":"id","type":"timestamp_ntz","nullable":true,"metadata":{}}`},
		{V2Checkpoint, true, true, map[string]string{"delta.checkpointPolicy": "classic"}, ""},
		{V2Checkpoint, true, true, map[string]string{"delta.checkpointPolicy": "v2"}, ""},
		{"vacuumProtocolCheck", true, true, nil, ""},
		{DomainMetadataF, true, true, nil, ""},
		{RowTracking, true, true, nil, ""},
		{RowTracking, true, true, map[string]string{"delta.rowTrackingSuspended": "true"}, ""},
		{InCommitTimestamp, true, true, nil, ""},
		{InCommitTimestamp, true, true, map[string]string{"delta.enableInCommitTimestamps": "true"}, ""},
		{Clustering, true, true, nil, ""},
		{TypeWidening, true, true, nil, ""},
		{TypeWidening, true, true, map[string]string{"delta.enableTypeWidening": "true"}, ""},
		{"typeWidening-preview", true, true, nil, ""},
		{"variantType", true, true, nil, ""},
		{"variantType-preview", true, true, nil, ""},
		{"variantShredding", true, true, nil, ""},
		{"materializePartitionColumns", true, true, nil, ""},
		{"materializePartitionColumns", true, true, map[string]string{"delta.enableMaterializePartitionColumnsFeature": "true"}, ""},
		{"checkpointProtection", true, true, nil, ""},
		{"icebergCompatV1", true, true, nil, ""},
		{"icebergCompatV1", true, false, map[string]string{"delta.enableIcebergCompatV1": "true"}, ""},
		{"icebergCompatV2", true, false, map[string]string{"delta.enableIcebergCompatV2": "true"}, ""},
		{"icebergCompatV3", true, false, map[string]string{"delta.enableIcebergCompatV3": "true"}, ""},
		{"icebergWriterCompatV1", true, false, nil, ""},
		{"coordinatedCommits-preview", true, false, nil, ""},
		{"redirectReaderWriter-preview", false, false, nil, ""},
		{"redirectWriterOnly-preview", true, false, nil, ""},
		{"adaptiveMetadata-preview", false, false, nil, ""},
		{"geospatial", false, false, nil, ""},
		{"collations", true, false, nil, ""},
		{"columnMappingUsageTracking", true, false, nil, ""},
		{"timestampNanos", false, false, nil, ""},
	} {
		name := string(c.f)
		if c.props != nil || c.fields != "" {
			name += " active"
		}
		t.Run("R-305 W-301 W-302 "+name, func(t *testing.T) {
			row, ok := lookupFeature(string(c.f))
			if !ok {
				t.Fatal("not in the table")
			}
			p := &Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{}, WriterFeatures: []string{string(c.f)}}
			if row.rw {
				p.ReaderFeatures = append(p.ReaderFeatures, string(c.f))
			}
			cfg, err := NewTableConfig(p, meta(c.props, c.fields))
			if (err == nil) != c.read {
				t.Fatalf("read: %v", err)
			}
			if err != nil {
				wantError(t, err, ErrUnsupported, "")
				return
			}
			err = cfg.Require(OpWrite)
			if (err == nil) != c.write {
				t.Errorf("W-851 write: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), string(c.f)) {
				t.Errorf("the feature is not named: %v", err)
			}
		})
	}
	t.Run("W-301 legacy versions: only active features count", func(t *testing.T) {
		p := &Protocol{MinReaderVersion: 1, MinWriterVersion: 6}
		cfg, err := NewTableConfig(p, meta(nil, ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Require(OpWrite); err != nil {
			t.Errorf("(1,6) without its features: %v", err)
		}
		cfg, err = NewTableConfig(p, meta(nil, field(`"delta.generationExpression":"1"`)))
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Require(OpWrite); err != nil {
			t.Errorf("(1,6) with a generated column, which writers compute: %v", err)
		}
	})
	t.Run("W-301 unknown writer feature", func(t *testing.T) {
		cfg, err := NewTableConfig(&Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"zzz"}}, meta(nil, ""))
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.Require(OpWrite)
		wantError(t, err, ErrUnsupported, "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE")
	})
	t.Run("R-305 a property without the feature is not in force", func(t *testing.T) {
		cfg, err := NewTableConfig(&Protocol{MinReaderVersion: 1, MinWriterVersion: 1}, meta(map[string]string{
			"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true",
			"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "true",
		}, ""))
		if err != nil {
			t.Fatal(err)
		}
		if cfg.AppendOnly() || cfg.WritesChangeFeed() || cfg.WritesDeletionVectors() || cfg.Mode() != schema.ModeNone || cfg.InCommitTimestamps() {
			t.Error("a property is in force")
		}
	})
	t.Run("W-851 properties that are refused", func(t *testing.T) {
		for k, v := range map[string]string{
			"delta.universalFormat.enabledFormats": "iceberg", "delta.compatibility.symlinkFormatManifest.enabled": "true",
			"delta.coordinatedCommits.commitCoordinator-preview": "x", "delta.redirectReaderWriter-preview": "{}",
		} {
			cfg, err := NewTableConfig(&Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, meta(map[string]string{k: v}, ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.Require(OpWrite); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), k) {
				t.Errorf("%s: %v", k, err)
			}
		}
	})
}

func TestProtocol_With(t *testing.T) {
	text := func(p *Protocol) string { b, _ := marshal(p); return string(b) }
	for _, c := range []struct {
		name string
		from *Protocol
		add  []Feature
		want string
	}{
		{"W-304 plain", nil, nil, `{"minReaderVersion":1,"minWriterVersion":2}`},
		{"W-304 change feed", nil, []Feature{ChangeDataFeed}, `{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","changeDataFeed"]}`},
		{"W-304 column mapping", nil, []Feature{ColumnMapping}, `{"minReaderVersion":2,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","columnMapping"]}`},
		{"W-304 deletion vectors", nil, []Feature{DeletionVectors}, `{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["appendOnly","invariants","deletionVectors"]}`},
		{"W-304 ntz and mapping", nil, []Feature{TimestampNTZ, ColumnMapping}, `{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["columnMapping","timestampNtz"],"writerFeatures":["appendOnly","invariants","columnMapping","timestampNtz"]}`},
		{"W-303 legacy pair is expanded", &Protocol{MinReaderVersion: 1, MinWriterVersion: 4}, []Feature{DeletionVectors},
			`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["appendOnly","invariants","checkConstraints","changeDataFeed","generatedColumns","deletionVectors"]}`},
		{"W-303 mapping of (2,5) moves into both lists", &Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, []Feature{TimestampNTZ},
			`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["columnMapping","timestampNtz"],"writerFeatures":["appendOnly","invariants","checkConstraints","changeDataFeed","generatedColumns","columnMapping","timestampNtz"]}`},
		{"W-303 dependencies come along", nil, []Feature{RowTracking}, `{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","invariants","domainMetadata","rowTracking"]}`},
		{"W-303 unknown names stay", &Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"zzz", "appendOnly"}}, []Feature{ChangeDataFeed},
			`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["appendOnly","changeDataFeed","zzz"]}`},
		{"W-303 nothing to do", &Protocol{MinReaderVersion: 1, MinWriterVersion: 4}, []Feature{ChangeDataFeed}, `{"minReaderVersion":1,"minWriterVersion":4}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got *Protocol
			var err error
			if c.from == nil {
				got, err = NewProtocol(c.add...)
			} else {
				got, err = c.from.With(c.add...)
			}
			if err != nil || text(got) != c.want {
				t.Errorf("got  %s %v\nwant %s", text(got), err, c.want)
			}
			if err == nil {
				if err := got.checkShape(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, err := NewProtocol("zzz"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown feature: %v", err)
	}
}

func TestProperties(t *testing.T) {
	t.Run("defaults and case", func(t *testing.T) {
		p, bad := parseProperties(map[string]string{"delta.AppendOnly": "TRUE", "delta.checkpointInterval": "7", "delta.unknownThing": "x",
			"delta.deletedFileRetentionDuration": "interval 2 days 3 hours", "delta.enableChangeDataCapture": "true", "delta.dataSkippingStatsColumns": "a,`b,``c`.d , e.f"})
		if len(bad) != 0 || !p.AppendOnly || p.CheckpointInterval != 7 || p.DeletedFileRetention.Hours() != 51 || !p.ChangeDataFeed || p.SkippingNumIndexedCols != 32 {
			t.Errorf("got %+v %v", p, bad)
		}
		want := [][]string{{"a"}, {"b,`c", "d"}, {"e", "f"}}
		if !slices.EqualFunc(p.SkippingStatsColumns, want, slices.Equal) {
			t.Errorf("stats columns %q", p.SkippingStatsColumns)
		}
	})
	t.Run("a malformed known property is an error naming it", func(t *testing.T) {
		for k, v := range map[string]string{
			"appendOnly": "yes", "checkpointInterval": "0", "deletedFileRetentionDuration": "interval 1 month", "dataSkippingNumIndexedCols": "-2",
			"isolationLevel": "Snapshot", "logRetentionDuration": "7 fortnights", "enableDeletionVectors": "1", "parquet.compression.codec": "lzo",
			"checkpointPolicy": "v3", "dataSkippingStatsColumns": "a,,b", "targetFileSize": "big", "checkpoint.writeStatsAsJson": "",
		} {
			cfg, err := NewTableConfig(&Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, meta(map[string]string{"delta." + k: v}, ""))
			if err != nil {
				t.Errorf("%s binds readers: %v", k, err)
				continue
			}
			err = cfg.Require(OpWrite)
			wantError(t, err, ErrInvalid, "DELTA_INVALID_TABLE_PROPERTY")
			if err != nil && !strings.Contains(err.Error(), "delta."+k) {
				t.Errorf("%s is not named: %v", k, err)
			}
		}
		_, err := NewTableConfig(&Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, meta(map[string]string{"delta.columnMapping.mode": "nmae"}, ""))
		wantError(t, err, ErrInvalid, "DELTA_INVALID_TABLE_PROPERTY")
		cfg, err := NewTableConfig(&Protocol{MinReaderVersion: 1, MinWriterVersion: 4}, meta(map[string]string{"delta.enableChangeDataFeed": "on"}, ""))
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, cfg.Require(OpReadCDF), ErrInvalid, "DELTA_INVALID_TABLE_PROPERTY")
	})
	t.Run("W-205 W-307 requests to the protocol", func(t *testing.T) {
		rest, features, err := TakeProtocolProperties(map[string]string{"delta.minReaderVersion": "3", "delta.minWriterVersion": "7", "delta.feature.deletionvectors": "supported",
			"delta.feature.timestampNtz": "supported", "delta.ignoreProtocolDefaults": "true", "delta.appendOnly": "true", "mine": "x"})
		if err != nil || len(rest) != 2 || !slices.Equal(features, []Feature{DeletionVectors, TimestampNTZ}) {
			t.Errorf("got %v %v %v", rest, features, err)
		}
		if _, _, err := TakeProtocolProperties(map[string]string{"delta.feature.x": "disabled"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("sizes", func(t *testing.T) {
		for in, want := range map[string]int64{"1": 1, "128mb": 128 << 20, "1g": 1 << 30, "64K": 64 << 10, "0": 0, "-1": 0, "9999999999g": 0, "x": 0, "": 0} {
			if got, err := ParseBytes(in); got != want || (err != nil) != (want == 0) {
				t.Errorf("%q: %d %v", in, got, err)
			}
		}
	})
}

// TestCommit_RefusesBeforeWriting: for every feature that is not supported the
// refusal comes before any file is written.
func TestCommit_RefusesBeforeWriting(t *testing.T) {
	for _, row := range featureTable() {
		if row.write == yes {
			continue
		}
		t.Run("W-301 "+string(row.name), func(t *testing.T) {
			ctx := context.Background()
			l, m := testLog(t)
			readers := []string{}
			if row.rw {
				readers = append(readers, string(row.name))
			}
			p := &Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: readers, WriterFeatures: []string{string(row.name)}}
			md := meta(map[string]string{
				"delta.checkpointPolicy": "v2", "delta.enableInCommitTimestamps": "true", "delta.enableTypeWidening": "true",
				"delta.enableIcebergCompatV1": "true", "delta.enableIcebergCompatV2": "true", "delta.enableIcebergCompatV3": "true",
				"delta.constraints.c": "id > 0", "delta.columnMapping.mode": "id", "delta.enableMaterializePartitionColumnsFeature": "true",
			}, `{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c","delta.invariants":"x","delta.generationExpression":"x","delta.identity.start":1,"CURRENT_DEFAULT":"1"}}`)
			data, err := encodeCommit(&commitInfoWire{Operation: "X"}, &Actions{Protocol: p, Metadata: md})
			if err != nil {
				t.Fatal(err)
			}
			put(t, m, CommitKey(0), string(data))
			s, err := l.Latest(ctx)
			if err == nil {
				if row.read == no && row.rw {
					t.Error("readable")
				}
				tx := l.Begin(s)
				tx.Add(file("a"))
				_, err = tx.Commit(ctx, CommitOptions{Operation: "WRITE"})
			}
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			n := 0
			for range m.List(ctx, "", "") {
				n++
			}
			if n != 1 {
				t.Errorf("%d objects in the store, want 1", n)
			}
		})
	}
}
