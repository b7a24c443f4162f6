// Package pipeline runs work on many items with a bounded number of goroutines.
//
// Invariants:
//
//  1. Results come in the order of the items, whatever order work ends in.
//  2. At most `workers` calls run at once, and at most `workers` results wait
//     to be taken: a slow consumer slows the work, memory does not grow.
//  3. The first call that fails ends everything: the context of the other calls
//     is cancelled, no new one starts, and the error that comes out is that
//     first cause, not the "context canceled" of a bystander.
//  4. [Streams] keeps what a stream yielded before its error; each result is either
//     taken by the consumer or dropped, once.
//  5. When the stream ends, or its consumer leaves it, every goroutine is gone.
//
// Entry points: [Map], [ForEach], [Streams]. A slice becomes items with slices.Values.
//
// The package imports no other package of this module. Goroutines of this
// module start here or in a type whose Close waits for them.
package pipeline
