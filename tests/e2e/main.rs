//! End-to-end tests: a real containerd, Prometheus and Alertmanager, and real pods.
//!
//! They need root and what `setup.sh` installs; the feature `e2e` builds them. Everything that they
//! start lives in namespaces and directories of its own and ends with the test.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by panicking"
)]

mod big_lists;
mod demo;
mod images;
mod logs;
mod measure;
mod node;
mod peers;
mod quarantine;
mod support;
mod sweep;
