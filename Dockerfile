# syntax=docker/dockerfile:1
# One binary on glibc and nothing else: no shell, no package manager.
#   docker build -t crisweep --build-arg REVISION="$(git rev-parse --short HEAD)" .
#   docker run -e CRISWEEP__MODE=observe --network host -v /run/containerd:/run/containerd \
#     -v crisweep:/var/lib/crisweep crisweep
# Host network, because it listens on loopback; the socket's directory and not the socket, because a
# restarted runtime makes a new one. For images by the disk's use, lists over the limit, and logs, which
# are root's own, it must see more of the host:
#   --user 0 -v /var/log/pods:/var/log/pods -v /var/log/containers:/var/log/containers
#   -v /var/lib/containerd:/var/lib/containerd:ro
# deploy/image/build.sh makes the same image with buildah, of the last stage and a program that is built.
FROM rust:1.95-bookworm AS build
WORKDIR /src
ARG REVISION=unknown
COPY . .
# The cache mounts keep what was built between two builds; the binary is copied out of them. The paths are those of
# deploy/reproducible.sh. Packed relocations need glibc 2.36 or later, which the image has.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    CRISWEEP_REVISION="$REVISION" \
    RUSTFLAGS="--remap-path-prefix=/usr/local/cargo=/cargo -C link-arg=-Wl,-z,pack-relative-relocs" \
    CFLAGS=-ffile-prefix-map=/usr/local/cargo=/cargo cargo build --profile dist --locked \
    && apt-get -qq update && deploy/image/rootfs.sh target/dist/crisweep /out/root \
    && mv /out/root/var/lib/crisweep /out/state

FROM scratch
COPY --from=build /out/root/ /
# Not root, but its group: the sockets of containerd and CRI-O are root:root 0660. No capability is needed.
COPY --from=build --chown=65532:0 --chmod=0700 /out/state /var/lib/crisweep
ARG REVISION=unknown
LABEL org.opencontainers.image.title="crisweep" \
      org.opencontainers.image.description="Keeps Kubernetes nodes from drowning in what containers leave behind" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/crisweep/crisweep" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION"
ENV PATH=/usr/local/bin MALLOC_ARENA_MAX=1
VOLUME /var/lib/crisweep
USER 65532:0
EXPOSE 20950
# There is no shell. Settings of web.listen must be environment variables: flags of the service are not known here.
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s CMD ["/usr/local/bin/crisweep", "check", "--self"]
ENTRYPOINT ["/usr/local/bin/crisweep"]
