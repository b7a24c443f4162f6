// Package s3store is the blobstore.Driver of S3 and of what speaks like it.
//
// Invariants:
//
//  1. Only the parts of an upload may be sent twice; the client is made without
//     retries, since its own would repeat a conditional write after a lost answer
//     and take its own object for a rival's.
//  2. Every object written carries the encryption that was asked for.
//
// Entry points: [New].
//
// The package imports storage/blobstore and reads no environment.
package s3store
