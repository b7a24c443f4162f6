// Command testreport reads what `go test -json` writes and tells a human, and a
// machine, how it went.
//
//	go test -json ./... | testreport
//
// It prints one line per package as it ends, the whole output of everything that
// failed, why tests were skipped, and at the end one line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests which have no subtests of their own. A package
// that does not build, or ends without saying which test failed, counts as one
// failure. The exit code is 1 if anything failed or nothing ran.
//
// Only the Makefile runs it; it imports no package of this module.
package main
