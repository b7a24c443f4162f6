// Package deltafeed makes the change feed of a Delta table a source of change
// events, so that tables chain (cdc-formats F15, auto-cdc 2.11).
//
// Invariants:
//
//  1. The first run takes the whole table as inserts of its version, then every
//     later version once; the position is that of the stream (cdf.Position) and names
//     the table by metaData.id: another table in its place is SOURCE_CHANGED.
//  2. The sequence is the commit version. A preimage is a delete of its key, which
//     counts as before what else the version says of the key (auto-cdc 2.4); beside
//     a postimage of the same key it is not emitted at all.
//  3. Halves of an update meet inside one batch of the stream; nothing of a batch
//     waits for the next one.
//  4. Images are whole: a column that a version's schema lacks is ABSENT, a null is a
//     null.
//
// Entry points: [Source], [Decoder].
//
// The package imports apply/event, cdf, internal/datafile, internal/keycode, log
// and log/schema only.
package deltafeed
