#!/usr/bin/env bash
# Runs every test and prints the counts. `make test` calls it after it has set up
# the engines.
#
# Two passes: everything but the end-to-end packages with the race detector and
# with assertions on (tag invariants); the end-to-end packages, which drive
# other engines and many processes, as users get them.
set -euo pipefail
cd "$(dirname "$0")/.."

# Properties draw the same cases in every run, so that what passed here passes
# elsewhere. SLUICE_SEED=0 draws new ones.
export SLUICE_SEED=${SLUICE_SEED:-1}

# A program with the race detector sleeps a second before it ends, to catch what
# still runs; the tests of the command start it some hundred times.
export GORACE=${GORACE:-atexit_sleep_ms=10}

go build -o bin/testreport ./internal/testreport
module=$(go list -m)
heavy=$(go list ./... | grep -E "^$module/conformance(/|$)" || true)
light=$(go list ./... | grep -vE "^$module/conformance(/|$)")

# shellcheck disable=SC2086 # lists of packages
{
  status=0
  CGO_ENABLED=1 go test -json -race -tags invariants -timeout 30m $light || status=1
  [ -z "$heavy" ] || go test -json -timeout 40m $heavy || status=1
  exit "$status"
} | bin/testreport
