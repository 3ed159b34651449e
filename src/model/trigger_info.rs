//! Causes and results of triggers: the closed sets behind the API, the journal and metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::labelled;

labelled! {
    /// Who or what asked for a pass.
    pub enum Cause {
        /// An Alertmanager webhook.
        Alert,
        /// An alert polled from an Alertmanager (`alertmanager.poll`).
        Poll,
        /// A local threshold was crossed (`thresholds`).
        Threshold,
        /// `POST /gc`.
        Manual,
        /// `crisweep gc` on the command line.
        Command,
    }
}

impl Cause {
    /// Says whether a program asked, not a person: brakes bind programs only.
    pub fn is_automatic(self) -> bool {
        match self {
            Self::Alert | Self::Poll | Self::Threshold => true,
            Self::Manual | Self::Command => false,
        }
    }
}

labelled! {
    /// The result of one alert of a webhook call.
    pub enum AlertResult {
        /// It queued a pass.
        Accepted,
        /// It joined a pending or running pass.
        Merged,
        /// The same alert (fingerprint and start) was already accepted.
        Duplicate,
        /// It is about another node.
        OtherNode,
        /// It is resolved, and no pass of it was pending.
        Resolved,
        /// It is resolved; the pending pass that it alone had asked for was withdrawn.
        Withdrawn,
        /// No route matches it, and it has no `crisweep` label.
        NotRouted,
        /// Its `crisweep` label names no target.
        BadTarget,
        /// A brake holds: cool-down, passes per hour, or pause.
        Braked,
        /// It is itself a brake: it holds automatic passes while it fires.
        Holds,
        /// It could not be understood.
        Malformed,
        /// The queue is full or the service is shutting down.
        Unavailable,
        /// The caller may not act. Counts calls, because their bodies are not read.
        Refused,
    }
}

labelled! {
    /// The result of polling an Alertmanager.
    pub enum PollResult {
        /// It answered.
        Ok,
        /// It did not answer in time, or could not be reached.
        Unreachable,
        /// It answered with another status than 200.
        Refused,
        /// The answer is no list of alerts, or is too long.
        Malformed,
    }
}

/// Why a pass runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TriggerInfo {
    /// What asked first, of the triggers that ask for the pass until it begins.
    pub cause: Cause,
    /// The HTTP caller, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Caller>,
    /// The alert, if one asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertInfo>,
    /// It follows an automatic pass that had to keep due objects for a time, whose runtime gave no answer, or that ended
    /// at `gc.deadline`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow_up: bool,
}

impl From<Cause> for TriggerInfo {
    /// Returns a trigger of which only the cause is known.
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            by: None,
            alert: None,
            follow_up: false,
        }
    }
}

/// The alert that asked for a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlertInfo {
    /// Its `alertname` label.
    pub name: String,
    /// Alertmanager's fingerprint of its labels.
    pub fingerprint: String,
    /// When it began to fire, as Alertmanager wrote it.
    pub starts_at: String,
    /// The receiver of Alertmanager's configuration that sent it; a polled alert has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
}

/// Who asked over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Caller {
    /// What proved it.
    pub kind: CallerKind,
    /// The token file, user, subject alternative name, account or uid.
    pub name: String,
}

impl Caller {
    /// Returns a caller.
    pub fn new(kind: CallerKind, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind, name }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.label(), self.name)
    }
}

labelled! {
    /// What proves who a caller is.
    pub enum CallerKind {
        /// A bearer token of a file; the name is the file's.
        Token,
        /// A user of the exporter web configuration file.
        User,
        /// A verified client certificate; the name is its first subject alternative name.
        Certificate,
        /// An account that the API server authenticated (`web.token_review`).
        Account,
        /// The owner of the peer's socket on this node.
        Uid,
    }
}
