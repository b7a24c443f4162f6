// Package merge finds the rows of a table that a set of keys concerns: the keyed
// path that the AUTO CDC engine stands on. (MERGE statements will live here too.)
//
// Invariants:
//
//  1. [Find] answers every live row whose key is in the set, and no other row; a
//     file is left out only where its partition values or statistics prove that
//     it holds none.
//  2. Files without a match cost their key columns only; all other columns are
//     read for matched rows alone.
//  3. Equality of keys is equality of their keycode bytes (auto-cdc 2.1): NaN
//     equals NaN, -0.0 equals 0.0, null equals null.
//
// Entry points: [Find], [Keys], [Group].
//
// The package must not import apply or anything above it.
package merge
