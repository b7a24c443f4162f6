package merge_test

import (
	"slices"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
	"github.com/sluice-data/sluice/merge"
)

// TestInto_StructsByName: fields of structs find their places by name, whatever their
// order, at any depth (5.1: Spark does the same, see TestConformance_MergeCorners).
func TestInto_StructsByName(t *testing.T) {
	const source = "S STRUCT<B: STRING, a: SMALLINT>, l ARRAY<STRUCT<y: STRING, x: INT>>, id BIGINT"
	for _, c := range []struct{ on, want string }{
		{"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", `{"id":2,"l":null,"s":null}`},
		{"WHEN MATCHED THEN UPDATE SET s = s.s, l = s.l", ""},
	} {
		tb := testtable.New(t, testtable.Spec{DDL: "id BIGINT, s STRUCT<a: INT, B: STRING>, l ARRAY<STRUCT<x: INT, y: STRING>>", Rows: []string{`{"id":1,"s":{"a":1,"B":"p"}}`}})
		st, err := merge.Parse("MERGE INTO t USING s ON t.id = s.id " + c.on)
		if err != nil {
			t.Fatal(err)
		}
		rows := testtable.Rows(t, source, `{"S":{"B":"q","a":10},"l":[{"y":"five","x":5},null],"id":1}`+"\n"+`{"S":null,"l":null,"id":2}`)
		if _, err := merge.Into(ctx, tb, merge.Source{Schema: testtable.Struct(t, source), Rows: rows}, st, merge.IntoOptions{}); err != nil {
			t.Fatal(err)
		}
		want := []string{`{"id":1,"l":[{"x":5,"y":"five"},null],"s":{"B":"q","a":10}}`}
		if c.want != "" {
			want = append(want, c.want)
		}
		if got := testtable.Read(t, tb, delta.ScanOptions{}); !slices.Equal(got, want) {
			t.Errorf("%s: %q", c.on, got)
		}
	}
}
