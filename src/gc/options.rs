//! What one pass asks for instead of what the configuration says.

use std::time::Duration;

use super::{Limit, Policy};

/// How a pass is to run. Triggers join only where these are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// Only plan.
    pub dry_run: bool,
    /// Remove at most this many; `None`: what the configuration says.
    pub max_removals: Option<u64>,
    /// Overrides the policy's `assume_finished_after`.
    pub assume_finished_after: Option<Duration>,
    /// Overrides the policy's `max_dead` of containers and sandboxes.
    pub max_dead: Option<Limit>,
    /// Run although `brakes.pause` is set, and past the circuit breaker (`gc.failure_ratio`).
    pub force: bool,
}

impl PassOptions {
    /// Sets what one pass asks for instead of what the configuration says.
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
