// Package changes reads the JSON change events of producers other than
// Debezium: Maxwell, Canal and TiCDC, AWS DMS, Oracle GoldenGate, Qlik
// Replicate, Airbyte, Fivetran, Singer and Stitch, SQL Server's change tables,
// wal2json, MongoDB change streams, DynamoDB streams, Flink's changelog-json
// (cdc-formats F4 to F14).
//
// Invariants:
//
//  1. A format turns one record into [change]s and nothing else; tables, keys,
//     key changes, field states and poison are handled once, by [Decoder].
//  2. All changes of a record are read before the first is added: a record whose
//     shape is wrong leaves no row.
//  3. An update whose old image names another key becomes a delete of the old
//     key and an upsert of the new one, at one sequence.
//  4. A field that the record lacks is ABSENT unless the format or the option
//     missing_fields=null says that images are complete.
//  5. The sequence of a stream has one type, settled by its first data record or
//     by an option; a record that lacks it is poison (P4).
//
// Entry points: [New], [Decoder], [Names].
//
// The package imports apply/event, apply/source/wire and log/schema only.
package changes
