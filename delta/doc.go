// Package delta is a Delta table: create, open, scan, append, overwrite, delete,
// update, properties, history and change feed. It is the front door of the SDK.
//
// Invariants:
//
//  1. Every operation that changes the table is one commit, or none: a failure
//     leaves the table as it was, and files of the failed attempt are deleted
//     unless the commit's outcome is unknown (W-127).
//  2. What the table's protocol, properties or schema forbid is refused before a
//     file is written.
//  3. Rows are replaced in one place only, [Table.Stage]; it writes data files and
//     change files in the same pass, and a commit has change files for all of its
//     row changes or for none (W-901, W-902). Where the table writes deletion
//     vectors, rows go by a new vector, one file of vectors a commit, and only the
//     rows that images are needed of are read; elsewhere their file is rewritten.
//  4. An operation that changes no row commits nothing (W-907).
//  5. A lost race is retried when the operation can be done again on the newer
//     version, else it is a deltalog.ConflictError.
//  6. Hidden columns (sluice.carry) follow their rows through every rewrite and
//     never show in scans or feeds; so do row ids, which scans show when asked.
//  7. New rows are made and checked in one place only, [Rules], which Append,
//     Overwrite and Stage apply: defaults, identity values, generated columns,
//     lengths, NOT NULL, invariants, CHECK constraints, in this order. No row that
//     breaks one reaches a commit, whoever wins a race.
//
// Entry points: [Create], [Open], [Table.Scan], [Table.Append], [Table.Overwrite],
// [Table.Delete], [Table.Update], [Table.Stage], [Table.Changes].
//
// Schema and protocol: [Table.Alter], [Table.Evolve], [Table.SetProperties],
// [Table.DropFeature], [Check].
//
// Upkeep: [Table.Optimize], [Table.Vacuum], [Table.Restore], [Clone], [Convert],
// [Table.Diff].
//
//   - Optimize changes no row: its commit has dataChange=false, rows keep hidden
//     columns, row ids and values as they are.
//   - Vacuum deletes a file only if no version that was current within the retention
//     time, no change feed of such a version and no unfinished writer needs it, and
//     never outside of the table's folder.
//   - Restore, Clone and Convert are never rebased on a commit that came in between
//     (C-27).
//
// The package must not import merge, apply or cmd.
package delta
