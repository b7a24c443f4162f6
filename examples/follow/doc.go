// Command follow prints changes of a table as they are committed.
//
// Invariants: see package examples.
//
// Entry points: none but main.
//
// It must not import internal packages.
package main
