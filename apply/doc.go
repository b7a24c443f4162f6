// Package apply is the AUTO CDC engine: it folds change events per key with
// what the target and its state already know, and makes rows, change feed,
// hidden state and source positions true in one target commit.
//
// Invariants:
//
//  1. The target is a pure function of the set of events seen (auto-cdc 2):
//     order, batch cuts, redelivery and crashes do not show in it.
//  2. Everything hangs from the target commit: its txn "sluice-state" names the
//     version of the state table that belongs to it (apply-state 1). What no
//     target commit names does not exist.
//  3. A batch is decided, phase R checks included, before anything is written;
//     a refused batch leaves table, state and positions as they were.
//  4. Nothing is committed where nothing changes: hidden-only changes write no
//     data file and no change file, batches without effect write nothing.
//  5. Apply commits are Serializable and never blind; a lost race is checked
//     against every winner before the next try (apply-state 3).
//
// Entry points: [Run] with [Spec], [Flow] and [Options]; [Error] carries the
// codes of auto-cdc 1.6.
//
// The package imports delta, merge, log, storage, internal/expr,
// internal/keycode and apply/event; it knows no decoder and no command.
package apply
