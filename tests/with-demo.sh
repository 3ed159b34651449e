#!/usr/bin/env bash
# Runs a command beside `crisweep demo`, which must survive it. DEMO_URL is the demo's address, DEMO_DIR its directory
# (cri.sock, pods.json, log/). Needs target/debug/crisweep (`make build`); CRISWEEP names another one.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
export CRISWEEP=${CRISWEEP:-${CARGO_TARGET_DIR:-$root/target}/debug/crisweep}
[[ -x $CRISWEEP ]] || { echo "$0: no $CRISWEEP; run cargo build first" >&2; exit 2; }

work=$(mktemp -d)
demo=
finish() {
  # Only the demo that this script started.
  if [[ -n $demo ]]; then kill "$demo" 2>/dev/null && wait "$demo" 2>/dev/null; fi
  rm -rf "$work"
}
trap finish EXIT

TMPDIR=$work "$CRISWEEP" demo --web.listen-address 127.0.0.1:0 >"$work/stdout" 2>"$work/log" &
demo=$!
export DEMO_DIR=$work/crisweep-demo-$demo DEMO_URL=
for _ in {1..300}; do
  DEMO_URL=$(grep -om1 'http://[0-9.:]*' "$work/stdout" || true)
  if [[ -n $DEMO_URL ]] && curl -fsS -o /dev/null -m 5 "$DEMO_URL/-/ready" 2>/dev/null; then break; fi
  if ! kill -0 "$demo" 2>/dev/null; then cat "$work/log" >&2; exit 1; fi
  sleep 0.1
done

result=0
"$@" || result=$?
if ! curl -fsS -o /dev/null -m 10 "$DEMO_URL/-/healthy" || grep -n panicked "$work/log"; then
  echo "$0: the demo did not survive" >&2
  tail -20 "$work/log" >&2
  exit 1
fi
exit "$result"
