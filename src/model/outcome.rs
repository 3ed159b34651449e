//! How a pass, each of its removals and each of its Events ended, and why removals failed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::labelled;

labelled! {
    /// How a pass ended.
    pub enum Outcome {
        /// Every planned object is gone.
        Completed,
        /// A dry run planned something; nothing was removed.
        Planned,
        /// Something failed, was skipped because its state changed, or a bound ended the pass.
        Partial,
        /// Cancelled, no look at the node was possible, or the circuit breaker ended the last target with
        /// removals left.
        Aborted,
        /// The process ended during the pass; set at the next start.
        Interrupted,
        /// Nothing was to be removed.
        NothingToDo,
    }
}

labelled! {
    /// The kind of a removal's failure.
    pub enum FailureClass {
        /// The CNI teardown failed.
        NetworkTeardown,
        /// The CNI plugin's program or configuration is missing.
        PluginMissing,
        /// Another removal of the object is in progress, or the object is in use.
        Busy,
        /// No answer in time.
        Timeout,
        /// Anything else.
        Other,
    }
}

labelled! {
    /// What became of a Kubernetes Event.
    pub enum EventResult {
        /// It was written.
        Created,
        /// It was added to an earlier one of the same object and reason.
        Repeated,
        /// There were too many at once, or it still waited when the service ended.
        LeftOut,
        /// The API server did not take it.
        Failed,
    }
}

/// How one removal ended, as the journal writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "result", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum RemovalOutcome {
    /// crisweep removed it.
    Removed {
        /// Freed bytes, if measured; not written to the journal.
        #[serde(skip)]
        freed_bytes: Option<u64>,
    },
    /// It was gone before crisweep asked.
    AlreadyGone,
    /// Kept, because it changed since the plan.
    Skipped {
        /// The change.
        why: String,
    },
    /// The runtime refused, or did not answer in time.
    Failed {
        /// The kind of failure.
        class: FailureClass,
        /// The runtime's message.
        why: String,
        /// When it failed; `None`: not dated yet.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
        /// Failures in a row of a sandbox, including those that the journal has dropped.
        #[serde(skip_serializing_if = "Option::is_none")]
        failures: Option<u32>,
    },
    /// The connection to the runtime was lost; whether the object was removed is unknown.
    Lost {
        /// The transport's error.
        why: String,
    },
    /// The pass had to end before the call; the object stays. The journal has [`Self::Skipped`].
    #[serde(skip)]
    NotBegun,
}

impl RemovalOutcome {
    /// Removed, without measuring the freed bytes.
    pub const REMOVED: Self = Self::Removed { freed_bytes: None };

    /// Says whether the object is gone, by the runtime's word.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Removed { .. } | Self::AlreadyGone => true,
            Self::Skipped { .. } | Self::Failed { .. } | Self::Lost { .. } | Self::NotBegun => {
                false
            }
        }
    }

    /// Returns the outcome of an object that changed since the plan.
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

/// A quarantined sandbox, as plan, status and page show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Quarantined {
    /// Number of failures in a row.
    pub failures: u32,
    /// Class of the last failure.
    pub class: FailureClass,
    /// The runtime's message.
    pub error: String,
    /// When it may be tried again.
    pub next_try: Timestamp,
}

/// The last failure of a sandbox that the journal has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// The sandbox's id.
    pub id: String,
    /// Number of failures in a row.
    pub failures: u32,
    /// Class of the last failure.
    pub class: FailureClass,
    /// The runtime's message.
    pub error: String,
    /// When; `None`: the failure was not dated.
    pub at: Option<Timestamp>,
}
