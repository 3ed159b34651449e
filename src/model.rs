//! The nouns: what a node holds, as values. Never reads a clock, a file or a socket.
//!
//! Names are the Container Runtime Interface's. Everything here was parsed at the edge
//! (`runtime::convert`, `pods`): past it no id is a bare `String` and nothing that must be there is
//! optional.

mod brake;
pub mod escape;
mod evidence;
mod go_duration;
mod image_names;
mod images;
mod labels;
mod logs;
mod maybe_known;
mod numbering;
mod outage;
mod outcome;
mod pods;
mod reasons;
mod report;
mod rows;
pub mod setting;
mod short_text;
mod target;
mod text;
mod trigger_info;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de};

pub use brake::{Brake, FleetHold};
pub use evidence::{
    Evidence, EvidenceFailure, EvidenceLog, EvidencePod, LABELS_MAX, MESSAGE_BYTES_MAX, PodOwner,
    TEXT_BYTES_MAX, cut, ending,
};
pub use go_duration::go_duration;
pub use image_names::{ImageMatcher, repository_leaf};
pub use images::{ContainerImage, Image, ImageAge, ImageNames, ImageStore, Images, OtherMount};
pub use labels::Labels;
pub(crate) use labels::pairs;
pub use logs::{
    LinkTarget, LinkedContainer, LogLink, Logs, PodLogDir, RemovedContainer, container_id_of,
    id_in_link, link_name, log_dir_name, pod_of_dir, pod_uid_of,
};
pub use maybe_known::MaybeKnown;
pub use numbering::{Numbering, head};
pub use outage::{KUBELET_SYNCS_IN, Outage, Weight};
pub use outcome::{EventResult, FailureClass, Outcome, PastFailure, Quarantined, RemovalOutcome};
pub use pods::{
    ConfigSource, PodHistory, PodList, PodOrigin, PodSourceKind, Pods, PodsUnknown, ReadFrom,
    SourcePod,
};
pub use reasons::{KeepReason, RemoveReason};
pub use report::{FURTHER_ERRORS, NodeFigures, Pass, PassState, PodsReport, TargetReport};
pub use rows::{HasId, Rows};
pub use short_text::{short_duration, short_size};
pub use target::{Target, Targets, UnknownTarget};
pub use text::Text;
pub use trigger_info::{
    AlertInfo, AlertResult, Caller, CallerKind, Cause, PollResult, TriggerInfo,
};

/// Returns every variant of a closed set. It does not compile where `N` is another number.
pub(crate) const fn every<T: strum::VariantArray + Copy, const N: usize>() -> [T; N] {
    match T::VARIANTS.first_chunk() {
        Some(all) if T::VARIANTS.len() == N => *all,
        #[expect(clippy::panic, reason = "at compile time")]
        Some(_) | None => panic!("ALL has another length than the enum"),
    }
}

