// Package rowio is the text and file forms of rows that a user of the command
// line meets: JSON Lines, JSON, CSV, Parquet, Arrow IPC and the aligned table of
// a terminal on the way out, and JSON Lines, CSV, Parquet and Arrow IPC on the
// way in.
//
// Invariants:
//
//  1. No value passes through float64 that is not a float or double: integers
//     and decimals keep all their digits in both directions.
//  2. What a [Writer] of form JSONL, CSV, Parquet or Arrow wrote, [Read] of the
//     same form and schema reads back value by value (a NaN stays a NaN).
//  3. Every row that cannot be read is an [*Error] with a stable code, the file,
//     the line or row and the column; no value is coerced, cut or skipped.
//  4. JSON output is valid UTF-8 and valid JSON whatever the bytes of the rows;
//     terminal output holds no control characters.
//
// Entry points: [NewWriter], [Read], [ReadPath], [Open], [ParseForm], [ParseTime].
//
// The package must not import delta, merge, apply or cmd.
package rowio
