//! Tests that see the program from outside, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's helper fails as loudly as the test itself"
)]

mod access;
mod alerts;
mod audit;
mod big_lists;
mod cases;
mod check;
mod command;
mod deploy;
mod distributions;
mod events;
mod faults;
mod fleet;
mod fuzz;
mod gc_pass;
mod http;
mod images;
mod kubelet_model;
mod logs;
mod mid_pass;
mod names;
mod outgoing;
mod pods;
mod properties;
mod references;
mod review;
mod runtimes;
mod soak;
mod state;
mod storms;
mod supply_chain;
mod support;
mod systemd;
mod tidy;
mod triggers;
