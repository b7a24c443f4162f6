// Command sluice is the command line: one file per subcommand, each of which
// reads flags, calls the public packages and prints what they answer.
//
// Invariants:
//
//  1. Data goes to standard output, everything for a human to standard error.
//  2. Every failure is one line (or one JSON object) on standard error with a
//     stable code, and the exit code of the error's class; describeError is the only
//     place where a class becomes an exit code.
//  3. What a flag cannot do yet is refused before anything is read or written.
//  4. An interrupt cancels the context; what was committed is said, exit 130.
//
// Entry points: main, newRoot, one new…Command per file.
//
// Nothing imports the package; it may import every other.
package main
