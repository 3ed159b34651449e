//! Garbage collection as values: `snapshot + policy -> plan`. Never does IO, never reads a clock, never logs:
//! it returns its results.
//!
//! The rules (the kubelet's, made more careful):
//!
//! - Removal needs a positive reason; missing knowledge is never one.
//! - The newest record of a (pod UID, container name) whose pod may still exist stays: without it the kubelet
//!   would run the container again. Newest means highest attempt *and* latest creation: after a clock step they
//!   differ, and both stay.
//! - The node-wide cap removes what the kubelet would remove under the same cap, except protected objects,
//!   which no other object replaces.
//! - On an incomplete look only that is removed which is certain without the missing part: a plan on a part of
//!   a node's records is a part of the plan on all of them (`model::ListCoverage`).
//! - Images are removed by the kubelet's thresholds, ages and order; never one that a container (in any state),
//!   a volume or the sandboxes may need.
//! - Every object gets a verdict with a reason, and the same code judges for a preview and a pass.

pub mod check;
pub mod containers;
mod doubt;
pub mod explain;
mod facts;
pub mod images;
mod index;
pub mod knowledge;
pub mod logs;
pub mod notes;
mod options;
pub mod plan;
mod policy;
mod quiet;
pub mod sandboxes;
mod supposed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::model::{
    ContainerId, ContainerState, KeepReason, PodRef, PodUid, Quarantined, RemoveReason,
    RemovedContainer, Target, Text,
};
pub use options::{PassOptions, PlannedObjects, SavedPlan};
pub use plan::{plan, plan_within};
pub use policy::{
    AgeFrom, ContainerPolicy, ImagePolicy, KeepPattern, Limit, LogPolicy, PodPolicy, Policy,
    Protect, SandboxPolicy,
};
pub use supposed::{
    kept_by_quiet_alone, kept_for_a_time, kept_for_missing_knowledge, kept_for_quiet,
    kept_for_unknown_exits,
};

/// What is known of an object's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PodKnowledge {
    /// The source lists it and it may run again.
    Active,
    /// The source says that it finished, and nothing of it runs here.
    Terminated,
    /// No source answered for it, but it counts as finished under `assume_finished_after`.
    Assumed,
    /// Complete lists have lacked it for `pods.settle`.
    Deleted,
    /// A complete list lacks it, but not for `pods.settle` yet.
    Absent,
    /// No complete list.
    Unknown,
}

/// Why the pod source's list proves nothing about a pod, which is then unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodDoubt {
    /// There is no list, or it lacks a pod that lives here.
    Source,
    /// The runtime's lists may lack a pod that lives, and the pod list may lack it too.
    UnseenPods,
    /// The runtime's lists may lack a record of the pod.
    UnseenRecords,
    /// A container of it is in state unknown.
    MayRun,
    /// Its sandboxes name no source, several, or one that the kubelet does not have, or were not seen.
    Origin,
    /// The list holds no other pod of the same source.
    NoOtherPod,
    /// It is a static pod, and the list has mirrors only.
    MirrorsOnly,
    /// The kubelet may not have all of its pods yet.
    Rebooted,
    /// Something of the pod is younger than the list, or may be.
    OlderList,
}

impl PodKnowledge {
    /// Says whether the pod is finished, known or (by the operator's setting) assumed.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Assumed)
    }

    /// Returns the word that people read for it; machines read the name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Terminated => "finished",
            Self::Assumed => "assumed finished",
            Self::Deleted => "deleted",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}

/// One object as plans show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Subject {
    /// Its kind.
    pub target: Target,
    /// Its full id; a log's path.
    pub id: Text,
    /// A container's name; a sandbox's pod name; an image's first tag; a log's file name.
    pub name: Text,
    /// Its pod; `null` if another tool made it.
    pub pod: Option<Arc<PodRef>>,
    /// What is known of the pod; the basis of the verdict.
    pub pod_state: PodKnowledge,
    /// Its attempt.
    pub attempt: u32,
    /// When it was created; an image: when crisweep first saw it; a log: when it last changed.
    pub created_at: Timestamp,
    /// Seconds since the time that `min_age` counts from: a container's exit (if known) or, with `age_from:
    /// created`, its creation; an image's last use; otherwise the creation.
    pub age_seconds: i64,
    /// The fields that only images have. Boxed, because most objects are none.
    #[serde(flatten)]
    pub image: Option<Box<ImageUse>>,
}

/// What is known of an image's use and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageUse {
    /// When crisweep first saw it; images alone.
    pub first_seen_at: Timestamp,
    /// When an image was last used; one that never was has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// An image's size as the runtime lists it, shared layers counted in full.
    pub size_bytes: u64,
}

impl Subject {
    /// When an image was last used; `None` if never, and for other targets.
    pub fn last_used_at(&self) -> Option<Timestamp> {
        self.image.as_ref()?.last_used_at
    }

    /// Returns an image's size.
    pub fn size_bytes(&self) -> Option<u64> {
        Some(self.image.as_ref()?.size_bytes)
    }
}

