//! A pass as the API writes it. Never does IO.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    FilesystemUsage, KeepReason, Outcome, RemovalOutcome, RemoveReason, Target, TriggerInfo,
};

/// A pass's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PassState {
    /// Waiting.
    Queued,
    /// Running.
    Running,
    /// Finished.
    Done,
}

/// The node's figures around a pass; `null` where one could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeFigures {
    /// Containers in state exited.
    pub exited_containers: Option<u64>,
    /// Sandboxes that are not ready.
    pub not_ready_sandboxes: Option<u64>,
    /// Size of an unfiltered list of containers.
    pub containers_list_bytes: Option<u64>,
    /// Size of an unfiltered list of sandboxes.
    pub sandboxes_list_bytes: Option<u64>,
    /// The image file system's used share, 0 to 1.
    pub image_fs_used_ratio: Option<f64>,
    /// The image file system's bytes in use.
    pub image_fs_used_bytes: Option<u64>,
    /// The image file system's bytes that can still be written.
    pub image_fs_available_bytes: Option<u64>,
    /// The image file system's inodes in use; `null` on file systems that allocate them as needed.
    pub image_fs_inodes_used: Option<u64>,
    /// The image file system's free inodes, likewise.
    pub image_fs_inodes_free: Option<u64>,
    /// Both lists were read completely; otherwise the counts are lower bounds.
    pub complete: bool,
}

impl NodeFigures {
    /// Sets the image file system's figures.
    pub fn measured(&mut self, usage: FilesystemUsage) {
        self.image_fs_used_ratio = Some(usage.used_ratio());
        self.image_fs_used_bytes = Some(usage.used_bytes);
        self.image_fs_available_bytes = Some(usage.available_bytes);
        let has_inodes = usage.inodes > 0;
        self.image_fs_inodes_used =
            has_inodes.then(|| usage.inodes.saturating_sub(usage.inodes_free));
        self.image_fs_inodes_free = has_inodes.then_some(usage.inodes_free);
    }

    /// Returns the used share of the image file system's inodes, 0 to 1; `None` where it makes them as needed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people and alerts")]
    pub fn image_fs_inodes_used_ratio(&self) -> Option<f64> {
        let (used, free) = (self.image_fs_inodes_used?, self.image_fs_inodes_free?);
        let inodes = used.saturating_add(free);
        (inodes > 0).then(|| used as f64 / inodes as f64)
    }
}

/// The pod knowledge that a pass worked with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PodsReport {
    /// The source: `none`, `file`, `kubelet-socket`, `kubelet`, `api-server`.
    pub source: String,
    /// How far it was believed: `none`, `settling`, `failed`, `incomplete`, `known`.
    pub state: String,
    /// Why it was not used, in words.
    pub detail: Option<String>,
}

/// What a pass did to one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TargetReport {
    /// Whether the pass has begun it.
    pub begun: bool,
    /// Number of planned removals, without those that the cap no longer asked for at a later look.
    pub planned: u64,
    /// The planned removals by reason; their sum is `planned`.
    pub reasons: BTreeMap<RemoveReason, u64>,
    /// Number of removed objects.
    pub removed: u64,
    /// Number of objects, removed or already gone, that the look after the pass still lists.
    pub still_listed: u64,
    /// Number of objects that were gone before their removal.
    pub already_gone: u64,
    /// Number of failed removals.
    pub failed: u64,
    /// Number of these that had failed in an earlier pass: sandboxes tried again after their back-off.
    pub failed_again: u64,
    /// When the next quarantined sandbox is tried again; `null` where none is quarantined.
    pub next_try: Option<Timestamp>,
    /// Number of objects skipped because they changed since the plan.
    pub skipped: u64,
    /// Number of planned objects that still exist, as far as the look after the pass shows.
    pub remaining: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of kept objects by reason.
    pub kept: BTreeMap<KeepReason, u64>,
    /// Bytes freed; `null` for targets without sizes.
    pub freed_bytes: Option<u64>,
}

impl TargetReport {
    /// Adds planned removals.
    pub fn plan(&mut self, reason: RemoveReason, count: u64) {
        self.planned += count;
        *self.reasons.entry(reason).or_default() += count;
    }

