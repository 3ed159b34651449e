//! Who asks for a pass, and what came of asking: the closed sets behind the API, the journal and metrics.

use serde::{Deserialize, Serialize};

use super::every;

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
