// Package source makes event sources and decoders from what a user names:
// formats, paths, tables, options; and tells the format of a sample.
//
// Invariants:
//
//  1. Detection runs on a sample, once: 95 % of its data records must be of one
//     format, else it asks. Decoders never switch formats.
//  2. A format that is named is never second-guessed.
//  3. Snapshots are never inferred.
//
// Entry points: [Open] with [Spec], [Detect].
//
// The package imports apply/event, log/schema and the packages below it.
package source
