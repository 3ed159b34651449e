#!/usr/bin/env bash
# Builds the program for shipping twice, in two directories of different names, and compares the bytes: 4 minutes for
# each build on 2 cores. Succeeds if they are equal, and prints the checksum.
#   deploy/reproducible.sh [COMMIT]      default: HEAD
# The same commit, toolchain and target give the same bytes wherever the sources and cargo's registry lie.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

commit=$(git rev-parse "${1:-HEAD}")
registry=${CARGO_HOME:-$HOME/.cargo}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
SOURCE_DATE_EPOCH=$(git show --no-patch --format=%ct "$commit")
CRISWEEP_REVISION=$(git rev-parse --short=12 "$commit")
export SOURCE_DATE_EPOCH CRISWEEP_REVISION

build() {
  local source=$1
  mkdir -p "$source"
  git archive "$commit" | tar -x -C "$source"
  # The paths in panic messages, of Rust and of ring's C.
  local flags="--remap-path-prefix=$source=/src --remap-path-prefix=$registry=/cargo"
  # As the Dockerfile has it.
  flags+=" -C link-arg=-Wl,-z,pack-relative-relocs"
  local c_flags="-ffile-prefix-map=$source=/src -ffile-prefix-map=$registry=/cargo"
  (cd "$source" && env RUSTFLAGS="$flags" CFLAGS="$c_flags" CARGO_TARGET_DIR="$source/target" CARGO_INCREMENTAL=0 \
    cargo build --profile dist --locked --quiet)
}

# Two lengths and depths: a path of the same length could hide a difference.
one=$work/a two=$work/another/directory/b
build "$one"
mv "$one/target/dist/crisweep" "$work/first"
rm -rf -- "$one"
build "$two"
mv "$two/target/dist/crisweep" "$work/second"
sha256sum "$work/first" "$work/second"
if grep -qaF -e "$work" -e "$registry" "$work/first"; then
  echo "the program names a directory of this machine" >&2
  exit 1
fi
cmp -- "$work/first" "$work/second"
echo "equal: $(stat -c %s "$work/first") bytes of $CRISWEEP_REVISION, $(rustc --version)"
