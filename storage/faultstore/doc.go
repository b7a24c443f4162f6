// Package faultstore wraps a store and makes chosen operations fail, pause or
// be the last before a crash, for tests of everything that writes.
//
// Invariants:
//
//  1. Every operation gets a number, from 0, in the order it began, and is in
//     the trace with its key; so do the reads of a Reader and the writes and the
//     close of a Writer. Abort, and Close of a Reader, are neither numbered nor failed.
//  2. A fault of mode Before is not applied. A fault of mode After is applied and
//     reported as storage.ErrAmbiguous. Without rules the wrapper changes nothing.
//  3. After a crash every operation of this wrapper fails with ErrCrashed and
//     reaches the inner store no more, also from Readers and Writers that were
//     open. The inner store lives on: what comes back after the crash is a new
//     wrapper, or a bare use, of the same inner store.
//  4. A gate holds an operation before it is applied. A paused operation is
//     applied when it is released, however much happened meanwhile, unless its
//     context ended or the wrapper crashed.
//
// Entry points: [New], [Rule], [Store.Add], [Store.Pause], [Store.Trace].
//
// Only tests import it; it imports package storage only.
package faultstore
