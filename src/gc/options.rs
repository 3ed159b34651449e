//! Options of one pass that override the configuration.

use std::sync::Arc;
use std::time::Duration;

use super::{Limit, Planned, Policy};

/// The options of a pass. Triggers join only with equal options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// Only plan.
    pub dry_run: bool,
    /// Remove at most this many; `None`: as configured.
    pub max_removals: Option<u64>,
    /// Overrides the policy's `assume_finished_after`.
    pub assume_finished_after: Option<Duration>,
    /// Overrides the policy's `max_dead` of containers and sandboxes.
    pub max_dead: Option<Limit>,
    /// Run although `brakes.pause` is set, without the circuit breaker (`gc.failure_ratio`).
    pub force: bool,
    /// Remove only what this plan removes too. Such a pass joins no other.
    pub plan: Option<Arc<SavedPlan>>,
}

/// A plan that was saved, to be carried out later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPlan {
    /// Its id.
    pub id: String,
    /// What it removes.
    pub objects: Planned,
}

impl PassOptions {
    /// Applies the options to a policy.
    pub fn apply_to(&self, policy: &mut Policy) {
        if let Some(after) = self.assume_finished_after {
            policy.assume_finished_after = (!after.is_zero()).then_some(after);
        }
        if let Some(max_dead) = self.max_dead {
            policy.containers.max_dead = max_dead;
            policy.sandboxes.max_dead = max_dead;
        }
    }
}
