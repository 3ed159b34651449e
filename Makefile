# The two commands of the README are `cargo run --release -- demo` and `make test`.

SHELL := /bin/bash

.PHONY: test check format build build-benches unit e2e kubelet cluster unit-and-e2e doc rules manifests api docs package page bench fuzz soak stack demo recording pictures screenshots dashboards setup deny sbom deb arm64

# Everything that must hold before something lands, and how long each part took. As root on Debian 12: installs what
# is missing.
test:
	@tests/all.sh

# What the tests need beside Rust: cargo-nextest, from Debian containerd, runc, the CNI plugins, busybox, buildah,
# Prometheus, Alertmanager, Chromium, node and jq, and into target/tools helm, kubectl, the schemas of Kubernetes,
# schemathesis and two newer Alertmanagers.
setup:
	tests/setup.sh

check: format
	cargo clippy --locked --all-targets --features e2e -- -D warnings

format:
	cargo fmt --check

# The program and all tests, with one set of features, so that nothing is built twice.
build:
	cargo test --locked --features e2e --no-run

build-benches:
	cargo test --locked --features e2e --no-run --benches

# Needs neither root nor daemons.
unit:
	cargo nextest run --locked --features e2e -E 'not binary(e2e)'
	@$(MAKE) --no-print-directory doc

# Needs root.
e2e:
	cargo nextest run --locked --features e2e -E 'binary(e2e)'

# Beside a real kubelet, made from Debian's source. Needs root.
kubelet:
	tests/e2e/kubelet.sh
	cargo nextest run --locked --features e2e --test e2e --ignore-default-filter -E 'test(/^kubelet::/)'

# In a real cluster of one node, made from Debian's source. Needs root. One test at a time: each takes three threads.
cluster:
	tests/e2e/kubelet.sh cluster
	cargo nextest run --locked --features e2e --test e2e --ignore-default-filter -j 3 -E 'test(/^cluster::/)'

# Both, of which nextest runs as many beside each other as .config/nextest.toml says. Needs root. Their files lie in
# memory where there is room: ext4 passes over each file that was deleted in the last minutes before it makes one, and
# beside these tests a demo starts in 16 s instead of 2.
in_memory := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "TMPDIR=/dev/shm" }')
unit-and-e2e:
	$(in_memory) cargo nextest run --locked --features e2e

# The examples in the sources.
doc:
	cargo test --locked --features e2e --doc

# Alerts and dashboards. Needs the program that `build` makes.
rules:
	alerts/check.sh
	dashboards/check.py

# The pictures in docs/images, anew.
dashboards:
	dashboards/check.py --draw

# The chart, and what is rendered from it. Needs the program that `build` makes.
manifests:
	deploy/check.sh

# docs/openapi.yaml against the demo. SEED=N repeats a run. Needs the program that `build` makes.
api:
	tests/with-demo.sh tests/api/check.sh

# Every command of the documents, beside the demo. Needs the program that `build` makes.
docs:
	tests/with-demo.sh tests/docs/check.py

# The Debian package of the program that `build` has made, in a Debian of its own. Needs root.
package:
	$(in_memory) deploy/debian/check.sh

# The page in headless Chromium, against the demo of the program that `build` has made.
page:
	timeout --foreground 1200 node tests/page/check.mjs

# Takes docs/images/page-light.png and page-dark.png anew, in some minutes.
screenshots:
	tests/page/setup.sh
	timeout --foreground 900 node tests/page/screenshots.mjs

bench:
	cargo bench

# The long form of what `unit` runs with some hundred cases each: CASES=100000 make fuzz
fuzz: export PROPTEST_CASES = $(or $(CASES),20000)
fuzz:
	cargo nextest run --locked --features e2e --no-fail-fast -E 'test(fuzz::)'

# The long form of what `unit` runs for some seconds; prints memory over time: FOR=1h make soak
soak: export CRISWEEP_SOAK = $(or $(FOR),5m)
soak:
	cargo nextest run --locked --features e2e --no-capture -E 'test(soak::)'

# A live node to watch: containerd with pods that pile up, Prometheus, Alertmanager and crisweep, until Ctrl-C:
# STACK_FOR=90s make stack. Needs root.
stack: export CRISWEEP_STACK = $(or $(STACK_FOR),forever)
stack:
	cargo nextest run --locked --features e2e --no-capture -E 'binary(e2e) and test(stack::)'

# Licences, sources and banned crates (what `unit` also checks, without cargo-deny), yanked crates and advisories. The
# advisories are a git repository at GitHub; OFFLINE=1 leaves them out. Installing cargo-deny takes 2 to 4 minutes.
deny:
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny $(if $(OFFLINE),--offline check licenses bans sources,check)

# The bill of materials as CycloneDX JSON.
sbom:
	@mkdir -p target
	deploy/sbom.sh $(TARGET) >target/crisweep.cdx.json
	@echo target/crisweep.cdx.json

# The program for arm64 and its image, on amd64, and the image's program under qemu. Needs buildah; 5 to 15 minutes, the
# second time 1.
arm64:
	deploy/image/arm64.sh

# The Debian package, for use; into target/package.
deb:
	cargo build --locked --profile dist
	deploy/debian/package.sh target/dist/crisweep

demo:
	cargo run --release -- demo

# The recording of a terminal in the README, made anew. Needs unshare, ip and curl.
recording:
	cargo build --locked --release
	docs/images/record.py target/release/crisweep docs/images/recording.svg

# The pictures of docs/policy.md, drawn anew from its examples.
pictures:
	docs/images/policy.py
