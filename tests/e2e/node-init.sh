#!/bin/sh
# The first process of a test node: node-init.sh DIR [tmpfs MIB | ext4 FILE]. containerd's root is then
# on a tmpfs of that size, or on a disk of its own that FILE is the medium of. The process has namespaces of its own for processes,
# mounts and the network; when it ends, the kernel ends and unmounts all that is in them: containerd,
# its shims, every pod. It ends when its standard input does.
set -eu
dir=$1
kind=${2:-}
medium=${3:-}

ip link set lo up
# Places that containerd, its shims and the CNI library have no setting for.
for fixed in /run/containerd /var/lib/cni; do
  mkdir -p "$fixed"
  mount -t tmpfs tmpfs "$fixed"
done

if [ -n "$kind" ]; then
  mkdir -p "$dir/root"
fi
case $kind in
  tmpfs) mount -t tmpfs -o "size=${medium}m" tmpfs "$dir/root" ;;
  ext4)
    mkfs.ext4 -q -F "$medium"
    # The loop device goes with the mount.
    mount -o loop "$medium" "$dir/root"
    device=$(findmnt -no MAJ:MIN "$dir/root" | tr -d ' ')
    ;;
esac

# Reads and writes per second that the disk grants, each; 0: all. Set at the root of version 1's
# hierarchy, which is where the journal's writes and the write-back count.
throttle() {
  for direction in read write; do
    echo "$device $1" >"/sys/fs/cgroup/blkio/blkio.throttle.${direction}_iops_device"
  done
}

start() {
  containerd --config "$dir/containerd.toml" &
  containerd=$!
}

start
while read -r word value; do
  case $word in
    stop)
      kill "$containerd"
      wait "$containerd" || true
      ;;
    start) start ;;
    throttle) throttle "$value" ;;
  esac
done
# The device outlives this, and its limits with it.
if [ -n "${device:-}" ]; then
  throttle 0
fi
