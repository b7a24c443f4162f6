package parquetio

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-data/sluice/log/schema"
)

// roundTrip writes json twice under s, whole and row by row, and reads it back.
func roundTrip(t *testing.T, s *schema.Struct, json string) *File {
	t.Helper()
	b := jsonBatch(t, s, json)
	f := openBytes(t, writeFile(t, s, WriterOptions{PageRows: 1}, b, b))
	sameBatch(t, readAll(t, f, s, ReadOptions{}), concat(t, []arrow.RecordBatch{b, b}))
	sameBatch(t, readAll(t, f, s, ReadOptions{BatchRows: 1}), concat(t, []arrow.RecordBatch{b, b}))
	return f
}

// What went wrong in other engines, by the ids of the field reports.
func TestWriter_FieldReports(t *testing.T) {
	t.Run("B46 decimals in the form that fast readers take", func(t *testing.T) {
		s := &schema.Struct{}
		for _, p := range [][2]int{{8, 2}, {9, 0}, {18, 4}, {19, 0}, {38, 10}} {
			s.Fields = append(s.Fields, schema.Field{Name: fmt.Sprintf("d%d", p[0]), Type: schema.Decimal{Precision: p[0], Scale: p[1]}, Nullable: true})
		}
		s.Fields = append(s.Fields, schema.Field{Name: "l", Nullable: true, Type: &schema.Array{Elem: schema.Decimal{Precision: 38, Scale: 10}, ContainsNull: true}})
		row := func(v ...string) string {
			return fmt.Sprintf(`{"d8":%s,"d9":%s,"d18":%s,"d19":%s,"d38":%s,"l":[%s,null]}`, v[0], v[1], v[2], v[3], v[4], v[4])
		}
		n := func(k int) string { return strings.Repeat("9", k) }
		f := roundTrip(t, s, "["+strings.Join([]string{
			row(`"`+n(6)+`.99"`, `"`+n(9)+`"`, `"`+n(14)+`.9999"`, `"`+n(19)+`"`, `"`+n(28)+`.9999999999"`),
			row(`"-`+n(6)+`.99"`, `"-`+n(9)+`"`, `"-`+n(14)+`.9999"`, `"-`+n(19)+`"`, `"-`+n(28)+`.9999999999"`),
			row(`"-1"`, `"-1"`, `"-1"`, `"-1"`, `"-1"`), row(`"0"`, `"0"`, `"0"`, `"0"`, `"0"`), row("null", "null", "null", "null", "null"),
		}, ",")+"]")
		for i, want := range []string{"INT32", "INT32", "INT64", "FIXED_LEN_BYTE_ARRAY(9)", "FIXED_LEN_BYTE_ARRAY(16)"} {
			if got := f.leaves[i].String(); !strings.HasPrefix(got, want+" DECIMAL") {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
	t.Run("B48 days and instants far from now", func(t *testing.T) {
		s := &schema.Struct{Fields: []schema.Field{{Name: "d", Type: schema.Date}, {Name: "t", Type: schema.Timestamp}}}
		as, _ := schema.ArrowSchema(s)
		b := array.NewRecordBuilder(memory.DefaultAllocator, as)
		b.Field(0).(*array.Date32Builder).AppendValues([]arrow.Date32{-719162, -171605, -141432, 2932896}, nil)
		b.Field(1).(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{-62135596800000000, 253402300799000000, -1, 0}, nil)
		batch := b.NewRecordBatch()
		f := openBytes(t, writeFile(t, s, WriterOptions{}, batch))
		sameBatch(t, readAll(t, f, s, ReadOptions{}), batch)
		c := f.RowGroups()[0].Columns
		if c[0].Min != int64(-719162) || c[1].Max != int64(253402300799000000) {
			t.Error(c)
		}
	})
	t.Run("B50 null list, empty list, list with null", func(t *testing.T) {
		x := &schema.Struct{Fields: []schema.Field{{Name: "a", Type: schema.Long, Nullable: true}, {Name: "b", Type: schema.Long, Nullable: true}}}
		s := &schema.Struct{Fields: []schema.Field{
			{Name: "l", Nullable: true, Type: &schema.Array{Elem: schema.Long, ContainsNull: true}},
			{Name: "m", Nullable: true, Type: &schema.Map{Key: schema.String, Value: schema.Long, ValueContainsNull: true}},
			{Name: "s", Nullable: true, Type: x},
			{Name: "d", Nullable: true, Type: &schema.Array{ContainsNull: true, Elem: &schema.Struct{Fields: []schema.Field{{Name: "l", Nullable: true, Type: &schema.Array{Elem: schema.Long, ContainsNull: true}}}}}},
		}}
		f := roundTrip(t, s, `[
			{"l":null,"m":null,"s":null,"d":null},
			{"l":[],"m":[],"s":{"a":null,"b":null},"d":[]},
			{"l":[null],"m":[{"key":"k","value":null}],"s":{"a":1,"b":null},"d":[null]},
			{"l":[1,null,2],"m":[{"key":"k","value":1},{"key":"j","value":null}],"s":{"a":null,"b":2},"d":[{"l":null},{"l":[]},{"l":[null,3]}]},
			{"l":[4],"m":[{"key":"z","value":9}],"s":{"a":3,"b":4},"d":[{"l":[5]}]}]`)
		// Nulls of the leaf l.list.element over both writes: null and empty lists count too.
		if c := f.RowGroups()[0].Columns[0]; c.NullCount != 2*4 {
			t.Error(c)
		}
	})
	t.Run("B51 names with spaces, dots, quotes and Unicode", func(t *testing.T) {
		s := &schema.Struct{}
		var json []string
		for i, n := range []string{"a b", "a,b", "a=b", "a.b", "é", strings.Repeat("n", 200), "a`b", " x ", "ключ"} {
			s.Fields = append(s.Fields, schema.Field{Name: n, Type: schema.Long, Nullable: true})
			json = append(json, fmt.Sprintf("%q:%d", n, i))
		}
		f := roundTrip(t, s, "[{"+strings.Join(json, ",")+"}]")
		if !f.HasColumn("a.b") || f.HasColumn("a", "b") {
			t.Error("a dot was taken for nesting")
		}
	})
	t.Run("B38 all null at every depth", func(t *testing.T) {
		s := &schema.Struct{Fields: []schema.Field{{Name: "n", Type: schema.Long, Nullable: true}, {Name: "s", Nullable: true, Type: one(schema.Long)}}}
		f := roundTrip(t, s, `[{"n":null,"s":null},{"n":null,"s":{"c":null}}]`)
		for _, c := range f.RowGroups()[0].Columns {
			if c.NullCount != 4 || c.Min != nil || c.Max != nil {
				t.Error(c)
			}
		}
		pages, err := f.Pages(0, 1)
		if err != nil || len(pages) == 0 || !pages[0].AllNull || pages[0].Min != nil {
			t.Error(pages, err)
		}
	})
	t.Run("B28 names of list and map wrappers", func(t *testing.T) {
		s := one(&schema.Map{Key: schema.String, Value: &schema.Array{Elem: schema.Long}})
		f := roundTrip(t, s, `[{"c":[{"key":"k","value":[1]}]}]`)
		var paths []string
		for _, l := range f.leaves {
			paths = append(paths, pathString(l.path()))
		}
		if got := strings.Join(paths, " "); got != "c.key_value.key c.key_value.value.list.element" {
			t.Error(got)
		}
	})
}
