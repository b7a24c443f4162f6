#!/usr/bin/env bash
# Runs every fuzzer of the repository, one after the other.
#
#   fuzz.sh [TIME-EACH]      default 30s
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30s}
status=0
while IFS=: read -r file func; do
  echo "== $(dirname "$file") $func for $each"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$func\$" -fuzztime "$each" || status=1
done < <(git grep -oE "func Fuzz[A-Za-z0-9_]*" -- "*_test.go" | sed "s/:func /:/")
exit "$status"
