//! Options of one pass that override the configuration, and the saved plan that it carries out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Limit, Plan, Policy, Verdict};
use crate::model::{KeepReason, RemoveReason, Target, Text};

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
    /// When the node was looked at.
    pub taken_at: Timestamp,
    /// When it can no longer be carried out.
    pub expires_at: Timestamp,
    /// What it removes.
    pub objects: PlannedObjects,
}

impl SavedPlan {
    /// Says whether it can no longer be carried out. If the clock was set back to before its look, its age is unknown,
    /// and it cannot either.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        !(self.taken_at..self.expires_at).contains(&now)
    }
}

/// The objects that an earlier plan removes, by target, id and creation: what was created again under an old id is
/// another object. A later plan can be limited to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedObjects(BTreeSet<(Target, Text, Timestamp)>);

impl FromIterator<(Target, Text, Timestamp)> for PlannedObjects {
    fn from_iter<I: IntoIterator<Item = (Target, Text, Timestamp)>>(objects: I) -> Self {
        Self(objects.into_iter().collect())
    }
}

impl PlannedObjects {
    /// Returns what a plan removes.
    pub fn of(plan: &Plan) -> Self {
        let removals = plan.removals.iter().map(|removal| &removal.subject);
        removals
            .map(|it| (it.target, it.id.clone(), it.created_at))
            .collect()
    }

    /// Keeps an object that the earlier plan does not remove. The logs of a removed container go with it, as in any
    /// pass.
    pub(super) fn keep_others(
        &self,
        verdict: &mut Verdict,
        object: impl FnOnce() -> (Target, Text, Timestamp),
    ) {
        let Verdict::Remove(reason) = *verdict else {
            return;
        };
        if reason != RemoveReason::ContainerRemoved && !self.0.contains(&object()) {
            *verdict = Verdict::Keep(KeepReason::NotInPlan);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_plan_expires_and_so_it_does_when_the_clock_goes_back_behind_its_look() {
        let at = |time: &str| format!("2026-01-01T{time}Z").parse().unwrap();
        let plan = SavedPlan {
            id: "p".to_owned(),
            taken_at: at("12:00:00"),
            expires_at: at("13:00:00"),
            objects: PlannedObjects::default(),
        };
        let expired =
            ["11:59:59", "12:00:00", "12:59:59", "13:00:00"].map(|time| plan.has_expired(at(time)));
        assert_eq!(expired, [true, false, false, true]);
    }
}
