//! The waiting passes as others see them: their targets, their earliest start, and why they wait.

use std::time::Duration;

use jiff::Timestamp;

use super::{Worker, WorkerState, clock};
use crate::model::{Pass, Target, TargetReport};
use crate::trigger::admission::{QueuedPass, WaitReason};

/// A smaller change of `not_before` comes from clock conversion, not from a new decision.
const SAME: Duration = Duration::from_secs(1);

impl Worker {
    /// Returns why a pass waits; `None` if it does not.
    pub(super) fn why_waiting(state: &WorkerState, id: &str, now: Duration) -> Option<String> {
        let mut waiting = state.admissions.waiting();
        let queued = waiting.find(|queued| queued.id == id)?;
        let wait = state.admissions.why_waits(queued, now)?;
        // Take the time from the record: another conversion to wall-clock time would give another time.
        let not_before = state.history.find(id)?.read(|pass| pass.not_before);
        Some(text(&wait, not_before))
    }

    /// Updates the records of the waiting passes.
    pub(super) fn show_waiting(&self, state: &WorkerState) {
        let now = self.inner.began.elapsed();
        let admissions = &state.admissions;
        for queued in admissions.waiting() {
            let Some(record) = state.history.find(&queued.id) else {
                continue;
            };
            let wait = admissions.why_waits(queued, now);
            let not_before = until(wait.as_ref(), now);
            let is_shown = record.read(|pass| {
                let asked = queued.automatic_trigger();
                asked.is_none_or(|trigger| pass.trigger == *trigger)
                    && pass.targets.keys().eq(&queued.targets)
                    && is_same(pass.not_before, not_before)
            });
            if !is_shown {
                record.update(|pass| {
                    pass.not_before = not_before;
                    show_asked(pass, queued);
                });
            }
        }
    }
}

/// Says why a pass waits.
pub(super) fn text(wait: &WaitReason, not_before: Option<Timestamp>) -> String {
    match wait {
        WaitReason::Stopped(why) => why.clone(),
        WaitReason::Slot => "it waits for a slot among all nodes (fleet.budget)".to_owned(),
        WaitReason::Until(_, setting) => match not_before {
            Some(at) => format!("it waits until {at} ({setting})"),
            None => format!("it waits ({setting})"),
        },
    }
}

/// Returns when a wait ends by the wall clock, if that is known.
pub(super) fn until(wait: Option<&WaitReason>, now: Duration) -> Option<Timestamp> {
    let left = wait?.left(now)?;
    Some(clock().saturating_add(left).unwrap_or(Timestamp::MAX))
}

/// Shows in a record what is asked of its pass now, and who asked first.
pub(super) fn show_asked(pass: &mut Pass, queued: &QueuedPass) {
    if let Some(trigger) = queued.automatic_trigger() {
        pass.trigger.clone_from(trigger);
    }
    let wanted = |target: &Target, _: &mut TargetReport| queued.targets.contains(target);
    pass.targets.retain(wanted);
    for target in &queued.targets {
        pass.targets.entry(*target).or_default();
    }
}

fn is_same(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.duration_since(other).unsigned_abs() < SAME,
        (None, Some(_)) | (Some(_), None) => false,
    }
}
