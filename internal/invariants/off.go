//go:build !invariants

package invariants

// Enabled is true in builds with the tag "invariants".
const Enabled = false

func broken(error) {}

// Sometimes is true in percent of 100 calls, at random; without the tag never.
// It guards slow paths that must give the same answer as the fast one.
func Sometimes(int) bool { return false }
