# syntax=docker/dockerfile:1
# One binary on glibc and nothing else: no shell, no package manager.
#   docker build -t crisweep .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The cache mounts keep what was built between two builds; the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked && install -D -m 0755 target/release/crisweep /out/crisweep

FROM gcr.io/distroless/cc-debian12
COPY --from=build /out/crisweep /usr/local/bin/crisweep
# Not root, but its group: the sockets of containerd and CRI-O are root:root 0660. No capability is needed.
USER 65532:0
EXPOSE 20950
ENTRYPOINT ["/usr/local/bin/crisweep"]
