//! The runtime's side of the wire: errors, limits, and what its answers are made of.

use std::time::Duration;

/// Generated from `proto/runtime/v1/cri.proto`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code"
)]
pub mod proto {
    tonic::include_proto!("runtime.v1");
}

/// Who answers on the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `containerd`, `cri-o`, ...
    pub runtime: String,
    /// Its version.
    pub version: String,
}

/// How a list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListMode {
    /// Over the streaming RPC.
    Streaming,
    /// In one answer.
    Unary,
}

impl ListMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Streaming, Self::Unary];

    /// Returns the mode as metrics write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Streaming => "streaming",
            Self::Unary => "unary",
        }
    }
}

/// A whole, unfiltered list.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// Rows that lack what must be there (an id) and so are missing from `rows`.
    pub malformed: usize,
    /// What the unfiltered unary answer weighs on the wire.
    pub response_bytes: u64,
    /// How it was read.
    pub mode: ListMode,
    /// How long that took.
    pub duration: Duration,
}

/// Why the runtime could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Placeholder until the client lands.
    #[error("CRI {method}")]
    Status {
        /// The RPC.
        method: &'static str,
        /// What came back.
        #[source]
        status: Box<tonic::Status>,
    },
}
