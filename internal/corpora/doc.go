// Package corpora reads the recorded change streams beside the repository for
// tests: what a corpus holds, what its database held after the last event, and a
// naive fold of decoded batches that judges decoders and engine alike.
//
// Invariants:
//
//  1. The fold shares no code with the engine: plain Go values, keys as text.
//  2. Values of the database, of the wire and of decoded columns meet in one
//     canonical text per database type.
//  3. What a stream does not carry ([Differs]) is judged by what the events say.
//
// Entry points: [Load], [ExpectedRows], [CanonRows], [SameRows], [Fold], [Seeds].
//
// Only tests import the package.
package corpora
