// Package kill proves that an apply run survives SIGKILL at every operation on
// its store, and that a run that slept through its successor's work changes
// nothing when it wakes up.
//
// Invariants:
//
//  1. Runs are real processes (this test binary started anew) on a local
//     directory with every fsync; a kill is SIGKILL, a sleep is SIGSTOP.
//  2. The moment is exact: the child's store counts its operations and signals
//     its own process before or after the one that it was told.
//  3. What is right is what a run that nobody disturbed made of the same events.
//
// Entry points: none but the tests.
//
// Only tests are here; they may import every package, none may import this one.
package kill
