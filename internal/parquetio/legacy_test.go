package parquetio

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-data/sluice/log/schema"
)

// reshaped writes json under s and then changes the schema elements of the
// footer, levels staying what they are.
func reshaped(t *testing.T, s *schema.Struct, json string, change func([]format.SchemaElement) []format.SchemaElement) *File {
	var out bytes.Buffer
	w, err := NewWriter(&out, s, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(jsonBatch(t, s, json)); err != nil {
		t.Fatal(err)
	}
	w.elems = change(w.elems)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return openBytes(t, out.Bytes())
}

// The list and map forms of old writers (delta-protocol 5.1, R-505).
func TestFile_ReadLegacyNesting(t *testing.T) {
	rename := func(names ...string) func([]format.SchemaElement) []format.SchemaElement {
		return func(e []format.SchemaElement) []format.SchemaElement {
			for i, n := range names {
				if n != "" {
					e[i+1].Name = n
				}
			}
			return e
		}
	}
	// twoLevel drops the repeated group: its only child becomes the repeated node.
	twoLevel := func(name string) func([]format.SchemaElement) []format.SchemaElement {
		return func(e []format.SchemaElement) []format.SchemaElement {
			e = slices.Delete(e, 2, 3)
			e[2].Name, e[2].RepetitionType = name, thrift.New(format.Repeated)
			return e
		}
	}
	bare := func(f func([]format.SchemaElement) []format.SchemaElement) func([]format.SchemaElement) []format.SchemaElement {
		return func(e []format.SchemaElement) []format.SchemaElement {
			e = f(e)
			e[1].LogicalType, e[1].ConvertedType = format.LogicalType{}, thrift.Null[deprecated.ConvertedType]{}
			return e
		}
	}
	ints := one(&schema.Array{Elem: schema.Integer, ContainsNull: true})
	reqInts := one(&schema.Array{Elem: schema.Integer})
	field := schema.Field{Name: "x", Type: schema.Integer, Nullable: true}
	structs := one(&schema.Array{Elem: &schema.Struct{Fields: []schema.Field{field}}})
	deep := one(&schema.Array{Elem: &schema.Array{Elem: schema.Integer}})
	maps := one(&schema.Map{Key: schema.String, Value: schema.Integer, ValueContainsNull: true})
	const nullable = `[{"c":null},{"c":[]},{"c":[null]},{"c":[1,null,2]},{"c":[3]}]`
	const dense = `[{"c":null},{"c":[]},{"c":[1,2]},{"c":[3]}]`
	const xs = `[{"c":null},{"c":[]},{"c":[{"x":null},{"x":2}]},{"c":[{"x":3}]}]`
	const ll = `[{"c":null},{"c":[]},{"c":[[]]},{"c":[[1,2],[],[3]]}]`
	const kv = `[{"c":null},{"c":[]},{"c":[{"key":"a","value":null},{"key":"b","value":2}]}]`
	for _, c := range []struct {
		name   string
		s      *schema.Struct
		json   string
		change func([]format.SchemaElement) []format.SchemaElement
	}{
		{"bag and array_element", ints, nullable, rename("", "bag", "array_element")},
		{"list and item", ints, nullable, rename("", "list", "item")},
		{"array and element", ints, nullable, rename("", "array", "element")},
		{"no annotation", ints, nullable, bare(rename("", "list", "element"))},
		{"two levels, array", reqInts, dense, twoLevel("array")},
		{"two levels, any name", reqInts, dense, twoLevel("c_tuple")},
		{"two levels without annotation", reqInts, dense, bare(twoLevel("x"))},
		{"two levels of structs", structs, xs, twoLevel("array")},
		{"two levels of structs, _tuple", structs, xs, twoLevel("c_tuple")},
		{"three levels of structs with one field", structs, xs, rename("", "list", "element")},
		{"two levels of lists", deep, ll, func(e []format.SchemaElement) []format.SchemaElement {
			// c, list, element(LIST), list, element: drop both repeated groups.
			e = slices.Delete(e, 4, 5)
			e[4].Name, e[4].RepetitionType = "array", thrift.New(format.Repeated)
			e = slices.Delete(e, 2, 3)
			e[2].Name, e[2].RepetitionType = "array", thrift.New(format.Repeated)
			return e
		}},
		{"map and entries", maps, kv, rename("", "map")},
		{"map of any names", maps, kv, rename("", "entries", "k", "v")},
		{"map without annotation", maps, kv, bare(rename())},
		{"MAP_KEY_VALUE", maps, kv, func(e []format.SchemaElement) []format.SchemaElement {
			e[1].LogicalType, e[1].ConvertedType = format.LogicalType{}, thrift.New(deprecated.MapKeyValue)
			e[2].Name = "map"
			return e
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := reshaped(t, c.s, c.json, c.change)
			want := jsonBatch(t, c.s, c.json)
			sameBatch(t, readAll(t, f, c.s, ReadOptions{}), want)
			sameBatch(t, readAll(t, f, c.s, ReadOptions{BatchRows: 1}), want)
			sameBatch(t, readAll(t, f, c.s, ReadOptions{Rows: []int64{0, 2}}), take(t, want, []int64{0, 2}))
		})
	}
	t.Run("repeated field without wrapper", func(t *testing.T) {
		s := &schema.Struct{Fields: []schema.Field{{Name: "c", Type: &schema.Array{Elem: schema.Integer}}}}
		const json = `[{"c":[]},{"c":[1,2]},{"c":[3]}]`
		f := reshaped(t, s, json, func(e []format.SchemaElement) []format.SchemaElement {
			leaf := e[3]
			leaf.Name, leaf.RepetitionType = "c", thrift.New(format.Repeated)
			return []format.SchemaElement{e[0], leaf}
		})
		if got := f.Schema(); !schema.Equal(got, s) {
			t.Fatal(got)
		}
		sameBatch(t, readAll(t, f, s, ReadOptions{}), jsonBatch(t, s, json))
	})
	t.Run("R-404 set-like map without values", func(t *testing.T) {
		s := one(&schema.Array{Elem: schema.String})
		f := reshaped(t, s, `[{"c":["a","b"]},{"c":null}]`, func(e []format.SchemaElement) []format.SchemaElement {
			e[1].LogicalType, e[1].ConvertedType = format.LogicalType{Value: &format.MapType{}}, thrift.New(deprecated.Map)
			return e
		})
		got := readAll(t, f, one(&schema.Map{Key: schema.String, Value: schema.Long, ValueContainsNull: true}), ReadOptions{})
		if s := fmt.Sprint(cell(got.Column(0), 0), cell(got.Column(0), 1)); s != "[[a <nil>] [b <nil>]] <nil>" {
			t.Fatal(s)
		}
	})
	t.Run("R-406 ambiguous names are refused unless exact", func(t *testing.T) {
		s := &schema.Struct{Fields: []schema.Field{{Name: "Ab", Type: schema.Long}, {Name: "aB", Type: schema.Long}}}
		f := openBytes(t, writeFile(t, s, WriterOptions{}, jsonBatch(t, s, `[{"Ab":1,"aB":2}]`)))
		got := readAll(t, f, &schema.Struct{Fields: []schema.Field{{Name: "aB", Type: schema.Long}}}, ReadOptions{})
		if cell(got.Column(0), 0) != cell(readAll(t, f, s, ReadOptions{}).Column(1), 0) {
			t.Fatal(got)
		}
		if _, err := f.plan(&schema.Struct{Fields: []schema.Field{{Name: "ab", Type: schema.Long}}}, false); err == nil {
			t.Fatal("ambiguous name was accepted")
		}
	})
}
