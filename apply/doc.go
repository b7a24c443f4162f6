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
// How a key's history is held (SCD2, auto-cdc 2.6):
//
// What is known of a key is a set of events: upserts, each with the fields that
// it authors, and deletes. Every batch reads this set off the key's rows and the
// state, adds its own events, computes the rows anew and compares:
//
//	events(rows, state) + batch -> rows'            historian.run, pure
//	rows' against rows, by identity -> edits        decision.place
//	events that rows' do not tell -> state'         fold.untold
//
// A row tells, by the hidden group of its file: the upsert v (in whole-row mode
// the last member of its run), whose authored fields are those with version v;
// a delete at its floor d; and by its end a delete there, unless an upsert stands
// at the end. The state holds the rest and nothing more: run members that no row
// names (kind upsert), deletes that no row tells (kind boundary: unmatched ones,
// and those tied with a hidden upsert), events behind rows that DROP ROW hides
// (kind dropped). Since facts are a set whose union is harmless, one that a row came
// to tell is void rather than wrong; the next compaction leaves it out. So a change
// that shows nothing writes no data file, and no version entries are needed: the
// row keeps the event that it names, newer members wait in the state.
//
// A late event costs what its key's history costs: the rows of the key are found
// by its bytes and nothing else is read; with deletion vectors, or where rows of
// the key are few a file, nothing else is written either.
//
// BITEMPORAL keeps every event in the state (kind event): any earlier report can
// change past beliefs. [historian.beliefs] computes the rows from them; stored rows
// are only compared with.
//
// How much of the state is held (statekeys.go): all of a small one; of a large one the
// facts of the keys that a batch asks for, which are looked up in files sorted by key.
// Compaction and collection merge those files key by key. Only what compares every row of
// the target (a snapshot, the walk over files that another engine rewrote) holds all of it.
//
// SCD1 takes a short cut through the same function: a [register] is the join of a
// key's events, and the row holds all of it.
//
// Entry points: [Run] with [Spec], [Flow] and [Options]; [Error] carries the
// codes of auto-cdc 1.6.
//
// The package imports delta, merge, log, storage, internal/expr,
// internal/keycode and apply/event; it knows no decoder and no command.
package apply
