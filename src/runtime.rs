//! The runtime's side of the wire: who answers, what its answers are made of, and how it fails.
//!
//! Never decides what goes: it asks, converts and removes what it is told to.

pub mod client;
pub mod codec;
mod config;
pub mod convert;
mod defect;
pub mod discover;
mod error;
#[cfg(test)]
mod testing;
pub mod wire;

use crate::model::every;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{ContainerId, ContainerState, Coverage, PodSandboxId, PodSandboxState, Rows};

use jiff::Timestamp;

pub use client::{Client, LogRoots, Settings, below};
pub use config::Config;
pub use defect::{Defect, ReadError};
pub use error::Error;

/// Longest path that a unix socket's address can hold, in bytes (`sun_path` less its final NUL).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Who answers on the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `containerd`, `cri-o`, ...
    pub runtime: String,
    /// Its version.
    pub version: String,
}

/// What the runtime says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its conditions, in its own order.
    pub conditions: Vec<Condition>,
    /// What sandboxes are made from, as far as the runtime's configuration names it.
    pub sandbox_images: Vec<String>,
}

/// One condition of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `RuntimeReady`, `NetworkReady`, ...
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// Why not, in one word.
    pub reason: String,
    /// Why not, in a sentence.
    pub message: String,
}

/// How a list was read: the last fallback that gave a row of it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ListMode {
    /// Over the streaming RPC.
    Streaming,
    /// In one answer.
    Unary,
    /// In one answer for each state.
    PerState,
    /// In one answer for each pod that a name is known of, and for each sandbox that none of them covers.
    PerPod,
    /// In one answer for each pod, of those that containerd's own container service names.
    Containerd,
    /// One by one, by id.
    Status,
}

impl ListMode {
    /// Every mode.
    pub const ALL: [Self; 6] = every();

    /// Returns the mode as metrics write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// An unfiltered list, or what of it could be read.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// Its rows.
    pub rows: Rows<T>,
    /// Rows that lack what must be there (an id) and so are missing from `rows`.
    pub malformed: usize,
    /// The images that containers have mounted, by id, as far as reading the list told it: no list does.
    pub mounted: BTreeMap<Box<str>, Vec<String>>,
    /// Rows that were there twice, or lack an id and yet say what they concern.
    pub odd: usize,
    /// How much of the list `rows` is.
    pub coverage: Coverage,
    /// There was no time to ask for everything that is known by name.
    pub cut_short: bool,
    /// What the unfiltered unary answer weighs on the wire.
    pub response_bytes: u64,
    /// The smallest limit that the runtime refused a list for on this connection.
    pub limit_bytes: Option<u64>,
    /// How it was read.
    pub mode: ListMode,
    /// How long that took.
    pub duration: Duration,
}

/// The file systems that the runtime names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsInfo {
    /// Where images are.
    pub image: Vec<FsUsage>,
    /// Where writable layers are, if elsewhere; empty on containerd.
    pub container: Vec<FsUsage>,
}

/// What the runtime uses of one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsUsage {
    /// Where it is.
    pub mountpoint: String,
    /// Bytes that the runtime's own content takes.
    pub used_bytes: u64,
    /// Inodes that it takes, if the runtime counts them.
    pub inodes_used: Option<u64>,
}

/// One container, asked about by its id: what lists do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its id: the one that was asked for.
    pub id: ContainerId,
    /// Its name within the pod.
    pub name: String,
    /// Its attempt.
    pub attempt: u32,
    /// Its state now.
    pub state: ContainerState,
    /// When it was created; `Timestamp::MAX` if the runtime does not say.
    pub created_at: Timestamp,
    /// When it exited; `None` if it has not, or if the runtime does not say.
    pub finished_at: Option<Timestamp>,
    /// What it exited with; means something only once it has.
    pub exit_code: i32,
    /// Why it exited, in one word (`Completed`, `Error`, `OOMKilled`).
    pub reason: String,
    /// Its log file; empty if it has none.
    pub log_path: String,
    /// Every name of the images that it has mounted as volumes.
    pub volume_images: Vec<String>,
}

/// One sandbox, asked about by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Its id: the one that was asked for.
    pub id: PodSandboxId,
    /// Its state now.
    pub state: PodSandboxState,
    /// When it was created; `Timestamp::MAX` if the runtime does not say.
    pub created_at: Timestamp,
}
