package expr

import (
	"testing"

	"github.com/sluice-data/sluice/log/schema"
)

// TestBound_MayMatch names the rules of the protocol checklist that pruning keeps;
// testdata/expr/prune.txt has many more conditions.
func TestBound_MayMatch(t *testing.T) {
	s, err := schema.ParseDDL("i INT, g DOUBLE, s STRING, b BOOLEAN, st STRUCT<v: INT>")
	if err != nil {
		t.Fatal(err)
	}
	all := columnBounds{nulls: 10, hasNulls: true}
	ints := func(lo, hi int64, nulls int64) columnBounds {
		a, b := IntValue(lo), IntValue(hi)
		return columnBounds{min: &a, max: &b, nulls: nulls, hasNulls: true}
	}
	floats := func(lo, hi float64) columnBounds {
		a, b := FloatValue(lo), FloatValue(hi)
		return columnBounds{min: &a, max: &b, hasNulls: true}
	}
	texts := func(lo, hi string) columnBounds {
		a, b := BytesValue(lo), BytesValue(hi)
		return columnBounds{min: &a, max: &b, hasNulls: true}
	}
	no, yes := BoolValue(false), BoolValue(true)
	for _, c := range []struct {
		name, column string
		bounds       columnBounds
		where        string
		may          bool
	}{
		{"R-602 proof by the minimum", "i", ints(5, 9, 0), "i < 5", false},
		{"R-602 no proof", "i", ints(5, 9, 0), "i < 6", true},
		{"R-602 no bounds", "i", columnBounds{}, "i < 5", true},
		{"R-602 no bounds, not all null", "i", columnBounds{nulls: 9, hasNulls: true}, "i < 5", true},
		{"R-602 no bounds, all null", "i", all, "i < 5", false},
		{"R-602 all null, nested", "st.v", all, "st.v = 1", false},
		{"R-602 a condition that cannot be read from bounds", "i", ints(5, 9, 0), "i % 2 = 0", true},
		{"R-603 some nulls count as nothing known", "i", ints(5, 9, 3), "i is not null", true},
		{"R-603 no nulls", "i", ints(5, 9, 0), "i is null", false},
		{"R-604 a maximum that was cut upwards", "s", texts("a", "b\x7f"), "s = 'bz'", true},
		{"R-604 above it", "s", texts("a", "b\x7f"), "s > 'b\u0080'", false},
		{"R-604 order of UTF-8, not of UTF-16", "s", texts("a", "\uffff"), "s = '\U00010000'", false},
		{"R-607 NaN may be above the maximum", "g", floats(1, 2), "g > 5", true},
		{"R-607 or equal to NaN", "g", floats(1, 2), "g = double('NaN')", true},
		{"R-607 or unequal", "g", floats(1, 1), "g <> 1", true},
		{"R-607 but not equal to a number", "g", floats(1, 2), "g = 5", false},
		{"R-608 zeros are equal", "g", floats(negativeZero(), negativeZero()), "g = 0.0", true},
		{"R-610 bounds of booleans are ignored", "b", columnBounds{min: &no, max: &no, hasNulls: true}, "b", true},
		{"R-610 both ways", "b", columnBounds{min: &yes, max: &yes, hasNulls: true}, "not b", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := Parse(c.where)
			if err != nil {
				t.Fatal(err)
			}
			b, err := x.Bind(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.MayMatch(testBounds{rows: 10, known: true, cols: map[string]columnBounds{c.column: c.bounds}}); got != c.may {
				t.Errorf("%s: MayMatch = %v", c.where, got)
			}
		})
	}
}

func negativeZero() float64 {
	z := 0.0
	return -z
}
