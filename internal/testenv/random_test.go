package testenv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawn are the numbers that one property sees.
func drawn(t *testing.T) (all []int) {
	t.Run("draw", MakeCheck(func(rt *rapid.T) { all = append(all, rapid.Int().Draw(rt, "n")) }))
	return all
}

func TestCheck_Seed(t *testing.T) {
	t.Setenv("SLUICE_SEED", "7")
	first := drawn(t)
	if again := drawn(t); len(first) == 0 || !slices.Equal(first, again) {
		t.Errorf("with a seed the cases differ:\n%v\n%v", first, again)
	}
}
