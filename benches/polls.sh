#!/usr/bin/env bash
# Measures what the questions of 3,000 nodes (alertmanager.poll, each every 30 s) cost a real Alertmanager with 0, 100
# and 3,000 active alerts: its processor time, its memory, and how long the answers take.
#
#   benches/polls.sh [installed | trixie | forky]...   all without arguments; 3 minutes each, and the build
#
# Needs what tests/e2e/setup.sh and tests/e2e/newer.sh install, and 3,000 open files.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -eq 0 ]]; then
  set -- installed trixie forky
fi
if [[ $(ulimit -n) != unlimited && $(ulimit -n) -lt 8192 ]]; then
  ulimit -n 8192
fi
CRISWEEP_POLLS_SUITES="$*" cargo nextest run --locked --features e2e --test e2e --ignore-default-filter --no-capture \
  -E 'test(=measure::polls::polls_of_a_fleet)'
