#!/usr/bin/env bash
# Makes the image of the Dockerfile without Docker: an OCI archive for `ctr images import`, skopeo or podman.
#   deploy/image/build.sh PROGRAM ARCHIVE [NAME]      NAME: else crisweep:VERSION
# The same program, packages and SOURCE_DATE_EPOCH (else the last commit's time) give the same bytes. CRISWEEP_REVISION
# names the revision; target/image keeps the Debian packages.
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
top=$(realpath -- "$here/../..")
export LC_ALL=C

program=$1
archive=$(realpath -- "$(dirname -- "$2")")/$(basename -- "$2")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -1)
name=${3:-crisweep:$version}
revision=${CRISWEEP_REVISION:-$(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)}
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date -ud "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
  *X86-64) architecture=amd64 ;;
  AArch64) architecture=arm64 ;;
  *) echo "build.sh: the program's architecture is not supported" >&2 && exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$here/rootfs.sh" "$program" "$work/root" "$top/target/image/packages"

pack() { tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu "$@"; }
# The state directory alone belongs to the service's user.
(cd "$work/root" && pack --no-recursion -cf "$work/layer.tar" $(find . -mindepth 1 -not -path ./var/lib/crisweep | sort | cut -c3-))
(cd "$work/root" && pack --owner=65532 --no-recursion -rf "$work/layer.tar" var/lib/crisweep)

blobs=$work/image/blobs/sha256
mkdir -p "$blobs"
digest() { sha256sum -- "$1" | cut -d' ' -f1; }
# Moves a file among the blobs and prints its descriptor's digest and size.
blob() {
  local sum size
  sum=$(digest "$1")
  size=$(stat -c %s -- "$1")
  mv -- "$1" "$blobs/$sum"
  printf '"digest":"sha256:%s","size":%s' "$sum" "$size"
}
diff=$(digest "$work/layer.tar")
gzip -9n "$work/layer.tar"
layer=$(blob "$work/layer.tar.gz")

label() { printf '"org.opencontainers.image.%s":"%s"' "$1" "$2"; }
labels=$(label created "$created"),$(label description "Keeps Kubernetes nodes from drowning in what containers leave behind")
labels+=,$(label licenses Apache-2.0),$(label revision "$revision"),$(label source https://github.com/crisweep/crisweep)
labels+=,$(label title crisweep),$(label version "$version")
printf '{"created":"%s","architecture":"%s","os":"linux","config":{"User":"65532:0","ExposedPorts":{"20950/tcp":{}},"Env":["PATH=/usr/local/bin","MALLOC_ARENA_MAX=1"],"Entrypoint":["/usr/local/bin/crisweep"],"Volumes":{"/var/lib/crisweep":{}},"WorkingDir":"/","Labels":{%s}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"deploy/image/build.sh"}]}' \
  "$created" "$architecture" "$labels" "$diff" "$created" >"$work/config.json"
config=$(blob "$work/config.json")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",%s}],"annotations":{%s}}' \
  "$config" "$layer" "$labels" >"$work/manifest.json"
manifest=$(blob "$work/manifest.json")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",%s,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
  "$manifest" "$architecture" "$name" "${name##*:}" >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
(cd "$work/image" && pack -cf "$archive" oci-layout index.json blobs)
sed -n 's/^{"digest":"\([^"]*\)".*/\1/p' <<<"{$manifest"
