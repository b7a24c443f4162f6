// Package storage moves bytes between sluice and a file system or object store.
//
// A [Store] is rooted at one directory or prefix (for a table: the table root)
// and names objects by slash-separated keys relative to that root, never with a
// leading slash, never with "." or ".." elements.
//
// Invariants:
//
//  1. Create is put-if-absent and atomic: of any number of racing creators, in
//     any number of processes, exactly one gets nil; every other one gets an
//     error that is [ErrExists]; readers see the whole object or none of it.
//  2. An object written by a [Writer] becomes visible, whole and durable, at
//     Close and not before. After Abort, or after a crash, it never appears.
//  3. After a nil answer of Create, Put or Close the object survives a crash of
//     the machine (local: file and directory are fsynced).
//  4. List answers in byte order of keys, strictly after startAfter, and sees
//     every object whose creation was acknowledged before the call.
//  5. An error that leaves the outcome of a write open is [ErrAmbiguous]; the
//     caller reads back before it tries again. No store retries Create blindly.
//     A failed write whose error is not ErrAmbiguous was not applied.
//  6. Opening a store and reading from it write nothing. Directories are made by
//     the first write that needs them.
//  7. Every error of a store is an [*Error] that names operation, root and key
//     and answers errors.Is for its class and for its cause; only errors of the
//     caller's context come through bare.
//
// Entry points: [Store], [NewLocal], [NewMemory], [WithRetry], [ReadAll],
// [ValidateKey]. Backends prove themselves with package storagetest.
//
// The package imports no other package of this module.
package storage
