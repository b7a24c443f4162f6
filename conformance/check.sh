#!/usr/bin/env bash
# Static checks: format, vet, staticcheck, and that the other systems build.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=versions.env
. conformance/versions.env

unformatted=$(gofmt -l $(git ls-files -co --exclude-standard '*.go'))
if [ -n "$unformatted" ]; then
  echo "not formatted by gofmt:" >&2
  echo "$unformatted" >&2
  exit 1
fi
go vet ./...
go vet -tags invariants ./...
go run "honnef.co/go/tools/cmd/staticcheck@$STATICCHECK" ./...
conformance/licences.sh
for os in darwin windows; do
  CGO_ENABLED=0 GOOS=$os go build ./...
done
CGO_ENABLED=0 go build ./...
