// Package gcsstore is the blobstore.Driver of Google Cloud Storage, by its JSON
// API over an HTTP client that brings the credentials.
//
// Google's own client would bring gRPC, its load balancing and a telemetry stack
// into the binary (some 300 packages), and repeats a conditional insert after a
// lost answer, which then meets its own object; seven requests are all it takes.
//
// Invariants:
//
//  1. No request is sent twice, except that an upload in parts asks the store how
//     far it came and goes on from there.
//  2. A read is pinned to a generation.
//
// Entry points: [New].
//
// The package imports storage/blobstore and reads no environment.
package gcsstore
