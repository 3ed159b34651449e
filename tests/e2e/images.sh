#!/usr/bin/env bash
# Makes an image archive without any registry: images.sh ARCHIVE TAG...
#
# Every image is one layer with a static busybox and sleeps when it is run. They differ in their
# configuration, so each has an id of its own, as a pause image and a workload have.
set -euo pipefail

archive=$1
shift
work=$(mktemp -d "${archive}.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/rootfs/bin" "$work/rootfs/tmp" "$work/image"
cp "$(command -v busybox)" "$work/rootfs/bin/busybox"
for applet in sh sleep true; do ln -s busybox "$work/rootfs/bin/$applet"; done
pack=(tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner)
"${pack[@]}" -C "$work/rootfs" -cf "$work/image/layer.tar" bin tmp
layer=$(sha256sum "$work/image/layer.tar" | cut -d' ' -f1)
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac

manifest=""
for tag in "$@"; do
  config="$work/image/config.json"
  printf '{"architecture":"%s","os":"linux","created":"2024-01-01T00:00:00Z","config":{"Labels":{"tag":"%s"},"Env":["PATH=/bin"],"Entrypoint":["/bin/sleep","2147483647"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$arch" "$tag" "$layer" >"$config"
  name=$(sha256sum "$config" | cut -d' ' -f1).json
  mv "$config" "$work/image/$name"
  manifest+="${manifest:+,}$(printf '{"Config":"%s","RepoTags":["%s"],"Layers":["layer.tar"]}' "$name" "$tag")"
done
printf '[%s]' "$manifest" >"$work/image/manifest.json"
"${pack[@]}" -C "$work/image" -cf "$archive" .
