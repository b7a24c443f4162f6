// Package stores starts object stores on this machine for tests: versitygw (S3),
// fake-gcs-server (GCS), Azurite (Azure) and dynalite (DynamoDB).
//
// Invariants:
//
//  1. A server listens on a free port of 127.0.0.1, keeps its data in a folder of
//     the test and ends with it.
//  2. A server that was not set up (conformance/setup-stores.sh) skips the test,
//     and fails it where SLUICE_REQUIRE_ENGINES is set.
//  3. Readiness is asked for, never waited out.
//
// Entry points: [S3], [GCS], [Azure], [DynamoDB], [Server].
//
// Only tests import it; it imports internal/testenv and no package of the product.
package stores
