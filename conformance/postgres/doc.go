// Package postgres holds the PostgreSQL source against a real server of its own: every
// built-in type, rights and settings that are missing, slots that are gone, and a
// workload during which sluice and the server are killed.
//
// Invariants:
//
//  1. The server is a cluster in a temporary folder on a free port, run by another user
//     than root; nothing of it is left.
//  2. Truth is the database: tables row by row, and the trail that triggers wrote.
//  3. What happens when is counted in transactions of the workload, not in seconds.
//
// Entry points: none, it has tests only.
//
// The package imports pgx and internal/testenv only.
package postgres
