#!/usr/bin/env bash
# Makes an archive of images that share nothing: big-images.sh ARCHIVE BYTES TAG...
#
# Every image has one layer of its own: a static busybox, and this many unique bytes.
set -euo pipefail

archive=$1
bytes=$2
shift 2
work=$(mktemp -d "${archive}.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/rootfs/bin" "$work/rootfs/tmp" "$work/image"
cp "$(command -v busybox)" "$work/rootfs/bin/busybox"
for applet in sh sleep true; do ln -s busybox "$work/rootfs/bin/$applet"; done
pack=(tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner)
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac

manifest=""
number=0
for tag in "$@"; do
  head -c "$bytes" /dev/urandom >"$work/rootfs/data"
  layer="layer-$number.tar"
  "${pack[@]}" -C "$work/rootfs" -cf "$work/image/$layer" bin tmp data
  sum=$(sha256sum "$work/image/$layer" | cut -d' ' -f1)
  config="$work/image/config.json"
  printf '{"architecture":"%s","os":"linux","created":"2024-01-01T00:00:00Z","config":{"Env":["PATH=/bin"],"Entrypoint":["/bin/sleep","2147483647"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$arch" "$sum" >"$config"
  name=$(sha256sum "$config" | cut -d' ' -f1).json
  mv "$config" "$work/image/$name"
  manifest+="${manifest:+,}$(printf '{"Config":"%s","RepoTags":["%s"],"Layers":["%s"]}' "$name" "$tag" "$layer")"
  number=$((number + 1))
done
printf '[%s]' "$manifest" >"$work/image/manifest.json"
"${pack[@]}" -C "$work/image" -cf "$archive" .
