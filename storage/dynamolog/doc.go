// Package dynamolog lets a table in S3 be shared with writers that decide who
// commits in a DynamoDB table, as Spark does with S3DynamoDBLogStore (W-126).
//
// An entry of the DynamoDB table is keyed by the table's URL and the name of a
// commit file. Whoever creates the entry of a version has committed it; the file
// itself is copied from a temporary one afterwards, by the writer or by anybody
// who meets an entry that is not complete.
//
// Invariants:
//
//  1. A commit is acknowledged if and only if its entry was created. Faults after
//  2. A listing of the log first completes the newest entry; a commit first
//     completes the entry before it. So at most one entry is incomplete.
//  3. Copies never overwrite, and all copies of a version have the same bytes.
//  4. Entries are Spark's byte for byte: scheme and path as the user wrote them,
//     complete as a string, expireTime a day after completion.
//  5. A reader without the right to write sees the version before an incomplete
//     one; it does not fail.
//
// Entry points: [New], [NewTable].
//
// The package imports storage and the DynamoDB client; it reads no environment.
package dynamolog