    /// Takes back one planned removal.
    pub fn unplan(&mut self, reason: RemoveReason) {
        self.planned = self.planned.saturating_sub(1);
        if let Some(count) = self.reasons.get_mut(&reason) {
            *count = count.saturating_sub(1);
        }
        self.reasons.retain(|_, count| *count > 0);
    }

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

    /// Continues a line with how many failed and how many were skipped; adds nothing if none was.
    pub fn add_troubles(&self, line: &mut String) {
        for (count, what) in [(self.failed, "failed"), (self.skipped, "skipped")] {
            if count > 0 {
                line.push_str(&format!(", {count} {what}"));
            }
        }
    }

    /// Updates `remaining`.
    pub fn count_remaining(&mut self) {
        let gone = (self.removed + self.already_gone).saturating_sub(self.still_listed);
        self.remaining = self.planned.saturating_sub(gone);
    }
}

/// Stands for the errors that a pass does not keep.
pub const FURTHER_ERRORS: &str = "further errors are in the log";

/// A pass, from the queue to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pass {
    /// Its id: the time at which it was queued, and a counter.
    pub id: String,
    /// Its state.
    pub state: PassState,
    /// How it ended; `null` before.
    pub outcome: Option<Outcome>,
    /// Whether it only plans and removes nothing.
    pub dry_run: bool,
    /// Why it runs.
    pub trigger: TriggerInfo,
    /// The runtime's socket: a state directory may have served another runtime before.
    #[serde(default)]
    pub runtime: String,
    /// The saved plan that it carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Number of further triggers that joined it while it was queued.
    pub merged_triggers: u64,
    /// When it was asked for.
    pub queued_at: Timestamp,
    /// Earliest start of a queued pass: the end of a cool-down, or of the time for which an earlier pass had to
    /// keep objects. `null`: it starts in its turn.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The knowledge of the node's pods; `null` before the first look.
    #[serde(default)]
    pub pods: Option<PodsReport>,
    /// The node before it.
    pub before: Option<NodeFigures>,
    /// The node after it.
    pub after: Option<NodeFigures>,
    /// The targets it was asked for, with the result of each.
    pub targets: BTreeMap<Target, TargetReport>,
    /// Errors and early ends, in words; bounded.
    pub errors: Vec<String>,
}

impl Pass {
    /// Returns a pass that waits for its turn.
    pub fn queued(
        id: String,
        trigger: TriggerInfo,
        targets: impl IntoIterator<Item = Target>,
        queued_at: Timestamp,
    ) -> Self {
        let targets = targets.into_iter();
        Self {
            id,
            state: PassState::Queued,
            outcome: None,
            dry_run: false,
            trigger,
            runtime: String::new(),
            plan: None,
            merged_triggers: 0,
            queued_at,
            not_before: None,
            started_at: None,
            finished_at: None,
            pods: None,
            before: None,
            after: None,
            targets: targets.map(|it| (it, TargetReport::default())).collect(),
            errors: Vec::new(),
        }
    }

    /// Says whether the pass is over.
    pub fn is_done(&self) -> bool {
        self.state == PassState::Done
    }

    /// Says whether the pass began, and is over.
    pub fn has_run(&self) -> bool {
        self.is_done() && self.started_at.is_some()
    }

    /// Returns the error that says best why the pass did not do all: the last one that it keeps.
    pub fn last_error(&self) -> Option<&str> {
        let mut errors = self.errors.iter().rev().map(String::as_str);
        errors.find(|error| *error != FURTHER_ERRORS)
    }

    /// Says whether the pass has not begun.
    pub fn waits(&self) -> bool {
        self.started_at.is_none() && !self.is_done()
    }

    /// Returns the targets that it has begun.
    pub fn begun(&self) -> BTreeSet<Target> {
        self.targets_that(|report| report.begun)
    }

    /// Returns the targets with at least one tried removal.
    pub fn tried(&self) -> BTreeSet<Target> {
        self.targets_that(|it| it.removed + it.already_gone + it.failed + it.skipped > 0)
    }

    fn targets_that(&self, is: impl Fn(&TargetReport) -> bool) -> BTreeSet<Target> {
        let those = self.targets.iter().filter(|(_, report)| is(report));
        those.map(|(target, _)| *target).collect()
    }

    /// Returns the targets that it was asked for.
    pub fn target_set(&self) -> BTreeSet<Target> {
        self.targets.keys().copied().collect()
    }
}
