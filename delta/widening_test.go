package delta_test

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/cdf"
	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/internal/testtable"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
	"github.com/sluice-data/sluice/storage"
)

var widening = map[string]string{"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}

// wideningPair is one change of a type with values before and after in both forms.
type wideningPair struct {
	from, to   string
	old, wide  []string // JSON values in rows of the two types
	oldAs      []string // old values as they read with the new type
	below, mid string   // conditions: only old rows, only wide ones
}

var wideningPairs = []wideningPair{
	{"TINYINT", "SMALLINT", []string{"-128", "127"}, []string{"300"}, []string{"-128", "127"}, "v < 128", "v >= 128"},
	{"TINYINT", "INT", []string{"-128", "127"}, []string{"70000"}, []string{"-128", "127"}, "v < 128", "v >= 128"},
	{"TINYINT", "BIGINT", []string{"-1"}, []string{"5000000000"}, []string{"-1"}, "v < 128", "v >= 128"},
	{"SMALLINT", "INT", []string{"-32768", "32767"}, []string{"70000"}, []string{"-32768", "32767"}, "v < 40000", "v > 40000"},
	{"SMALLINT", "BIGINT", []string{"-32768"}, []string{"5000000000"}, []string{"-32768"}, "v < 40000", "v > 40000"},
	{"INT", "BIGINT", []string{"-2147483648", "2147483647"}, []string{"5000000000"}, []string{"-2147483648", "2147483647"}, "v <= 2147483647", "v > 2147483647"},
	{"FLOAT", "DOUBLE", []string{"0.5", "-1.25"}, []string{"1e300"}, []string{"0.5", "-1.25"}, "v < 1", "v > 1"},
	{"TINYINT", "DOUBLE", []string{"-128"}, []string{"0.5"}, []string{"-128.0"}, "v < 0", "v > 0"},
	{"SMALLINT", "DOUBLE", []string{"-300"}, []string{"0.5"}, []string{"-300.0"}, "v < 0", "v > 0"},
	{"INT", "DOUBLE", []string{"-2147483648"}, []string{"0.5"}, []string{"-2147483648.0"}, "v < 0", "v > 0"},
	{"DATE", "TIMESTAMP_NTZ", []string{`"1969-12-31"`}, []string{`"2024-01-01T00:00:00.000001"`}, []string{`"1969-12-31T00:00:00.000000"`},
		"v < TIMESTAMP_NTZ'1970-01-01 00:00:00'", "v > TIMESTAMP_NTZ'2024-01-01 00:00:00'"},
	{"DECIMAL(6,2)", "DECIMAL(12,4)", []string{"-1234.56"}, []string{"12345678.1234"}, []string{`-1234.5600`}, "v < 0", "v > 0"},
	{"DECIMAL(9,0)", "DECIMAL(30,10)", []string{"-123456789"}, []string{"1.0000000001"}, []string{`-123456789.0000000000`}, "v < 0", "v > 0"},
	{"DECIMAL(18,2)", "DECIMAL(20,2)", []string{"-1.25"}, []string{"123456789012345678.25"}, []string{`-1.25`}, "v < 0", "v > 0"},
	{"TINYINT", "DECIMAL(10,0)", []string{"-128"}, []string{"9999999999"}, []string{`-128`}, "v < 0", "v > 0"},
	{"SMALLINT", "DECIMAL(12,2)", []string{"-300"}, []string{"0.25"}, []string{`-300.00`}, "v < 0", "v > 0"},
	{"INT", "DECIMAL(15,3)", []string{"-2147483648"}, []string{"0.125"}, []string{`-2147483648.000`}, "v < 0", "v > 0"},
	{"BIGINT", "DECIMAL(25,2)", []string{"-9223372036854775808"}, []string{"0.25"}, []string{`-9223372036854775808.00`}, "v < 0", "v > 0"},
}

// TestWidening_Pairs changes a column of every listed pair at top level, as partition
// column and nested, and reads rows of both types; conditions prune by statistics and
// partition values of the older type.
func TestWidening_Pairs(t *testing.T) {
	for _, p := range wideningPairs {
		for _, form := range []string{"column", "partition", "nested", "mapped"} {
			t.Run(fmt.Sprintf("R-831 R-609 W-831 %s to %s %s", p.from, p.to, form), func(t *testing.T) {
				spec := testtable.Spec{DDL: "id INT, v " + p.from, Properties: map[string]string{}}
				for k, v := range widening {
					spec.Properties[k] = v
				}
				row := func(v string) string { return `{"id":1,"v":` + v + `}` }
				column, where := "v", func(s string) string { return s }
				ddl := func(typ string) string { return "id INT, v " + typ }
				switch form {
				case "partition":
					spec.Partition = []string{"v"}
				case "mapped":
					spec.Properties["delta.columnMapping.mode"] = "id"
				case "nested":
					ddl = func(typ string) string {
						return "id INT, s STRUCT<v: " + typ + ">, l ARRAY<" + typ + ">, m MAP<STRING, ARRAY<" + typ + ">>"
					}
					row = func(v string) string {
						return `{"id":1,"s":{"v":` + v + `},"l":[` + v + `,null],"m":[{"key":"k","value":[` + v + `]}]}`
					}
					where = func(s string) string { return strings.ReplaceAll(s, "v ", "s.v ") }
					column = "s.v"
				}
				spec.DDL = ddl(p.from)
				for _, v := range p.old {
					spec.Rows = append(spec.Rows, row(v))
				}
				tb := testtable.New(t, spec)
				to, err := schema.ParseType(p.to)
				if err != nil {
					t.Fatal(err)
				}
				alter(t, tb, delta.ChangeColumn{Column: column, Type: to})
				if form == "nested" {
					alter(t, tb, delta.ChangeColumn{Column: "l.element", Type: to})
					alter(t, tb, delta.ChangeColumn{Column: "m.value.element", Type: to})
				}
				for _, v := range p.wide {
					if _, err := appendAs(t, tb, false, ddl(p.to), row(v)); err != nil {
						t.Fatal(err)
					}
				}
				expect := func(values []string) []string {
					var text string
					for _, v := range values {
						text += row(v)
					}
					return sorted(testtable.BatchLines(testtable.Batch(t, ddl(p.to), text)))
				}
				check := func(o delta.ScanOptions, values []string) {
					t.Helper()
					if d := testtable.Diff(testtable.Read(t, tb, o), expect(values)); d != "" {
						t.Errorf("where %q: %s", o.Where, d)
					}
				}
				all := append(append([]string{}, p.oldAs...), p.wide...)
				check(delta.ScanOptions{}, all)
				check(delta.ScanOptions{Where: where(p.below)}, p.oldAs)
				check(delta.ScanOptions{Where: where(p.mid)}, p.wide)
				// A rewrite brings old rows into the new type.
				if _, err := tb.Update(ctx, "id = 2", where(p.below), delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := tb.Update(ctx, "id = 1", "id = 2", delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				check(delta.ScanOptions{}, all)
				if _, err := tb.Checkpoint(ctx); err != nil {
					t.Fatal(err)
				}
				again, err := delta.Open(ctx, tb.Store(), delta.Options{})
				if err != nil {
					t.Fatal(err)
				}
				tb = again
				check(delta.ScanOptions{Where: where(p.mid)}, p.wide)
			})
		}
	}
}

func TestWidening_Feed(t *testing.T) {
	props := map[string]string{"delta.enableTypeWidening": "true", "delta.enableChangeDataFeed": "true"}
	tb := testtable.New(t, testtable.Spec{DDL: "id INT, v INT", Properties: props, Rows: []string{`{"id":1,"v":1}{"id":2,"v":2}`}})
	alter(t, tb, delta.ChangeColumn{Column: "v", Type: schema.Long})
	if _, err := tb.Update(ctx, "v = v + 5000000000", "id = 1", delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("R-911 a range over the change is refused", func(t *testing.T) {
		if _, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: ptr(int64(0))}}); codeOf(err) != "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA" && codeOf(err) != "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("R-831 images after it read files of before", func(t *testing.T) {
		got := changesOf(t, tb, 3)
		want := []string{`{"_change_type":"update_preimage","id":1,"v":1}`, `{"_change_type":"update_postimage","id":1,"v":5000000001}`}
		if d := testtable.Diff(sorted(got), sorted(want)); d != "" {
			t.Error(d)
		}
	})
}

// TestWidening_Golden goes on with tables that Spark widened: append, update, rewrite,
// more widening.
func TestWidening_Golden(t *testing.T) {
	dir := testenv.SharedDir(t, "golden", "spark")
	for _, name := range []string{"widen_top", "widen_nested"} {
		t.Run("R-831 W-831 "+name, func(t *testing.T) {
			tb, err := delta.Open(ctx, local(t, filepath.Join(testtable.Unpack(t, filepath.Join(dir, name+".tar.zst")), name)), delta.Options{})
			if err != nil {
				t.Fatal(err)
			}
			before := testtable.Read(t, tb, delta.ScanOptions{})
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
			snap, _ := tb.Snapshot(ctx)
			r, err := tb.DropFeature(ctx, deltalog.TypeWidening, deltalog.DropFeatureOptions{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := tb.Snapshot(ctx)
			if err != nil || after.Version != r.Version || after.Supports(deltalog.TypeWidening) || schema.HasTypeChanges(after.Schema) || !schema.Equal(after.Schema, snap.Schema) {
				t.Errorf("W-303: %+v %v", after.Protocol, err)
			}
			if d := testtable.Diff(testtable.Read(t, tb, delta.ScanOptions{}), twice); d != "" {
				t.Error(d)
			}
			for a := range after.Files(ctx) {
				if got := fmt.Sprint(fileTypes(fileSchema(t, tb, a))); strings.Contains(got, "TINYINT") || strings.Contains(got, "SMALLINT") || strings.Contains(got, "FLOAT") {
					t.Errorf("file %s still has %s", a.Path, got)
				}
			}
		})
	}
}

func fileTypes(s *schema.Struct) (out []string) {
	for _, l := range schema.Leaves(s) {
		out = append(out, l.Field.Type.String())
	}
	return out
}

func TestTable_DropFeature(t *testing.T) {
	t.Run("W-303 deletion vectors are purged", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT", Properties: map[string]string{"delta.enableDeletionVectors": "true"}, Rows: []string{testtable.Numbers(0, 10, "")}})
		if _, err := tb.Delete(ctx, "id = 3", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		before := testtable.Read(t, tb, delta.ScanOptions{})
		if _, err := tb.DropFeature(ctx, deltalog.DeletionVectors, deltalog.DropFeatureOptions{}); err != nil {
			t.Fatal(err)
		}
		snap, _ := tb.Snapshot(ctx)
		if snap.Supports(deltalog.DeletionVectors) || !snap.Supports("checkpointProtection") {
			t.Errorf("protocol %+v", snap.Protocol)
		}
		wantRows(t, tb, delta.ScanOptions{}, before...)
	})
	t.Run("W-303 what is in use is named", func(t *testing.T) {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, n INT DEFAULT 1"})
		if _, err := tb.DropFeature(ctx, deltalog.ColumnDefaults, deltalog.DropFeatureOptions{}); codeOf(err) != "DELTA_FEATURE_DROP_TRACES" {
			t.Errorf("got %v", err)
		}
		if _, err := tb.DropFeature(ctx, "quarks", deltalog.DropFeatureOptions{}); codeOf(err) != "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT" {
			t.Errorf("got %v", err)
		}
	})
}

// TestChanges_Widened: as in Spark (tried with 4.2 and Delta 4.4), a range whose schema
// widened inside is refused, one after it reads rows of older files too; a stream stops
// at the change and goes on after it.
func TestChanges_Widened(t *testing.T) {
	for _, vectors := range []string{"false", "true"} {
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, d DATE", Rows: []string{`{"id":1,"d":"2024-01-02"}` + "\n" + `{"id":2}`},
			Properties: map[string]string{"delta.enableTypeWidening": "true", "delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors}})
		alter(t, tb, delta.ChangeColumn{Column: "id", Type: schema.Long})
		if err := appendRows(t, tb, "id BIGINT, d DATE", `{"id":3000000000}`); err != nil {
			t.Fatal(err)
		}
		if _, err := tb.Delete(ctx, "id = 1", delta.DMLOptions{}); err != nil {
			t.Fatal(err)
		}
		feed := func(from, to int64) ([]string, error) {
			f, err := tb.Changes(ctx, cdf.Options{Range: cdf.Range{FromVersion: &from, ToVersion: &to}})
			if err != nil {
				return nil, err
			}
			return changeRows(f.Rows(ctx))
		}
		for _, r := range [][2]int64{{0, 3}, {1, 2}, {1, 4}} {
			if _, err := feed(r[0], r[1]); !strings.HasPrefix(codeOf(err), "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_") || !strings.Contains(err.Error(), "id changed its type from INT to BIGINT") {
				t.Errorf("R-911 %v: %v", r, err)
			}
		}
		for r, want := range map[[2]int64][]string{
			{0, 1}: {`{"_change_type":"insert","d":"2024-01-02","id":1}`, `{"_change_type":"insert","d":null,"id":2}`},
			{2, 4}: {`{"_change_type":"delete","d":"2024-01-02","id":1}`, `{"_change_type":"insert","d":null,"id":3000000000}`},
		} {
			if got, err := feed(r[0], r[1]); err != nil || !slices.Equal(sorted(got), want) {
				t.Errorf("R-911 %v: %q, %v", r, got, err)
			}
		}
		first := int64(0)
		var rows []string
		read := func(o cdf.StreamOptions) (cdf.Position, error) {
			s, err := tb.Stream(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			for {
				b, err := s.Next(ctx)
				if err != nil || b == nil {
					return s.Position(), err
				}
				lines, err := changeRows(b.Rows(ctx))
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, lines...)
			}
		}
		pos, err := read(cdf.StreamOptions{FromVersion: &first})
		var stop *cdf.SchemaChangedError
		if !errors.As(err, &stop) || stop.Version != 2 || len(rows) != 2 {
			t.Fatalf("R-923 the stream ends with %v after %q", err, rows)
		}
		if _, err := read(cdf.StreamOptions{Position: &pos}); err != nil || len(rows) != 4 || !slices.Contains(rows, `{"_change_type":"delete","d":"2024-01-02","id":1}`) {
			t.Errorf("R-923 and goes on with %q, %v", rows, err)
		}
	}
}

// changeRows are change rows without their versions and times.
func changeRows(rows iter.Seq2[arrow.RecordBatch, error]) (out []string, err error) {
	for b, err := range rows {
		if err != nil {
			return nil, err
		}
		out = append(out, testtable.BatchLines(sliceColumns(b, int(b.NumCols())-2))...)
	}
	return out, nil
}

// TestEvolution_Rand holds random lists of schema changes and writes against a model:
// a table of maps.
func TestEvolution_Rand(outer *testing.T) {
	testenv.Check(outer, func(t *rapid.T) {
		mode := rapid.SampledFrom([]string{"none", "name", "id"}).Draw(t, "mode")
		tb := newEvolving(t, mode)
		m := &evolutionModel{tb: outer, columns: []string{"id"}, types: map[string]string{"id": "INT"}}
		next := 0
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			pick := rapid.SampledFrom(m.columns).Draw(t, "column")
			switch rapid.SampledFrom([]string{"append", "append", "add", "merge", "drop", "rename", "widen", "move", "update", "delete", "optimize"}).Draw(t, "step") {
			case "append":
				m.append(t, tb, m.columns, false)
			case "add":
				next++
				name := fmt.Sprintf("c%d", next)
				m.must(t, tb, delta.AddColumns{Columns: []delta.NewColumn{{Field: field(name, schema.Integer), First: true}}})
				m.columns, m.types[name] = slices.Insert(m.columns, 0, name), "INT"
			case "merge":
				next++
				name := fmt.Sprintf("c%d", next)
				m.types[name] = "STRING"
				m.columns = append(m.columns, name)
				m.append(t, tb, []string{name, pick}, true)
			case "drop":
				if mode == "none" || len(m.columns) == 1 {
					continue
				}
				m.must(t, tb, delta.DropColumns{Columns: []string{pick}})
				m.columns = slices.DeleteFunc(m.columns, func(c string) bool { return c == pick })
				for _, r := range m.rows {
					delete(r, pick)
				}
			case "rename":
				if mode == "none" {
					continue
				}
				next++
				to := fmt.Sprintf("c%d", next)
				m.must(t, tb, delta.RenameColumn{Column: pick, To: to})
				m.columns[slices.Index(m.columns, pick)], m.types[to] = to, m.types[pick]
				for _, r := range m.rows {
					if v, ok := r[pick]; ok {
						r[to] = v
						delete(r, pick)
					}
				}
			case "widen":
				if m.types[pick] != "INT" {
					continue
				}
				m.must(t, tb, delta.ChangeColumn{Column: pick, Type: schema.Long})
				m.types[pick] = "BIGINT"
			case "move":
				if len(m.columns) == 1 || m.columns[0] == pick {
					continue
				}
				m.must(t, tb, delta.ChangeColumn{Column: pick, First: true})
				m.columns = slices.DeleteFunc(m.columns, func(c string) bool { return c == pick })
				m.columns = slices.Insert(m.columns, 0, pick)
			case "update":
				if m.types[pick] == "STRING" {
					continue
				}
				if _, err := tb.Update(ctx, pick+" = 7", pick+" IS NULL", delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				for _, r := range m.rows {
					if _, ok := r[pick]; !ok {
						r[pick] = "7"
					}
				}
			case "delete":
				if _, err := tb.Delete(ctx, pick+" IS NULL", delta.DMLOptions{}); err != nil {
					t.Fatal(err)
				}
				m.rows = slices.DeleteFunc(m.rows, func(r map[string]string) bool { _, ok := r[pick]; return !ok })
			case "optimize":
				if _, err := tb.Optimize(ctx, delta.OptimizeOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			m.compare(t, tb)
		}
	})
}

type evolutionModel struct {
	tb      testing.TB
	columns []string
	types   map[string]string
	rows    []map[string]string // JSON values; nulls are absent
}

func newEvolving(t *rapid.T, mode string) *delta.Table {
	props := map[string]string{"delta.columnMapping.mode": mode, "delta.enableTypeWidening": "true"}
	if rapid.Bool().Draw(t, "vectors") {
		props["delta.enableDeletionVectors"] = "true"
	}
	s, err := schema.ParseDDL("id INT")
	if err != nil {
		t.Fatal(err)
	}
	tb, err := delta.Create(ctx, storage.NewMemory("t"), delta.CreateOptions{Schema: s, Properties: props}, delta.Options{Clock: testtable.Clock()})
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func (m *evolutionModel) must(t *rapid.T, tb *delta.Table, c delta.Alteration) {
	if _, err := tb.Alter(ctx, c, delta.AlterOptions{}); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
}

func (m *evolutionModel) append(t *rapid.T, tb *delta.Table, columns []string, merge bool) {
	var ddl, values []string
	row := map[string]string{}
	for i, c := range columns {
		if slices.Contains(columns[:i], c) {
			continue
		}
		ddl = append(ddl, c+" "+m.types[c])
		v := fmt.Sprint(rapid.IntRange(-3, 3).Draw(t, "value"))
		switch {
		case rapid.IntRange(0, 3).Draw(t, "null") == 0:
			continue
		case m.types[c] == "STRING":
			v = `"` + v + `"`
		case m.types[c] == "BIGINT" && v != "0":
			v += "000000000000"
		}
		row[c] = v
		values = append(values, `"`+c+`":`+v)
	}
	text := strings.Join(ddl, ", ")
	rows := testtable.Stream(testtable.Batch(m.tb, text, "{"+strings.Join(values, ",")+"}"))
	if _, err := tb.Append(ctx, rows, delta.WriteOptions{MergeSchema: merge}); err != nil {
		t.Fatal(err)
	}
	m.rows = append(m.rows, row)
}

func (m *evolutionModel) compare(t *rapid.T, tb *delta.Table) {
	s, err := tb.Schema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Names(), m.columns) {
		t.Fatalf("columns %v, want %v", s.Names(), m.columns)
	}
	var want []string
	names := sorted(slices.Clone(m.columns))
	for _, r := range m.rows {
		var parts []string
		for _, c := range names {
			v, ok := r[c]
			if !ok {
				v = "null"
			}
			parts = append(parts, `"`+c+`":`+v)
		}
		want = append(want, "{"+strings.Join(parts, ",")+"}")
	}
	sc, err := tb.Scan(ctx, delta.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for b, err := range sc.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, testtable.BatchLines(b)...)
	}
	if d := testtable.Diff(sorted(got), sorted(want)); d != "" {
		t.Fatal(d)
	}
}
