// Package multiprocess proves that processes which share nothing but a local
// directory can append to one table at once, also when some are killed inside a
// commit.
//
// Invariants:
//
//  1. Appenders are real processes (this test binary started anew); a kill is
//     SIGKILL.
//  2. What an appender acknowledged stands in a file of its own, which is synced
//     before the next append begins.
//  3. The outcome is read twice: by sluice and by a parser of the log that shares
//     no code with it.
//
// Entry points: none but the tests.
//
// Only tests are here; the package must not import apply, merge or cmd.
package multiprocess