/// Counts rows by state, in the order of `all`.
pub fn by_state<S: Copy + PartialEq + Into<&'static str>, T, const N: usize>(
    all: [S; N],
    rows: &[T],
    state: impl Fn(&T) -> S,
) -> [(&'static str, usize); N] {
    let count = |of: S| rows.iter().filter(|row| state(row) == of).count();
    all.map(|of| (of.into(), count(of)))
}

/// Declares a closed set of words: an enum with `ALL`, its variants in order, and `label`, a variant's name as metrics,
/// the API and the configuration write it.
macro_rules! labelled {
    ($(#[$of_enum:meta])* pub enum $name:ident { $($variants:tt)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, strum::IntoStaticStr, strum::VariantArray)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        #[strum(serialize_all = "kebab-case")]
        $(#[$of_enum])*
        pub enum $name { $($variants)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; <Self as strum::VariantArray>::VARIANTS.len()] =
                crate::model::every();

            /// Returns its name as metrics, the API and the configuration write it.
            pub fn label(self) -> &'static str {
                self.into()
            }
        }
    };
}
pub(crate) use labelled;

/// Prefix of the stand-in for an id that the runtime did not send. No real id begins so.
const NO_ID: &str = "(no id)";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(Text);

        impl $name {
            /// Wraps an id; `None` if it is empty: runtimes treat an empty id as a prefix of every id.
            pub fn new(id: impl Into<Text>) -> Option<Self> {
                let id = id.into();
                (!id.is_empty()).then_some(Self(id))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id as shared text.
            pub fn text(&self) -> &Text {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::new(Text::deserialize(from)?).ok_or_else(|| de::Error::custom("an id is empty"))
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
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
    /// Names a container whose row has no id. It is counted, but cannot be asked about.
    pub(crate) fn stand_in(what: fmt::Arguments<'_>) -> Self {
        Self(format!("{NO_ID}{what}").into())
    }

    /// Says whether the runtime sent no id.
    pub fn is_stand_in(&self) -> bool {
        self.0.starts_with(NO_ID)
    }
}

impl PodSandboxId {
    /// Names the sandbox of a container whose row names none.
    pub(crate) fn stand_in() -> Self {
        Self(NO_ID.into())
    }

    /// Says whether the runtime sent no id.
    pub fn is_stand_in(&self) -> bool {
        self.0.starts_with(NO_ID)
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

/// [`PodUid::is_static_shaped`] for a UID's text.
pub(crate) fn is_static_shaped(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The pod that a container or sandbox belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PodRef {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace; empty if unknown.
    pub namespace: Text,
    /// Its name; empty if unknown.
    pub name: Text,
}

labelled! {
    /// A container's state, as CRI names it.
    pub enum ContainerState {
        /// Created and not started: it can start at any moment.
        Created,
        /// Running.
        Running,
        /// Exited. Final.
        Exited,
        /// Unknown to the runtime, or a state number that crisweep does not know.
        Unknown,
    }
}

/// A container record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// When it exited; `None` before that, and until the runtime was asked.
    pub finished_at: Option<Timestamp>,
    /// The runtime gives no time of its exit: `finished_at` is when crisweep first saw it exited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exit_undated: bool,
    /// Its pod; `None` without the kubelet's labels (made by another tool).
    pub pod: Option<Arc<PodRef>>,
    /// Its image; shared by containers of the same image.
    pub image: Arc<ContainerImage>,
    /// Labels other than the kubelet's own four.
    pub labels: Labels,
}

impl HasId for Container {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

labelled! {
    /// A pod sandbox's state, as CRI names it.
    pub enum PodSandboxState {
        /// Its network and pause process are up.
        Ready,
        /// Its pause process is gone. It can still hold a running container.
        #[serde(rename = "notready")]
        #[strum(serialize = "notready")]
        NotReady,
    }
}

/// A pod sandbox record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The source of its pod, by the sandbox's annotation; `None` without one.
    pub config_source: Option<ConfigSource>,
    /// Its labels other than the kubelet's own: the pod's labels.
    pub labels: Labels,
}

impl HasId for PodSandbox {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

/// A file system that holds images or writable layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// Its mount point, as the runtime names it.
    pub mountpoint: String,
    /// Bytes that the runtime says it uses there.
    pub runtime_used_bytes: u64,
    /// The kernel's figures (statvfs); `None` if they could not be read.
    pub usage: Option<FilesystemUsage>,
    /// It is btrfs: removed files are free only after its next commit, and compressed ones take less than the runtime
    /// counts.
    #[serde(skip)]
    pub is_btrfs: bool,
}

/// The file systems that the runtime names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystems {
    /// Where images are.
    pub image: Vec<Filesystem>,
    /// Where writable layers are, if on another file system; empty on containerd.
    pub container: Vec<Filesystem>,
}

/// The figures of statvfs for a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemUsage {
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// Bytes that an unprivileged process can still write.
    pub available_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Number of inodes; 0 on file systems that allocate them as needed.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
}

impl FilesystemUsage {
    /// Returns the used share, 0 to 1, as the kubelet counts it: all that is not available counts as used.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people and alerts")]
    pub fn used_ratio(&self) -> f64 {
        if self.capacity_bytes == 0 {
            return 0.0;
        }
        1.0 - self.available_bytes as f64 / self.capacity_bytes as f64
    }
}

/// How complete a list is. Ordered: more complete is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    /// Any record may be missing.
    Partial,
    /// Every running container, every container in state unknown and every ready sandbox is there.
    /// Others may be missing.
    Living,
    /// Every record.
    #[default]
    Whole,
}

/// How complete a look's lists of containers and sandboxes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListCoverage {
    /// Of the containers.
    pub containers: Coverage,
    /// Of the pod sandboxes.
    pub sandboxes: Coverage,
}

impl ListCoverage {
    /// Says whether both lists are complete: only then does absence prove anything, and only then are
    /// counts exact.
    pub fn is_all(self) -> bool {
        self.containers == Coverage::Whole && self.sandboxes == Coverage::Whole
    }

    /// Says whether the lists have every object of every pod that lives.
    pub fn is_all_that_lives(self) -> bool {
        self.containers >= Coverage::Living && self.sandboxes >= Coverage::Living
    }
}

/// The node at one moment: all that planning may know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Planning's only "now". Read before the first call, so that ages err towards young.
    pub taken_at: Timestamp,
    /// The machine's uptime at `taken_at`.
    pub uptime: Duration,
    /// The container records; shared with the look that found them.
    pub containers: Rows<Container>,
    /// The pod sandbox records.
    pub sandboxes: Rows<PodSandbox>,
    /// How complete both lists are.
    pub seen: ListCoverage,
    /// Pods of the API server of which an incomplete list has every record. Such a pod never comes back under its UID.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub whole_pods: BTreeSet<PodUid>,
    /// The pod source's answer, read after the runtime's lists.
    pub pods: Pods,
    /// What earlier looks saw of each pod. A pod without an entry was never seen absent or finished.
    pub pod_history: Arc<BTreeMap<PodUid, PodHistory>>,
    /// When a list was last over the kubelet's limit; `None`: never.
    pub outage: Option<Outage>,
    /// The last exit of each pod's containers, including containers removed since.
    pub last_exits: Arc<BTreeMap<PodUid, Timestamp>>,
    /// Quarantined sandboxes, and when each may be tried again.
    pub quarantine: BTreeMap<PodSandboxId, Timestamp>,
    /// The images and their file system.
    pub images: Images,
    /// The entries of the log roots.
    pub logs: Logs,
    /// The containers that this pass removed; their logs may be removed too.
    pub removed: Vec<RemovedContainer>,
}

