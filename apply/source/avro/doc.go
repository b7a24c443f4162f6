// Package avro turns records in Avro with a schema registry's framing into the
// JSON that the decoders read (cdc-formats F2).
//
// Invariants:
//
//  1. A record is read with the schema it was written with, which its framing or
//     headers name, and by its fields' names afterwards; names of types mean
//     something inside one schema document only.
//  2. Every byte of a body is read: bytes left over mean another schema or framing
//     and make the record poison (P1).
//  3. A schema that is not known is no fault of the record: it is asked for again and
//     then stops the flow (T1). What a registry answered once is kept.
//  4. Values keep their digits: decimals as the bytes of the unscaled number with the
//     scale of the schema, 64-bit integers as text, NaN and infinities as words.
//  5. Bytes of a record cannot make the reader hold more than a small multiple of
//     their number.
//
// Entry points: [NewDecoder], [Registry], [ParseSchema].
//
// Container files are read here too, as columns or as envelopes ([OpenContainer], [NewColumns]).
//
// The package imports apply/event, apply/source/wire and log/schema only.
package avro
