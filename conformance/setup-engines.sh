#!/usr/bin/env bash
# Sets up the other engines that the conformance tests hold sluice against:
# delta-rs and Spark with Delta, in a Python environment and a folder of jars.
#
#   setup-engines.sh
#
# They go to $SLUICE_ENGINES, by default build/engines in the repository. A
# finished setup leaves the versions it was made from in versions.stamp, and a
# later run with the same versions does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${SLUICE_ENGINES:-$here/../build/engines}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

exec 9>"$dir/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi # two runs at once take turns

if cmp -s "$here/versions.env" "$dir/versions.stamp"; then
  exit 0
fi
"$here/prerequisites.sh" python3 java mvn
# shellcheck source=versions.env
. "$here/versions.env"

echo "setting up delta-rs $DELTALAKE and Spark $PYSPARK in $dir (some minutes, once)" >&2
rm -rf "$dir/versions.stamp" "$dir/venv" "$dir/jars"
python3 -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  "deltalake==$DELTALAKE" "pyarrow==$PYARROW" "pyspark==$PYSPARK" "pandas==$PANDAS"
mkdir "$dir/jars"
for artifact in "$DELTA_SPARK" "$DELTA_STORAGE"; do
  mvn -q -B -Dstyle.color=never "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_PLUGIN:copy" \
    "-Dartifact=$artifact" "-DoutputDirectory=$dir/jars" </dev/null >&2
done
cp "$here/versions.env" "$dir/versions.stamp"
