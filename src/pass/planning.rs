//! What to remove, and what of it is still to be removed on a later look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Run;
use super::end::End;
use super::queue::Queue;
use crate::gc::{self, Plan, Policy};
use crate::model::{KeepReason, RemoveReason, Target, Text};
use crate::snapshot::Look;

/// A look that takes longer than this and than `collect.max_age` serves several batches.
const LONG_LOOK: Duration = Duration::from_secs(1);
/// The pass works on a long look for this many times its duration, so at most a third of the pass is spent
/// looking.
const WORK_PER_LOOK: u32 = 2;

/// Returns for how long after its end a look that took `took` is used.
fn holds_for(took: Duration, max_age: Duration) -> Duration {
    // 0 asks for a look before every batch, whatever it costs.
    let is_long = !max_age.is_zero() && took > max_age.max(LONG_LOOK);
    if is_long {
        took.saturating_mul(WORK_PER_LOOK)
    } else {
        max_age
    }
}

impl Run<'_> {
    /// Says whether the next batch needs a new look.
    pub(super) fn is_stale(&self, look: &Look) -> bool {
        let since_end = look.started.elapsed().saturating_sub(look.duration);
        since_end > holds_for(look.duration, self.config.collect.max_age)
    }

    /// Plans, and checks the plan.
    pub(super) fn plan(&self, look: &Look, targets: &BTreeSet<Target>) -> Result<Plan, End> {
        self.plan_under(look, targets, &self.policy)
    }

    pub(super) fn plan_under(
        &self,
        look: &Look,
        targets: &BTreeSet<Target>,
        policy: &Policy,
    ) -> Result<Plan, End> {
        let quarantine = self.runner.next_attempts(look.taken_at);
        let mut snapshot = look
            .snapshot(quarantine)
            .map_err(|error| End::NoLook(error.to_string()))?;
        self.pass_over_what_stayed(&mut snapshot);
        let mut plan = match &self.plan {
            Some(saved) => gc::plan_within(&snapshot, policy, targets, &saved.objects),
            None => gc::plan(&snapshot, policy, targets),
        };
        if let Some(pods) = &self.scope {
            plan.narrow(pods);
        }
        let violations = gc::check::check(&plan.removals, &snapshot, policy);
        for violation in &violations {
            tracing::error!(%violation, "the plan breaks a rule; this is a bug in crisweep");
        }
        match violations.first() {
            None => Ok(plan),
            Some(first) => Err(End::BadPlan(first.to_string())),
        }
    }

    /// Keeps in the queue what both looks remove. An object that is gone counts as gone. An object that must
    /// stay now counts as skipped, unless it was to go for a cap or for space and that goal is met.
    pub(super) fn still_due(
        &mut self,
        look: &Look,
        target: Target,
        queue: &mut Queue,
    ) -> Result<(), End> {
        let due = queue.take();
        if target == Target::Images && !self.images_are_known(look) {
            return Ok(());
        }
        let mut policy = self.policy.clone();
        policy.images = policy.images.freeing_on();
        let fresh = self.plan_under(look, &[target].into(), &policy)?;
        let kept = fresh.kept.iter();
        let stays: BTreeMap<&str, KeepReason> =
            kept.map(|k| (k.subject.id.as_str(), k.reason)).collect();
        let before: Vec<(Text, RemoveReason)> = due
            .iter()
            .map(|removal| (removal.subject.id.clone(), removal.reason))
            .collect();
        let due = gc::plan::still_due(due, &fresh);
        let still: BTreeSet<&str> = due.iter().map(|r| r.subject.id.as_str()).collect();
        let sees_all = look.seen().is_all();
        let may_come_again = target != Target::Images;
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            for (id, reason) in before.iter().filter(|(id, _)| !still.contains(id.as_str())) {
                match (reason, stays.get(id.as_str())) {
                    (_, None) if sees_all => report.already_gone += 1,
                    // It may still exist: a later round plans it again.
                    (_, None) if may_come_again => {
                        report.planned = report.planned.saturating_sub(1);
                        self.no_longer_seen.insert((target, id.clone()));
                    }
                    (RemoveReason::OverCap, Some(_))
                    | (RemoveReason::Space, Some(KeepReason::BelowThreshold)) => {
                        report.planned = report.planned.saturating_sub(1);
                    }
                    (_, None | Some(_)) => report.skipped += 1,
                }
            }
            report.count_remaining();
        });
        queue.put(due);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_look_that_takes_longer_than_its_own_age_may_serves_many_batches() {
        let seconds = Duration::from_secs;
        assert_eq!(holds_for(Duration::ZERO, seconds(10)), seconds(10));
        assert_eq!(holds_for(seconds(10), seconds(10)), seconds(10));
        assert_eq!(holds_for(seconds(11), seconds(10)), seconds(22));
        let short = Duration::from_millis(1);
        assert_eq!(holds_for(LONG_LOOK, short), short);
        assert_eq!(holds_for(seconds(2), short), seconds(4));
        assert_eq!(holds_for(seconds(2), Duration::ZERO), Duration::ZERO);
    }
}
