// Package open turns a path or URL, as a user writes it, into a storage.Store.
//
// Invariants:
//
//  1. Opening writes nothing, sends nothing and does not need the place to exist.
//  2. A scheme that cannot be served is refused by name ([*Error]); it is never
//     taken for a path.
//  3. It is the only package that switches on schemes and the only one below cmd
//     that reads the environment; only cmd and tests import it.
//  4. No error holds a secret: neither what a location carries nor what a cloud's
//     client says of credentials.
//
// Entry points: [Store], [Clouds], [Join], [Base].
//
// The package imports storage, storage/blobstore and the drivers of the clouds.
package open
