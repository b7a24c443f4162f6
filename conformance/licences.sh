#!/usr/bin/env bash
# Checks that every module in the binary has a licence that lets it be shipped
# under Apache-2.0: MIT, BSD, ISC, Apache-2.0, MPL-2.0 (unchanged files), Unlicense, CC0.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
while read -r path dir; do
  text=$(find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'unlicense*' \) -exec cat {} + 2>/dev/null | tr -s '[:space:]' ' ')
  case $text in
  *"Apache License Version 2.0"* | *"Apache License, Version 2.0"*) ;;
  *"Permission is hereby granted, free of charge"* | *"Permission to use, copy, modify, and"*) ;;
  *"Redistribution and use in source and binary forms"*) ;;
  *"Mozilla Public License Version 2.0"* | *"Mozilla Public License, version 2.0"*) ;;
  *"This is free and unencumbered software"* | *"CC0 1.0 Universal"*) ;;
  *)
    echo "licence of $path is none of those that are allowed (looked in its module)" >&2
    bad=1
    ;;
  esac
done < <(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/sluice | sort -u)
exit "$bad"
