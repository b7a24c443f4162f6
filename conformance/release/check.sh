#!/usr/bin/env bash
# Builds every target of a release as .goreleaser.yaml does, and checks that each is
# static, names its version, and was built the same twice.
#
#   conformance/release/check.sh [DIR]     default: bin/release
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-bin/release}
version=0.0.0-check
mkdir -p "$out"

build() { # OS ARCH FILE
  CGO_ENABLED=0 GOOS=$1 GOARCH=$2 go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$3" ./cmd/sluice
}

for os in linux darwin windows; do
  for arch in amd64 arm64; do
    file=$out/sluice_${os}_$arch
    [ "$os" != windows ] || file=$file.exe
    build "$os" "$arch" "$file"
    if [ "$(go version -m "$file" | awk '$2 ~ /^CGO_ENABLED=/ {print $2}')" != CGO_ENABLED=0 ]; then
      echo "$file: built with cgo" >&2
      exit 1
    fi
    printf '%-40s %s bytes\n' "$file" "$(wc -c <"$file")"
  done
done

host=$out/sluice_$(go env GOOS)_$(go env GOARCH)
build "$(go env GOOS)" "$(go env GOARCH)" "$out/again"
if ! cmp -s "$host" "$out/again"; then
  echo "$host: two builds differ" >&2
  exit 1
fi
rm "$out/again"
"$host" version | grep -F "$version" >/dev/null || { echo "$host: does not name version $version" >&2; exit 1; }
if [ "$(go env GOOS)" = linux ] && ldd "$host" >/dev/null 2>&1; then
  echo "$host: not static" >&2
  exit 1
fi
(cd "$out" && sha256sum sluice_* >SHA256SUMS)
echo "release targets are whole: $out"
