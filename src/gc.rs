//! Garbage collection as values: `snapshot + policy -> plan`. Never does IO, never reads a clock,
//! never logs: what it knows it returns.
//!
//! The rules, in prose (the kubelet's, made more careful):
//!
//! - Removal needs a positive reason; missing knowledge is never one.
//! - The newest record of a (pod UID, container name) whose pod may still exist stays: without it
//!   the kubelet would run the container again. Newest means highest attempt *and* latest creation:
//!   after a clock step they differ, and both stay.
//! - What the node-wide cap takes is what the kubelet would take under the same cap, less what is
//!   protected; nothing is taken in a protected one's place.
//! - On an incomplete look only what is certain without the missing part goes: what is planned on a
//!   part of a node's records is planned on all of them too (`model::Seen`).
//! - Every object gets a verdict with a reason, and the same code judges for a preview and a pass.

pub mod check;
pub mod containers;
pub mod gate;
pub mod knowledge;
pub mod plan;
pub mod sandboxes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{ContainerState, Labels, PodRef};
pub use plan::plan;

/// A kind of object that is collected, in the order in which a pass takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Dead containers.
    Containers,
    /// Dead pod sandboxes.
    Sandboxes,
}

impl Target {
    /// Every target, in a pass's order: containers hold their sandbox, so they go first.
    pub const ALL: [Self; 2] = [Self::Containers, Self::Sandboxes];

    /// Returns the target's name as configuration, metrics and the API write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Sandboxes => "sandboxes",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A target's name that cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nobody knows it.
    #[error("unknown target \"{0}\"; targets are containers, sandboxes, all")]
    Unknown(String),
    /// The contract has it, this version does not.
    #[error("target \"{0}\" is not supported yet; targets are containers, sandboxes, all")]
    NotSupportedYet(String),
}

/// The targets that one word asks for: a target's name, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets(pub BTreeSet<Target>);

impl Targets {
    /// Returns every target.
    pub fn all() -> Self {
        Self(Target::ALL.into())
    }
}

impl FromStr for Targets {
    type Err = TargetError;

    fn from_str(word: &str) -> Result<Self, TargetError> {
        match word {
            "containers" => Ok(Self([Target::Containers].into())),
            "sandboxes" => Ok(Self([Target::Sandboxes].into())),
            "all" => Ok(Self::all()),
            "images" | "logs" => Err(TargetError::NotSupportedYet(word.to_owned())),
            _ => Err(TargetError::Unknown(word.to_owned())),
        }
    }
}

/// A bound on how many dead ones stay. In the configuration a negative number means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No bound.
    None,
    /// At most this many.
    AtMost(usize),
}

impl Limit {
    /// Reads the configuration's number: negative means no limit.
    pub fn from_config(number: i64) -> Self {
        usize::try_from(number).map_or(Self::None, Self::AtMost)
    }
}

/// What a container's age counts from, for `min_age`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeFrom {
    /// Its exit.
    Finished,
    /// Its creation, as the kubelet does.
    Created,
}

/// What stays and what goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rules for containers.
    pub containers: ContainerPolicy,
    /// Rules for sandboxes.
    pub sandboxes: SandboxPolicy,
    /// What is never touched.
    pub protect: Protect,
    /// An unknown pod without a sign of life, whose last container exited longer ago than this,
    /// counts as terminated. `None`: never.
    pub assume_finished_after: Option<Duration>,
}

/// Rules for containers. Defaults and meaning: `docs/configuration.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// Whether containers are collected at all.
    pub enabled: bool,
    /// Younger ones stay and do not count.
    pub min_age: Duration,
    /// Dead ones that stay for each (pod UID, container name).
    pub max_per_container: Limit,
    /// Dead ones that stay on the node.
    pub max_dead: Limit,
    /// A created container younger than this is about to start.
    pub created_grace: Duration,
    /// What `min_age` counts from.
    pub age_from: AgeFrom,
    /// Whether containers in state unknown are considered (and stopped first).
    pub include_unknown: bool,
}

/// Rules for sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// Whether sandboxes are collected at all.
    pub enabled: bool,
    /// Younger ones (by creation) stay and do not count.
    pub min_age: Duration,
    /// Dead ones that stay on the node.
    pub max_dead: Limit,
}

/// What is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protect {
    /// Namespaces whose pods' objects stay.
    pub namespaces: BTreeSet<String>,
    /// Labels whose bearers stay: key, and the value if it matters.
    pub labels: Vec<(String, Option<String>)>,
}

impl Protect {
    /// Says whether any of `labels` is one of the protected ones.
    pub fn has_label(&self, labels: &Labels) -> bool {
        self.labels.iter().any(|(key, wanted)| {
            let value = labels.get(key);
            value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| value == wanted))
        })
    }
}

