//! The waiting passes as others see them: their targets, and their earliest start.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Worker, WorkerState, clock};
use crate::model::{Caller, Pass, Target, TargetReport, TriggerInfo};
use crate::pass::record::Record;
use crate::trigger::admission::{QueuedPass, Wait};

/// A smaller change of `not_before` comes from clock conversion, not from a new decision.
const SAME: Duration = Duration::from_secs(1);
/// Lines about why one pass waits: brakes that come and go must leave room for what the pass does.
const TOLD_MAX: u32 = 20;

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
        let wait = state.admissions.why_waits(queued, now);
        let not_before = until(wait.as_ref(), now);
        let targets = queued.targets.iter().copied();
        let pass = Pass {
            dry_run: queued.options.dry_run,
            runtime: self.runtime(),
            plan: queued.options.plan.as_ref().map(|plan| plan.id.clone()),
            not_before,
            ..Pass::queued(queued.id.clone(), trigger, targets, clock())
        };
        let record = Arc::new(Record::new(pass));
        state.history.remember(Arc::clone(&record));
        self.changed();
        tell(&mut state.told, &record, wait.as_ref());
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
                wait_seconds = match wait {
                    Some(Wait::Until(at, _)) if at < Duration::MAX =>
                        Some(at.saturating_sub(now).as_secs()),
                    Some(Wait::Until(..) | Wait::Stopped(..) | Wait::Slot) | None => None,
                },
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
        let wait = state.admissions.why_waits(queued, now)?;
        // The time that the record shows: each conversion to wall-clock time gives another one.
        let not_before = state.history.find(id)?.read(|pass| pass.not_before);
        Some(text(&wait, not_before))
    }

    /// Updates the records of the waiting passes, with a line where one waits for another reason than before.
    pub(super) fn show_waiting(&self, state: &mut WorkerState) {
        let now = self.inner.began.elapsed();
        let WorkerState {
            admissions,
            history,
            told,
        } = state;
        told.retain(|id, _| admissions.waiting().any(|queued| queued.id == *id));
        for queued in admissions.waiting() {
            let Some(record) = history.find(&queued.id) else {
                continue;
            };
            let wait = admissions.why_waits(queued, now);
            let not_before = until(wait.as_ref(), now);
            let is_shown = record.read(|pass| {
                pass.targets.keys().eq(&queued.targets) && is_same(pass.not_before, not_before)
            });
            if !is_shown {
                record.update(|pass| show(pass, queued, not_before));
            }
            tell(told, &record, wait.as_ref());
        }
    }
}

/// The reason that a waiting pass told last, and how many it told.
#[derive(Debug, Default)]
pub(super) struct Told {
    kind: Option<&'static str>,
    lines: u32,
}

fn tell(told: &mut BTreeMap<String, Told>, record: &Record, wait: Option<&Wait>) {
    let told = told.entry(record.id().to_owned()).or_default();
    let kind = wait.map(Wait::kind);
    if told.kind == kind {
        return;
    }
    told.kind = kind;
    if let Some(wait) = wait.filter(|_| told.lines < TOLD_MAX) {
        told.lines += 1;
        record.line(text(wait, record.read(|pass| pass.not_before)));
    }
}

fn text(wait: &Wait, not_before: Option<Timestamp>) -> String {
    match wait {
        Wait::Stopped(_, why) => why.clone(),
        Wait::Slot => "it waits for a slot among all nodes (fleet.budget)".to_owned(),
        Wait::Until(_, setting) => match not_before {
            Some(at) => format!("it waits until {at} ({setting})"),
            None => format!("it waits ({setting})"),
        },
    }
}

fn until(wait: Option<&Wait>, now: Duration) -> Option<Timestamp> {
    match wait? {
        Wait::Until(at, _) => wall(*at, now),
        Wait::Stopped(..) | Wait::Slot => None,
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
