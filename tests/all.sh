#!/usr/bin/env bash
# `make test`: each part is a target of the Makefile. Most tests wait, so parts run beside each other: the
# installation beside the build; then all tests, the other parts that need the program, and the lints or the benches
# with what is left of the processors. Prints what a part has printed when it ends, and at last how long each took.
# The first failure ends all.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# Each part on its own, also under `make -j`.
unset MAKEFLAGS MFLAGS
# A process group for each job.
set -m
# Where nobody has built by hand, what would make a next build quicker is not written: a tenth less work. Nor are line
# numbers for backtraces, a tenth of what crisweep's own crates take: a panic names its line without them.
is_fresh=false
if ! compgen -G "${CARGO_TARGET_DIR:-target}/debug/incremental/*" >/dev/null; then
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
  is_fresh=true
fi

work=$(mktemp -d)
jobs=()
# Ends the jobs that still run, and what they started.
finish() {
  local job
  for job in $(jobs -rp); do kill -TERM -- "-$job" 2>/dev/null || true; done
  { wait; } 2>/dev/null
  rm -rf -- "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

one_after_another() {
  local part began result
  for part in "$@"; do
    began=$SECONDS result=0
    echo "== make $part begins"
    make --no-print-directory "$part" >"$work/$part" 2>&1 </dev/null || result=$?
    {
      flock 9
      echo "== make $part ends"
      cat -- "$work/$part"
      echo "$part: $((SECONDS - began)) s" >>"$work/times"
      ((result == 0)) || echo "make $part failed"
    } 9>"$work/lock"
    ((result == 0)) || exit "$result"
  done
}

beside() {
  "$@" &
  jobs+=($!)
}

# Until all jobs have ended; fails with the first that does.
wait_for_all() {
  for _ in "${jobs[@]}"; do wait -n || exit; done
  jobs=()
}

beside one_after_another setup
lints=check
if $is_fresh; then
  # Clippy builds crisweep's crates itself: beside the build it would read all dependencies once more.
  export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
  lints=build-benches
fi
beside one_after_another build
wait_for_all
beside one_after_another unit-and-e2e
beside one_after_another rules manifests package
beside one_after_another api docs page
# Last: it holds cargo's lock on target, which nextest needs only when it begins.
beside one_after_another format $lints doc
renice -n 10 -g "${jobs[-1]}" >/dev/null
wait_for_all
cat -- "$work/times"
echo "all: $SECONDS s"
