#!/usr/bin/env bash
# Makes the Debian package, lints it, and installs, upgrades, downgrades, removes and purges it in a Debian of its own.
#   deploy/debian/check.sh [PROGRAM]      PROGRAM: else the one of the tests, target/debug/crisweep
# Needs root, cargo-deb, lintian and debootstrap. Debian's base system is fetched once and kept in target/debian.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

export PATH="$PATH:/usr/sbin:/sbin"
program=${1:-target/debug/crisweep}
base=target/debian/base.tar
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
root=$work/root
name=crisweep
unit=usr/lib/systemd/system/$name.service
wanted=etc/systemd/system/multi-user.target.wants/$name.service

fail() {
  echo "deploy/debian/check.sh: $*" >&2
  exit 1
}

inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# Without questions: the operator's configuration stays, as the default is.
install() {
  cp -- "$1" "$root/package.deb"
  inside dpkg --force-confdef --force-confold --install /package.deb >"$work/log" 2>&1 || fail "$(cat "$work/log")"
  rm -- "$root/package.deb"
}

remove() {
  inside dpkg "$1" $name >"$work/log" 2>&1 || fail "$(cat "$work/log")"
}

# Everything but what dpkg and systemd keep about every package that was ever there, and what a boot empties.
files() {
  (cd "$root" && find . -xdev -not -path './var/lib/dpkg/*' -not -path './var/log/*' -not -path './proc/*' -not -path './run/*' | sort)
}

build() {
  deploy/debian/package.sh "$program" "$1" --fast >/dev/null
  cp "target/package/${name}_$1_$(dpkg --print-architecture).deb" "$work/$1.deb"
}

fetch_base() {
  [[ -e $base ]] && return
  mkdir -p target/debian
  local made=$work/base
  debootstrap --variant=minbase --include=procps,systemd bookworm "$made" http://deb.debian.org/debian >"$work/log" 2>&1 ||
    fail "$(tail -20 "$work/log")"
  rm -rf "$made"/var/cache/apt/archives/*.deb "$made"/var/lib/apt/lists/*
  tar -C "$made" -cf "$base.new" .
  mv -- "$base.new" "$base"
}

check_first_installation() {
  [[ $(inside id -gn $name) == root ]] || fail "the user's group is not root"
  [[ $(inside id -u $name) -ne 0 ]] || fail "the user is root"
  [[ -L $root/$wanted ]] || fail "the service is not enabled"
  grep -q '^ExecStart=/usr/bin/crisweep ' "$root/$unit" || fail "the unit starts another program"
  local effective
  effective=$(inside crisweep config /etc/crisweep/crisweep.yaml) || fail "the configuration is refused"
  grep -q '^mode: observe$' <<<"$effective" || fail "a fresh installation does not only observe"
  inside systemd-analyze verify --man=no "/$unit" || fail "systemd refuses the unit"
}

main() {
  build 0.1.0-1
  build 0.2.0-1
  lintian --allow-root --fail-on error,warning "$work/0.1.0-1.deb" || fail "lintian found faults"
  fetch_base
  mkdir "$root"
  tar -C "$root" -xf "$base"
  # No service may start here, nor is systemd running.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  files >"$work/before"

  install "$work/0.1.0-1.deb"
  check_first_installation

  # What the operator and the service leave.
  sed -i 's/^mode: observe$/mode: enforce/' "$root/etc/crisweep/crisweep.yaml"
  mkdir -m 700 "$root/var/lib/crisweep"
  echo state >"$root/var/lib/crisweep/journal"
  inside systemctl disable $name.service >/dev/null 2>&1
  for version in 0.2.0-1 0.1.0-1; do
    install "$work/$version.deb"
    grep -q '^mode: enforce$' "$root/etc/crisweep/crisweep.yaml" || fail "$version: the configuration is lost"
    [[ $(cat "$root/var/lib/crisweep/journal") == state ]] || fail "$version: the state is lost"
    [[ ! -e $root/$wanted ]] || fail "$version: a service that was disabled is enabled"
  done

  remove --remove
  [[ ! -e $root/usr/bin/crisweep && ! -e $root/$unit ]] || fail "a removal leaves the program"
  [[ -e $root/var/lib/crisweep/journal ]] || fail "a removal takes the state"
  grep -q '^mode: enforce$' "$root/etc/crisweep/crisweep.yaml" || fail "a removal takes the configuration"
  install "$work/0.2.0-1.deb"
  [[ -e $root/$unit ]] || fail "a second installation has no unit"
  [[ ! -L $root/etc/systemd/system/$name.service ]] || fail "a second installation is masked"

  remove --purge
  files >"$work/after"
  # The user stays, and with it the backups of the files of users.
  local left
  left=$(comm -13 "$work/before" "$work/after" | grep -vE '^\./etc/(passwd|shadow|group|gshadow)-$|^\./etc/\.pwd\.lock$' || true)
  [[ -z $left ]] || fail "a purge leaves: $left"
  [[ -z $(comm -23 "$work/before" "$work/after") ]] || fail "a purge takes: $(comm -23 "$work/before" "$work/after")"
  echo "the Debian package: built, linted, installed, upgraded, downgraded, removed, purged"
}

main
