#!/usr/bin/env bash
# Measures how long each rule of alerts/crisweep.rules.yaml takes on a fleet: 3,000 nodes scraped every
# 15 s, and three other jobs beside each. Exits with 1 if a rule takes more than a second of processor
# time, which does not depend on what else the machine does; on a quiet one it is the time that passes.
#
#   benches/rules.sh [nodes] [rules file]      3,000 nodes: 4 minutes, 3 GB in TMPDIR, 2 GB of memory
#
# The data is made with `promtool tsdb create-blocks-from openmetrics`: of each series that a rule reads
# the last half hour (a full chunk), and the last hour of what a rule ranges over. Every 50th node is in
# trouble of every kind, on all of them passes have failed. Each rule runs five times as an instant query
# in a Prometheus on loopback. Needs promtool, prometheus, curl, jq.
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${1:-3000}
rules=$(realpath "${2:-alerts/crisweep.rules.yaml}")
port=${CRISWEEP_RULES_PORT:-29190}
dir=$(mktemp -d "${TMPDIR:-/tmp}/crisweep-rules-XXXXXX")
prometheus=
stop() {
  [[ -z $prometheus ]] || { kill "$prometheus" && wait "$prometheus" || true; }
  rm -rf "$dir"
}
trap stop EXIT

# The end of a block: what the last two hours hold is then in one place, as it is in a running server.
now=$(($(date +%s) / 7200 * 7200 - 15))
awk -v nodes="$nodes" -v now="$now" -f benches/rules/fleet.awk > "$dir/fleet.txt"
promtool tsdb create-blocks-from openmetrics --quiet "$dir/fleet.txt" "$dir/data" > /dev/null
rm "$dir/fleet.txt"

# The rules are loaded to be read back one by one, not to run by themselves.
printf 'global: {evaluation_interval: 1d}\nrule_files: [%s]\n' "$rules" > "$dir/prometheus.yaml"
prometheus --config.file="$dir/prometheus.yaml" --storage.tsdb.path="$dir/data" \
  --storage.tsdb.retention.time=10y --web.listen-address="127.0.0.1:$port" --log.level=error \
  --query.max-samples=500000000 &
prometheus=$!
api="http://127.0.0.1:$port"
for _ in $(seq 600); do
  curl -sf "$api/-/ready" > /dev/null && break
  kill -0 "$prometheus"
  sleep 0.1
done

processor_seconds() { curl -sf "$api/metrics" | awk '$1 == "process_cpu_seconds_total" { print $2 }'; }

# Prints the seconds that one evaluation took, and how many series came of it.
evaluate() {
  curl -sf "$api/api/v1/query" --data-urlencode "query=$1" -d "time=$now&stats=1" |
    jq -r '"\(.data.stats.timings.execTotalTime) \(.data.result | length)"'
}

printf '| rule, %s nodes | processor, s | passed, s (median) | fires for |\n|---|---|---|---|\n' "$nodes"
slow=0
while IFS= read -r rule; do
  query=$(jq -r .query <<< "$rule")
  before=$(processor_seconds)
  figures=$(for _ in 1 2 3 4 5; do evaluate "$query"; done | sort -n)
  processor=$(awk -v a="$before" -v b="$(processor_seconds)" 'BEGIN { print (b - a) / 5 }')
  read -r median count <<< "$(sed -n 3p <<< "$figures")"
  printf '| `%s` | %.2f | %.2f | %d |\n' "$(jq -r .name <<< "$rule")" "$processor" "$median" "$count"
  awk -v processor="$processor" 'BEGIN { exit processor > 1 }' || slow=1
done < <(curl -sf "$api/api/v1/rules" | jq -c '.data.groups[].rules[] | {name, query}')
exit "$slow"
