// Package kafka holds the Kafka source against a real broker and a real schema
// registry.
//
// Invariants:
//
//  1. Broker and registry are the artifacts of versions.env (setup.sh); they listen on
//     free ports of 127.0.0.1, keep their data in a folder of the test and end with it.
//     Where they were not set up the tests skip, and fail if SLUICE_REQUIRE_ENGINES=1.
//  2. sluice runs as a process of its own, so that a kill is one.
//  3. Readiness is asked for, never waited out.
//
// Entry points: none but the tests.
//
// Only tests are here; they may import every package, none may import this one.
package kafka
