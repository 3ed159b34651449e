//! What of a plan is still due on a newer look, and when a look is needed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::PassRun;
use super::end::EarlyEnd;
use super::queue::Queue;
use crate::gc;
use crate::model::{Image, KeepReason, RemoveReason, Target};
use crate::snapshot::Look;

/// A look that takes longer than this and than `collect.max_age` serves several batches.
const LONG_LOOK: Duration = Duration::from_secs(1);
/// The pass works on a long look for this many times its duration, so at most a third of the pass is spent
/// looking.
const WORK_PER_LOOK: u32 = 2;

impl PassRun<'_> {
    /// Says whether the next batch needs a new look.
    pub(super) fn is_stale(&self, look: &Look) -> bool {
        let since_end = look.started.elapsed().saturating_sub(look.duration);
        since_end > holds_for(look.duration, self.config.collect.max_age)
    }

    /// Keeps in the queue what both looks remove. An object that is gone counts as gone. An object that must
    /// stay now, or that has changed, counts as skipped, unless it was to go for a cap or for space and that goal is met.
    pub(super) fn still_due(
        &mut self,
        look: &Look,
        target: Target,
        queue: &mut Queue,
    ) -> Result<(), EarlyEnd> {
        let due = queue.take();
        if target == Target::Images && !self.images_are_known(look) {
            return Ok(());
        }
        let fresh = self.plan(look, &[target].into(), &self.policy_of_round(target, 1))?;
        let kept = fresh.kept.iter();
        let stays: BTreeMap<&str, KeepReason> =
            kept.map(|k| (k.subject.id.as_str(), k.reason)).collect();
        let wanted = fresh.removals.iter();
        let wanted: BTreeSet<&str> = wanted.map(|it| it.subject.id.as_str()).collect();
        let (mut due, others) = gc::plan::still_due(due, &fresh);
        self.take_reasons(&mut due, &fresh);
        // The plan hides an image if the removal of another record of its id failed.
        let images = look.store.known().filter(|_| target == Target::Images);
        let images = images.into_iter().flat_map(|store| store.rows.iter());
        let images: BTreeSet<Cow<'_, str>> = images.map(Image::key).collect();
        // Images are known whole or not at all.
        let sees_all = target == Target::Images || look.seen().is_all();
        let lacks_ids = sees_all && target == Target::Containers && look.lacks_container_ids();
        // A reload may have switched logs off.
        let is_unread = target == Target::Logs
            && (!look.logs.unread.is_empty() || self.runner.observer.reads_other_logs(self.config));
        let mut skipped: BTreeMap<&'static str, u64> = BTreeMap::new();
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            for removal in &others {
                let (id, reason) = (&removal.subject.id, removal.reason);
                let why = match (reason, stays.get(id.as_str())) {
                    // It is tried by the next pass.
                    (_, None) if wanted.contains(id.as_str()) => {
                        self.tally.stayed.insert(id.to_string(), reason);
                        "changed"
                    }
                    (_, None) if images.contains(id.as_str()) => "changed",
                    (_, None) if lacks_ids => "rows without id",
                    (_, None) if is_unread => "not read",
                    (_, None) if sees_all => {
                        report.already_gone += 1;
                        self.tally.found_gone(target, id, reason);
                        continue;
                    }
                    // The object may still exist: a later round plans it again.
                    (_, None) => {
                        report.unplan(reason);
                        self.tally.settled(target, id);
                        self.no_longer_seen.insert((target, id.clone()));
                        continue;
                    }
                    (RemoveReason::OverCap, Some(_))
                    | (RemoveReason::Space, Some(KeepReason::BelowThreshold)) => {
                        report.unplan(reason);
                        self.tally.settled(target, id);
                        continue;
                    }
                    (_, Some(keeps)) => keeps.label(),
                };
                report.skipped += 1;
                *skipped.entry(why).or_default() += 1;
            }
            report.count_remaining();
        });
        queue.put(due);
        if is_unread {
            self.report_log_problems(look);
        }
        self.report_skipped(look, target, skipped);
        Ok(())
    }
}

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
