#!/usr/bin/env bash
# Makes a Debian package of a program that is built, with cargo-deb and the metadata in Cargo.toml; prints its path.
#   cargo build --profile dist && deploy/debian/package.sh target/dist/crisweep
#   deploy/debian/package.sh PROGRAM [VERSION [OPTION...]]      for a test: another version; cargo-deb's options
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

program=$(realpath -- "$1")
shift
version=${1:-$(sed -n '1s/.*(\(.*\)).*/\1/p' deploy/debian/changelog)}
# What the metadata names; Cargo's own directories depend on the profile and on where the program was built.
staging=target/package
rm -rf "$staging"
mkdir -p "$staging"
strip -o "$staging/crisweep" "$program"
sed 's|/usr/local/bin/crisweep|/usr/bin/crisweep|; /^#   /d; 1s/.*/# crisweep on a node, beside its container runtime./' \
  deploy/crisweep.service >"$staging/crisweep.service"
mkdir "$staging/man"
"$staging/crisweep" man --dir "$staging/man"
gzip -9n "$staging"/man/*
"$staging/crisweep" completions bash >"$staging/crisweep.bash"
"$staging/crisweep" completions zsh >"$staging/_crisweep"
"$staging/crisweep" completions fish >"$staging/crisweep.fish"
gzip -9nc CHANGELOG.md >"$staging/changelog.gz"
for text in README.md SECURITY.md docs/configuration.md docs/operations.md; do
  gzip -9nc "$text" >"$staging/$(basename "$text").gz"
done

# Equal sources give equal bytes: every file has the date of the changelog.
SOURCE_DATE_EPOCH=$(date -ud "$(sed -n 's/^ -- .*>  //p' deploy/debian/changelog | head -1)" +%s)
export SOURCE_DATE_EPOCH
cargo deb --quiet --locked --no-build --no-strip --deb-version "$version" --output "$staging/" "${@:2}"
