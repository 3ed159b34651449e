#!/usr/bin/env bash
# Installs what `make test` needs beside Rust itself, and nothing that is already there.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

if ! command -v cargo >/dev/null; then
  echo "Rust is needed: https://rustup.rs" >&2
  exit 1
fi
if ! command -v cargo-nextest >/dev/null; then
  echo "installing cargo-nextest"
  cargo install --locked --quiet cargo-nextest
fi
e2e/setup.sh
page/setup.sh
e2e/newer.sh
../deploy/tools.sh >/dev/null
api/setup.sh >/dev/null
../deploy/debian/setup.sh
