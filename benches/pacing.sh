#!/usr/bin/env bash
# Measures, on a real containerd, what a pass costs a pod that starts meanwhile on a disk of 300 IOPS,
# how long a pass takes on a fast one beside a fixed number of removals at a time and beside the kubelet's way, and
# how long healthy sandboxes take beside such whose network teardown takes 5 s or fails. The containerd is the first
# in PATH.
#
#   sudo benches/pacing.sh [throttled | pass | clear | network | incident]...
#
# All but the incident without arguments: 25 minutes, and the build. The incident, 2,250 containers of 1,500 pods to
# clear, takes 15 minutes more.
#
# Needs what tests/e2e/setup.sh installs, and version 1 of the control groups' blkio. The disk is an
# ext4 on a loop device; its medium is a file in CRISWEEP_PACING_MEDIUM (/dev/shm). Node, mounts, limits
# and files go with the measurement (tests/e2e/node-init.sh). CRISWEEP names another build of crisweep to measure.
set -euo pipefail
cd "$(dirname "$0")/.."

filter() {
  case $1 in
    throttled) echo 'test(=measure::pacing::pod_starts_beside_a_pass_on_a_throttled_disk)' ;;
    network) echo 'test(=measure::network::healthy_sandboxes_beside_a_broken_network)' ;;
    clear) echo 'test(=measure::pacing::clearing_beside_the_kubelets_way)' ;;
    incident) echo 'test(=measure::pacing::the_incident_beside_the_kubelets_way)' ;;
    pass) echo 'test(=measure::pacing::a_pass_on_a_fast_disk)' ;;
    *)
      echo "usage: benches/pacing.sh [throttled | pass | clear | network | incident]..." >&2
      exit 2
      ;;
  esac
}

if [[ $# -eq 0 ]]; then
  set -- throttled pass clear network
fi
if [[ ! -w /sys/fs/cgroup/blkio/blkio.throttle.write_iops_device ]]; then
  echo "benches/pacing.sh: no blkio of version 1 here, or not root: the disk cannot be throttled" >&2
  exit 1
fi
CRISWEEP_PACING_MEDIUM=$(mktemp -d "${CRISWEEP_PACING_MEDIUM:-/dev/shm}/crisweep-pacing-XXXXXX")
export CRISWEEP_PACING_MEDIUM
trap 'rm -rf "$CRISWEEP_PACING_MEDIUM"' EXIT
for what in "$@"; do
  only=$(filter "$what")
  rm -f "$CRISWEEP_PACING_MEDIUM/disk"
  cargo nextest run --locked --cargo-profile release --features e2e --test e2e \
    --ignore-default-filter --no-capture -E "$only"
done
