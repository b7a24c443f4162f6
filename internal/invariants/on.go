//go:build invariants

package invariants

import "math/rand/v2"

// Enabled is true in builds with the tag "invariants".
const Enabled = true

func broken(err error) { panic(err) }

// Sometimes is true in percent of 100 calls, at random; without the tag never.
// It guards slow paths that must give the same answer as the fast one.
func Sometimes(percent int) bool { return rand.IntN(100) < percent }
