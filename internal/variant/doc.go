// Package variant is the binary form of VARIANT values (Parquet's Variant encoding,
// version 1): a metadata part with the field names and a value part. It turns values
// into JSON text and back and joins shredded values.
//
// Invariants:
//
//  1. No input panics, recurses deeper than [MaxDepth] or does more work than its
//     length allows, whatever its offsets say: values may point at the same bytes, so
//     the number of values visited is bounded by the number of bytes.
//  2. Integers and decimals keep all their digits in both directions.
//  3. [ParseJSON] writes the smallest form of each number, and fields in the order of
//     their names.
//
// Entry points: [AppendJSON], [ParseJSON], [Get], [Builder].
//
// The package imports no other of this module.
package variant
