#!/usr/bin/env bash
# Measures a simulated fleet: 200 simulated runtimes, each with the real program beside it, one real Prometheus with the
# shipped rules, one real Alertmanager that every node asks (alertmanager.poll), and a fake API server. Litter appears
# on one node after the other. Prints how long it lies there, and what the fleet costs everyone.
#
#   benches/fleet.sh          18 minutes and the build; NODES=50 benches/fleet.sh: fewer nodes
#
# Needs what tests/e2e/setup.sh installs, 4 GiB of memory and 8,192 open files.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $(ulimit -n) != unlimited && $(ulimit -n) -lt 8192 ]]; then
  ulimit -n 8192
fi
CRISWEEP_FLEET_NODES="${NODES:-200}" cargo nextest run --locked --cargo-profile release --features e2e --test e2e \
  --ignore-default-filter --no-capture -E 'test(=measure::fleet::an_incident_rolls_across_a_fleet)'
