// Command stream prints the changes that it has not printed before: it keeps its
// position in a file and stores it when the rows of a batch are out.
//
// Invariants: see package examples.
//
// Entry points: none but main.
//
// It must not import internal packages.
package main
