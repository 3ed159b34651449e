#!/usr/bin/env bash
# Runs the benches behind the table "The goals" of docs/dev/performance.md one after the other, each beside its peer, and
# keeps what they print in target/benches.
#
#   sudo benches/all.sh      on a machine that does nothing else: 35 minutes, and the build
#
# Needs prometheus-node-exporter and what tests/e2e/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."
to=target/benches
mkdir -p "$to"

# keep NAME COMMAND...
keep() {
  echo "== $1: ${*:2}"
  { echo "$(date --utc +%F), load $(cut -d" " -f1 /proc/loadavg)"; "${@:2}"; } 2>&1 | tee "$to/$1.txt"
}

cargo build --locked --release
cargo bench --locked --no-run
keep watching cargo bench --locked --bench scrape
keep planning cargo bench --locked --bench scale -- planning
keep big_lists cargo bench --locked --bench big_lists
keep evidence benches/evidence.sh
keep pacing benches/pacing.sh
