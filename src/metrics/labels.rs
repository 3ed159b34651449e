//! The enums that are labels, with their label names. Never a name from outside.

use super::table::{Label, LabelSet};
use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, EvidenceFailure, FailureClass, Outcome,
    PollResult, RemoveReason, Target,
};

macro_rules! labels {
    ($($label:ty = $name:literal),* $(,)?) => {$(
        impl Label for $label {
            const NAME: &'static str = $name;
        }
    )*};
}

labels! {
    AlertResult = "result",
    CallerKind = "caller",
    Cause = "cause",
    HttpEndpoint = "endpoint",
    EventResult = "result",
    EvidenceFailure = "cause",
    FailureClass = "class",
    ListName = "list",
    PassMoment = "moment",
    Brake = "brake",
    PollResult = "result",
    StatusClass = "code",
    Target = "target",
}

/// A part of the HTTP interface, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum HttpEndpoint {
    /// `/metrics`.
    Metrics,
    /// `/gc`.
    Gc,
    /// `/webhook/alertmanager`.
    Webhook,
    /// `/api/...`.
    Api,
    /// `/-/...`.
    Management,
    /// `/`.
    Page,
    /// Any other path: paths from outside are not labels.
    Other,
}

impl HttpEndpoint {
    /// Returns the part of the interface that a request's path belongs to.
    pub fn of_path(path: &str) -> Self {
        match path {
            "/" => Self::Page,
            "/metrics" => Self::Metrics,
            "/gc" => Self::Gc,
            "/webhook/alertmanager" => Self::Webhook,
            _ if path.starts_with("/api/") => Self::Api,
            _ if path.starts_with("/-/") => Self::Management,
            _ => Self::Other,
        }
    }
}

/// The class of an HTTP status, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum StatusClass {
    #[strum(serialize = "2xx")]
    Success,
    #[strum(serialize = "4xx")]
    ClientError,
    #[strum(serialize = "5xx")]
    ServerError,
}

impl StatusClass {
    /// We never redirect, so everything below 400 is one class.
    pub(super) fn of(status: u16) -> Self {
        match status {
            ..400 => Self::Success,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// A list of the runtime that a pass shortens, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ListName {
    Containers,
    Sandboxes,
}

/// When a figure around a pass was read, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum PassMoment {
    Before,
    After,
}

/// Dry runs are counted separately, so no series has `planned`.
impl Label for Outcome {
    const NAME: &'static str = "outcome";
    const VALUES: &'static [Self] = &[
        Self::Completed,
        Self::Partial,
        Self::Aborted,
        Self::Interrupted,
        Self::NothingToDo,
    ];
}

/// A target with a possible reason of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovalLabels(pub(super) Target, pub(super) RemoveReason);

impl LabelSet for RemovalLabels {
    fn combinations() -> Vec<Self> {
        let of = |target| {
            RemoveReason::all(target)
                .iter()
                .map(move |&reason| Self(target, reason))
        };
        Target::ALL.into_iter().flat_map(of).collect()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        vec![("target", self.0.label()), ("reason", self.1.label())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_from_outside_are_one_label() {
        let cases = [
            ("/", HttpEndpoint::Page),
            ("/metrics", HttpEndpoint::Metrics),
            ("/gc", HttpEndpoint::Gc),
            ("/webhook/alertmanager", HttpEndpoint::Webhook),
            ("/api/v1/passes/17", HttpEndpoint::Api),
            ("/-/ready", HttpEndpoint::Management),
            ("/metrics/", HttpEndpoint::Other),
            ("/gc/../etc", HttpEndpoint::Other),
            ("", HttpEndpoint::Other),
        ];
        for (path, endpoint) in cases {
            assert_eq!(HttpEndpoint::of_path(path), endpoint, "{path}");
        }
    }

    #[test]
    fn statuses_are_classed_by_their_hundred() {
        let cases = [
            (200, StatusClass::Success),
            (399, StatusClass::Success),
            (400, StatusClass::ClientError),
            (499, StatusClass::ClientError),
            (500, StatusClass::ServerError),
        ];
        for (status, class) in cases {
            assert_eq!(StatusClass::of(status), class, "{status}");
        }
    }
}
