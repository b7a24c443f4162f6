// Package keycode turns tuples of Arrow values into byte strings whose order is
// the order of the values (auto-cdc section 2.1), and back. Keys and sequences are
// compared, sorted, spilled, hashed and looked up in this form.
//
// Invariants:
//
//  1. bytes.Compare of two encodings of one list of types equals the total order
//     of the tuples: NULL lowest; false < true; numbers by value with -0.0 equal
//     to 0.0 and NaN equal to itself and above everything; strings by UTF-8
//     bytes, binary by unsigned bytes; dates and timestamps by instant; structs
//     field by field; arrays element by element, then shorter first.
//  2. Equal tuples have equal encodings, so an encoding is a map key.
//  3. Encodings delimit themselves: the encoding of a tuple is the concatenation
//     of the encodings of its values, and a prefix of a tuple is a prefix of bytes.
//  4. Decoding gives the same tuple, with 0.0 for -0.0 and one NaN.
//  5. The format and [Hash64] are stable: both are written to files.
//  6. MAP, VARIANT and VOID have no order and are refused when an encoder is made.
//
// Entry points: [NewEncoder], [Encoder.Append], [Encoder.Decode], [Compare],
// [Equal], [Hash64].
//
// The package may import log/schema and internal/invariants, nothing else of
// this module.
package keycode
