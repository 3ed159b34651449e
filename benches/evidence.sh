#!/usr/bin/env bash
# Measures what the database and evidence cost: the demo's node is swept with nothing kept, with the database, and with
# the evidence of each container too, in turns. Compared are the times, and the resident memory before the pass. Each
# container has a log.
#
#   benches/evidence.sh [ROUNDS]      5 rounds without one; needs curl and jq
#
# CRISWEEP is the program, target/release/crisweep without it.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
program=${CRISWEEP:-target/release/crisweep}
dir=$(mktemp -d)
pid=
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT

# sweep NAME STATE_DIR EVIDENCE
sweep() {
  local config="$dir/$1.yaml" address=127.0.0.1:20959
  printf 'web: { listen: [%s] }\nstate: { dir: %s }\nevidence: { enabled: %s }\nlog: { level: error }\n' \
    "$address" "$2" "$3" >"$config"
  "$program" demo --config.file "$config" >/dev/null 2>&1 &
  pid=$!
  for _ in $(seq 100); do
    curl -sf "$address/api/v1/plan?target=containers" >"$dir/plan" && jq -e '.removals | length > 1000' "$dir/plan" \
      >/dev/null && break
    sleep 0.2
  done
  sleep 3
  awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$pid/status" >>"$dir/$1.memory"
  curl -sf -X POST "$address/gc?target=containers&wait=120s" |
    jq -r '[.targets.containers.removed, .started_at, .finished_at] | @tsv' >"$dir/pass"
  kill "$pid"
  wait "$pid" 2>/dev/null || true
  read -r removed began ended <"$dir/pass"
  awk -v b="$(date -d "$began" +%s.%N)" -v e="$(date -d "$ended" +%s.%N)" 'BEGIN { print e - b }' >>"$dir/$1.times"
  echo "$1: $removed containers in $(tail -n1 "$dir/$1.times") s, $(tail -n1 "$dir/$1.memory") MiB before"
}

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for round in $(seq "$rounds"); do
  sweep nothing null false
  sweep database "$dir/state-$round" false
  sweep evidence "$dir/evidence-$round" true
done
for what in nothing database evidence; do
  time=$(median "$dir/$what.times")
  memory=$(median "$dir/$what.memory")
  awk -v what="$what" -v t="$time" -v m="$memory" -v t0="$(median "$dir/nothing.times")" \
    -v m0="$(median "$dir/nothing.memory")" \
    'BEGIN { printf "%s: median %.2f s, %.2f times; %.1f MiB, %+.1f\n", what, t, t / t0, m, m - m0 }'
done
