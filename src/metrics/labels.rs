//! The enums that are labels, with their label names. Never a name from outside.

use super::table::{Label, Labels};
use super::{Endpoint, StatusClass};
use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, EvidenceFailure, FailureClass, Outcome,
    PollResult, RemoveReason, Target, every,
};

macro_rules! labels {
    ($($label:ty = $name:literal),* $(,)?) => {$(
        impl Label for $label {
            const NAME: &'static str = $name;
            const VALUES: &'static [Self] = &Self::ALL;

            fn text(self) -> &'static str {
                self.label()
            }
        }
    )*};
}

labels! {
    AlertResult = "result",
    CallerKind = "caller",
    Cause = "cause",
    Endpoint = "endpoint",
    EventResult = "result",
    EvidenceFailure = "cause",
    FailureClass = "class",
    List = "list",
    Moment = "moment",
    Brake = "brake",
    PollResult = "result",
    StatusClass = "code",
    Target = "target",
}

/// A list of the runtime that a pass shortens, as a label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub(super) enum List {
    Containers,
    Sandboxes,
}

/// When a figure around a pass was read, as a label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Moment {
    Before,
    After,
}

impl List {
    const ALL: [Self; 2] = every();

    fn label(self) -> &'static str {
        self.into()
    }
}

impl Moment {
    const ALL: [Self; 2] = every();

    fn label(self) -> &'static str {
        self.into()
    }
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

    fn text(self) -> &'static str {
        self.label()
    }
}

/// A target with a possible reason of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Removed(pub(super) Target, pub(super) RemoveReason);

impl Labels for Removed {
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
