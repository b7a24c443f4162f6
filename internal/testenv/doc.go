// Package testenv finds what tests need outside their own package.
//
// Invariants:
//
//  1. Nothing is found by an absolute path: the repository by walking up to
//     go.mod, shared material by SLUICE_SHARED or as ../shared beside the
//     repository.
//  2. What is absent skips the test and says so; it never passes it silently.
//     Seeds of fuzzers alone may be fewer ([SharedFiles]).
//  3. With SLUICE_SEED set, every property draws the same cases in every run.
//
// Entry points: [RepoRoot], [SharedDir], [SharedFiles], [Check], [MakeCheck].
//
// Only tests import it; it imports no package of this module.
package testenv
