#!/usr/bin/env bash
# Sets up the peers of the benchmark in a Python environment of its own, apart from
# that of the tests:
#
#   setup.sh
#
# It goes to $SLUICE_ENGINES/bench, by default build/engines/bench in the repository.
# A finished setup leaves the versions it was made from in versions.stamp, and a later
# run with the same versions does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${SLUICE_ENGINES:-$here/../../build/engines}/bench
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

exec 9>"$dir/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi # two runs at once take turns

if cmp -s "$here/versions.env" "$dir/versions.stamp"; then
  exit 0
fi
"$here/../prerequisites.sh" python3
# shellcheck source=versions.env
. "$here/versions.env"

echo "setting up delta-rs $DELTALAKE, Sail $PYSAIL and DuckDB $DUCKDB in $dir (a minute, once)" >&2
rm -rf "$dir/versions.stamp" "$dir/venv"
python3 -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  "deltalake==$DELTALAKE" "pyarrow==$PYARROW" "numpy==$NUMPY" "pysail==$PYSAIL" "duckdb==$DUCKDB" \
  "pyspark-client==$PYSPARK_CLIENT" "pandas==$PANDAS"
cp "$here/versions.env" "$dir/versions.stamp"
