package invariants_test

import (
	"errors"
	"testing"

	"github.com/sluice-data/sluice/internal/invariants"
)

func TestAssert(t *testing.T) {
	if err := invariants.Assert(true, "never said"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); (r != nil) != invariants.Enabled {
			t.Fatalf("panicked: %v, want %v", r, invariants.Enabled)
		}
	}()
	err := invariants.Assert(false, "rows %d", 3)
	if !errors.Is(err, invariants.ErrBroken) || err.Error() != "internal invariant broken: rows 3" {
		t.Fatalf("got %v", err)
	}
}

func TestSometimes(t *testing.T) {
	n := 0
	for range 1000 {
		if invariants.Sometimes(50) {
			n++
		}
	}
	if (n > 300 && n < 700) != invariants.Enabled {
		t.Fatalf("true %d times of 1000, enabled: %v", n, invariants.Enabled)
	}
}
