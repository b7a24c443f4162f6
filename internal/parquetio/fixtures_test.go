package parquetio

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/sluice-data/sluice/log/schema"
)

// cell is the value of a at i in plain Go values: nil, bool, float64, string,
// []any, map[string]any, and json.Number for integers, dates and timestamps.
func cell(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Null:
		return nil
	case *array.Boolean:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return fmt.Sprintf("0x%x", a.Value(i))
	case *array.Date32:
		return json.Number(fmt.Sprint(int32(a.Value(i))))
	case *array.Timestamp:
		return json.Number(fmt.Sprint(int64(a.Value(i))))
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Struct:
		m := map[string]any{}
		for k := range a.NumField() {
			m[a.DataType().(*arrow.StructType).Field(k).Name] = cell(a.Field(k), i)
		}
		return m
	case *array.Map:
		from, to := a.ValueOffsets(i)
		out := []any{}
		for j := from; j < to; j++ {
			out = append(out, []any{cell(a.Keys(), int(j)), cell(a.Items(), int(j))})
		}
		return out
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := []any{}
		for j := from; j < to; j++ {
			out = append(out, cell(a.ListValues(), int(j)))
		}
		return out
	}
	return json.Number(a.ValueStr(i))
}

func sameCell(got, want any) bool {
	switch g := got.(type) {
	case float64:
		var w float64
		var err error
		switch want := want.(type) {
		case string:
			w, err = strconv.ParseFloat(want, 64)
		case json.Number:
			w, err = want.Float64()
		default:
			return false
		}
		return err == nil && (g == w || g != g && w != w)
	case []any:
		w, ok := want.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range g {
			if !sameCell(g[i], w[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for k := range g {
			if !sameCell(g[k], w[k]) {
				return false
			}
		}
		return true
	case string:
		w, ok := want.(string)
		if n, num := want.(json.Number); num {
			w, ok = n.String(), true
		}
		return ok && (g == w || strings.ContainsAny(g, ".") && strings.TrimRight(g, "0") == strings.TrimRight(w, "0"))
	}
	return got == want
}

func row(b arrow.RecordBatch, i int) map[string]any {
	m := map[string]any{}
	for k, c := range b.Columns() {
		m[b.ColumnName(k)] = cell(c, i)
	}
	return m
}

func openFixture(tb testing.TB, name string) *File {
	b, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
	if err != nil {
		tb.Fatal(err)
	}
	return openBytes(tb, b)
}

func fixtureRows(tb testing.TB, name string) []map[string]any {
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var rows []map[string]any
	if err := d.Decode(&rows); err != nil {
		tb.Fatal(err)
	}
	return rows
}

func checkRows(tb testing.TB, got arrow.RecordBatch, want []map[string]any) {
	tb.Helper()
	if int(got.NumRows()) != len(want) {
		tb.Fatalf("%d rows, want %d", got.NumRows(), len(want))
	}
	for i, w := range want {
		if g := row(got, i); !sameCell(g, w) {
			tb.Fatalf("row %d:\n got %v\nwant %v", i, g, w)
		}
	}
}

// The fixtures are made by testdata/make.py with another implementation.
func TestFile_ReadForeign(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".parquet")
		t.Run(name, func(t *testing.T) {
			f := openFixture(t, name)
			want := fixtureRows(t, name)
			s := f.Schema()
			for _, size := range []int{0, 1, 7} {
				checkRows(t, readAll(t, f, s, ReadOptions{BatchRows: size}), want)
			}
			for step := 1; step < 40; step += 6 {
				for start := range min(step, 5) {
					rows := []int64{}
					picked := []map[string]any{}
					for i := start; i < len(want); i += step {
						rows = append(rows, int64(i))
						picked = append(picked, want[i])
					}
					checkRows(t, readAll(t, f, s, ReadOptions{Rows: rows, BatchRows: 9}), picked)
				}
			}
		})
	}
}

func TestFile_ReadProjection(t *testing.T) {
	f := openFixture(t, "v2-nested")
	rows := fixtureRows(t, "v2-nested")
	t.Run("R-404 missing columns are null at any depth", func(t *testing.T) {
		want := &schema.Struct{Fields: []schema.Field{
			{Name: "new", Type: schema.Decimal{Precision: 10, Scale: 2}, Nullable: true},
			{Name: "s", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{
				{Name: "zz", Type: schema.Long, Nullable: true},
				{Name: "b", Nullable: true, Type: &schema.Struct{Fields: []schema.Field{{Name: "y", Type: &schema.Array{Elem: schema.String}, Nullable: true}}}},
			}}},
			{Name: "ls", Nullable: true, Type: &schema.Array{ContainsNull: true, Elem: &schema.Struct{Fields: []schema.Field{{Name: "none", Type: schema.Date, Nullable: true}}}}},
		}}
		for _, o := range []ReadOptions{{}, {BatchRows: 2}, {Rows: []int64{1, 3, 4, 9, 14}}} {
			got := readAll(t, f, want, o)
			for i := range int(got.NumRows()) {
				src := rows[i]
				if o.Rows != nil {
					src = rows[o.Rows[i]]
				}
				g := row(got, i)
				if g["new"] != nil {
					t.Fatalf("row %d: %v", i, g)
				}
				if s, ok := src["s"].(map[string]any); !ok {
					if g["s"] != nil {
						t.Fatalf("row %d: null struct read as %v", i, g["s"])
					}
				} else {
					gs := g["s"].(map[string]any)
					if gs["zz"] != nil || (s["b"] == nil) != (gs["b"] == nil) {
						t.Fatalf("row %d: got %v from %v", i, g["s"], s)
					}
				}
				l, _ := src["ls"].([]any)
				gl, _ := g["ls"].([]any)
				if (src["ls"] == nil) != (g["ls"] == nil) || len(l) != len(gl) {
					t.Fatalf("row %d: got %v from %v", i, g["ls"], src["ls"])
				}
				for j := range l {
					if (l[j] == nil) != (gl[j] == nil) {
						t.Fatalf("row %d: got %v from %v", i, g["ls"], src["ls"])
					}
				}
			}
		}
	})
	t.Run("no columns at all", func(t *testing.T) {
		if got := readAll(t, f, &schema.Struct{}, ReadOptions{}); got.NumRows() != f.NumRows() {
			t.Fatalf("%d rows", got.NumRows())
		}
	})
	t.Run("R-407 void reads as null", func(t *testing.T) {
		got := readAll(t, f, &schema.Struct{Fields: []schema.Field{{Name: "l", Type: schema.Void, Nullable: true}}}, ReadOptions{})
		if got.Column(0).NullN() != int(f.NumRows()) {
			t.Fatal(got)
		}
	})
	t.Run("R-406 names match ignoring case", func(t *testing.T) {
		got := readAll(t, f, &schema.Struct{Fields: []schema.Field{{Name: "L", Nullable: true, Type: &schema.Array{Elem: schema.Long, ContainsNull: true}}}}, ReadOptions{})
		if c := cell(got.Column(0), 4).([]any); fmt.Sprint(c) != "[5]" {
			t.Fatal(c)
		}
	})
	t.Run("row groups keep physical rows R-655", func(t *testing.T) {
		f := openFixture(t, "v1-pages")
		for b, err := range f.Read(context.Background(), f.Schema(), ReadOptions{RowGroups: []int{1, 2}, BatchRows: 100}) {
			if err != nil {
				t.Fatal(err)
			}
			req := b.Column(int(b.NumCols()) - 1).(*array.Int64)
			if req.Value(0) != b.FirstRow || b.FirstRow%25 != 0 {
				t.Fatalf("first row %d has %d", b.FirstRow, req.Value(0))
			}
		}
	})
}
