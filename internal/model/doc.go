// Package model is the naive reference of what sluice computes: the definitions
// of auto-cdc section 2 turned into code word by word, without an index, a file
// or an order of arrival.
//
// Invariants:
//
//  1. It shares no code with what it checks: plain Go values, no Arrow, no engine.
//  2. [Flow.Result] is a function of a set of events; it sorts and scans, and never
//     keeps anything between calls.
//  3. It never drops an event: retention (auto-cdc 3) is not modelled.
//
// Entry points: [Flow] with [Flow.Result] and [Flow.Visible], [Event],
// [SnapshotEvents], [FeedEvents], [Feed], [Replay], [Script] (the notation of the
// worked examples, one batch after another), [Generator], [Story] (a random flow in
// that notation, over all types and clauses).
//
// Only tests import the package.
package model
