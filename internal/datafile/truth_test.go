package datafile

import (
	"testing"

	"github.com/sluice-data/sluice/internal/expr"
	deltalog "github.com/sluice-data/sluice/log"
	"github.com/sluice-data/sluice/log/schema"
)

// A file written while a column was FLOAT has bounds that are the shortest text of a
// FLOAT; after the column became a DOUBLE the value 0.1f = 0.10000000149... must be found.
func TestLayout_MayMatch_WidenedFloat(t *testing.T) {
	plain := mustLayout(t, "f DOUBLE", nil, nil)
	s := &schema.Struct{Fields: []schema.Field{plain.Schema.Fields[0].WithTypeChange(schema.TypeChange{From: schema.Float, To: schema.Double})}}
	l, err := LayoutOf(mustConfig(t, s, nil, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	add := &deltalog.Add{Path: "f", Stats: `{"numRecords":1,"minValues":{"f":0.1},"maxValues":{"f":0.1},"nullCount":{"f":0}}`}
	for _, where := range []string{"f = 0.10000000149011612D", "f > 0.1D", "f >= 0.10000000149011612D"} {
		e, err := expr.Parse(where)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Bind(l.Schema)
		if err != nil {
			t.Fatal(err)
		}
		if !l.MayMatch(b, add) {
			t.Errorf("%s: the file was skipped", where)
		}
	}
}
