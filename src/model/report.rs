//! What a pass was asked for and what came of it, as values: the contract's JSON. Never does IO.

use super::every;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{KeepReason, RemoveReason, Target};

/// Who or what asked for a pass.
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
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "kebab-case")]
pub enum Cause {
    /// An Alertmanager webhook.
    Alert,
    /// An alert that was found at an Alertmanager (`alertmanager.poll`).
    Poll,
    /// A mark of `thresholds` was crossed.
    Threshold,
    /// `POST /gc`.
    Manual,
    /// `crisweep gc` on the command line.
    Command,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 5] = every();

    /// Returns the cause as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Says whether it comes from a program, not from a person: then brakes bind it.
    pub fn is_automatic(self) -> bool {
        match self {
            Self::Alert | Self::Poll | Self::Threshold => true,
            Self::Manual | Self::Command => false,
        }
    }
}

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

/// How a pass ended.
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
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// All that was planned is gone.
    Completed,
    /// A dry run planned something; nothing was removed.
    Planned,
    /// Something failed, was skipped because its state changed, or a bound ended the pass.
    Partial,
    /// Cancelled, no look at the node was possible, or the circuit breaker ended the last target that had
    /// anything to try.
    Aborted,
    /// The process ended in mid-pass; set at the next start.
    Interrupted,
    /// The node needed nothing.
    NothingToDo,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] = every();

    /// Returns the outcome as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// The kind of a removal's failure.
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
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum FailureClass {
    /// The CNI teardown failed.
    NetworkTeardown,
    /// There is no CNI plugin to tear down with: its program or its configuration is not there.
    PluginMissing,
    /// The runtime is already at it, or the object is in use.
    Busy,
    /// No answer in time.
    Timeout,
    /// Anything else.
    Other,
}

impl FailureClass {
    /// Every class.
    pub const ALL: [Self; 5] = every();

    /// Returns the class as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// How one removal ended, as the journal writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum RemovalOutcome {
    /// crisweep removed it.
    Removed {
        /// What that freed, where it was measured; not written to the journal.
        #[serde(skip)]
        freed_bytes: Option<u64>,
    },
    /// It was gone before crisweep asked.
    AlreadyGone,
    /// It stays: it is no longer what was planned.
    Skipped {
        /// The difference.
        why: String,
    },
    /// The runtime refused, or did not answer in time.
    Failed {
        /// The kind of failure.
        class: FailureClass,
        /// The runtime's words.
        why: String,
        /// When; earlier versions did not write it down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
        /// A sandbox: how often in a row by then, so that what the ring has lost still counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failures: Option<u32>,
    },
    /// The runtime went away; what became of the object is not known.
    Lost {
        /// The transport's error.
        why: String,
    },
    /// The pass was to end before the call; the object stays. The journal says [`Self::Skipped`].
    #[serde(skip)]
    NotBegun,
}

impl RemovalOutcome {
    /// crisweep removed it, and did not measure what that freed.
    pub const REMOVED: Self = Self::Removed { freed_bytes: None };

    /// Returns that of an object that is no longer what was planned.
    pub fn skipped(why: &str) -> Self {
        let why = why.to_owned();
        Self::Skipped { why }
    }

    /// Returns a failure that is not yet dated.
    pub fn failed(class: FailureClass, why: String) -> Self {
        Self::Failed {
            class,
            why,
            at: None,
            failures: None,
        }
    }
}

/// A sandbox that failed to go and is left alone, as plan, status and page show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// How often it failed in a row.
    pub failures: u32,
    /// How it failed last.
    pub class: FailureClass,
    /// The runtime's words.
    pub error: String,
    /// When it may be tried again.
    pub next_try: Timestamp,
}

/// A sandbox's failure as it was written down: the last one, if there were several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// The sandbox's id.
    pub id: String,
    /// How often it failed in a row, as far as is known.
    pub failures: u32,
    /// How it failed last.
    pub class: FailureClass,
    /// The runtime's words.
    pub error: String,
    /// When; `None` if that was not written down.
    pub at: Option<Timestamp>,
}

/// What became of one alert of a webhook call.
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
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum AlertResult {
    /// It queued a pass.
    Accepted,
    /// It joined a pass that already waits or runs.
    Merged,
    /// The same alert (fingerprint and start) was already acted on.
    Duplicate,
    /// It is about another node.
    OtherNode,
    /// It is resolved, and nothing of it was waiting.
    Resolved,
    /// It took back the pass that it alone had queued.
    Withdrawn,
    /// No route and no `crisweep` label: not for us.
    NotRouted,
    /// Its `crisweep` label names no target.
    BadTarget,
    /// A brake held: cool-down, passes per hour, or pause.
    Braked,
    /// It could not be understood.
    Malformed,
    /// The queue is full or the service is going down.
    Unavailable,
    /// Who brought it may not act. Counts calls: nothing of such a call is read.
    Refused,
}

impl AlertResult {
    /// Every result.
    pub const ALL: [Self; 12] = every();

    /// Returns the result as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// What came of asking an Alertmanager for its alerts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum PollResult {
    /// It answered.
    Ok,
    /// It did not answer in time, or there is no way to it.
    Unreachable,
    /// It answered with another status than 200.
    Refused,
    /// What it answered is no list of alerts, or too long.
    Malformed,
}

impl PollResult {
    /// Every result.
    pub const ALL: [Self; 4] = every();

    /// Returns the result as metrics write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// Why a pass runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerInfo {
    /// Who asked first.
    pub cause: Cause,
    /// The alert, where one asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertInfo>,
    /// It follows a pass that was asked for so and had to leave something for a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow_up: bool,
}

/// The alert that asked for a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertInfo {
    /// Its `alertname` label.
    pub name: String,
    /// Alertmanager's fingerprint of its labels.
    pub fingerprint: String,
    /// When it began to fire, as Alertmanager wrote it.
    pub starts_at: String,
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
