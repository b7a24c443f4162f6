// Package event is the form of a change between decoder and engine: columnar
// batches of change rows with their operation, field states, sequence and
// position, beside control events and poison records.
//
// Invariants:
//
//  1. A Batch holds rows of one source table, decoded under one schema, read
//     from one source (file, partition); a change of any of them starts a new Batch.
//  2. NULL is not missing: a field that the record did not carry (ABSENT) or
//     replaced by a placeholder (UNAVAILABLE) is marked in Unauthored and its
//     Arrow value is null; a null that is not marked is a value.
//  3. No row of a Batch has a null key column or a null or partly decoded
//     sequence; such records are Poison. A truncate has no key, and where a
//     condition of the flow may make truncates the engine judges null keys.
//  4. A position that a decoder emits covers every record before it: nothing
//     read is neither in a Batch, nor Control, nor Poison.
//
// Entry points: [Batch], [Record], [Decoder], [Source].
//
// The package imports log/schema only.
package event
