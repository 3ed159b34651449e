//! Counts what removals came to, and writes each one down: report, metrics, log, quarantine.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Runner;
use super::batch::{Done, Outcome};
use super::breaker::Share;
use super::queue::Ending;
use crate::config::BackOff;
use crate::gc::Removal;
use crate::model::{FailureClass, PodSandboxId, Target, TargetReport};
use crate::pass::record::Record;
use crate::state::Tried;

/// What helps against a sandbox that runs out of time. Measured on containerd: the runtime gives the
/// teardown up with the call, and the next call begins it anew.
const TIMEOUT_HINT: &str = "a runtime.removal_timeout shorter than the network teardown makes no \
                            progress, ever: make it longer than the slowest one";

/// Counts what a batch did, and writes each removal down.
#[derive(Default)]
pub(super) struct Tally {
    /// How removals went.
    pub(super) share: Share,
    /// How each sandbox ended.
    pub(super) ended: Vec<(String, Ending)>,
    /// Those whose end is not known, because the runtime went away, and those that the end of the pass
    /// came before.
    pub(super) lost: Vec<Removal>,
    /// The ids of those that stayed: they failed or were skipped.
    pub(super) stayed: BTreeSet<String>,
}

impl Tally {
    /// Takes note of one.
    pub(super) fn note(&mut self, runner: &Runner, record: &Record, back_off: BackOff, done: Done) {
        let target = done.removal.subject.target;
        log(record, &done);
        let sandbox = match target {
            Target::Sandboxes => PodSandboxId::new(done.removal.subject.id.as_str()),
            Target::Containers | Target::Logs | Target::Images => None,
        };
        let failed = matches!(done.outcome, Outcome::Failed { .. });
        let failed_before = sandbox.as_ref().is_some_and(|id| runner.failed_before(id));
        record.update(|pass| {
            let Some(report) = pass.targets.get_mut(&target) else {
                return;
            };
            report.failed_again += u64::from(failed && failed_before);
            count(report, &done);
        });
        let now = now(runner);
        let mut failures = None;
        if !failed_before && !matches!(done.outcome, Outcome::Lost(_) | Outcome::NotBegun) {
            self.share.tried(target, failed);
        }
        match &done.outcome {
            Outcome::Removed | Outcome::Freed { .. } => {
                runner
                    .metrics
                    .removed(target, done.removal.reason, done.latency);
                if let Some(bytes) = freed(&done) {
                    runner.metrics.freed(target, bytes);
                }
            }
            // Both are counted from the report when the pass ends.
            Outcome::AlreadyGone | Outcome::Lost(_) | Outcome::NotBegun => {}
            Outcome::Skipped(_) => {
                self.stayed.insert(done.removal.subject.id.to_string());
            }
            Outcome::Failed { class, error } => {
                runner.metrics.removal_failed(target, *class, done.latency);
                let subject = &done.removal.subject;
                self.stayed.insert(subject.id.to_string());
                record.error(format!("{target} {}: {error}", subject.id));
                failures = sandbox.as_ref().map(|id| {
                    let (class, error) = (*class, error.clone());
                    let mut quarantine = runner.quarantine();
                    quarantine.failed(id, class, error, back_off, now)
                });
            }
        }
        if target == Target::Images
            && let Outcome::Removed | Outcome::AlreadyGone = &done.outcome
        {
            // No look may have seen that it went before somebody pulls it again.
            runner.observer.forget_image(&done.removal.subject.id);
        }
        let tried = tried(&done.outcome, now, failures);
        let (journal, pass_id) = (&runner.journal, record.id());
        journal.tried(pass_id, &done.removal, tried, done.latency);
        if let Some(id) = sandbox {
            self.sandbox_ended(runner, &id, &done.outcome);
        }
        if let Outcome::Lost(_) | Outcome::NotBegun = done.outcome {
            self.lost.push(done.removal);
        }
    }

    fn sandbox_ended(&mut self, runner: &Runner, id: &PodSandboxId, outcome: &Outcome) {
        let ending = match outcome {
            Outcome::Removed | Outcome::Freed { .. } => Ending::Went,
            Outcome::AlreadyGone | Outcome::Skipped(_) => Ending::Unclear,
            Outcome::Failed { .. } => Ending::Failed,
            // It is given back.
            Outcome::Lost(_) | Outcome::NotBegun => return,
        };
        if let Outcome::Removed | Outcome::AlreadyGone = outcome {
            runner.quarantine().gone(id);
        }
        self.ended.push((id.to_string(), ending));
    }
}

/// The wall clock, carried on from the last look: no second reading that a clock step could part
/// from the plan's.
pub(super) fn now(runner: &Runner) -> Timestamp {
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
        Outcome::AlreadyGone
        | Outcome::Skipped(_)
        | Outcome::NotBegun
        | Outcome::Failed { .. }
        | Outcome::Lost(_) => None,
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
        Outcome::Lost(_) | Outcome::NotBegun => {}
    }
    report.count_remaining();
}

fn tried(outcome: &Outcome, now: Timestamp, failures: Option<u32>) -> Tried {
    match outcome {
        Outcome::Removed | Outcome::Freed { .. } => Tried::Removed,
        Outcome::AlreadyGone => Tried::AlreadyGone,
        Outcome::Skipped(why) => Tried::Skipped {
            why: (*why).to_owned(),
        },
        Outcome::NotBegun => Tried::Skipped {
            why: "the pass was to end".to_owned(),
        },
        Outcome::Failed { class, error } => Tried::Failed {
            class: *class,
            why: error.clone(),
            at: Some(now),
            failures,
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
        Outcome::NotBegun => event!(info, "not begun: the pass was to end",),
        Outcome::Failed { class, error } => {
            event!(warn, "removal failed", class = class.label(), error,);
            if subject.target == Target::Sandboxes && *class == FailureClass::Timeout {
                tracing::warn!(pass.id = %record.id(), id = %subject.id, "{TIMEOUT_HINT}");
            }
        }
        Outcome::Lost(error) => event!(warn, "the runtime went away", error,),
    }
}
