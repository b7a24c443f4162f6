// Package kafka is the source of change events in Kafka topics (cdc-formats 21).
//
// Invariants:
//
//  1. Offsets are the engine's: a position is one partition's next offset, kept in
//     the state that the target commit pins. Nothing is read from or committed to a
//     consumer group.
//  2. A partition is known by cluster, topic id and number. A topic that was made
//     anew, or a partition that is gone, is SOURCE_CHANGED; offsets that the log no
//     longer holds are INPUT_GONE. Neither is passed over unless the user said so.
//  3. Only committed records are read, up to the last stable offset that the
//     partition had when reading began. Control records and gaps move the position
//     and yield nothing.
//  4. A null value is nil, an empty one is empty; repeated headers are all kept.
//
// Entry points: [Source], [ParseURL].
//
// The package imports apply/event and franz-go only.
package kafka
