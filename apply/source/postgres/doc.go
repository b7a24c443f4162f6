// Package postgres is the source of changes straight from PostgreSQL: a snapshot of
// the chosen tables, then every change from a logical replication slot (pgoutput).
// The decoder stands apart from the connection: it reads recorded messages as well.
//
// Invariants:
//
//  1. A change's sequence is the tuple that Debezium's events have, (epoch, pos, phase,
//     lsn), computed from the message alone: pos is where its transaction's commit
//     record begins, lsn its own record. It is the same however often and from wherever
//     the slot is read. Debezium's pos is the end of the commit before, which lies
//     between the two commit records: a table can move between both sources.
//  2. A snapshot row has phase 0 and the position P of its snapshot, which holds the
//     transactions whose commit record begins before P and no other. So it loses to
//     every change that it does not hold and beats every change that it holds, in
//     whatever order they come: the stream is read from a position at or before P.
//  3. A row is decoded from text by one path, whether it came by COPY or in the stream.
//     A value that its type cannot hold (infinity, NaN of a numeric, arrays of several
//     dimensions) is rescued; it is never wrapped or rounded.
//  4. An unchanged value that was stored out of line ('u') is not authored. A key is
//     never made of anything but the columns of the replica identity, or of the primary
//     key where the identity is the full row.
//  5. A position of the stream lies between transactions. A reading that ends inside of
//     one counts for nothing: the transaction is read again, its rows are what they were.
//     Changes of a streamed transaction (protocol 2) are held until it commits.
//  6. The slot's confirmed position is one that every target has committed. It never
//     passes a position that the engine did not hand in, and a slot that passed ours is
//     INPUT_GONE.
//  7. A slot is known by system identifier, database and name, a position in it by the
//     timeline too: another server, a restored one or one that was promoted is
//     SOURCE_CHANGED, a slot that is gone SLOT_LOST. Neither is passed over.
//  8. No password is in a URL, option, state, error or log line.
//
// Entry points: [Source], [ParseURL], [Decoder].
//
// The package imports apply/event, apply/source/wire, log/schema, pgx and pglogrepl only.
package postgres
