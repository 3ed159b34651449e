//! The waiting passes as others see them: their targets, and their earliest start.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Worker, WorkerState, clock};
use crate::model::{Caller, Pass, PassState, Target, TargetReport, TriggerInfo};
use crate::pass::record::Record;
use crate::trigger::admission::QueuedPass;

/// A smaller change of `not_before` comes from clock conversion, not from a new decision.
const SAME: Duration = Duration::from_secs(1);

impl Worker {
    /// Makes and logs the record of a newly queued pass.
    pub(super) fn enlist(
        &self,
        state: &mut WorkerState,
        queued: &QueuedPass,
        trigger: TriggerInfo,
        now: Duration,
    ) -> Arc<Record> {
        let (cause, by) = (trigger.cause, trigger.by.as_ref().map(Caller::to_string));
        let not_before = state.admissions.not_before(queued, now);
        let pass = Pass {
            id: queued.id.clone(),
            state: PassState::Queued,
            outcome: None,
            dry_run: queued.options.dry_run,
            trigger,
            runtime: self.runtime(),
            merged_triggers: 0,
            queued_at: clock(),
            not_before: not_before.and_then(|at| wall(at, now)),
            started_at: None,
            finished_at: None,
            pods: None,
            before: None,
            after: None,
            targets: queued
                .targets
                .iter()
                .map(|target| (*target, TargetReport::default()))
                .collect(),
            errors: Vec::new(),
        };
        let record = Arc::new(Record::new(pass));
        state.history.remember(Arc::clone(&record));
        if let Some(why) = Self::why_waiting(state, &queued.id, now) {
            record.line(why);
        }
        let line = if cause.is_automatic() {
            self.inner.queued_lines.admit(now)
        } else {
            Some(0)
        };
        if let Some(left_out) = line {
            let targets: Vec<&str> = queued.targets.iter().map(|it| it.label()).collect();
            tracing::info!(
                pass.id = queued.id,
                cause = cause.label(),
                by,
                targets = targets.join(", "),
                dry_run = queued.options.dry_run,
                wait_seconds = not_before
                    .filter(|at| *at < Duration::MAX)
                    .map(|at| at.saturating_sub(now).as_secs()),
                left_out = NonZeroU64::new(left_out),
                "pass queued"
            );
        }
        record
    }

    /// Returns why a pass waits; `None` if it does not.
    pub(super) fn why_waiting(state: &WorkerState, id: &str, now: Duration) -> Option<String> {
        let mut waiting = state.admissions.waiting();
        let queued = waiting.find(|queued| queued.id == id)?;
        let Some(at) = state.admissions.not_before(queued, now) else {
            let waits = state.admissions.awaits_slot(queued, now) && !state.admissions.has_slot();
            return waits.then(|| "it waits for a slot among all nodes (fleet.budget)".to_owned());
        };
        match wall(at, now) {
            Some(wall) if at == state.admissions.jittered_until(queued) => {
                Some(format!("it waits until {wall} (brakes.jitter)"))
            }
            Some(wall) => Some(format!("it waits until {wall} (brakes.cooldown)")),
            None => state.admissions.waits_for().cloned(),
        }
    }

    /// Updates the records of the waiting passes.
    pub(super) fn show_waiting(&self, state: &WorkerState) {
        let now = self.inner.began.elapsed();
        for queued in state.admissions.waiting() {
            let Some(record) = state.history.find(&queued.id) else {
                continue;
            };
            let not_before = state
                .admissions
                .not_before(queued, now)
                .and_then(|at| wall(at, now));
            let is_shown = record.read(|pass| {
                pass.targets.keys().eq(&queued.targets) && is_same(pass.not_before, not_before)
            });
            if !is_shown {
                record.update(|pass| show(pass, queued, not_before));
            }
        }
    }
}

fn show(pass: &mut Pass, queued: &QueuedPass, not_before: Option<Timestamp>) {
    pass.not_before = not_before;
    let wanted = |target: &Target, _: &mut TargetReport| queued.targets.contains(target);
    pass.targets.retain(wanted);
    for target in &queued.targets {
        pass.targets.entry(*target).or_default();
    }
}

/// Converts a time since the service started to wall-clock time; `None` if the wait has no known end.
fn wall(at: Duration, now: Duration) -> Option<Timestamp> {
    let wait = Some(at.saturating_sub(now)).filter(|_| at < Duration::MAX)?;
    Some(clock().saturating_add(wait).unwrap_or(Timestamp::MAX))
}

fn is_same(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.duration_since(other).unsigned_abs() < SAME,
        (None, Some(_)) | (Some(_), None) => false,
    }
}
