// Package azurestore is the blobstore.Driver of Azure Blob Storage.
//
// Invariants:
//
//  1. Only the blocks of an upload may be sent twice; the client must be made with
//     [ClientOptions], whose retries are off (see storage/blobstore).
//  2. Listings are in byte order, though accounts with a hierarchical namespace
//     answer in another; the blobs that stand for folders there are left out.
//
// Entry points: [New], [ClientOptions].
//
// The package imports storage/blobstore and reads no environment.
package azurestore
