//! End-to-end tests: a real containerd, Prometheus and Alertmanager, and real pods.
//!
//! They need root and the programs that `setup.sh` installs; the feature `e2e` builds them. Everything that
//! they start lives in its own namespaces and directories and ends with the test.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by panicking"
)]

mod alertmanagers;
mod big_lists;
mod callers;
mod cluster;
mod credentials;
mod demo;
mod image;
mod images;
mod kubelet;
mod logs;
mod measure;
mod node;
mod page;
mod peers;
mod quarantine;
mod stack;
mod support;
mod sweep;
