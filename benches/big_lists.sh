#!/usr/bin/env bash
# Measures, on a real containerd, what single questions cost and how long a look takes while the list of
# containers is over the limit: 3,000 that were made and not started, 300 that exited.
#
#   sudo benches/big_lists.sh        5 minutes, and the build
#
# Needs what tests/e2e/setup.sh installs. The same on a simulated runtime, with more of them and with the calls
# counted: cargo bench --bench big_lists.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo nextest run --locked --cargo-profile release --features e2e --test e2e \
  --ignore-default-filter --no-capture -E 'test(=big_lists::measure::looks_at_lists_over_the_limit)'
