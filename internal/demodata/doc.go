// Package demodata carries a small corpus of real Debezium events in the binary:
// a shop, recorded from PostgreSQL (see debezium-shop/README.md for what it holds
// and how it was made). `sluice demo` applies it, and tests use it as the corpus
// that needs nothing from outside the repository.
//
// Invariants:
//
//  1. Events is exactly what the recorder wrote: one record a line, schemas included.
//  2. Expected is what the database held after the last event, in the row form
//     of the command line (jsonl), ordered by key.
//
// Entry points: [Events], [Expected], [Tables], [Keys].
//
// The package imports no other package of this module.
package demodata
