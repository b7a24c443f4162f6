// Package servers starts the programs that tests run against: object stores, brokers,
// databases.
//
// Invariants:
//
//  1. A server ends with its test, and on Linux also when the test binary dies of a panic,
//     a timeout or a kill.
//  2. What it prints goes to a file: whoever holds a pipe of the test binary keeps it alive.
//  3. Readiness is asked for, never waited out; a server that ended is never ready.
//  4. What was not set up skips the test, and fails it where SLUICE_REQUIRE_ENGINES is set.
//
// Entry points: [Dir], [Process], [FreePorts].
//
// Only tests import it; it imports internal/testenv and no package of the product.
package servers
