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
//  3. What a missing field means depends on the record and what is declared, never
//     on other records: under a given schema a field that a JSON record lacks is
//     NULL, or not authored with missing_fields=keep; without one, and of a column
//     that a file lacks, it is not authored (docs/rfcs/missing-fields.md). What is
//     known of other records or of the target tells names and types only.
//  4. A value that does not fit the given schema is poison (P3): plain rows are
//     refused, not repaired.
//  5. There is no sequence in this format: the user names one.
//  6. Names are compared ignoring case; the first spelling is the column's.
//
// Entry points: [New], [Decoder].
//
// The package imports apply/event, apply/source/wire and log/schema only.
package rows
