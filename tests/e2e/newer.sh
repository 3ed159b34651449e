#!/usr/bin/env bash
# Unpacks programs of newer Debian releases into target/tools/PACKAGE/SUITE, beside those that are installed, which stay
# as they are. With its own lists of packages, checked against Debian's keys; needs no root. Does nothing where they are
# there already.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

# The tests name them too (tests/e2e/alertmanagers.rs, tests/e2e/big_lists.rs).
wanted=(prometheus-alertmanager/trixie prometheus-alertmanager/forky containerd/trixie)
mirror=http://deb.debian.org/debian
keys=/usr/share/keyrings/debian-archive-keyring.gpg
tools=$PWD/target/tools

# apt with the suite in a directory of its own, and nothing of what is installed.
apt_of() {
  local dir=$1 command=$2
  shift 2
  "$command" -qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Dir::State::status=/dev/null \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
}

unpack() {
  local package=${1%/*} suite=${1#*/} dir=$2 target=$tools/$1
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/package"
  echo "deb [signed-by=$keys] $mirror $suite main" >"$dir/sources.list"
  if ! apt_of "$dir" apt-get update -o APT::Update::Error-Mode=any; then
    echo "tests/e2e/newer.sh: $mirror has no list of packages for \"$suite\": no network, or the suite has" \
      "moved to the archive; then name another one here and in the tests" >&2
    return 1
  fi
  rm -rf "$target"
  mkdir -p "$target"
  if [[ -z $(apt_of "$dir" apt-cache show --no-all-versions "$package" 2>/dev/null) ]]; then
    echo "Debian's \"$suite\" has no package $package: its tests are left out" | tee "$target/unavailable" >&2
    return
  fi
  (cd "$dir/package" && apt_of "$dir" apt-get download "$package")
  dpkg -x "$dir/package"/*.deb "$dir/unpacked"
  mv "$dir/unpacked/usr/bin" "$target/bin"
}

# All at once: most of it is waiting for the mirror.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
jobs=()
for one in "${wanted[@]}"; do
  [[ -d $tools/$one/bin || -e $tools/$one/unavailable ]] && continue
  echo "end-to-end tests: unpacking ${one%/*} of Debian ${one#*/}"
  unpack "$one" "$work/$one" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job"
done
