#!/bin/sh
# The first process of a test node: node-init.sh DIR. It has namespaces of its own for processes,
# mounts and the network; when it ends, the kernel ends and unmounts all that is in them: containerd,
# its shims, every pod. It ends when its standard input does.
set -eu
dir=$1

ip link set lo up
# Places that containerd, its shims and the CNI library have no setting for.
for fixed in /run/containerd /var/lib/cni; do
  mkdir -p "$fixed"
  mount -t tmpfs tmpfs "$fixed"
done

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