impl Default for Policy {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            containers: ContainerPolicy {
                enabled: true,
                min_age: minute,
                max_per_container: Limit::AtMost(1),
                max_dead: Limit::AtMost(200),
                created_grace: 60 * minute,
                age_from: AgeFrom::Finished,
                include_unknown: false,
            },
            sandboxes: SandboxPolicy {
                enabled: true,
                min_age: minute,
                max_dead: Limit::AtMost(200),
            },
            protect: Protect::default(),
            assume_finished_after: None,
        }
    }
}

/// Why an object stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepReason {
    /// The container runs.
    Running,
    /// The container was created a moment ago and is about to run.
    Starting,
    /// The runtime does not know the container's state, and the policy leaves such alone.
    StateUnknown,
    /// The sandbox is ready.
    Ready,
    /// A container still names the sandbox.
    HasContainers,
    /// It has none of the kubelet's labels: another tool made it.
    Unmanaged,
    /// Its namespace or a label is protected.
    Protected,
    /// It died less than `min_age` ago, or nobody knows when.
    TooYoung,
    /// It is the newest of a pod that may exist.
    Newest,
    /// No limit asks for it.
    WithinLimits,
    /// It failed to go lately and is left alone until its next try.
    Quarantined,
}

impl KeepReason {
    /// Returns the reason as metrics and the API write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Starting => "starting",
            Self::StateUnknown => "state-unknown",
            Self::Ready => "ready",
            Self::HasContainers => "has-containers",
            Self::Unmanaged => "unmanaged",
            Self::Protected => "protected",
            Self::TooYoung => "too-young",
            Self::Newest => "newest",
            Self::WithinLimits => "within-limits",
            Self::Quarantined => "quarantined",
        }
    }

    /// The reasons that a target's objects can be kept for.
    pub fn all(target: Target) -> &'static [Self] {
        match target {
            Target::Containers => &[
                Self::Running,
                Self::Starting,
                Self::StateUnknown,
                Self::TooYoung,
                Self::Newest,
                Self::WithinLimits,
                Self::Unmanaged,
                Self::Protected,
                Self::Quarantined,
            ],
            Target::Sandboxes => &[
                Self::Ready,
                Self::HasContainers,
                Self::TooYoung,
                Self::Newest,
                Self::WithinLimits,
                Self::Unmanaged,
                Self::Protected,
                Self::Quarantined,
            ],
        }
    }
}

/// Why an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoveReason {
    /// Its pod is deleted.
    PodDeleted,
    /// Newer ones of the same kind exist.
    Superseded,
    /// The node holds more dead ones than `max_dead`.
    OverCap,
}

impl RemoveReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::PodDeleted, Self::Superseded, Self::OverCap];

    /// Returns the reason as metrics and the API write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::PodDeleted => "pod-deleted",
            Self::Superseded => "superseded",
            Self::OverCap => "over-cap",
        }
    }
}

/// What is known of an object's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodKnowledge {
    /// The source lists it and it may run again.
    Active,
    /// The source says that it finished, and nothing of it lives here.
    Terminated,
    /// Nobody answered for it, but it counts as finished under `assume_finished_after`.
    Assumed,
    /// A complete list does not have it.
    Deleted,
    /// No complete list.
    Unknown,
}

impl PodKnowledge {
    /// Says whether the pod is known, or by the operator's word assumed, to be over.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Assumed)
    }
}

/// One object as plans show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// Its kind.
    pub target: Target,
    /// Its full id.
    pub id: String,
    /// A container's name; a sandbox's pod name.
    pub name: String,
    /// Its pod; `None` for what the kubelet did not make.
    pub pod: Option<PodRef>,
    /// What is known of the pod; the verdict rests on it.
    pub pod_state: PodKnowledge,
    /// Its attempt.
    pub attempt: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// Seconds since it exited (containers, where known), else since it was created.
    pub age_seconds: i64,
}

/// An object that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: RemoveReason,
    /// The state that the container was planned in; it must still be in it right before it goes.
    /// `None` for sandboxes, which must be not ready.
    #[serde(skip)]
    pub state: Option<ContainerState>,
}

/// An object that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: KeepReason,
}

/// What is to be done about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Keep(KeepReason),
    /// It goes.
    Remove(RemoveReason),
}

/// What a pass over some targets would do: each object of theirs is in exactly one of the lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// When the node was looked at.
    pub taken_at: Timestamp,
    /// What goes, in the order in which it goes.
    pub removals: Vec<Removal>,
    /// What stays.
    pub kept: Vec<Kept>,
    /// Counts of both.
    pub summary: BTreeMap<Target, Summary>,
}

/// Counts of one target's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many go, by reason.
    pub remove: BTreeMap<RemoveReason, usize>,
    /// How many stay, by reason.
    pub keep: BTreeMap<KeepReason, usize>,
}
