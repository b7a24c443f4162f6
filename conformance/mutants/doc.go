// Package mutants proves that the tests of the decoders find the ten most dangerous
// decoding mistakes (cdc-formats 24): each is put into the source, and a test fails.
//
// Invariants:
//
//  1. A mutant is one edit of one file; the rest of the tree is the real one. The Go
//     tool is given the edited file in place of the real one (-overlay), so that
//     nothing in the tree changes.
//  2. The text that a mutant replaces is there: one that no longer fits the source
//     fails, it is not passed over.
//     One mutant of each mistake is built and run, all of them under SLUICE_LONG.
//  3. A mutant must compile: a build that fails proves nothing.
//
// Entry points: none but the tests.
//
// Only tests are here; they import internal/testenv, none may import this package.
package mutants