impl Snapshot {
    /// Returns an empty node with unknown pods.
    pub fn empty(taken_at: Timestamp) -> Self {
        Self {
            taken_at,
            uptime: Duration::MAX,
            containers: Rows::default(),
            sandboxes: Rows::default(),
            seen: ListCoverage::default(),
            whole_pods: BTreeSet::new(),
            pods: Pods::Unknown(PodsUnknown::NoSource),
            pod_history: Arc::default(),
            outage: None,
            last_exits: Arc::default(),
            quarantine: BTreeMap::new(),
            images: Images::default(),
            logs: Logs::default(),
            removed: Vec::new(),
        }
    }

    /// Says whether none of the pod's records is missing.
    pub fn has_all_of(&self, uid: &str) -> bool {
        self.seen.is_all() || self.whole_pods.contains(uid)
    }

    /// Returns the age of `then` at this snapshot; negative if it lies in the future.
    pub fn age(&self, then: Timestamp) -> SignedDuration {
        self.taken_at.duration_since(then)
    }
}

/// The beginning of 2020: an earlier time comes from a clock that was not set.
pub const CLOCK_SET_SECONDS: i64 = 1_577_836_800;

/// Says whether a time comes from a clock that was set.
pub fn is_set(time: Timestamp) -> bool {
    time.as_second() >= CLOCK_SET_SECONDS
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
