// Package files is the source of change events in files: text lines (bare
// events, records of a topic as kcat and others print them), CSV and Parquet,
// plain or compressed, from paths, globs, directories, prefixes of object stores and
// standard input.
//
// Invariants:
//
//  1. A text file is read to its last record boundary. Its position is that
//     byte offset with a hash of every byte before it; reading goes on only
//     where the hash still holds (FILE_CHANGED else).
//  2. Compressed and columnar files have a position only once they were read
//     whole, and the position says so (Done).
//  3. A file's identity is its URI with the host; a file is read once, however
//     many arguments name it.
//  4. A line that cannot be split is yielded with its Fault; nothing is skipped
//     but blank lines.
//  5. An object of a store is whole when it can be seen: it is read whole or not at
//     all, its identity is its URL and its ETag the proof that it is the same.
//  6. A Record and its bytes are valid until the next one is asked for.
//
// Entry points: [New], [Source].
//
// The package imports apply/event, apply/source/wire, apply/source/avro,
// internal/parquetio, log/schema and storage only.
package files
