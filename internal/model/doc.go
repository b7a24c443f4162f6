// Package model is the naive reference of what sluice computes: definitions
// turned into code word by word, without an index, a file or an order.
//
// Invariants:
//
//  1. It shares no code with what it checks: plain Go values, no Arrow, no engine.
//  2. [SCD1] is a function of a set of events; it sorts and scans, and never
//     keeps anything between calls.
//
// Entry points: [Event], [SCD1], [Feed], [Replay], [Generator].
//
// Only tests import the package.
package model
