package testenv

import (
	"flag"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

var pinOnce sync.Once // rapid's flags belong to the process

// Check is [rapid.Check] under SLUICE_SEED: a number there makes every run draw
// the same cases, unset or 0 draws new ones each time. -rapid.seed wins.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	pinSeed(t)
	rapid.Check(t, property)
}

// MakeCheck is [rapid.MakeCheck] under SLUICE_SEED, for t.Run.
func MakeCheck(property func(*rapid.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		Check(t, property)
	}
}

func pinSeed(t *testing.T) {
	t.Helper()
	pinOnce.Do(func() {
		seed, own := os.Getenv("SLUICE_SEED"), flag.Lookup("rapid.seed")
		if seed == "" || own.Value.String() != own.DefValue {
			return
		}
		if err := flag.Set("rapid.seed", seed); err != nil {
			t.Fatalf("SLUICE_SEED: %v", err)
		}
	})
}
