package delta_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/sluice-data/sluice/delta"
	"github.com/sluice-data/sluice/internal/testtable"
)

// TestScan_FloatBounds: the text of a FLOAT in statistics is short; read as a
// DOUBLE it is another number, which must not hide the row that it came from.
func TestScan_FloatBounds(t *testing.T) {
	for _, f := range []float32{1.1, 0.7, -1.1, -0.7, 3.4e38, 1e-45, 16777217, 0.1, 123456.79} {
		text := fmt.Sprint(f)
		tb := testtable.New(t, testtable.Spec{DDL: "id INT, f FLOAT, g STRUCT<x: FLOAT>",
			Rows: []string{fmt.Sprintf(`{"id":1,"f":%s,"g":{"x":%s}}`, text, text)}})
		for _, where := range []string{
			"f = cast(%s as float)", "f <=> cast(%[1]s as float)", "f <= cast(%[1]s as float)", "f >= cast(%[1]s as float)",
			"f in (cast(%[1]s as float))", "not (f <> cast(%[1]s as float))", "g.x = cast(%[1]s as float)",
		} {
			cond := fmt.Sprintf(where, text)
			if got := testtable.Read(t, tb, delta.ScanOptions{Where: cond}); len(got) != 1 {
				t.Errorf("%s: %v", cond, got)
			}
		}
		exact := fmt.Sprintf("cast(f as double) = %s", fmt.Sprintf("%.20ed", float64(f)))
		if math.Abs(float64(f)) > 1e-30 && math.Abs(float64(f)) < 1e30 {
			if got := testtable.Read(t, tb, delta.ScanOptions{Where: exact}); len(got) != 1 {
				t.Errorf("%s: %v", exact, got)
			}
		}
		if r, err := tb.Delete(ctx, fmt.Sprintf("f = cast(%s as float)", text), delta.DMLOptions{}); err != nil || !r.Committed {
			t.Errorf("delete of %s: %+v, %v", text, r, err)
		}
	}
}
