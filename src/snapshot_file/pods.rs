//! The part of a policy that the configuration has below `pods`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gc::Policy;
use crate::model::setting::{As, Off, Time};

/// When the end of a pod is believed, with the configuration's keys and forms.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodsInForce {
    #[serde(with = "As::<Time>")]
    settle: Duration,
    #[serde(with = "As::<Time>")]
    quiet: Duration,
    #[serde(with = "As::<Off<Time>>")]
    assume_finished_after: Option<Duration>,
}

impl PodsInForce {
    pub(super) fn of(policy: &Policy) -> Self {
        Self {
            settle: policy.pods.settle,
            quiet: policy.pods.quiet,
            assume_finished_after: policy.assume_finished_after,
        }
    }

    pub(super) fn put_into(self, policy: &mut Policy) {
        policy.pods.settle = self.settle;
        policy.pods.quiet = self.quiet;
        policy.assume_finished_after = self.assume_finished_after;
    }
}
