// Package sharedlog proves tables in S3 whose commits a DynamoDB table decides
// (W-126), on versitygw and dynalite.
//
// Invariants:
//
//  1. Writers are processes; all but delta-rs, which has given the protocol up, go
//     through one DynamoDB table.
//  2. Half-finished commits are made by hand, step by step, and ended by sluice.
//
// Entry points: none but the tests.
//
// Only tests are here; they have a package of their own since delta-rs is started
// once for a test binary and learns its store from the environment. The package must
// not import apply or merge.
package sharedlog
