// Package conformance holds sluice against other engines: tables that it writes
// are read by delta-rs and Spark, rows and change feed value by value; tables that
// they write are read and changed by it and read by them again.
//
// Invariants:
//
//  1. Every comparison is of whole rows as multisets; no value is rounded.
//  2. What another engine is known to get wrong is named where it is left out, with
//     the reason.
//
// Entry points: the tests; package engines drives the other engines.
//
// Only tests live here; nothing imports the package.
package conformance
