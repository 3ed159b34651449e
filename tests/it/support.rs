//! Support for service tests: a simulated runtime, and the real program beside it.

pub(crate) mod answer;
pub(crate) mod bare;
pub(crate) mod ca;
pub(crate) mod control_group;
pub(crate) mod h2_client;
pub(crate) mod hung;
pub(crate) mod kubelet;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod pipe;
pub(crate) mod raw;
pub(crate) mod rig;
pub(crate) mod service;
pub(crate) mod tmpfs;
pub(crate) mod wait;

pub(crate) use answer::{Answer, Follow};
pub(crate) use metrics::Page;
pub(crate) use rig::Rig;
pub(crate) use wait::until;
