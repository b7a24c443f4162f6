// Package parquetio reads and writes Parquet files by pages and columns, to and
// from Arrow record batches whose types are those of log/schema.
//
// The reader has its own footer, page and level decoding: every size that a
// file states is checked against the bytes that are there before memory is
// taken for it, which a general library does not promise. Wire constants,
// compression and the thrift and run-length encoders come from parquet-go.
//
// Invariants:
//
//  1. A batch has exactly the Arrow types of schema.ArrowSchema of the wanted
//     struct, whatever physical form the file uses; what cannot be converted
//     without loss is a [*TypeMismatchError] before the first batch.
//  2. Bytes of a file never panic and never allocate more than a small multiple
//     of the file's own size or of one page (1 GiB); bad ones are [ErrCorrupt].
//  3. A row keeps its physical position over all row groups ([Batch.FirstRow],
//     [Batch.Rows]), whatever was skipped.
//  4. A null struct, a struct of nulls, a null list, an empty list and a list of
//     null stay different in both directions.
//  5. No goroutine is started; an abandoned iterator leaks nothing.
//  6. Written files use only the physical types of the table in
//     delta-protocol 1.6, carry true null counts and bounds, and a page index.
//
// Entry points: [Open], [File.Read], [NewWriter].
//
// The package imports log/schema and no other package of this module; nothing
// else in the module may import parquet-go.
package parquetio
