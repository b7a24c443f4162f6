#!/usr/bin/env bash
# Sets up the object stores that tests run against, all on this machine:
# versitygw (S3), fake-gcs-server (GCS), Azurite (Azure) and dynalite (DynamoDB).
#
#   setup-stores.sh
#
# They go to stores/ in $SLUICE_ENGINES, by default build/engines in the
# repository. A finished setup leaves the versions it was made from in
# stores/versions.stamp, and a later run with the same versions does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${SLUICE_ENGINES:-$here/../build/engines}
mkdir -p "$dir/stores"
dir=$(cd "$dir/stores" && pwd)

exec 9>"$dir/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi # two runs at once take turns

# shellcheck source=stores.env
. "$here/stores.env"
want="versitygw $VERSITYGW
fake-gcs-server $FAKE_GCS_SERVER
azurite $AZURITE
dynalite $DYNALITE"
if [ -f "$dir/versions.stamp" ] && [ "$(cat "$dir/versions.stamp")" = "$want" ]; then
  exit 0
fi
"$here/prerequisites.sh" go node npm

echo "setting up object stores in $dir (some minutes, once)" >&2
rm -rf "$dir/versions.stamp" "$dir/bin" "$dir/node"
mkdir -p "$dir/bin" "$dir/node"
GOBIN="$dir/bin" GOFLAGS= go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
GOBIN="$dir/bin" GOFLAGS= go install "github.com/fsouza/fake-gcs-server@$FAKE_GCS_SERVER"
npm install --prefix "$dir/node" --silent --no-audit --no-fund --no-save \
  "azurite@$AZURITE" "dynalite@$DYNALITE" >&2
printf '%s\n' "$want" >"$dir/versions.stamp"
