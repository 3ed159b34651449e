//! The CRI side: who answers, what the answers contain, and how calls fail.
//!
//! Never decides what to remove: it asks, converts, and removes what its caller names.

pub mod client;
pub mod codec;
mod config;
pub mod convert;
mod defect;
pub mod discover;
mod error;
mod known_rows;
pub mod wire;

use crate::model::labelled;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ContainerId, ContainerState, Coverage, PodSandboxState, PodUid, Rows};

use jiff::Timestamp;

pub use client::{Client, LogRoots, RemovalAnswer, Settings, below, none_lacks_an_id};
pub use config::Config;
pub use defect::{Defect, ReadError};
pub use error::Error;

/// The runtime that answers on the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `containerd`, `cri-o`, ...
    pub runtime: String,
    /// Its version.
    pub version: String,
}

labelled! {
    /// How a list was read: the last fallback that returned a row.
    pub enum ListMode {
        /// Over the streaming RPC.
        Streaming,
        /// In one unary answer.
        Unary,
        /// In one unary answer that the runtime compressed, because it is over its limit otherwise.
        Compressed,
        /// In one answer per state.
        PerState,
        /// In one answer per pod with a known name, and per sandbox outside those pods.
        PerPod,
        /// In one answer per pod that containerd's own container service names.
        Containerd,
        /// Object by object, by id.
        Status,
    }
}

/// An unfiltered list, or the part of it that could be read.
#[derive(Clone, Debug)]
pub struct Listing<T> {
    /// Its rows.
    pub rows: Rows<T>,
    /// Rows without a required field (an id), missing from `rows`.
    pub malformed: usize,
    /// The images that containers have mounted, by container id; known only for rows that were read by status.
    pub mounted: BTreeMap<Box<str>, Vec<String>>,
    /// Duplicate rows, and rows without an id that still say what they concern.
    pub odd: usize,
    /// Which part of the list `rows` is.
    pub coverage: Coverage,
    /// Pods of an incomplete list that, as far as the runtime tells, have no rows beside those here.
    pub whole_pods: BTreeSet<PodUid>,
    /// Time ran out before every known name was asked for.
    pub cut_short: bool,
    /// Weight of the unfiltered unary answer on the wire.
    pub response_bytes: u64,
    /// The smallest limit at which the runtime refused a list on this connection.
    pub limit_bytes: Option<u64>,
    /// How the list was read.
    pub mode: ListMode,
}

impl<T> Listing<T> {
    /// Says why rows may be missing, what follows from it and what helps; `None`: the list is whole.
    pub fn doubt(&self) -> Option<String> {
        if self.coverage == Coverage::Whole {
            return None;
        }
        Some(if self.malformed > 0 {
            let count = self.malformed;
            format!(
                "{count} rows of the list have no id or contradict each other; only what is certain without them goes"
            )
        } else if self.rows.is_empty() {
            "the runtime lists none, although the node is not empty: it may have lost its records, not have loaded them, \
             or fail to create any; its log says which. What depends on the list stays until it lists one"
                .to_owned()
        } else if self.cut_short {
            "the list is over the message limit, and time ran out before it was read in parts (runtime.timeout); only \
             what is certain goes, and further looks go on reading"
                .to_owned()
        } else {
            // The runtime refused none, so the limit is ours.
            let limit = match self.limit_bytes {
                Some(_) => "the message limit",
                None => "runtime.max_message_bytes (raise it)",
            };
            format!(
                "the list is over {limit}, and nothing proves that the parts which were read are all of it; only what \
                 is certain goes, until it fits"
            )
        })
    }
}

/// The status of one container: details that lists lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its id: the one that was asked for.
    pub id: ContainerId,
    /// Its state now.
    pub state: ContainerState,
    /// When it was created; `Timestamp::MAX` if the runtime does not say.
    pub created_at: Timestamp,
    /// When it started; `None` if it has not, or if the runtime does not say.
    pub started_at: Option<Timestamp>,
    /// When it exited; `None` if it has not, or if the runtime does not say.
    pub finished_at: Option<Timestamp>,
    /// Its exit code; meaningful only after the exit.
    pub exit_code: i32,
    /// Reason of the exit in one word (`Completed`, `Error`, `OOMKilled`).
    pub reason: String,
    /// The runtime's message about the exit; at most [`crate::model::MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// Its image as it was asked for.
    pub image: String,
    /// Its image's digest or id.
    pub image_ref: String,
    /// Its log file; empty if it has none.
    pub log_path: String,
    /// Every name of the images that it has mounted as volumes.
    pub volume_images: Vec<String>,
}

/// The status of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Its state now.
    pub state: PodSandboxState,
    /// When it was created; `Timestamp::MAX` if the runtime does not say.
    pub created_at: Timestamp,
}
