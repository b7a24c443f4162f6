package delta_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

func alter(t *testing.T, tb *delta.Table, c delta.Alteration) {
	t.Helper()
	if _, err := tb.Alter(ctx, c, delta.AlterOptions{}); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
}

func wantAlterError(t *testing.T, tb *delta.Table, c delta.Alteration, code string) {
	t.Helper()
	if r, err := tb.Alter(ctx, c, delta.AlterOptions{}); codeOf(err) != code {
		t.Errorf("%+v: got %+v %v, want %s", c, r, err, code)
	}
}

// told is operation and parameters of the newest commit.
func told(t *testing.T, tb *delta.Table) string {
	t.Helper()
	i := actionsOf(t, tb).Info
	out := i.Operation
	for _, k := range []string{"columns", "column", "position", "oldColumnPath", "newColumnPath", "oldClusteringColumns", "newClusteringColumns", "properties"} {
		if raw, ok := i.OperationParameters[k]; ok {
			out += " " + k + "=" + string(raw)
		}
	}
	return out
}

func field(name string, t schema.Type) schema.Field {
	return schema.Field{Name: name, Type: t, Nullable: true}
}

func mapped(mode string) map[string]string {
	return map[string]string{"delta.columnMapping.mode": mode}
}

func ptr[T any](v T) *T { return &v }

