#!/usr/bin/env bash
# Measures what evidence costs a pass: the demo's node is swept with evidence on and off, in turns, and the times are
# compared. Each container has a log.
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

sweep() {
  local config="$dir/$1.yaml" address=127.0.0.1:20959
  printf 'web: { listen: [%s] }\nstate: { dir: %s/state-%s }\nevidence: { enabled: %s }\nlog: { level: error }\n' \
    "$address" "$dir" "$2" "$1" >"$config"
  "$program" demo --config.file "$config" >/dev/null 2>&1 &
  pid=$!
  for _ in $(seq 100); do
    curl -sf "$address/api/v1/plan?target=containers" >"$dir/plan" && jq -e '.removals | length > 1000' "$dir/plan" \
      >/dev/null && break
    sleep 0.2
  done
  curl -sf -X POST "$address/gc?target=containers&wait=120s" |
    jq -r '[.targets.containers.removed, .started_at, .finished_at] | @tsv' >"$dir/pass"
  kill "$pid"
  wait "$pid" 2>/dev/null || true
  read -r removed began ended <"$dir/pass"
  echo "$removed $(awk -v b="$(date -d "$began" +%s.%N)" -v e="$(date -d "$ended" +%s.%N)" 'BEGIN { print e - b }')"
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for round in $(seq "$rounds"); do
  for evidence in false true; do
    read -r removed seconds < <(sweep "$evidence" "$evidence-$round")
    echo "evidence $evidence: $removed containers in $seconds s"
    echo "$seconds" >>"$dir/$evidence.times"
  done
done
off=$(median <"$dir/false.times")
on=$(median <"$dir/true.times")
awk -v on="$on" -v off="$off" 'BEGIN { printf "medians: %.2f s with, %.2f s without: %.2f times\n", on, off, on / off }'
