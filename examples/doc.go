// Package examples holds programs that use sluice as a library, one a folder, each
// under ten lines of substance. Their tests run them.
//
// Invariants:
//
//  1. Every program works as it stands, on a directory given as its argument.
//  2. A program uses public packages only.
//
// Entry points: create, append, changes, follow, stream.
//
// Nothing imports them.
package examples
