// Package sql reads AUTO CDC statements (auto-cdc 1) and turns them into one
// validated plan, whichever front end they come from: SQL text, a YAML document
// with the Python parameter names, or Go structs.
//
// Invariants:
//
//  1. The three front ends fill the same structs ([Source], [Table], [Flow]); from
//     there on nothing knows where a statement came from but its positions.
//  2. Every problem is an [*Error] with a code of auto-cdc 1.6, a position where
//     the text has one, and a remedy. Independent problems are reported together,
//     in text order.
//  3. [Format] is idempotent, keeps comments, and what it prints means the same.
//  4. Analysis reads and writes nothing: source schemas are an argument, and what
//     depends on one that is not known is left to the engine.
//  5. The plan holds all of the language. The engine refuses by code what it
//     lacks; nothing is dropped on the way.
//  6. No input text panics or exhausts the stack.
//
// Entry points: [Parse], [ParseYAML], [Analyze], [Format], [FlowPlan.Apply].
//
// The package imports apply, log/schema and internal/expr, no store and no
// decoder.
package sql
