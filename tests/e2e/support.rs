//! Support for the end-to-end tests: real daemons in temporary directories, removed with their guards.

pub(crate) mod alertmanager;
#[path = "../it/support/ca.rs"]
#[allow(dead_code, reason = "the service tests use the rest")]
pub(crate) mod ca;
pub(crate) mod cgroup;
pub(crate) mod cluster;
pub(crate) mod cri;
pub(crate) mod crisweep;
pub(crate) mod daemon;
pub(crate) mod kubelet;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod population;
pub(crate) mod prometheus;
pub(crate) mod release;
pub(crate) mod sim_node;
pub(crate) mod wait;
