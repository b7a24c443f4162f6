// Package testenv finds what tests need outside their own package.
//
// Invariants:
//
//  1. Nothing is found by an absolute path: the repository by walking up to
//     go.mod, shared material by SLUICE_SHARED or as ../shared beside the
//     repository.
//  2. What is absent skips the test and says so; it never passes it silently.
//
// Entry points: [RepoRoot], [SharedDir].
//
// Only tests import it; it imports no package of this module.
package testenv
