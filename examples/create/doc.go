// Command create makes a Delta table with a change feed.
//
// Invariants: see package examples.
//
// Entry points: none but main.
//
// It must not import internal packages.
package main
