//! The passes that wait, as others see them: what they will clean, and from when on.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{State, Worker, clock};
use crate::model::{Pass, PassState, Target, TargetReport, TriggerInfo};
use crate::pass::record::Record;
use crate::trigger::admission::Ticket;

/// A change of `not_before` by less than this is the clock's, not ours.
const SAME: Duration = Duration::from_secs(1);

impl Worker {
    /// Makes the record of a pass that begins to wait, and says so.
    pub(super) fn enlist(
        &self,
        state: &mut State,
        ticket: &Ticket,
        trigger: TriggerInfo,
        now: Duration,
    ) -> Arc<Record> {
        let cause = trigger.cause;
        let not_before = state.gate.not_before(ticket, now);
        let pass = Pass {
            id: ticket.id.clone(),
            state: PassState::Queued,
            outcome: None,
            dry_run: ticket.options.dry_run,
            trigger,
            runtime: self.runtime(),
            merged_triggers: 0,
            queued_at: clock(),
            not_before: not_before.map(|at| wall(at, now)),
            started_at: None,
            finished_at: None,
            pods: None,
            before: None,
            after: None,
            targets: ticket
                .targets
                .iter()
                .map(|target| (*target, TargetReport::default()))
                .collect(),
            errors: Vec::new(),
        };
        let record = Arc::new(Record::new(pass));
        state.history.remember(Arc::clone(&record));
        let line = if cause.is_automatic() {
            self.inner.queued_lines.admit(now)
        } else {
            Some(0)
        };
        if let Some(left_out) = line {
            let targets: Vec<&str> = ticket.targets.iter().map(|it| it.label()).collect();
            tracing::info!(
                pass.id = ticket.id,
                cause = cause.label(),
                targets = targets.join(", "),
                dry_run = ticket.options.dry_run,
                wait_seconds = not_before.map(|at| at.saturating_sub(now).as_secs()),
                left_out = NonZeroU64::new(left_out),
                "pass queued"
            );
        }
        record
    }

    /// Brings the records of the passes that wait up to date.
    pub(super) fn show_waiting(&self, state: &State) {
        let now = self.inner.began.elapsed();
        for ticket in state.gate.waiting() {
            let Some(record) = state.history.find(&ticket.id) else {
                continue;
            };
            let not_before = state.gate.not_before(ticket, now).map(|at| wall(at, now));
            let is_shown = record.read(|pass| {
                pass.targets.keys().eq(&ticket.targets) && is_same(pass.not_before, not_before)
            });
            if !is_shown {
                record.update(|pass| show(pass, ticket, not_before));
            }
        }
    }
}

fn show(pass: &mut Pass, ticket: &Ticket, not_before: Option<Timestamp>) {
    pass.not_before = not_before;
    let wanted = |target: &Target, _: &mut TargetReport| ticket.targets.contains(target);
    pass.targets.retain(wanted);
    for target in &ticket.targets {
        pass.targets.entry(*target).or_default();
    }
}

/// The wall clock's reading at a time of the gate's.
fn wall(at: Duration, now: Duration) -> Timestamp {
    let wait = at.saturating_sub(now);
    clock().saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn is_same(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.duration_since(other).unsigned_abs() < SAME,
        (None, Some(_)) | (Some(_), None) => false,
    }
}
