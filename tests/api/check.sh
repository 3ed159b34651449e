#!/usr/bin/env bash
# Tries every operation of docs/openapi.yaml on the demo (tests/with-demo.sh), with valid and broken requests.
# SEED repeats a run.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
schemathesis=$(./setup.sh)
seed=${SEED:-$RANDOM}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
config=$PWD/schemathesis.toml document=$PWD/../../docs/openapi.yaml
cd "$scratch"
if ! timeout --foreground 1500 "$schemathesis" --config-file "$config" run "$document" --seed "$seed" >"$scratch/report" 2>&1; then
  cat "$scratch/report" >&2
  echo "tests/api/check.sh: SEED=$seed make api repeats this" >&2
  exit 1
fi
tail -3 "$scratch/report"
