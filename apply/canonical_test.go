package apply

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Of equal values that look different, which of them arrived first does not show
// (law 1 of auto-cdc 2.12, B70).
func TestRun_EqualForms(t *testing.T) {
	for _, stored := range []string{"1", "2", "bitemporal"} {
		t.Run("B70 stored as "+stored, func(t *testing.T) {
			config := "data: x DOUBLE, s STRUCT<y: DOUBLE>\nstored-as: " + stored
			line := func(seq int, x string) string {
				if stored == "bitemporal" {
					return fmt.Sprintf("U 1@%d sys %d (%s, {%s})", seq, seq, x, x)
				}
				return fmt.Sprintf("U 1@%d (%s, {%s})", seq, x, x)
			}
			events := []string{line(5, "-0.0"), line(9, "0"), line(7, "-0.0"), line(9, "-0.0")}
			var want []string
			for _, order := range [][]int{{0, 1, 2, 3}, {1, 0, 3, 2}, {3, 2, 1, 0}, {2, 3, 0, 1}} {
				for _, whole := range []bool{true, false} {
					b := newBench(t, config)
					var list []string
					for _, i := range order {
						list = append(list, events[i])
					}
					if whole {
						b.must(t, list...)
					} else {
						for _, e := range list {
							b.must(t, e)
						}
					}
					got := b.table(t)
					if want == nil {
						want = got
					}
					if !slices.Equal(got, want) {
						t.Errorf("%q: got %q, another order gave %q", list, got, want)
					}
				}
			}
		})
	}
}

func TestCanonical(t *testing.T) {
	mb := array.NewMapBuilder(memory.DefaultAllocator, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, false)
	k, v := mb.KeyBuilder().(*array.StringBuilder), mb.ItemBuilder().(*array.Float64Builder)
	mb.Append(true)
	for _, x := range []string{"b", "a"} {
		k.Append(x)
		v.Append(math.Copysign(0, -1))
	}
	mb.AppendNull()
	mb.Append(true)
	k.Append("c")
	v.Append(math.Float64frombits(0x7ff8000000000001 | 1<<63))
	a, err := canonical(mb.NewArray(), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.String(); got != `[{["a" "b"] [-0 -0]} (null) {["c"] [NaN]}]` {
		t.Errorf("got %s", got)
	}
	if again, _ := canonical(a, false); again != a {
		t.Error("a canonical array was copied")
	}
}
