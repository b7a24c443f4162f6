// Command changes prints the change feed of a table.
//
// Invariants: see package examples.
//
// Entry points: none but main.
//
// It must not import internal packages.
package main
