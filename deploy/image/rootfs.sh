#!/usr/bin/env bash
# Makes the image's root file system: the program, and of Debian only what it needs to run. No shell, no package manager.
#   deploy/image/rootfs.sh PROGRAM DIRECTORY [PACKAGES]
# PACKAGES: where the Debian packages are kept between two runs, a directory for each architecture. Needs Debian (apt-get,
# dpkg, flock, binutils), no root; the program must be built for no newer glibc. For another architecture than this
# machine's, apt must know it and STRIP name a program that does: see arm64.sh.
set -euo pipefail

program=$(realpath -- "$1")
directory=$2
packages=${3:-$(mktemp -d)}
mkdir -p "$directory" "$packages"
directory=$(realpath -- "$directory")
packages=$(realpath -- "$packages")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
unpacked=$(mktemp -d)
trap 'rm -rf -- "$unpacked"' EXIT

case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
  *X86-64) architecture=amd64 ;;
  AArch64) architecture=arm64 ;;
  *) echo "rootfs.sh: the program's architecture is not supported" >&2 && exit 1 ;;
esac

cd -- "$packages"
# Another run may use the same directory: half a package must not be taken for a whole one.
exec 9>.lock
flock 9
for package in libc6 libgcc-s1 ca-certificates; do
  [[ $package == ca-certificates ]] && name=$package || name=$package:$architecture
  compgen -G "${package}_*.deb" >/dev/null || apt-get -qq download "$name"
  dpkg -x "${package}"_*.deb "$unpacked"
done
exec 9>&-

# The program's loader and libraries, by the names that it asks for.
loader=$(readelf --program-headers "$program" | sed -n 's/.*interpreter: \(.*\)\].*/\1/p')
mapfile -t libraries < <(readelf --dynamic "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
multiarch=$(cd "$unpacked" && echo lib/*-linux-gnu)
install -D -m 755 -- "$unpacked/$multiarch/$(basename "$loader")" "$directory$loader"
for library in "${libraries[@]}"; do
  [[ $library == "$(basename "$loader")" ]] ||
    install -D -m 644 -- "$unpacked/$multiarch/$library" "$directory/$multiarch/$library"
done

# The certificates that `update-ca-certificates` would collect.
mkdir -p "$directory/etc/ssl/certs"
(cd "$unpacked/usr/share/ca-certificates/mozilla" && LC_ALL=C && cat ./*.crt) \
  >"$directory/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0:root:/:/sbin/nologin\ncrisweep:x:65532:0:crisweep:/var/lib/crisweep:/sbin/nologin\n' \
  >"$directory/etc/passwd"
printf 'root:x:0:\n' >"$directory/etc/group"
printf 'hosts: files dns\n' >"$directory/etc/nsswitch.conf"

for package in libc6 libgcc-s1 ca-certificates; do
  # libgcc-s1's directory is a link to gcc's base package, which has the text.
  [[ -e $unpacked/usr/share/doc/$package/copyright ]] &&
    install -D -m 644 -- "$unpacked/usr/share/doc/$package/copyright" "$directory/usr/share/doc/$package/copyright"
done
install -D -m 644 -- "$here/../../LICENSE" "$directory/usr/share/doc/crisweep/copyright"
mkdir -p "$directory/usr/local/bin" "$directory/var/lib/crisweep"
"${STRIP:-strip}" -o "$directory/usr/local/bin/crisweep" "$program"
chmod 755 "$directory/usr/local/bin/crisweep"
find "$directory" -type d -exec chmod 755 {} +
chmod 644 "$directory"/etc/{passwd,group,nsswitch.conf} "$directory/etc/ssl/certs/ca-certificates.crt"
chmod 700 "$directory/var/lib/crisweep"