/// An object to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Removal {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: RemoveReason,
    /// The facts behind the reason, in words, where they were asked for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    /// What it was when planned; it must still be that right before its removal.
    #[serde(skip)]
    pub expected: Expected,
    /// The ids of newer records of the same name or pod: by attempt, by creation, or both. They must exist at
    /// its removal. Empty if its pod is finished or deleted: then it needs no other record.
    #[serde(skip)]
    pub superseded_by: Arc<[Text]>,
}

/// What a planned object was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A container in this state.
    Container(ContainerState),
    /// A sandbox that is not ready.
    Sandbox,
    /// An image by the name of its key, all its tags and digests among the names.
    Image {
        /// Its runtime handler; empty: the default one.
        handler: String,
        /// Its id, tags and digests.
        names: Vec<String>,
    },
    /// A pod's log directory.
    PodLogDir {
        /// The pod.
        uid: PodUid,
        /// The directory's inode.
        inode: u64,
        /// When its entries changed last.
        modified_at: Timestamp,
    },
    /// A dead link to a container's log.
    LogLink(ContainerId),
    /// The log file of a removed container, with its rotations and its link.
    ContainerLog(Box<RemovedContainer>),
}

impl Expected {
    /// Returns the removed container if this is its log.
    pub fn log_of(&self) -> Option<&RemovedContainer> {
        match self {
            Self::ContainerLog(container) => Some(container),
            Self::Container(_)
            | Self::Sandbox
            | Self::Image { .. }
            | Self::PodLogDir { .. }
            | Self::LogLink(_) => None,
        }
    }
}

/// An object to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Kept"))]
pub struct KeptObject {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: KeepReason,
    /// The facts behind the reason, in words, where they were asked for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    /// The quarantine of a sandbox whose removal failed, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Box<Quarantined>>,
}

/// The decision about an object; as JSON: `{"remove": "over-cap"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Keep it.
    Keep(KeepReason),
    /// Remove it.
    Remove(RemoveReason),
}

impl Verdict {
    /// Keeps what it would remove, if there is a reason to.
    fn unless(self, reason: Option<KeepReason>) -> Self {
        match (self, reason) {
            (Self::Remove(_), Some(reason)) => Self::Keep(reason),
            (Self::Remove(_) | Self::Keep(_), _) => self,
        }
    }

    /// Returns the words for it in JSON: `keep` or `remove`, and the reason.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Keep(reason) => ("keep", reason.label()),
            Self::Remove(reason) => ("remove", reason.label()),
        }
    }
}

/// Says whether something is old enough. Exactly the minimum is, as for the kubelet; an age in the future never is.
fn at_least(age: SignedDuration, minimum: Duration) -> bool {
    !age.is_negative() && SignedDuration::try_from(minimum).is_ok_and(|minimum| age >= minimum)
}

/// Asks rules in their order: the first that says something is the verdict. If none does, the object stays.
fn first_said<R: strum::VariantArray + Copy>(
    ask: impl Fn(R) -> Option<Verdict>,
    otherwise: KeepReason,
) -> Verdict {
    let said = R::VARIANTS.iter().find_map(|rule| ask(*rule));
    said.unwrap_or(Verdict::Keep(otherwise))
}

/// What a rule says that keeps the objects of which this holds.
fn keep(reason: KeepReason, holds: bool) -> Option<Verdict> {
    holds.then_some(Verdict::Keep(reason))
}

/// What a pass over some targets would do: each of their objects is in exactly one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plan {
    /// When the node was looked at.
    pub taken_at: Timestamp,
    /// The pods come from the API server's watch cache: a pass asks the API server itself, and may find more
    /// pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pods_from_cache: bool,
    /// A list is over the kubelet's limit: so many of the kept objects, of pods that are over, a pass removes all the same
    /// as far as nothing else makes the lists fit, although the kubelet may run the pods again. A pass that carries out a
    /// saved plan does not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at_risk: BTreeMap<Target, usize>,
    /// What the plan does not know, and what limits what it says, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// The removals, in order.
    pub removals: Vec<Removal>,
    /// The kept objects.
    pub kept: Vec<KeptObject>,
    /// Counts of both lists.
    pub summary: BTreeMap<Target, Summary>,
}

/// Counts of one target's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of removals by reason.
    pub remove: BTreeMap<RemoveReason, usize>,
    /// Number of kept objects by reason.
    pub keep: BTreeMap<KeepReason, usize>,
}

impl Summary {
    fn of<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Self {
        let mut removed = [0; RemoveReason::ALL.len()];
        let mut kept = [0; KeepReason::ALL.len()];
        for verdict in verdicts {
            let count = match *verdict {
                Verdict::Remove(reason) => removed.get_mut(reason as usize),
                Verdict::Keep(reason) => kept.get_mut(reason as usize),
            };
            if let Some(count) = count {
                *count += 1;
            }
        }
        let (removed, kept) = (
            RemoveReason::ALL.into_iter().zip(removed),
            KeepReason::ALL.into_iter().zip(kept),
        );
        Self {
            remove: removed.filter(|(_, count)| *count > 0).collect(),
            keep: kept.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
