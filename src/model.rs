//! The nouns: what a node holds, as values. Never reads a clock, a file or a socket.
//!
//! Names are the Container Runtime Interface's. Everything here was parsed at the edge
//! (`runtime::convert`, `pods`): past it no id is a bare `String` and nothing that must be there is
//! optional.

mod brake;
mod duration_text;
pub mod escape;
mod image_names;
mod images;
mod logs;
mod numbering;
mod outage;
mod outcome;
mod pods;
mod reasons;
mod report;
pub mod setting;
mod target;
mod text;
mod trigger_info;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use brake::Brake;
pub use duration_text::short_duration;
pub use image_names::{ImageMatcher, repository_leaf};
pub use images::{ContainerImage, Image, ImageAge, ImageNames, ImageStore, Images, OtherMount};
pub use logs::{
    LinkTarget, LinkedContainer, LogLink, Logs, PodLogDir, RemovedContainer, container_id_of,
    link_name, log_dir_name, pod_uid_of,
};
pub use numbering::{Numbering, head};
pub use outage::{KUBELET_SYNCS_IN, Outage};
pub use outcome::{FailureClass, Outcome, PastFailure, Quarantined, RemovalOutcome};
pub use pods::{
    ConfigSource, PodHistory, PodList, PodOrigin, PodSourceKind, Pods, PodsUnknown, ReadFrom,
    SourcePod,
};
pub use reasons::{KeepReason, RemoveReason};
pub use report::{NodeFigures, Pass, PassState, PodsReport, TargetReport};
pub use target::{Target, Targets, UnknownTarget};
pub use text::Text;
pub use trigger_info::{AlertInfo, AlertResult, Cause, PollResult, TriggerInfo};

/// Returns every variant of a closed set. It does not compile where `N` is another number.
pub(crate) const fn every<T: strum::VariantArray + Copy, const N: usize>() -> [T; N] {
    match T::VARIANTS.first_chunk() {
        Some(all) if T::VARIANTS.len() == N => *all,
        #[expect(clippy::panic, reason = "at compile time")]
        Some(_) | None => panic!("ALL has another length than the enum"),
    }
}

/// What an id begins with that the runtime did not tell. No real one does.
const NO_ID: &str = "(no id)";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Text);

        impl $name {
            /// Wraps an id; `None` if it is empty: runtimes take an empty id for a prefix of all.
            pub fn new(id: impl Into<Text>) -> Option<Self> {
                let id = id.into();
                (!id.is_empty()).then_some(Self(id))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id as text that is shared.
            pub fn text(&self) -> &Text {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A container's full id.
    ContainerId
);
id!(
    /// A pod sandbox's full id.
    PodSandboxId
);

impl ContainerId {
    /// Names a container of which the runtime told no id: it can be counted, and never asked about.
    pub(crate) fn stand_in(what: fmt::Arguments<'_>) -> Self {
        Self(format!("{NO_ID}{what}").into())
    }

    /// Says whether the runtime told no id.
    pub fn is_stand_in(&self) -> bool {
        self.0.starts_with(NO_ID)
    }

    /// Returns the id's text, for another copy of the same to be put in its place.
    pub(crate) fn text_mut(&mut self) -> &mut Text {
        &mut self.0
    }
}

impl PodSandboxId {
    /// Names the sandbox of a container that does not say which one it is in.
    pub(crate) fn stand_in() -> Self {
        Self(NO_ID.into())
    }

    /// Says whether the runtime told no id.
    pub fn is_stand_in(&self) -> bool {
        self.0.starts_with(NO_ID)
    }

    /// Returns the id's text, for another copy of the same to be put in its place.
    pub(crate) fn text_mut(&mut self) -> &mut Text {
        &mut self.0
    }
}

id!(
    /// An image's id (its config digest).
    ImageId
);
id!(
    /// A pod's UID as the runtime knows it: a UUID, or a static pod's config hash.
    PodUid
);

impl PodUid {
    /// Says whether this is shaped like a static pod's UID: 32 hex digits without dashes, the hash
    /// of its manifest. Anything else is taken for an API pod's.
    pub fn is_static_shaped(&self) -> bool {
        is_static_shaped(&self.0)
    }
}

/// Says of a UID's text what [`PodUid::is_static_shaped`] says.
pub(crate) fn is_static_shaped(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The pod that a container or sandbox belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PodRef {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace; empty if the runtime did not say.
    pub namespace: Text,
    /// Its name; empty if the runtime did not say.
    pub name: Text,
}

/// The rows of a list, shared by all who look at the same node: at 20,000 containers a copy for each
/// plan would be most of what the service keeps. Changing them copies them first if they are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<T>(Arc<Vec<T>>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for Rows<T> {
    fn from(rows: Vec<T>) -> Self {
        Self(Arc::new(rows))
    }
}

impl<T> Deref for Rows<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for Rows<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<'a, T> IntoIterator for &'a Rows<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Labels of one object. A few at most, never changed, and shared by all that have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Returns a label's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| *name == *key);
        found.map(|(_, value)| value.as_str())
    }

    /// Changes each key and value, unless others hold them.
    pub(crate) fn each_text(&mut self, mut change: impl FnMut(&mut Text)) {
        for (key, value) in Arc::get_mut(&mut self.0).into_iter().flatten() {
            change(key);
            change(value);
        }
    }

    /// Returns how many hold them.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        labels.into_iter().collect()
    }
}

