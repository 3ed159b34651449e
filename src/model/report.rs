//! A pass as others see it: the contract's JSON. Never does IO.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{KeepReason, Outcome, RemovalOutcome, RemoveReason, Target, TriggerInfo};

/// Where a pass stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PassState {
    /// Waiting for its turn.
    Queued,
    /// At work.
    Running,
    /// Over.
    Done,
}

/// The node's figures around a pass; `null` where one could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Containers in state exited.
    pub exited_containers: Option<u64>,
    /// Sandboxes that are not ready.
    pub not_ready_sandboxes: Option<u64>,
    /// What an unfiltered list of containers weighs.
    pub containers_list_bytes: Option<u64>,
    /// What an unfiltered list of sandboxes weighs.
    pub sandboxes_list_bytes: Option<u64>,
    /// The image file system's used share, 0 to 1.
    pub image_fs_used_ratio: Option<f64>,
    /// Both lists were read whole; else the counts are the least that there is.
    pub complete: bool,
}

impl Default for NodeFigures {
    /// Those that an earlier version wrote down did not say whether they were complete.
    fn default() -> Self {
        Self {
            exited_containers: None,
            not_ready_sandboxes: None,
            containers_list_bytes: None,
            sandboxes_list_bytes: None,
            image_fs_used_ratio: None,
            complete: true,
        }
    }
}

/// The pod knowledge that a pass worked with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodsReport {
    /// The source: `none`, `file`, `kubelet-socket`, `kubelet`, `api-server`.
    pub source: String,
    /// How far it was believed: `none`, `settling`, `failed`, `incomplete`, `known`.
    pub state: String,
    /// Why it was not believed, in words.
    pub detail: Option<String>,
}

/// What a pass did to one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetReport {
    /// Whether the pass has come to it.
    pub begun: bool,
    /// How many the plan wanted to remove, less those that the cap no longer asked for on a later look.
    pub planned: u64,
    /// Why the plan wanted them gone.
    pub reasons: BTreeMap<RemoveReason, u64>,
    /// How many we removed.
    pub removed: u64,
    /// How many were gone before we came.
    pub already_gone: u64,
    /// How many could not be removed.
    pub failed: u64,
    /// How many of these had failed in an earlier pass: sandboxes that were tried again after their back-off.
    pub failed_again: u64,
    /// When the next quarantined sandbox is tried again; `null` where none is quarantined.
    pub next_try: Option<Timestamp>,
    /// How many we left because their state had changed since the plan.
    pub skipped: u64,
    /// How many of the planned are still there.
    pub remaining: u64,
    /// How many batches it took.
    pub batches: u64,
    /// What stays, by reason.
    pub kept: BTreeMap<KeepReason, u64>,
    /// Bytes freed; `null` for what has no size of its own.
    pub freed_bytes: Option<u64>,
}

impl TargetReport {
    /// Counts how one removal ended; `listed_bytes` is the object's size as the runtime lists it.
    pub fn count(&mut self, outcome: &RemovalOutcome, listed_bytes: Option<u64>) {
        match outcome {
            RemovalOutcome::Removed { freed_bytes } => {
                self.removed += 1;
                if let Some(bytes) = freed_bytes.or(listed_bytes) {
                    let before = self.freed_bytes.unwrap_or(0);
                    self.freed_bytes = Some(before.saturating_add(bytes));
                }
            }
            RemovalOutcome::AlreadyGone => self.already_gone += 1,
            RemovalOutcome::Skipped { .. } => self.skipped += 1,
            RemovalOutcome::Failed { .. } => self.failed += 1,
            RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun => {}
        }
        self.count_remaining();
    }

    /// Works out how many of the planned are still there.
    pub fn count_remaining(&mut self) {
        self.remaining = self
            .planned
            .saturating_sub(self.removed + self.already_gone);
    }
}

/// A pass, from the queue to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Its id: start time and a counter, so that it is unique across restarts.
    pub id: String,
    /// Where it stands.
    pub state: PassState,
    /// How it ended; `null` before.
    pub outcome: Option<Outcome>,
    /// Whether it only plans.
    pub dry_run: bool,
    /// Why it runs.
    pub trigger: TriggerInfo,
    /// The runtime's socket: a state directory may have served another runtime before.
    #[serde(default)]
    pub runtime: String,
    /// How many further triggers joined it while it waited.
    pub merged_triggers: u64,
    /// When it was asked for.
    pub queued_at: Timestamp,
    /// What a waiting pass waits for: the end of a cool-down, or of the time for which another pass had to
    /// leave something. `null`: it begins when it is its turn.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What was known of the node's pods; `null` before the first look.
    #[serde(default)]
    pub pods: Option<PodsReport>,
    /// The node before it.
    pub before: Option<NodeFigures>,
    /// The node after it.
    pub after: Option<NodeFigures>,
    /// What it was asked to clean, and what came of each.
    pub targets: BTreeMap<Target, TargetReport>,
    /// What went wrong or was cut short, in words; bounded.
    pub errors: Vec<String>,
}

impl Pass {
    /// Says whether the pass is over.
    pub fn is_done(&self) -> bool {
        self.state == PassState::Done
    }

    /// Returns the targets that it has come to.
    pub fn begun(&self) -> BTreeSet<Target> {
        self.targets_that(|report| report.begun)
    }

    /// Returns the targets of which it tried to remove something.
    pub fn tried(&self) -> BTreeSet<Target> {
        self.targets_that(|it| it.removed + it.already_gone + it.failed + it.skipped > 0)
    }

    fn targets_that(&self, is: impl Fn(&TargetReport) -> bool) -> BTreeSet<Target> {
        let those = self.targets.iter().filter(|(_, report)| is(report));
        those.map(|(target, _)| *target).collect()
    }

    /// Returns the targets that it was asked to clean.
    pub fn target_set(&self) -> BTreeSet<Target> {
        self.targets.keys().copied().collect()
    }
}
