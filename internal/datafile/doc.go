// Package datafile is the meaning of a Parquet row: it turns data and change files
// into logical Arrow batches and back, with deletion vectors, partition values,
// column mapping, statistics and pruning.
//
// Invariants:
//
//  1. A [Layout] is one table version's way of laying columns into files; every
//     read and write of a file goes through one.
//  2. A batch that leaves [Read] has exactly the logical columns asked for, with
//     the Arrow types of the table's schema, whatever the file holds (R-404, R-405,
//     Columns listed in `sluice.carry` and row ids appear only when
//     asked for.
//  3. The physical row number of a row is its position in the file over all row
//     groups.
//  4. A file that is missing, shorter than the log says, damaged, or of another
//     schema is a [*FileError] with a code, never an empty or partial result.
//  5. Rows that break NOT NULL or a length limit never reach a file: the writer
//     fails before the file they are in is complete (W-403, W-405).
//  6. A file is durable when [Writer.Close] names it; nothing names it before.
//  7. Statistics are true bounds: what cannot be bounded soundly is left out
//     (W-609); pruning drops a file only on proof.
//
// Entry points: [LayoutOf], [Read], [NewWriter], [Layout.MayMatch], [ParseStats].
//
// The package must not import cdf, delta, merge, apply or parquet-go.
package datafile
