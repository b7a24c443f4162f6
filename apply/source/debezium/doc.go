// Package debezium decodes Debezium change events in JSON: the envelope, with
// and without its embedded Connect schema, and rows flattened by
// ExtractNewRecordState (cdc-formats F1, F3; debezium-observed wins).
//
// Invariants:
//
//  1. The table of a record comes from its source block; the topic only stands
//     in for flattened rows without one.
//  2. A clock never orders events: the sequence is the connector's log position
//     behind an epoch; only where a format has no position it is the transport.
//  3. A placeholder for a value that was not sent is Unavailable, a field that is
//     not in the record is absent, null is null.
//  4. Of the before image only key columns are used, and not even these where
//     they are the fillers of PostgreSQL's replica identity.
//  5. A tombstone deletes nothing in a stream that has delete events.
//
// Entry points: [New], [Decoder].
//
// The package imports apply/event, apply/source/wire and log/schema only.
package debezium
