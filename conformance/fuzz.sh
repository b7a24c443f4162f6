#!/usr/bin/env bash
# Runs every fuzzer of the repository, one after the other. The test binary of a package
# is built once for all of its fuzzers.
#
#   fuzz.sh [TIME-EACH [PACKAGE...]]      default: 30s, all packages with a fuzzer
#
# An input that is found is shortened by a hundred runs, not for Go's minute: where
# goroutines make the order of the code vary, no run is like the one before, and that
# minute is spent in full for each of them.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30s}
shift || true
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
status=0
while IFS= read -r package; do
  [ $# -eq 0 ] || [[ " $* " == *" $package "* ]] || continue
  go test -c -fuzz . -o "$bin/fuzz.test" "./$package"
  while IFS= read -r func; do
    echo "== $package $func for $each"
    (cd "$package" && "$bin/fuzz.test" -test.run '^$' -test.fuzz "^$func\$" -test.fuzztime "$each" -test.fuzzminimizetime 100x \
      -test.parallel "${SLUICE_FUZZ_PARALLEL:-$(nproc)}" -test.fuzzcachedir "$(go env GOCACHE)/fuzz/$(cd "$OLDPWD" && go list "./$package")") || status=1
  done < <(git grep -hoE "^func Fuzz[A-Za-z0-9_]*" -- ":(glob)$package/*_test.go" | sed "s/func //")
done < <(git grep -lE "^func Fuzz" -- "*_test.go" | xargs -n1 dirname | sort -u)
exit "$status"
