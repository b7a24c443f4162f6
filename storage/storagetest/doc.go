// Package storagetest is the contract of storage.Store as tests, to be run on
// every backend and every wrapper.
//
// Invariants:
//
//  1. Run fails, rather than passes, if the store that ran is not the one asked
//     for (Config.URLPrefix).
//  2. The suite uses the exported interface only; what a backend can do beyond
//     it has its own tests.
//  3. Races are real: goroutines in Run, operating system processes in
//     RaceProcesses (the test binary starts itself again; see Main).
//
// Entry points: [Run], [RaceProcesses], [Main].
//
// Only tests import it; it imports package storage only.
package storagetest
