// Package curve maps points of several dimensions to positions on a line, so that
// points which are near each other on the line are near in every dimension.
//
// Invariants:
//
//  1. Both curves are one to one: different points of ranks below 2^bits have
//     different positions below 2^(dims*bits).
//  2. Two neighbours on the Hilbert curve differ by one in exactly one dimension.
//  3. Ranks keep order: a greater value never has a smaller rank, and ranks are
//     spread over the whole range, so that a column with few values weighs as much
//     as one with many.
//
// Entry points: [Bits], [Interleave], [Hilbert], [NewRanks].
//
// The package imports no other package of this module.
package curve
