// Package merge brings source rows together with the rows of a table: MERGE
// statements ([Into]) and the keyed look-up that the AUTO CDC engine stands on
// ([Find]).
//
// Invariants:
//
//  1. [Find] answers every live row whose key is in the set, and no other row; a
//     file is left out only where its partition values or statistics prove that
//     it holds none.
//  2. Files without a match cost their key columns only; all other columns are
//     read for matched rows alone, and only those that a condition or a value
//     asks for.
//  3. Equality of keys in [Find] is equality of their keycode bytes (auto-cdc 2.1):
//     NaN equals NaN, -0.0 equals 0.0, null equals null. A MERGE compares as SQL does:
//     the same, but null equals null under <=> only.
//  4. The source of a MERGE is read once, before anything else, and every attempt
//     and every pass sees the same rows (B56).
//  5. A target row is changed by one source row at most. Where ON pairs it with
//     more, a statement with WHEN MATCHED clauses fails and nothing is written,
//     unless its only such clause is an unconditional delete.
//  6. The first clause of a kind whose condition is TRUE takes the row; a condition
//     that is NULL does not.
//  7. Rows are replaced by delta.Table.Stage alone; no action is built here.
//
// Entry points: [Parse], [Build], [Into], [Find], [Keys], [Group].
//
// The package must not import apply or anything above it.
package merge
