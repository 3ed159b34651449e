//! Which enums are labels, and under which name. Never a name from outside.

use super::table::Label;
use super::{Endpoint, StatusClass};
use crate::gc::{RemoveReason, Target};
use crate::report::{AlertResult, Cause, FailureClass, Outcome, PollResult};

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
    Cause = "cause",
    Endpoint = "endpoint",
    FailureClass = "class",
    Outcome = "outcome",
    PollResult = "result",
    RemoveReason = "reason",
    StatusClass = "code",
    Target = "target",
}
