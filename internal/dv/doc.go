// Package dv reads and writes deletion vectors: sets of physical row positions
// of a data file, in the byte formats of "Deletion Vector Format" and
// "Deletion Vector Descriptor Schema" in the Delta protocol.
//
// Invariants:
//
//  1. A bitmap is returned only if version, stored size, magic, checksum, order
//     of its containers and the descriptor's cardinality all hold (R-653); "no
//     deletes" is never an answer to bad bytes.
//  2. Memory taken is bounded by the bytes that are there, whatever sizes they claim.
//  3. Row positions are physical, over all row groups, from 0, below 2^63.
//  4. What is encoded here decodes to the same set, with buckets ascending (W-654).
//
// Entry points: [Load], [Parse], [Descriptor.ReadFrom], [WriteFile].
//
// The package imports storage and no other package of this module.
package dv
