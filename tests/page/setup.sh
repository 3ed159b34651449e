#!/usr/bin/env bash
# Installs what the page's tests need: Chromium and node from Debian, and into target/page what package-lock.json names.
# Run as root; running it again does nothing.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
if ((${#missing[@]})); then
  echo "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
place=../../target/page
if ! cmp -s package-lock.json "$place/installed.json"; then
  mkdir -p "$place"
  cp package.json package-lock.json "$place"
  npm ci --prefix "$place" --no-audit --no-fund --silent
  cp package-lock.json "$place/installed.json"
fi
