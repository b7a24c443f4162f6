#!/usr/bin/env bash
# Sets the peers up, once, and runs the benchmark; arguments are those of bench.py.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../prerequisites.sh" go python3
"$here/setup.sh"
exec python3 "$here/bench.py" "$@"
