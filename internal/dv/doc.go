// Package dv reads deletion vectors: which physical rows of a data file are gone
// ("Deletion Vectors" of the protocol).
//
// Invariants:
//
//  1. A [Vector] came from bytes whose version, size, magic, checksum and
//     cardinality agree with its descriptor; any disagreement is [ErrCorrupt],
//     never "nothing deleted".
//  2. Bytes from outside never panic and never allocate more than a small multiple
//     of their own length.
//  3. A Vector is immutable and may be shared.
//
// Entry points: [Load], [Parse], [Descriptor.Location].
//
// The package imports storage and no other package of this module.
package dv
