//! Counts what removals came to, and writes each one down: report, metrics, log, quarantine.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::batch::{Done, Outcome};
use super::{Rules, Runner};
use crate::gc::{Removal, Target};
use crate::model::PodSandboxId;
use crate::record::Record;
use crate::report::TargetReport;
use crate::state::Tried;

/// Counts what a batch did, and writes each removal down.
#[derive(Default)]
pub(super) struct Tally {
    /// Removals that the runtime answered.
    pub(super) tries: u64,
    /// Those that failed.
    pub(super) failed: u64,
    /// Those that nobody knows the end of, because the runtime went away.
    pub(super) lost: Vec<Removal>,
    /// The ids of those that stayed: they failed or were skipped.
    pub(super) stayed: BTreeSet<String>,
}

impl Tally {
    /// Takes note of one.
    pub(super) fn note(&mut self, runner: &Runner, record: &Record, rules: &Rules, done: Done) {
        let target = done.removal.subject.target;
        self.tries += 1;
        record.update(|pass| count(pass.targets.entry(target).or_default(), &done));
        log(record, &done);
        runner.journal.tried(
            &record.id(),
            &done.removal,
            tried(&done.outcome),
            done.latency,
        );
        let id = PodSandboxId::new(done.removal.subject.id.as_str());
        match &done.outcome {
            Outcome::Removed | Outcome::Freed { .. } => {
                runner
                    .metrics
                    .removed(target, done.removal.reason, done.latency);
                if let Some(bytes) = freed(&done) {
                    runner.metrics.freed(target, bytes);
                }
                if let Some(id) = id {
                    runner.quarantine().gone(&id);
                }
            }
            // Both are counted from the report when the pass ends.
            Outcome::AlreadyGone => {}
            Outcome::Skipped(_) => {
                self.stayed.insert(done.removal.subject.id);
            }
            Outcome::Failed { class, error } => {
                self.failed += 1;
                runner.metrics.removal_failed(target, *class, done.latency);
                let subject = &done.removal.subject;
                self.stayed.insert(subject.id.clone());
                record.error(format!("{target} {}: {error}", subject.id));
                if let (Target::Sandboxes, Some(id)) = (target, id) {
                    let now = now(runner);
                    runner
                        .quarantine()
                        .failed(&id, *class, error.clone(), rules.back_off, now);
                }
            }
            Outcome::Lost(_) => {
                self.tries -= 1;
                self.lost.push(done.removal);
            }
        }
    }
}

/// The wall clock, carried on from the last look: no second reading that a clock step could part
/// from the plan's.
fn now(runner: &Runner) -> Timestamp {
    let latest = runner.observer.latest();
    latest.map_or(Timestamp::UNIX_EPOCH, |look| {
        look.taken_at
            .saturating_add(look.started.elapsed())
            .unwrap_or(look.taken_at)
    })
}

/// What the removal gave back: as measured, else as the runtime lists the object's size.
fn freed(done: &Done) -> Option<u64> {
    match done.outcome {
        Outcome::Freed { bytes } => Some(bytes),
        Outcome::Removed => done.removal.subject.size_bytes,
        Outcome::AlreadyGone | Outcome::Skipped(_) | Outcome::Failed { .. } | Outcome::Lost(_) => {
            None
        }
    }
}

fn count(report: &mut TargetReport, done: &Done) {
    if let Some(bytes) = freed(done) {
        report.freed_bytes = Some(report.freed_bytes.unwrap_or(0).saturating_add(bytes));
    }
    match done.outcome {
        Outcome::Removed | Outcome::Freed { .. } => report.removed += 1,
        Outcome::AlreadyGone => report.already_gone += 1,
        Outcome::Skipped(_) => report.skipped += 1,
        Outcome::Failed { .. } => report.failed += 1,
        Outcome::Lost(_) => {}
    }
    report.count_remaining();
}

fn tried(outcome: &Outcome) -> Tried {
    match outcome {
        Outcome::Removed | Outcome::Freed { .. } => Tried::Removed,
        Outcome::AlreadyGone => Tried::AlreadyGone,
        Outcome::Skipped(why) => Tried::Skipped {
            why: (*why).to_owned(),
        },
        Outcome::Failed { class, error } => Tried::Failed {
            class: *class,
            why: error.clone(),
        },
        Outcome::Lost(error) => Tried::Lost { why: error.clone() },
    }
}

fn log(record: &Record, done: &Done) {
    let subject = &done.removal.subject;
    let (namespace, pod) = subject
        .pod
        .as_ref()
        .map_or(("", ""), |pod| (pod.namespace.as_str(), pod.name.as_str()));
    let duration_ms = u64::try_from(done.latency.as_millis()).unwrap_or(u64::MAX);
    macro_rules! event {
        ($level:ident, $message:literal, $($extra:tt)*) => {
            tracing::$level!(
                pass.id = %record.id(),
                target = subject.target.label(),
                id = %subject.id,
                name = %subject.name,
                pod.namespace = namespace,
                pod.name = pod,
                reason = done.removal.reason.label(),
                created_at = %subject.created_at,
                batch = done.batch,
                duration_ms,
                $($extra)*
                $message
            )
        };
    }
    match &done.outcome {
        Outcome::Removed => event!(info, "removed",),
        Outcome::Freed { bytes } => event!(info, "removed", freed_bytes = bytes,),
        Outcome::AlreadyGone => event!(info, "already gone",),
        Outcome::Skipped(why) => event!(info, "skipped", why,),
        Outcome::Failed { class, error } => {
            event!(warn, "removal failed", class = class.label(), error,);
        }
        Outcome::Lost(error) => event!(warn, "the runtime went away", error,),
    }
}
