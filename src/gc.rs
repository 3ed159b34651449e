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
//! - Images go by the kubelet's marks, ages and order; never one that a container (in any state), a
//!   volume or the sandboxes may need.
//! - Every object gets a verdict with a reason, and the same code judges for a preview and a pass.

mod age;
pub mod check;
pub mod containers;
mod detail;
pub mod images;
mod index;
pub mod knowledge;
pub mod logs;
mod options;
pub mod plan;
mod policy;
mod quiet;
pub mod sandboxes;
mod wait;
mod want;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::model::{
    ContainerId, ContainerState, KeepReason, PodRef, PodUid, Quarantined, RemoveReason,
    RemovedContainer, Target, Text,
};
pub use options::PassOptions;
pub use plan::plan;
pub use policy::{
    AgeFrom, ContainerPolicy, ImagePolicy, KeepPattern, Limit, LogPolicy, PodPolicy, Policy,
    Protect, SandboxPolicy,
};
pub use wait::{kept_for_a_time, kept_for_quiet};
pub use want::kept_for_want;

/// What is known of an object's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodKnowledge {
    /// The source lists it and it may run again.
    Active,
    /// The source says that it finished, and nothing of it lives here.
    Terminated,
    /// No source answered for it, but it counts as finished under `assume_finished_after`.
    Assumed,
    /// Complete lists do not have it, for `pods.settle` now.
    Deleted,
    /// A complete list does not have it, but not for `pods.settle` yet.
    Absent,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its kind.
    pub target: Target,
    /// Its full id; a log's path.
    pub id: Text,
    /// A container's name; a sandbox's pod name; an image's first tag; a log's file name.
    pub name: Text,
    /// Its pod; `None` for what the kubelet did not make.
    pub pod: Option<Arc<PodRef>>,
    /// What is known of the pod; the verdict rests on it.
    pub pod_state: PodKnowledge,
    /// Its attempt.
    pub attempt: u32,
    /// When it was created; an image: when crisweep first saw it; a log: when it last changed.
    pub created_at: Timestamp,
    /// Seconds since what `min_age` counts from: a container's exit (where known) or, with
    /// `age_from: created`, its creation; an image's last use; else the creation.
    pub age_seconds: i64,
    /// What images have more. Boxed: there are a thousand other objects for each.
    pub image: Option<Box<ImageUse>>,
}

/// What is known of an image's use and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUse {
    /// When it was last used; `None` for one that never was.
    pub last_used_at: Option<Timestamp>,
    /// Its size as the runtime lists it, shared layers counted in full.
    pub size_bytes: u64,
}

impl Subject {
    /// Returns when an image was last used; `None` for one that never was, and for all else.
    pub fn last_used_at(&self) -> Option<Timestamp> {
        self.image.as_ref()?.last_used_at
    }

    /// Returns an image's size.
    pub fn size_bytes(&self) -> Option<u64> {
        Some(self.image.as_ref()?.size_bytes)
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Subject", 11)?;
        fields.serialize_field("target", &self.target)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("pod", &self.pod)?;
        fields.serialize_field("pod_state", &self.pod_state)?;
        fields.serialize_field("attempt", &self.attempt)?;
        fields.serialize_field("created_at", &self.created_at)?;
        if self.image.is_some() {
            fields.serialize_field("first_seen_at", &self.created_at)?;
        }
        fields.serialize_field("age_seconds", &self.age_seconds)?;
        if let Some(last_used_at) = self.last_used_at() {
            fields.serialize_field("last_used_at", &last_used_at)?;
        }
        if let Some(size_bytes) = self.size_bytes() {
            fields.serialize_field("size_bytes", &size_bytes)?;
        }
        fields.end()
    }
}

/// An object that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: RemoveReason,
    /// What that rests on, in words, where it was told.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    /// What it was planned as; it must still be that right before it goes.
    #[serde(skip)]
    pub expected: Expected,
    /// The ids of the records that outdo it, of the same name or pod: by attempt, by creation, or both.
    /// It may only go while they are there. Empty where its pod is over: then it needs no other.
    #[serde(skip)]
    pub outdone_by: Box<[Text]>,
}

/// What an object was when it was planned to go.
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
        /// Which directory it is.
        inode: u64,
        /// When its entries changed last.
        modified_at: Timestamp,
    },
    /// A dead link to a container's log.
    LogLink(ContainerId),
    /// The log file of a container that went, with its rotations and its link.
    ContainerLog(Box<RemovedContainer>),
}

/// An object that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Why.
    pub reason: KeepReason,
    /// What holds it, in words, where it was told.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    /// A sandbox that is left alone because it failed to go: what is known of that, where it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Box<Quarantined>>,
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
    /// What is known of the pods comes from the API server's watch cache: a pass asks anew, and may find more pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pods_from_cache: bool,
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
