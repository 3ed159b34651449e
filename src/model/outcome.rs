//! How a pass and each of its removals ended, and why removals failed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::every;

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
