// Package coverage finds which test proves which item of the specifications: it
// reads ids such as R-104, W-203, C-24, E07, F1.C or B05 out of the names of
// tests, subtests and datadriven files, and keeps docs/coverage.md true.
//
// Invariants:
//
//  1. An id counts as proven only where a test of the repository carries it in
//     its name, in a string of its body (subtest and case names) or in the name
//     or a comment of a file under testdata.
//  2. docs/coverage.md is exactly what [Report] prints; the test of the package
//     fails otherwise and rewrites it with -rewrite.
//
// Entry points: [Scan], [Report].
//
// Only its own test uses it; it imports no package of this module.
package coverage
