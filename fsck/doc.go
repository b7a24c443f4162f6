// Package fsck checks whether what a table says of itself is so: the log against
// itself, the files against the log, the rows against the statistics, the apply
// state against what the target names.
//
// Invariants:
//
//  1. Checking writes nothing, and reads nothing that the log does not name.
//  2. A fault of the table is a [deltalog.Finding] with its place; only the store's
//     errors and the end of the context are errors. One finding does not hide the
//     next: every file is looked at.
//  3. Finding nothing means: every version that is retained can be rebuilt, every
//     live row can be read, no statistic excludes a row that is there, and every change
//     file adds up to what its commit did to the files.
//  4. A repair deletes only what is derived from the commits. Nothing that a row, a
//     version or the change feed needs is ever touched.
//
// Entry points: [Check], [Repair].
//
// It imports no source of change events and nothing of cmd.
package fsck
