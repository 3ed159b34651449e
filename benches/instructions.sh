#!/usr/bin/env bash
# Counts the instructions of reading a list, planning, checking and writing the page, with callgrind.
#
#   benches/instructions.sh            beside the run before
#   benches/instructions.sh COMMIT     beside an earlier commit: 8 minutes, and two builds
#
# Needs valgrind (apt install valgrind). Builds gungraun-runner, of gungraun's version, into target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
version=$(sed -n '/^name = "gungraun"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
export GUNGRAUN_RUNNER=$here/target/tools/gungraun-$version/bin/gungraun-runner
export GUNGRAUN_HOME=$here/target/gungraun CARGO_TARGET_DIR=$here/target

if [[ ! -x $GUNGRAUN_RUNNER ]]; then
  cargo install --quiet --locked --version "$version" --root "target/tools/gungraun-$version" gungraun-runner
fi
if [[ $# -eq 0 ]]; then
  exec cargo bench --locked --bench instructions
fi
base=$(git rev-parse --verify "$1^{commit}")
if ! git cat-file -e "$base:benches/instructions/main.rs" 2>/dev/null; then
  echo "benches/instructions.sh: $1 has no benches/instructions" >&2
  exit 1
fi
copy=$(mktemp -d)
trap 'git worktree remove --force "$copy/base"; rm -rf "$copy"' EXIT
git worktree add --quiet --detach "$copy/base" "$base"
(cd "$copy/base" && cargo bench --locked --bench instructions -- --save-baseline=base >/dev/null)
cargo bench --locked --bench instructions -- --baseline=base
