// Package open turns a path or URL, as a user writes it, into a storage.Store.
//
// Invariants:
//
//  1. Opening writes nothing and does not need the place to exist.
//  2. A scheme that cannot be served is refused by name ([*Error]); it is never
//     taken for a path.
//  3. It is the only package that switches on schemes, and the only one that
//     will import cloud drivers; only cmd and tests import it.
//
// Entry points: [Store], [Join], [Base].
//
// The package imports storage and nothing above it.
package open
