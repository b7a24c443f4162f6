package rowio

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

func TestRead_Optional(t *testing.T) {
	s, err := schema.ParseDDL("id BIGINT NOT NULL, a INT, b STRING NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, input string
		form      Form
		want      []string
	}{
		{"jsonl, row by row", `{"id":1}` + "\n" + `{"id":2,"a":null}` + "\n" + `{"id":3,"a":3}` + "\n" + `{"b":"x","id":4}` + "\n" + `{"id":5}`, JSONL,
			[]string{"id:[1]", "id:[2] a:[(null)]", "id:[3] a:[3]", `id:[4] b:["x"]`, "id:[5]"}},
		{"csv, as a whole", "b,id\nx,1\ny,2\n", CSV, []string{`id:[1 2] b:["x" "y"]`}},
	} {
		t.Run("W-424 "+c.id, func(t *testing.T) {
			var got []string
			for b, err := range Read(context.Background(), strings.NewReader(c.input), c.form, ReadOptions{Schema: s, Optional: []string{"A", "b"}}) {
				if err != nil {
					t.Fatal(err)
				}
				var cols []string
				for i, col := range b.Columns() {
					cols = append(cols, fmt.Sprintf("%s:%v", b.ColumnName(i), col))
				}
				got = append(got, strings.Join(cols, " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
