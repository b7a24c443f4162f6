// Package wire turns JSON text of change events into Arrow columns: a
// tokenizer that keeps every digit, plans that say how a value on the wire
// becomes a Delta type, inference where nothing says so, and the builder that
// gathers rows of one source table into batches.
//
// Invariants:
//
//  1. The tokenizer accepts exactly RFC 8259 JSON with nesting up to [MaxDepth];
//     numbers stay text until a plan reads them, so no digit is lost.
//  2. Tokens alias the bytes they were scanned from; [Table] copies what it keeps.
//  3. A row enters a [Table] whole or not at all: keys are converted before any
//     column is touched.
//  4. A value that its plan cannot read is null in the column and verbatim in
//     Rescued; it is never wrapped, clamped or rounded.
//  5. All rows of a batch share one column list; a new column, a wider inferred
//     type, other keys, another topic or source start a new batch.
//
// Entry points: [ParseObject], [Value], [Node], [Shape], [Table].
//
// The package imports apply/event and log/schema only.
package wire
