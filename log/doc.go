// Package deltalog reads and writes the transaction log of a Delta table
// (`_delta_log/`): actions, listing, checkpoints, replay, the protocol gate, and
// the optimistic commit with its conflict rules. It knows nothing of Parquet data
// files beyond the actions that name them.
//
// Invariants:
//
//  1. A [Snapshot] is immutable and comes only from a complete, contiguous part of
//     the log; its [TableConfig] passed the reader gate before its
//     schema was looked at.
//  2. Raw actions are untrusted. [TableConfig] is the only validated mix of
//     protocol, metadata, properties and schema, and [NewTableConfig] the only way
//     to one.
//  3. What is not known is refused by name before anything is written
//     ([TableConfig.Require]); unknown fields, actions, properties and domains are
//     tolerated and carried forward.
//  4. Version N is written at most once, by put-if-absent ([storage.Store.Create]);
//     an answer that leaves the outcome open is resolved by reading version N back
//     and comparing commitInfo.txnId (W-124).
//  5. A commit that loses its race checks every winner, in order, against the rules
//     C-11 to C-28 before it tries the next version.
//  6. Corrupt input is an error naming file and line; it is never skipped. Files that
//     only save work (hint, compaction files, checksums) are passed over when they
//     are damaged. No file makes the package read or allocate without bound.
//  7. What belongs to one attempt of a commit (time, row ids, commit versions) is made
//     anew for every attempt (C-36).
//  8. A log file is deleted only when a checkpoint above it was opened, oldest first
//     (W-721, W-722).
//
// Entry points: [Open], [Log.Latest], [Log.At], [Log.AtTime], [Log.Begin],
// [Transaction.Commit], [Log.Commits], [Snapshot.History], [Log.WriteCheckpoint],
// [Log.WriteCompaction], [Log.CleanUp], [Log.DropFeature],
// [Snapshot.VerifyChecksum].
//
// The package must not import datafile, cdf, delta, merge or apply. Durable order
// of data files before the commit is the caller's duty (W-127).
package deltalog