impl<T: Into<Text>> FromIterator<(T, T)> for Labels {
    fn from_iter<I: IntoIterator<Item = (T, T)>>(labels: I) -> Self {
        let labels = labels.into_iter();
        Self(
            labels
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

/// A container's state, as CRI names it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "kebab-case")]
pub enum ContainerState {
    /// Made, not started yet: can turn running at any moment.
    Created,
    /// Running.
    Running,
    /// Ended. Never changes again.
    Exited,
    /// The runtime does not know, or sent a state that we do not.
    Unknown,
}

impl ContainerState {
    /// Every state, for metrics that must show zeroes.
    pub const ALL: [Self; 4] = every();

    /// Returns the state's name as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// A container record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// The sandbox that it names.
    pub sandbox_id: PodSandboxId,
    /// Its name within the pod (CRI metadata).
    pub name: Text,
    /// Its attempt (CRI metadata): the kubelet's restart count.
    pub attempt: u32,
    /// Its state when it was listed.
    pub state: ContainerState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it exited; `None` while it has not, or while the runtime has not been asked yet.
    pub finished_at: Option<Timestamp>,
    /// Its pod; `None` without the kubelet's labels (made by another tool).
    pub pod: Option<Arc<PodRef>>,
    /// Its image; shared by all that were made from the same.
    pub image: Arc<ContainerImage>,
    /// Labels other than the kubelet's own four.
    pub labels: Labels,
}

/// A pod sandbox's state, as CRI names it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum PodSandboxState {
    /// Its network and pause process are up.
    #[serde(rename = "ready")]
    Ready,
    /// Its pause process is gone. It can still hold a running container.
    #[serde(rename = "notready")]
    NotReady,
}

impl PodSandboxState {
    /// Every state, for metrics that must show zeroes.
    pub const ALL: [Self; 2] = every();

    /// Returns the state's name as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// A pod sandbox record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSandbox {
    /// Its id.
    pub id: PodSandboxId,
    /// Its pod (CRI metadata); `None` without the kubelet's labels (made by another tool).
    pub pod: Option<Arc<PodRef>>,
    /// Its attempt (CRI metadata).
    pub attempt: u32,
    /// Its state when it was listed.
    pub state: PodSandboxState,
    /// When it was created.
    pub created_at: Timestamp,
    /// Where the kubelet has its pod from; `None` if the sandbox does not say.
    pub config_source: Option<ConfigSource>,
    /// Its labels other than the kubelet's own: the pod's labels.
    pub labels: Labels,
}

/// A file system that holds images or writable layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// Where it is, as the runtime names it.
    pub mountpoint: String,
    /// What the runtime says it uses of it for its own, bytes.
    pub runtime_used_bytes: u64,
    /// What the kernel says of it (statvfs); `None` when it could not be read.
    pub usage: Option<FilesystemUsage>,
}

/// What statvfs says of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FilesystemUsage {
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// Bytes that an unprivileged process could still write.
    pub available_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Inodes that it has; 0 on file systems that make them as needed.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
}

