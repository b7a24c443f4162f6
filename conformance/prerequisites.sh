#!/usr/bin/env bash
# Names every missing program with the line that installs it.
#
#   prerequisites.sh PROGRAM...      go python3 java mvn node git
#
# Exits 2 if one is missing.
set -euo pipefail

install_line() {
  case "$(uname -s)/$1" in
    Darwin/go) echo "brew install go" ;;
    Darwin/python3) echo "brew install python@3.11" ;;
    Darwin/java) echo "brew install openjdk@17" ;;
    Darwin/mvn) echo "brew install maven" ;;
    Darwin/*) echo "brew install $1" ;;
    */go) echo "see https://go.dev/doc/install (go.mod names the version)" ;;
    */python3) echo "apt-get install -y python3 python3-venv" ;;
    */java) echo "apt-get install -y openjdk-17-jdk-headless" ;;
    */mvn) echo "apt-get install -y maven" ;;
    */node | */npm) echo "apt-get install -y nodejs npm" ;;
    *) echo "apt-get install -y $1" ;;
  esac
}

missing=0
lack() {
  echo "missing: $1; install it with: $(install_line "$2")" >&2
  missing=1
}

for p in "$@"; do
  if ! command -v "$p" >/dev/null 2>&1; then
    lack "$p" "$p"
    continue
  fi
  case "$p" in
    python3)
      python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || lack "Python 3.10 or later (found $(python3 -V 2>&1))" python3
      python3 -c 'import venv, ensurepip' 2>/dev/null || lack "the venv module of Python" python3
      ;;
    java)
      v=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
      [ "${v:-0}" -ge 17 ] || lack "Java 17 or later (found ${v:-none that runs})" java
      ;;
  esac
done
[ "$missing" = 0 ] || exit 2
