#!/bin/sh
# The first process of a test node: node-init.sh DIR [MIB]. With MIB, containerd's root is on a file
# system of that size. The process has namespaces of its own for processes,
# mounts and the network; when it ends, the kernel ends and unmounts all that is in them: containerd,
# its shims, every pod. It ends when its standard input does.
set -eu
dir=$1
mib=${2:-}

ip link set lo up
# Places that containerd, its shims and the CNI library have no setting for.
for fixed in /run/containerd /var/lib/cni; do
  mkdir -p "$fixed"
  mount -t tmpfs tmpfs "$fixed"
done

if [ -n "$mib" ]; then
  mkdir -p "$dir/root"
  mount -t tmpfs -o "size=${mib}m" tmpfs "$dir/root"
fi

start() {
  containerd --config "$dir/containerd.toml" &
  containerd=$!
}

start
while read -r word; do
  case $word in
    stop)
      kill "$containerd"
      wait "$containerd" || true
      ;;
    start) start ;;
  esac
done
