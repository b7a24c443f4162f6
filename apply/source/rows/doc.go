// Package rows decodes plain rows (cdc-formats F16): JSON objects, and the rows
// of CSV and Parquet files, with or without a column that names the operation.
//
// Invariants:
//
//  1. Without a schema JSON integers are BIGINT, exact fractions DECIMAL(38,s),
//     CSV is STRING, Parquet has its own types; a wider value starts a new batch
//     of the wider type.
//  2. The operation column and the loader's _rescued_data are no columns of the
//     batches; an unknown word of the operation is poison, never an upsert.
//  3. A field that a JSON record lacks is NULL, or not authored with
//     missing_fields=keep; a column that a file lacks is not authored.
//  4. A value that does not fit the given schema is poison (P3): plain rows are
//     refused, not repaired.
//  5. There is no sequence in this format: the user names one.
//
// Entry points: [New], [Decoder].
//
// The package imports apply/event, apply/source/wire and log/schema only.
package rows
