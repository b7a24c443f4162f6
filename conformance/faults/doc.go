// Package faults proves that nothing is lost or doubled whatever goes wrong below an
// operation: a store that fails at any call, a network that cuts, delays, truncates and
// lies, processes that are killed, disks that are full or read-only, rights that are
// taken away, clocks that jump. docs/reliability.md is what its tests counted.
//
// Invariants:
//
//  1. Every operation that writes is in one list (operations), and every kind of fault
//     runs over that list or a named part of it.
//  2. What is right is what the same operation made of the same table without a fault.
//     After a fault: the table opens; its rows are those of a version that the
//     operation passes through, and of the last one if it was acknowledged; its change
//     feed leads to its rows; fsck finds no error; the operation done again ends in the
//     reference; then a vacuum leaves live files only.
//  3. A fault counts in docs/reliability.md after all of that was found true.
//
// Entry points: none but the tests. `-rewrite` writes docs/reliability.md, `-seed` chooses
// other faults.
//
// Only tests are here; they may import every package, none may import this one.
package faults
