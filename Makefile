# The two commands of the README are `cargo run --release -- demo` and `make test`.

.PHONY: test check unit rules e2e bench demo setup

# Everything that must hold before something lands. As root on Debian 12: installs what is missing.
test: setup check unit rules e2e

# What the tests need beside Rust: cargo-nextest, and from Debian containerd, runc, the CNI plugins,
# busybox, Prometheus and Alertmanager.
setup:
	tests/setup.sh

check:
	cargo fmt --check
	cargo clippy --locked --all-targets --features e2e -- -D warnings

# Needs neither root nor daemons.
unit:
	cargo nextest run --locked
	cargo test --locked --doc

rules:
	alerts/check.sh

# Needs root.
e2e:
	cargo nextest run --locked --features e2e --test e2e

bench:
	cargo bench

demo:
	cargo run --release -- demo
