#!/usr/bin/env bash
# Installs what deploy/debian/check.sh needs, and nothing that is already there: cargo-deb, lintian, debootstrap.
set -euo pipefail

if ! command -v cargo-deb >/dev/null; then
  echo "the Debian package: installing cargo-deb"
  cargo install --locked --quiet cargo-deb
fi
export PATH="$PATH:/usr/sbin:/sbin"
missing=()
for program in lintian debootstrap; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  if [[ $(id -u) -ne 0 ]]; then
    echo "the Debian package: root is needed to install: ${missing[*]}" >&2
    exit 1
  fi
  echo "the Debian package: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi
