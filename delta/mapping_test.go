package delta_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/datafile"
	"github.com/sluice-data/sluice/internal/parquetio"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

// fileSchema is the schema of a data file as it lies in the store.
func fileSchema(t *testing.T, tb *delta.Table, a *deltalog.Add) *schema.Struct {
	t.Helper()
	r, err := datafile.Open(ctx, tb.Store(), a.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := parquetio.Open(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	return f.Schema()
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

const mappedDDL = "id BIGINT, `a b` STRING, s STRUCT<x: INT, l ARRAY<STRUCT<d: DOUBLE>>>, m MAP<STRING, STRUCT<q: INT>>, p STRING"

func mappedRows(from, to int) string {
	return testtable.Numbers(from, to, `,"a b":"n%","s":{"x":%,"l":[{"d":%.5}]},"m":[{"key":"k","value":{"q":%}}],"p":"p%"`)
}

func TestMapping_ID(t *testing.T) {
	store := storage.NewMemory("t")
	tb := testtable.New(t, testtable.Spec{DDL: mappedDDL, Partition: []string{"p"}, Store: store,
		Properties: map[string]string{"delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"}, Rows: []string{mappedRows(0, 1), mappedRows(1, 2)}})
	snap, err := tb.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("W-304 W-503 create", func(t *testing.T) {
		if p := snap.Protocol; p.MinReaderVersion != 2 || p.MinWriterVersion != 7 {
			t.Errorf("protocol %+v", p)
		}
		if got := snap.Metadata.Configuration["delta.columnMapping.maxColumnId"]; got != "9" {
			t.Errorf("max id %s", got)
		}
	})
	t.Run("W-501 files hold physical names and ids at every depth", func(t *testing.T) {
		for a, err := range snap.Files(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			want := &schema.Struct{Fields: schema.PhysicalStruct(snap.Schema, schema.ModeID).Fields[:4]}
			strip := func(s string) string { return strings.NewReplacer(" ", "").Replace(s) }
			got := fileSchema(t, tb, a)
			if strip(got.String()) != strip(want.String()) {
				t.Errorf("file has %s, want %s", got, want)
			}
			ids := map[int32]bool{}
			var visit func(typ schema.Type)
			visit = func(typ schema.Type) {
				switch typ := typ.(type) {
				case *schema.Struct:
					for _, f := range typ.Fields {
						id, ok := schema.FieldID(f)
						if !ok {
							t.Errorf("no id on %s", f.Name)
						}
						ids[id] = true
						visit(f.Type)
					}
				case *schema.Array:
					visit(typ.Elem)
				case *schema.Map:
					visit(typ.Value)
				}
			}
			visit(got)
			if len(ids) != 8 {
				t.Errorf("ids %v", ids)
			}
		}
	})
	t.Run("R-501 R-505 names of files do not matter", func(t *testing.T) {
		// Every field gets another physical name; partition values follow theirs.
		m := *snap.Metadata
		s := snap.Schema
		next := 0
		var rename func(typ schema.Type) schema.Type
		rename = func(typ schema.Type) schema.Type {
			switch typ := typ.(type) {
			case *schema.Struct:
				out := &schema.Struct{}
				for _, f := range typ.Fields {
					if f.Name != "p" {
						next++
						f.Metadata = f.Metadata.With(schema.MappingNameKey, strings.Repeat("z", next))
					}
					f.Type = rename(f.Type)
					out.Fields = append(out.Fields, f)
				}
				return out
			case *schema.Array:
				return &schema.Array{Elem: rename(typ.Elem), ContainsNull: typ.ContainsNull}
			case *schema.Map:
				return &schema.Map{Key: typ.Key, Value: rename(typ.Value), ValueContainsNull: typ.ValueContainsNull}
			}
			return typ
		}
		m.SchemaString = rename(s).(*schema.Struct).JSON()
		cfg, err := deltalog.NewTableConfig(snap.Protocol, &m)
		if err != nil {
			t.Fatal(err)
		}
		l, err := datafile.LayoutOf(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for a, err := range snap.Files(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			for b, err := range datafile.Read(ctx, store, l, a, datafile.ReadOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, testtable.BatchLines(b.RecordBatch)...)
			}
		}
		if d := testtable.Diff(sorted(got), testtable.Read(t, tb, delta.ScanOptions{})); d != "" {
			t.Error(d)
		}
		// An id that the file does not have is null.
		m.SchemaString = strings.Replace(m.SchemaString, `"delta.columnMapping.id":2`, `"delta.columnMapping.id":200`, 1)
		m.Configuration = map[string]string{"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "200"}
		if cfg, err = deltalog.NewTableConfig(snap.Protocol, &m); err != nil {
			t.Fatal(err)
		}
		if l, err = datafile.LayoutOf(cfg, nil); err != nil {
			t.Fatal(err)
		}
		for a, err := range snap.Files(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			for b, err := range datafile.Read(ctx, store, l, a, datafile.ReadOptions{Columns: []string{"a b"}}) {
				if err != nil || b.Column(0).NullN() != int(b.NumRows()) {
					t.Errorf("absent id: %v %v", b.RecordBatch, err)
				}
			}
		}
	})
	t.Run("2.1 rows change, the feed follows", func(t *testing.T) {
		if _, err := tb.Update(ctx, "`a b` = 'new', s = NULL", "id = 0", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Delete(ctx, "id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{Columns: []string{"id", "a b"}, Where: "id = 0"}, `{"a b":"new","id":0}`)
		if got := changesOf(t, tb, 3); len(got) != 2 {
			t.Errorf("changes %q", got)
		}
	})
	t.Run("R-501 a file without ids is an error", func(t *testing.T) {
		plain := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Rows: []string{`{"id":1}`}})
		a := onlyFile(t, plain)
		ps, err := plain.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s, maxID := schema.AssignMapping(ps.Schema, 0, nil)
		if maxID != 1 {
			t.Fatal(maxID)
		}
		m := *ps.Metadata
		m.SchemaString, m.Configuration = s.JSON(), map[string]string{"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"}
		p, err := ps.Protocol.With(deltalog.ColumnMapping)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := deltalog.NewTableConfig(p, &m)
		if err != nil {
			t.Fatal(err)
		}
		l, err := datafile.LayoutOf(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range datafile.Read(ctx, plain.Store(), l, a, datafile.ReadOptions{}) {
			if codeOf(err) != datafile.CodeSchema || !strings.Contains(err.Error(), "field ids") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestMapping_Modes(t *testing.T) {
	upgrade := delta.PropertyOptions{Upgrade: true}
	mode := func(m string) map[string]string { return map[string]string{"delta.columnMapping.mode": m} }
	t.Run("W-503 an existing table cannot get ids", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT"})
		for _, o := range []delta.PropertyOptions{{}, upgrade} {
			if _, err := tb.SetProperties(ctx, mode("id"), o); codeOf(err) != "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE" {
				t.Errorf("got %v", err)
			}
		}
	})
	for _, from := range []string{"name", "id"} {
		for _, to := range []string{"none", "id", "name"} {
			if from == to {
				continue
			}
			t.Run("W-503 "+from+" stays", func(t *testing.T) {
				tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT", Properties: mode(from)})
				if _, err := tb.SetProperties(ctx, mode(to), upgrade); codeOf(err) != "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE" {
					t.Errorf("to %s: %v", to, err)
				}
				if _, err := tb.SetProperties(ctx, nil, delta.PropertyOptions{Unset: []string{"delta.columnMapping.mode"}}); codeOf(err) != "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE" {
					t.Errorf("unset: %v", err)
				}
				if _, err := tb.SetProperties(ctx, nil, delta.PropertyOptions{Unset: []string{"delta.columnMapping.maxColumnId"}}); err == nil {
					t.Error("maxColumnId was removed")
				}
			})
		}
	}
	t.Run("W-305 W-503 none to name is asked for", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRUCT<a: INT>, p INT", Partition: []string{"p"}, Rows: []string{`{"id":1,"s":{"a":1},"p":1}`}})
		if _, err := tb.SetProperties(ctx, mode("name"), delta.PropertyOptions{}); codeOf(err) != "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT" {
			t.Errorf("got %v", err)
		}
		if _, err := tb.SetProperties(ctx, mode("name"), upgrade); err != nil {
			t.Fatal(err)
		}
		snap, err := tb.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"id"}},` +
			`{"name":"s","type":{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{"delta.columnMapping.id":3,"delta.columnMapping.physicalName":"a"}}]},"nullable":true,"metadata":{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"s"}},` +
			`{"name":"p","type":"integer","nullable":true,"metadata":{"delta.columnMapping.id":4,"delta.columnMapping.physicalName":"p"}}]}`
		if snap.Metadata.SchemaString != want || snap.Metadata.Configuration["delta.columnMapping.maxColumnId"] != "4" {
			t.Errorf("W-503: %s", snap.Metadata.SchemaString)
		}
		if _, err := tb.Append(ctx, testtable.Rows(t, "id BIGINT, s STRUCT<a: INT>, p INT", `{"id":2,"s":{"a":2},"p":2}`), delta.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tb, delta.ScanOptions{}, `{"id":1,"p":1,"s":{"a":1}}`, `{"id":2,"p":2,"s":{"a":2}}`)
	})
}

// TestMapping_Golden writes into tables that Spark made with column mapping: the
// rows that are there stay, ours join them, ids and names are theirs.
func TestMapping_Golden(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	for _, name := range []string{"colmap_id", "colmap_name_cdf_dv", "colmap_upgraded", "names_odd"} {
		t.Run("R-501 W-501 "+name, func(t *testing.T) {
			tb, err := delta.Open(ctx, local(t, filepath.Join(testtable.Unpack(t, filepath.Join(dir, name+".tar.zst")), name)), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			before := testtable.Read(t, tb, delta.ScanOptions{})
			snap, err := tb.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			s, err := tb.Scan(ctx, delta.ScanOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Append(ctx, s.Batches(ctx), delta.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			twice := sorted(append(append([]string{}, before...), before...))
			if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), twice); d != "" {
				t.Error(d)
			}
			if _, err := tb.Delete(ctx, schema.QuoteName(snap.Schema.Fields[0].Name)+" IS NOT NULL", delta.DMLOptions{}); err != nil {
				t.Fatal(err)
			}
			after, err := tb.Snapshot(ctx)
			if err != nil || after.Metadata.SchemaString != snap.Metadata.SchemaString {
				t.Errorf("schema changed: %v", err)
			}
		})
	}
}
