#!/usr/bin/env bash
# Decodes the rows of W7 in every change format and prints a table of the medians.
#
#   formats.sh [--write FILE] [RUNS]     default 5 runs; FILE has the table between its marks
set -euo pipefail
cd "$(dirname "$0")/../.."
file=""
if [ "${1:-}" = --write ]; then file=$2; shift 2; fi
runs=${1:-5}

table=$(go test ./apply/source -run '^$' -bench 'BenchmarkFormats' -benchtime 1x -count "$runs" -timeout 60m |
  awk '
    /^BenchmarkFormats\// {
      name = $1; sub("BenchmarkFormats/", "", name); sub("-[0-9]+$", "", name)
      if (!(name in n)) order[++formats] = name
      k = ++n[name]
      for (i = 2; i < NF; i++) {
        if ($(i + 1) == "events/cpu-s") cpu[name, k] = $i
        if ($(i + 1) == "events/s") clock[name, k] = $i
        if ($(i + 1) == "allocs/op") allocs[name] = $i / 100000
      }
    }
    function median(v, name,   i, j, t, a) {
      for (i = 1; i <= n[name]; i++) a[i] = v[name, i]
      for (i = 1; i <= n[name]; i++) for (j = i + 1; j <= n[name]; j++) if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
      return a[int((n[name] + 1) / 2)]
    }
    END {
      print "| Format | Events a second of processor | Events a second of the clock | Allocations an event |"
      print "|---|---|---|---|"
      for (f = 1; f <= formats; f++) printf "| `%s` | %d | %d | %.1f |\n", order[f], median(cpu, order[f]), median(clock, order[f]), allocs[order[f]]
    }')
head="$(date -u +%F), $(nproc) processors, runs of each: $runs, load $(cut -d' ' -f1 /proc/loadavg) at the end, sluice $(git rev-parse --short HEAD):"
if [ -z "$file" ]; then
  printf '%s\n\n%s\n' "$head" "$table"
  exit
fi
text="$head"$'\n\n'"$table" awk '
  /^<!-- formats -->/ { print; print ENVIRON["text"]; skip = 1; next }
  /^<!-- end of formats -->/ { skip = 0 }
  !skip' "$file" > "$file.new"
mv "$file.new" "$file"
