#!/usr/bin/env bash
# Makes the image of the Dockerfile of a program that is built, with buildah and without Docker or a registry: the last
# stage is the Dockerfile's own, the first one's result comes from rootfs.sh.
#   deploy/image/build.sh PROGRAM docker-archive:FILE|oci-archive:FILE [NAME]      NAME: else crisweep:VERSION
# Docker's format has the health check. OCI's has none, but two runs give equal bytes for the same program, packages and
# SOURCE_DATE_EPOCH (else the last commit's time). CRISWEEP_REVISION names the revision; target/image keeps the Debian
# packages. Needs what rootfs.sh needs, and buildah, which needs root or subordinate ids (/etc/subuid).
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
top=$(realpath -- "$here/../..")

program=$1
archive=$2
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -1)
name=${3:-crisweep:$version}
revision=${CRISWEEP_REVISION:-$(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)}
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 0)}
case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
  *X86-64) architecture=amd64 ;;
  AArch64) architecture=arm64 ;;
  *) echo "build.sh: the program's architecture is not supported" >&2 && exit 1 ;;
esac
case $archive in
  docker-archive:*) format=docker ;;
  oci-archive:*) format=oci ;;
  *) echo "build.sh: which format? docker-archive:$archive or oci-archive:$archive" >&2 && exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$here/rootfs.sh" "$program" "$work/stage/out/root" "$top/target/image/$architecture"
mv "$work/stage/out/root/var/lib/crisweep" "$work/stage/out/state"
sed -n '/^FROM scratch$/,$p' "$top/Dockerfile" >"$work/Dockerfile"
mkdir "$work/empty"
buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
"${buildah[@]}" bud --quiet --isolation chroot --format "$format" --arch "$architecture" --timestamp "$epoch" \
  --identity-label=false --build-context "build=$work/stage" --build-arg "REVISION=$revision" --tag "$name" \
  --file "$work/Dockerfile" "$work/empty"
# An archive that is there would be added to.
rm -f -- "${archive#*:}"
"${buildah[@]}" push --quiet "$name" "$archive:$name"
