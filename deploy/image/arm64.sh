#!/usr/bin/env bash
# Builds the program for arm64 on an amd64 machine, makes its image, and lets the image's program clean a simulated
# node under qemu.
#   deploy/image/arm64.sh [PROFILE]      PROFILE: else dev, without debug information
# Needs Debian 12, cargo, a C compiler, curl and buildah. What is for arm64 (Rust with its standard library, a C
# compiler, glibc, qemu) comes from Debian into target/arm64: nothing is installed, and nothing needs root but buildah.
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
cd -- "$here/../.."

profile=${1:-dev}
target=aarch64-unknown-linux-gnu
keep=$PWD/target/arm64
tools=$keep/tools
wanted=(rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
# Of what those need: what not every Debian has. Their names hold versions, which change.
missing='rust-web|^rustc|arm64-cross|aarch64|^qemu-user|^lib(llvm|z3|xml2|icu|edit|bsd|md0|jansson|isl|mpfr|mpc|gmp)'

fail() {
  echo "deploy/image/arm64.sh: $*" >&2
  exit 1
}

# An apt of two architectures beside that of the machine.
set_up_apt() {
  local apt=$keep/apt suite
  mkdir -p "$apt"/{lists,cache/archives}/partial
  : >"$apt/status"
  for suite in debian=bookworm debian=bookworm-updates debian-security=bookworm-security; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/${suite/=/ } main"
  done >"$apt/sources.list"
  cat >"$apt/conf" <<CONF
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
  export APT_CONFIG=$apt/conf
  apt-get -qq update
}

unpack_tools() {
  [[ -e $tools/complete ]] && return
  rm -rf -- "$tools" "$keep/packages"
  mkdir -p "$tools" "$keep/packages"
  local names
  mapfile -t names < <(apt-get -qq --simulate --no-install-recommends install "${wanted[@]}" |
    sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -E "$missing" | grep -vE '^(lib(std-rust-web-[0-9]|llvm|z3|xml2|icu|edit|bsd|md0)).*:arm64$')
  (cd "$keep/packages" && apt-get -qq download "${names[@]}")
  for package in "$keep"/packages/*.deb; do dpkg -x "$package" "$tools"; done
  rm -rf -- "$keep/packages"
  touch "$tools/complete"
}

build() {
  local gcc=$tools/usr/bin/aarch64-linux-gnu-gcc
  env RUSTC="$tools/usr/bin/rustc" LD_LIBRARY_PATH="$tools/usr/lib/x86_64-linux-gnu" CARGO_INCREMENTAL=0 \
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$keep/build" \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$gcc" \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=--sysroot=$tools" \
    CC_aarch64_unknown_linux_gnu="$gcc" AR_aarch64_unknown_linux_gnu="$tools/usr/bin/aarch64-linux-gnu-ar" \
    CFLAGS_aarch64_unknown_linux_gnu="--sysroot=$tools" \
    cargo build --locked --profile "$profile" --target "$target"
}

make_image() {
  env LD_LIBRARY_PATH="$tools/usr/lib/x86_64-linux-gnu" STRIP="$tools/usr/bin/aarch64-linux-gnu-strip" \
    "$here/build.sh" "$keep/build/$target/${profile/dev/debug}/crisweep" "docker-archive:$keep/crisweep.tar"
}


check_image() {
  local root=$work/root run left=600 pass
  # The program of the image, with the image's own loader and libraries.
  run=("$tools/usr/bin/qemu-aarch64-static" -L "$root" "$root/usr/local/bin/crisweep")
  mkdir "$root"
  tar -xOf "$keep/crisweep.tar" --wildcards '*[0-9a-f].tar' | tar -C "$root" -x --no-same-owner
  echo "arm64: $("${run[@]}" --version)"
  export CRISWEEP__WEB__LISTEN=127.0.0.1:0,unix:$work/http.sock
  ! "${run[@]}" check --self >/dev/null 2>&1 || fail "the health check is well without a service"
  "${run[@]}" demo >"$work/log" 2>&1 &
  demo=$!
  until "${run[@]}" check --self >/dev/null 2>&1; do
    kill -0 "$demo" 2>/dev/null && ((left-- > 0)) || fail "the demo is not ready: $(tail -20 "$work/log")"
    sleep 0.2
  done
  echo "arm64: $("${run[@]}" check --self)"
  pass=$(curl --silent --fail-with-body --max-time 600 --unix-socket "$work/http.sock" --request POST \
    'http://localhost/gc?wait=590s&target=containers&max_removals=150') || fail "$pass"
  grep -qE '"removed": ?150\b' <<<"$pass" || fail "not 150 were removed: $pass"
  echo "arm64: a pass on a simulated node removed 150 containers, as it was asked"
  kill "$demo"
  wait "$demo" || fail "the demo ended with $?: $(tail -20 "$work/log")"
  demo=
}

main() {
  [[ $(dpkg --print-architecture) == amd64 ]] || fail "this machine is not amd64; build natively"
  mkdir -p "$keep"
  work=$(mktemp -d)
  demo=
  trap '[[ -z $demo ]] || kill "$demo" 2>/dev/null; rm -rf -- "$work"' EXIT
  set_up_apt
  unpack_tools
  build
  make_image
  check_image
}

main
