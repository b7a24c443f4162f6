// Package schema is the type system of a Delta table: primitive and nested
// types, fields with their metadata, the JSON form of the protocol ("Schema
// Serialization Format"), the DDL form users write, and the Arrow form that
// data takes in memory.
//
// Invariants:
//
//  1. A Type is immutable once built and safe to share.
//  2. Parsing and printing JSON round-trips everything, field metadata and
//     unknown type names included.
//  3. Each Delta type has exactly one Arrow type ([ArrowType]); all batches
//     inside sluice use it.
//  4. Column lookup is case-insensitive, storage is case-preserving.
//
// Entry points: [Type], [Struct], [ParseJSON], [ParseDDL], [ArrowSchema], [FromArrow],
// [CheckNames], [PhysicalStruct], [AssignMapping], [ParsePartitionValue],
// [FormatPartitionValue], [PartitionDir], [EncodePath], [DecodePath]; for schemas that
// change [Merge], [CanWiden], [ChangeType], [EditStruct], [ParsePath].
//
// The package imports no other package of this module.
package schema
