// Package lint holds the rules of this repository that a compiler does not, as
// a Go test over the whole tree.
//
// Invariants:
//
//  1. The import table (table.go) names every package. A package or an edge that
//     is not in it fails; adding one means editing the table in the same commit.
//  2. Files that are not tests obey all rules. Tests are free in what they
//     import and call; aliases, machine paths and forbidden words bind them too.
//  3. An exception is a line of the table with its reason, and an exception that
//     no longer excepts anything fails.
//
// Entry points: [Check], [Repo].
//
// Only tests import it; it imports no package of this module.
package lint
