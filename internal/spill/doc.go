// Package spill keeps record batches that do not fit into memory in temporary files.
//
// Invariants:
//
//  1. A file belongs to one process and ends with it. Where the system allows it the
//     name is gone before the first byte is written, so that neither a crash nor kill -9
//     leaves anything; elsewhere the next file that is created in the directory
//     removes what dead processes left.
//  2. What is read is what was appended: a segment is one batch, and its types, nulls
//     and order are those of the batch.
//  3. Memory is that of the batches a caller holds, and for [File.Merge] that of one
//     batch a run. The package keeps only the places of segments.
//  4. Nothing waits: there is no quota and no other user to wait for. A full disk is an
//     [*Error] that names the directory.
//
// Entry points: [Create], [File.Append], [File.Read], [File.Merge].
//
// The package imports internal/datafile, to join and take rows; it knows no table.
package spill
