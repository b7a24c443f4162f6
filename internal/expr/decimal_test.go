package expr

import (
	"math"
	"math/big"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	"github.com/sluice-data/sluice/internal/testenv"
	"github.com/sluice-data/sluice/log/schema"
)

// The int64 paths of decimals agree with exact arithmetic.
func TestDecimal_SmallEqualsBig(t *testing.T) {
	drawNum := func(t *rapid.T) (*big.Int, decimal128.Num) {
		v := new(big.Int).Mul(big.NewInt(rapid.Int64().Draw(t, "v")), big.NewInt(rapid.SampledFrom([]int64{1, 1, 1, 10, math.MaxInt64}).Draw(t, "factor")))
		return v, decimal128.FromBigInt(v)
	}
	testenv.Check(t, func(t *rapid.T) {
		p, pd := drawNum(t)
		q, qd := drawNum(t)
		ps, qs := rapid.IntRange(0, 20).Draw(t, "ps"), rapid.IntRange(0, 20).Draw(t, "qs")
		x, y := new(big.Rat).SetFrac(p, pow10[ps]), new(big.Rat).SetFrac(q, pow10[qs])
		if got, want := compareDecimal(pd, int32(ps), qd, int32(qs)), x.Cmp(y); got != want {
			t.Fatalf("compare %s e-%d and %s e-%d: %d, want %d", p, ps, q, qs, got, want)
		}
		for _, op := range []string{"+", "-", "*"} {
			scale := max(ps, qs)
			if op == "*" {
				scale = ps + qs
			}
			r, ok := smallCalc(op, pd, ps, qd, qs, scale)
			want := decimalCalc(op, new(big.Int).Set(p), ps, new(big.Int).Set(q), qs, scale)
			if ok && want.Cmp(big.NewInt(r)) != 0 {
				t.Fatalf("%s e-%d %s %s e-%d: %d, want %s", p, ps, op, q, qs, r, want)
			}
		}
		to := schema.Decimal{Precision: rapid.IntRange(1, 38).Draw(t, "precision")}
		to.Scale = rapid.IntRange(0, to.Precision).Draw(t, "scale")
		got, ok := rescale(pd, ps, to)
		want, fits := fitDecimal(rescaleBig(p, ps, to.Scale), to.Precision)
		if ok != fits || ok && got != want {
			t.Fatalf("%s e-%d to %s: %v %v, want %v %v", p, ps, to, got, ok, want, fits)
		}
	})
}