impl FilesystemUsage {
    /// Returns the used share, 0 to 1, as the kubelet counts it: what is not available is used.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people and alerts")]
    pub fn used_ratio(&self) -> f64 {
        if self.capacity_bytes == 0 {
            return 0.0;
        }
        1.0 - self.available_bytes as f64 / self.capacity_bytes as f64
    }
}

/// How much of a list a look has; what it lacks may exist unseen. Ordered: more is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    /// Any record may be missing.
    Partial,
    /// Every running container and every one in state unknown, every ready sandbox. Others may be
    /// missing.
    Living,
    /// Every record.
    #[default]
    Whole,
}

/// How much of the node's containers and sandboxes a look has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Of the containers.
    pub containers: Coverage,
    /// Of the pod sandboxes.
    pub sandboxes: Coverage,
}

impl Seen {
    /// Nothing is missing: only then may anything be concluded from what is not there, or counted.
    pub fn is_all(self) -> bool {
        self.containers == Coverage::Whole && self.sandboxes == Coverage::Whole
    }

    /// No pod lives here unseen.
    pub fn is_all_that_lives(self) -> bool {
        self.containers >= Coverage::Living && self.sandboxes >= Coverage::Living
    }
}

/// The node at one moment: all that planning may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Read before the first call, so that ages err towards young. Planning's only "now".
    pub taken_at: Timestamp,
    /// How long the machine was up then.
    pub uptime: Duration,
    /// The container records; shared with the look that found them.
    pub containers: Rows<Container>,
    /// The pod sandbox records.
    pub sandboxes: Rows<PodSandbox>,
    /// How much of both this is.
    pub seen: Seen,
    /// What the pod source said, asked after the runtime.
    pub pods: Pods,
    /// What crisweep itself saw of each pod, look after look. A pod that has no entry was seen to be
    /// neither absent nor over.
    pub pod_history: BTreeMap<PodUid, PodHistory>,
    /// When looks last saw a list over the kubelet's limit; `None`: never.
    pub outage: Option<Outage>,
    /// When a pod's last container was seen to exit, also where that record has since been removed.
    pub last_exits: BTreeMap<PodUid, Timestamp>,
    /// Sandboxes that failed to go, and when they may be tried again.
    pub quarantine: BTreeMap<PodSandboxId, Timestamp>,
    /// The images, and the room that they take.
    pub images: Images,
    /// What lies below the log roots.
    pub logs: Logs,
    /// The containers that this pass removed: their logs may go too.
    pub removed: Vec<RemovedContainer>,
}

impl Snapshot {
    /// Returns an empty node of whose pods nothing is known.
    pub fn empty(taken_at: Timestamp) -> Self {
        Self {
            taken_at,
            uptime: Duration::MAX,
            containers: Rows::default(),
            sandboxes: Rows::default(),
            seen: Seen::default(),
            pods: Pods::Unknown(PodsUnknown::NoSource),
            pod_history: BTreeMap::new(),
            outage: None,
            last_exits: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            images: Images::default(),
            logs: Logs::default(),
            removed: Vec::new(),
        }
    }

    /// Returns how long before this snapshot `then` was; negative if it lies in the future.
    pub fn age(&self, then: Timestamp) -> SignedDuration {
        self.taken_at.duration_since(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_id_is_none() {
        assert!(ContainerId::new("").is_none());
        assert_eq!(ContainerId::new("ab").unwrap().as_str(), "ab");
    }

    #[test]
    fn static_uids_are_32_hex_digits_without_dashes() {
        let is_static = |uid: &str| PodUid::new(uid).unwrap().is_static_shaped();
        assert!(is_static("0123456789abcdef0123456789abcdef"));
        assert!(!is_static("01234567-89ab-cdef-0123-456789abcdef"));
        assert!(!is_static("0123456789abcdef0123456789abcdeg"));
        assert!(!is_static("0123456789abcdef0123456789abcde"));
    }

    #[test]
    fn used_ratio_counts_reserved_blocks_as_used() {
        let usage = FilesystemUsage {
            capacity_bytes: 100,
            available_bytes: 20,
            used_bytes: 75,
            inodes: 0,
            inodes_free: 0,
        };
        assert!((usage.used_ratio() - 0.8).abs() < 1e-9);
    }
}
