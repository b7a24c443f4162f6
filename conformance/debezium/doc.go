// Package debezium records a small corpus of change events from a real
// PostgreSQL through a real Debezium engine (record.sh), and checks the corpus
// that is bundled in internal/demodata.
//
// Invariants:
//
//  1. Folding the recorded events by key, in the order of the stream, gives what
//     the database held at the end.
//  2. A new recording by record.sh gives the same tables as the bundled one.
//
// Entry points: record.sh, `make record-corpus`.
//
// The package has tests only and may import any other.
package debezium