func TestTable_AlterAddColumns(t *testing.T) {
	for _, mode := range []string{"none", "name", "id"} {
		t.Run("W-407 W-503 mapping "+mode, func(t *testing.T) {
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRUCT<a: INT>, l ARRAY<STRUCT<q: INT>>", Properties: mapped(mode), Rows: []string{`{"id":1,"s":{"a":1},"l":[{"q":1}]}`}})
			alter(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: field("x", schema.String), First: true}, {Field: field("y", schema.Date), After: "ID"}}})
			const want = `ADD COLUMNS columns="[{\"column\":{\"name\":\"x\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},\"position\":\"FIRST\"},{\"column\":{\"name\":\"y\",\"type\":\"date\",\"nullable\":true,\"metadata\":{}},\"position\":\"AFTER ID\"}]"`
			if got := told(t, tb); got != want {
				t.Errorf("W-204: %s", got)
			}
			alter(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Parent: "s", Field: field("b", schema.Integer), First: true}, {Parent: "l.element", Field: field("r", schema.Integer)}}})
			if got := told(t, tb); !strings.Contains(got, `\"name\":\"l.element.r\"`) {
				t.Errorf("W-204: %s", got)
			}
			if got := schemaText(t, tb); got != "STRUCT<x: STRING, id: BIGINT, y: DATE, s: STRUCT<b: INT, a: INT>, l: ARRAY<STRUCT<q: INT, r: INT>>>" {
				t.Error(got)
			}
			if _, err := appendAs(t, tb, false, "id BIGINT, s STRUCT<b: INT>, x STRING, l ARRAY<STRUCT<r: INT>>", `{"id":2,"s":{"b":2},"x":"x","l":[{"r":2}]}`); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"l":[{"q":1,"r":null}],"s":{"a":1,"b":null},"x":null,"y":null}`, `{"id":2,"l":[{"q":null,"r":2}],"s":{"a":null,"b":2},"x":"x","y":null}`)
			snap, _ := tb.Snapshot(ctx)
			if mode != "none" && snap.Metadata.Configuration["delta.columnMapping.maxColumnId"] != "9" {
				t.Errorf("W-502: %v", snap.Metadata.Configuration)
			}
		})
	}
	t.Run("W-407 W-401 refusals", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRUCT<a: INT>", Properties: map[string]string{"delta.enableChangeDataFeed": "true"}})
		add := func(n delta.NewColumn) delta.Alteration {
			return delta.AddColumns{Columns: []delta.NewColumn{n}}
		}
		f := field("x", schema.String)
		wantAlterError(t, tb, add(delta.NewColumn{Field: field("ID", schema.String)}), "DELTA_COLUMN_ALREADY_EXISTS")
		wantAlterError(t, tb, add(delta.NewColumn{Field: schema.Field{Name: "x", Type: schema.String}}), "DELTA_ADD_COLUMN_NOT_NULL")
		wantAlterError(t, tb, add(delta.NewColumn{Field: f, After: "nope"}), "DELTA_COLUMN_NOT_FOUND")
		wantAlterError(t, tb, add(delta.NewColumn{Field: f, Parent: "id"}), "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT")
		wantAlterError(t, tb, add(delta.NewColumn{Field: f, Parent: "s.b"}), "DELTA_COLUMN_NOT_FOUND")
		wantAlterError(t, tb, add(delta.NewColumn{Field: field("a b", schema.String)}), "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES")
		wantAlterError(t, tb, add(delta.NewColumn{Field: field("_commit_version", schema.String)}), "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS")
		wantAlterError(t, tb, add(delta.NewColumn{Field: field("x", schema.TimestampNTZ)}), "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT")
		f.Metadata = f.Metadata.With("CURRENT_DEFAULT", "'a'")
		wantAlterError(t, tb, add(delta.NewColumn{Field: f}), "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED")
		if r, err := tb.Alter(ctx, add(delta.NewColumn{Field: field("x", schema.TimestampNTZ)}), delta.AlterOptions{Upgrade: true}); err != nil || r.Version != 1 {
			t.Errorf("W-305: %+v %v", r, err)
		}
		if c := actionsOf(t, tb); c.Protocol == nil || c.Metadata == nil || c.Protocol.MinReaderVersion != 3 {
			t.Errorf("W-303: %+v", c.Protocol)
		}
	})
}

func TestTable_AlterDropRename(t *testing.T) {
	t.Run("W-407 they need column mapping", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a INT"})
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"a"}}, "DELTA_UNSUPPORTED_DROP_COLUMN")
		wantAlterError(t, tb, delta.RenameColumn{Column: "a", To: "b"}, "DELTA_UNSUPPORTED_RENAME_COLUMN")
	})
	for _, mode := range []string{"name", "id", "upgraded"} {
		t.Run("W-504 mapping "+mode, func(t *testing.T) {
			props := map[string]string{"delta.dataSkippingStatsColumns": "id,s.x,`p`,n", "delta.enableChangeDataFeed": "true"}
			if mode != "upgraded" {
				props["delta.columnMapping.mode"] = mode
			}
			tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, n STRING, s STRUCT<x: INT, y: INT>, p STRING", Partition: []string{"p"}, Properties: props,
				Rows: []string{testtable.Numbers(0, 3, `,"n":"n%","s":{"x":%,"y":%},"p":"p%"`)}})
			if mode == "upgraded" {
				if _, err := tb.SetProperties(ctx, mapped("name"), delta.PropertyOptions{Upgrade: true}); err != nil {
					t.Fatal(err)
				}
			}
			before, _ := tb.Snapshot(ctx)
			alter(t, tb, delta.RenameColumn{Column: "P", To: "part of it"})
			alter(t, tb, delta.RenameColumn{Column: "s.x", To: "z.z"})
			if got := told(t, tb); got != `RENAME COLUMN oldColumnPath="s.x" newColumnPath="s.`+"`z.z`"+`"` {
				t.Errorf("W-204: %s", got)
			}
			alter(t, tb, delta.DropColumns{Columns: []string{"n", "s.y"}})
			if got := told(t, tb); got != `DROP COLUMNS columns="[\"n\",\"s.y\"]"` {
				t.Errorf("W-204: %s", got)
			}
			snap, _ := tb.Snapshot(ctx)
			if got := snap.Schema.String(); got != "STRUCT<id: BIGINT, s: STRUCT<`z.z`: INT>, `part of it`: STRING>" || fmt.Sprint(snap.PartitionColumns()) != "[part of it]" {
				t.Errorf("%s %v", got, snap.PartitionColumns())
			}
			if got := snap.Metadata.Configuration["delta.dataSkippingStatsColumns"]; got != "id,s.`z.z`,`part of it`" {
				t.Errorf("W-504: %s", got)
			}
			if snap.Metadata.Configuration["delta.columnMapping.maxColumnId"] != before.Metadata.Configuration["delta.columnMapping.maxColumnId"] {
				t.Error("W-502: maxColumnId moved")
			}
			wantRows(t, tb, delta.ScanOptions{Where: "`part of it` = 'p1' AND s.`z.z` = 1"}, `{"id":1,"part of it":"p1","s":{"z.z":1}}`)
			// The name of a dropped column starts anew.
			alter(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: field("n", schema.Integer)}}})
			if _, err := tb.Update(ctx, "n = 7", "id = 2", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			wantRows(t, tb, delta.ScanOptions{Columns: []string{"id", "n"}}, `{"id":0,"n":null}`, `{"id":1,"n":null}`, `{"id":2,"n":7}`)
			old := before.Version
			wantRows(t, tb, delta.ScanOptions{Version: &old, Where: "id = 0"}, `{"id":0,"n":"n0","p":"p0","s":{"x":0,"y":0}}`)
			// a range over the rename is refused, one after it reads.
			if _, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: ptr(before.Version)}}); codeOf(err) != "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE" && codeOf(err) != "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA" {
				t.Errorf("R-911: %v", err)
			}
			snap, _ = tb.Snapshot(ctx)
			if got := changesOf(t, tb, snap.Version); len(got) != 2 {
				t.Errorf("changes %q", got)
			}
		})
	}
	t.Run("W-504 W-406 refusals", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a INT, s STRUCT<x: INT>, g INT GENERATED ALWAYS AS (a + 1), p INT", Partition: []string{"p"}, Properties: mapped("name")})
		if _, err := tb.AddConstraint(ctx, "c", "s.x > 0 OR s.x IS NULL", delta.ConstraintOptions{}); err != nil {
			t.Fatal(err)
		}
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"p"}}, "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN")
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"nope"}}, "DELTA_COLUMN_NOT_FOUND")
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"id", "s.x"}}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"s"}}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		wantAlterError(t, tb, delta.RenameColumn{Column: "S", To: "t"}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		wantAlterError(t, tb, delta.RenameColumn{Column: "a", To: "t"}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		wantAlterError(t, tb, delta.RenameColumn{Column: "id", To: "P"}, "DELTA_COLUMN_ALREADY_EXISTS")
		wantAlterError(t, tb, delta.RenameColumn{Column: "id", To: ""}, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES")
		if r, err := tb.Alter(ctx, delta.DropColumns{Columns: []string{"nope"}, IfExists: true}, delta.AlterOptions{}); err != nil || r.Committed {
			t.Errorf("if exists: %+v %v", r, err)
		}
		if _, err := tb.DropConstraint(ctx, "c", delta.ConstraintOptions{}); err != nil {
			t.Fatal(err)
		}
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"s.x"}}, "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA")
		alter(t, tb, delta.DropColumns{Columns: []string{"s", "g", "a"}})
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"id"}}, "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION")
	})
	t.Run("C-16 a change that lost the race is made again", func(t *testing.T) {
		store := storage.NewMemory("t")
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a INT", Properties: mapped("name"), Store: store})
		other, err := delta.Open(ctx, store, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		alter(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: field("x", schema.Integer)}}})
		alter(t, other, delta.AddColumns{Columns: []delta.NewColumn{{Field: field("y", schema.Integer)}}})
		alter(t, tb, delta.RenameColumn{Column: "a", To: "b"})
		wantAlterError(t, other, delta.RenameColumn{Column: "a", To: "c"}, "DELTA_COLUMN_NOT_FOUND")
		if got := schemaText(t, tb); got != "STRUCT<id: BIGINT, b: INT, x: INT, y: INT>" {
			t.Error(got)
		}
	})
}

func TestTable_AlterChangeColumn(t *testing.T) {
	t.Run("W-403 W-407 nulls, comments, defaults, places", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, a INT, s STRUCT<x: INT>, l ARRAY<STRUCT<q: INT>>", Rows: []string{`{"id":1,"a":1,"s":{"x":1}}{"id":2,"a":null,"s":{"x":2}}`}})
		alter(t, tb, delta.ChangeColumn{Column: "id", NotNull: ptr(true), Comment: ptr("the key")})
		wantAlterError(t, tb, delta.ChangeColumn{Column: "a", NotNull: ptr(true)}, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED")
		alter(t, tb, delta.ChangeColumn{Column: "s.x", NotNull: ptr(true)})
		wantAlterError(t, tb, delta.ChangeColumn{Column: "l.element.q", NotNull: ptr(true)}, "DELTA_NESTED_NOT_NULL_CONSTRAINT")
		if _, err := appendAs(t, tb, false, "a INT", `{"a":1}`); codeOf(err) != "DELTA_NOT_NULL_CONSTRAINT_VIOLATED" {
			t.Errorf("got %v", err)
		}
		alter(t, tb, delta.ChangeColumn{Column: "id", NotNull: ptr(false), After: "a"})
		if got := told(t, tb); got != `CHANGE COLUMN column="{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{\"comment\":\"the key\"}}" position="AFTER a"` {
			t.Errorf("W-204: %s", got)
		}
		alter(t, tb, delta.ChangeColumn{Column: "a", Default: ptr("40 + 2")})
		if got := schemaText(t, tb); got != "STRUCT<a: INT, id: BIGINT, s: STRUCT<x: INT NOT NULL>, l: ARRAY<STRUCT<q: INT>>>" {
			t.Error(got)
		}
		if _, err := appendAs(t, tb, false, "id BIGINT, s STRUCT<x: INT>", `{"id":3,"s":{"x":3}}`); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Where: "id = 3"}, `{"a":42,"id":3,"l":null,"s":{"x":3}}`)
		wantAlterError(t, tb, delta.ChangeColumn{Column: "a", Default: ptr("'x'")}, "DELTA_UNSUPPORTED_EXPRESSION")
		alter(t, tb, delta.ChangeColumn{Column: "a", Default: ptr(""), First: true})
		alter(t, tb, delta.SetDescription{Text: "numbers"})
		snap, _ := tb.Snapshot(ctx)
		if snap.Metadata.Description != "numbers" {
			t.Error("no description")
		}
		if r, err := tb.Alter(ctx, delta.SetDescription{Text: "numbers"}, delta.AlterOptions{}); err != nil || r.Committed {
			t.Errorf("W-907: %+v %v", r, err)
		}
	})
	t.Run("W-831 types", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, v VOID, l ARRAY<INT>, d STRING"})
		wantAlterError(t, tb, delta.ChangeColumn{Column: "id", Type: schema.Long}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		alter(t, tb, delta.ChangeColumn{Column: "v", Type: schema.String})
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableTypeWidening": "true"}, delta.PropertyOptions{}); codeOf(err) != "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT" {
			t.Errorf("W-305: %v", err)
		}
		if _, err := tb.SetProperties(ctx, map[string]string{"delta.enableTypeWidening": "true"}, delta.PropertyOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		wantAlterError(t, tb, delta.ChangeColumn{Column: "id", Type: schema.Short}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		wantAlterError(t, tb, delta.ChangeColumn{Column: "d", Type: schema.Long}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		wantAlterError(t, tb, delta.ChangeColumn{Column: "l", Type: schema.Long}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP")
		alter(t, tb, delta.ChangeColumn{Column: "id", Type: schema.Long})
		if got := told(t, tb); got != `CHANGE COLUMN column="{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}"` {
			t.Errorf("W-204: %s", got)
		}
		alter(t, tb, delta.ChangeColumn{Column: "l.element", Type: schema.Double})
		snap, _ := tb.Snapshot(ctx)
		const want = `"name":"l","type":{"type":"array","elementType":"double","containsNull":true},"nullable":true,"metadata":{"delta.typeChanges":[{"toType":"double","fromType":"integer","fieldPath":"element"}]}}`
		if !strings.Contains(snap.Metadata.SchemaString, want) {
			t.Errorf("W-831: %s", snap.Metadata.SchemaString)
		}
		if r, err := tb.Alter(ctx, delta.ChangeColumn{Column: "id", Type: schema.Long}, delta.AlterOptions{}); err != nil || r.Committed {
			t.Errorf("W-907: %+v %v", r, err)
		}
	})
}

func TestTable_AlterClusterBy(t *testing.T) {
	t.Run("W-823 W-504 clustering columns come and go", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRUCT<x: INT, y: INT>, b BINARY", Properties: mapped("name")})
		alter(t, tb, delta.ClusterBy{Columns: []string{"id", "s.x"}})
		if got := told(t, tb); got != `CLUSTER BY oldClusteringColumns="" newClusteringColumns="id,s.x"` {
			t.Errorf("W-204: %s", got)
		}
		snap, _ := tb.Snapshot(ctx)
		paths, err := snap.ClusteringColumns()
		if err != nil || len(paths) != 2 || !strings.HasPrefix(paths[1][1], "col-") {
			t.Errorf("W-502: %v %v", paths, err)
		}
		wantAlterError(t, tb, delta.DropColumns{Columns: []string{"s"}}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		wantAlterError(t, tb, delta.RenameColumn{Column: "s.x", To: "z"}, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE")
		alter(t, tb, delta.DropColumns{Columns: []string{"s.y"}})
		if _, err := appendAs(t, tb, false, "id BIGINT, s STRUCT<x: INT>", `{"id":1,"s":{"x":1}}`); err != nil {
			t.Fatal(err)
		}
		if r, err := tb.Alter(ctx, delta.ClusterBy{Columns: []string{"ID", "S.X"}}, delta.AlterOptions{}); err != nil || r.Committed {
			t.Errorf("W-907: %+v %v", r, err)
		}
		alter(t, tb, delta.ClusterBy{})
		if got := told(t, tb); got != `CLUSTER BY oldClusteringColumns="id,s.x" newClusteringColumns=""` {
			t.Errorf("W-204: %s", got)
		}
		alter(t, tb, delta.DropColumns{Columns: []string{"s"}})
	})
	t.Run("W-823 refusals", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "a INT, b INT, c INT, d INT, e INT, x BINARY, l ARRAY<INT>"})
		wantAlterError(t, tb, delta.ClusterBy{Columns: []string{"a", "b", "c", "d", "e"}}, "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS")
		wantAlterError(t, tb, delta.ClusterBy{Columns: []string{"x"}}, "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED")
		wantAlterError(t, tb, delta.ClusterBy{Columns: []string{"l"}}, "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED")
		wantAlterError(t, tb, delta.ClusterBy{Columns: []string{"nope"}}, "DELTA_COLUMN_NOT_FOUND")
		part := testtable.New(t, testtable.Spec{DDL: "a INT, p INT", Partition: []string{"p"}})
		wantAlterError(t, part, delta.ClusterBy{Columns: []string{"a"}}, "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
	})
}
