// Package engines drives other Delta engines from Go tests: delta-rs and Spark.
//
// Each engine is one long-lived Python process (engine.py) that answers JSON
// lines. It starts when a test first asks for it and serves all tests of the
// test binary, one call at a time; it ends with the binary, which closes its
// input. Spark takes ten seconds to start and gigabytes to run, so tests that
// need it belong into few packages (conformance).
//
// Invariants:
//
//  1. Rows come as JSON texts in the row form of the command line; no value
//     passes through a float that is none.
//  2. The engine that answers is the one that is pinned in versions.env, or the
//     test fails.
//  3. A test is skipped, with the reason, only if the engines are not set up and
//     SLUICE_REQUIRE_ENGINES is not 1, or under -short. Engines that are set up
//     and do not start, or are of old versions, fail the test.
//
// Entry points: [DeltaRS], [Spark], [Engine], [SameRows].
//
// Only tests import it; it imports internal/testenv only.
package engines
