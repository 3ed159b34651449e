#!/usr/bin/env bash
# Installs what the end-to-end tests need from Debian, and nothing that is already there.
# Run as root; running it again does nothing. No service of these packages is started or enabled:
# the tests start their own daemons, each in a temporary directory.
set -euo pipefail

static_busybox() {
  # ldd fails on a static program, which is what is asked.
  command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1
}

# Looked for by what the tests run, not by package name: a machine with other packages of the same
# programs (Docker's containerd.io, for one) must not have them replaced.
missing_packages() {
  { command -v containerd && command -v ctr; } >/dev/null || echo containerd
  command -v runc >/dev/null || echo runc
  [[ -x /usr/lib/cni/bridge || -x /opt/cni/bin/bridge ]] || echo containernetworking-plugins
  static_busybox || echo busybox-static
  { command -v prometheus && command -v promtool; } >/dev/null || echo prometheus
  { command -v prometheus-alertmanager || command -v alertmanager; } >/dev/null || echo prometheus-alertmanager
  command -v ip >/dev/null || echo iproute2
  command -v curl >/dev/null || echo curl
  command -v jq >/dev/null || echo jq
  command -v buildah >/dev/null || echo buildah
}

# While a policy-rc.d answers 101 no package starts its service, with or without systemd.
forbid_service_starts() {
  local policy=/usr/sbin/policy-rc.d
  [[ -e $policy ]] && return
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

# A package also enables its service for the next boot; undo that for those that we brought.
disable_services() {
  command -v systemctl >/dev/null || return 0
  local package unit
  for package in "$@"; do
    while read -r unit; do
      systemctl disable --quiet "$(basename "$unit")" 2>/dev/null || true
    done < <(dpkg -L "$package" | grep -E '/systemd/system/[^/@]+\.service$' || true)
  done
}

main() {
  export PATH="$PATH:/usr/sbin:/sbin"
  local missing
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -eq 0 ]]; then
    echo "end-to-end tests: everything is installed"
    return
  fi
  if [[ $(id -u) -ne 0 ]]; then
    echo "end-to-end tests: root is needed to install: ${missing[*]}" >&2
    exit 1
  fi
  if ! command -v apt-get >/dev/null; then
    echo "end-to-end tests: no apt-get here; install by hand: ${missing[*]}" >&2
    exit 1
  fi
  echo "end-to-end tests: installing ${missing[*]}"
  forbid_service_starts
  export DEBIAN_FRONTEND=noninteractive
  local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null
  disable_services "${missing[@]}"
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -ne 0 ]]; then
    echo "end-to-end tests: still missing after the installation: ${missing[*]}" >&2
    exit 1
  fi
}

main "$@"
