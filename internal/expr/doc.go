// Package expr is the one evaluator of SQL expressions: text to tree, tree bound
// to a schema, bound tree evaluated over Arrow batches or over file statistics.
// WHERE and SET of the command line, CHECK constraints and invariants (W-421,
// W-422), merge and AUTO CDC conditions and sequences all go through it, so all
// of them share one null logic.
//
// Invariants:
//
//  1. Logic is three-valued. A filter keeps the rows for which it is TRUE.
//  2. Integers and decimals never pass through float64. Integer, decimal and
//     division errors follow Spark's ANSI mode: they are errors, not nulls.
//  3. An error belongs to a row. It surfaces only if the row's result depends on
//     it: CASE, IF, COALESCE, AND and OR discard errors of what they did not take.
//  4. Order and equality are those of auto-cdc section 2.1: -0.0 equals 0.0, NaN
//     equals itself and is above everything, strings compare by UTF-8 bytes.
//  5. Pruning is conservative: [Bound.MayMatch] answers false only where the
//     bounds prove that no row is TRUE.
//  6. Every expression is deterministic. What depends on the clock, on chance or
//     on other rows is refused when it is bound.
//  7. No input text panics or exhausts the stack; nesting is bounded.
//  8. [Expr.String] parses back to the same tree.
//
// Two differences from Spark: an integer and a floating point number compare by
// exact value (Spark rounds the integer first), and CAST to STRING exists for
// primitive types only.
//
// Entry points: [Parse], [ParseAssignments], [Expr.Bind], [Bound.Eval],
// [Bound.EvalFilter], [Bound.MayMatch].
//
// The package may import log/schema and internal/invariants, nothing else of
// this module.
package expr
