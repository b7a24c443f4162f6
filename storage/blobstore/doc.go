// Package blobstore makes a storage.Store of an object store, given a small
// [Driver] of one cloud. What is the same on all clouds is here: which answers
// leave an outcome open, windows of ranged reads, uploads in parts, the probe.
//
// Invariants:
//
//  1. A conditional write is sent once. A lost answer is resolved by reading
//     back: every object carries the id of the write that made it, so that an
//     object with our id is ours, one with another id is not, and only an absent
//     one stays storage.ErrAmbiguous.
//  2. Before the first write to a bucket the store is proved to refuse a second
//     creator ([Guard]); one that does not is refused with ErrUnconditional. In
//     single-writer mode nothing is proved and writes are unconditional after a
//     look, which is for one writer at a time and no other.
//  3. A Reader reads one version of its object: every range is asked for by the
//     ETag (or generation) of the first one.
//  4. Memory is bounded: a Reader keeps at most [Options].ReadBuffer bytes, a
//     Writer at most three parts.
//  5. No error text holds a URL that the network layer built or a body that the
//     store sent, for either may hold a signature; a [Fault] says status and code.
//  6. Keys go to the store as they are, without escapes of our own, since other
//     engines write and read them too.
//
// Entry points: [New], [Driver], [Guard], [Fault].
//
// The package imports storage only and no cloud's client.
package blobstore
