// Package cdf is the change data feed of a Delta table: the rows that each version
// inserted, deleted or updated, read over a range of versions or times ("Change
// Data Files" and "Add CDC File" of the protocol).
//
// Invariants:
//
//  1. A version that has change files is told by them alone; any other version is
//     told by its adds and removes with dataChange, deletion vectors taken as
//     differences.
//  2. A range is checked whole before its first row comes out: the feed was on in
//     every version and every schema in it can be read as the schema of the
//     end version.
//  3. Partition columns come from the action, never from the file or its
//     name.
//  4. A file that is gone is an error that names it, never an empty result.
//  5. Versions come in ascending order; the order of rows inside a version means
//     nothing.
//  6. A [Stream] delivers every change after its start once, in batches whose ends
//     are positions. Which files a batch has depends on the log, the position and the
//     limits alone, so whoever stores a position after using the rows of its batch
//     loses nothing, and sees at most the last batch again.
//  7. A stream holds one batch and reads data files only as its rows are consumed.
//  8. The schema of a stream is fixed; it stops before the version that has another
//     and goes on from there when opened again. Where that version removes
//     files which its own schema cannot read, the stream delivers those before it stops:
//     every change comes in a schema that it had, and no change bars the way.
//
// Entry points: [Open], [OpenAt], [Feed.Rows]; [OpenStream], [Stream.Next],
// [StreamBatch.Rows], [ParsePosition]. Change files are written by delta, in the
// pass that rewrites the rows.
//
// The package must not import delta, merge, apply or parquet-go.
package cdf
