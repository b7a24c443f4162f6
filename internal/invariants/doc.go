// Package invariants states what must hold, and takes slow paths at random in
// test builds.
//
// Invariants:
//
//  1. Without the build tag "invariants" nothing here panics or draws random
//     numbers: Assert returns an error, Sometimes is false.
//  2. With the tag, a broken assertion panics at once, where it is noticed.
//
// Entry points: [Assert], [Sometimes], [Enabled].
//
// The package imports no other package of this module.
package invariants
