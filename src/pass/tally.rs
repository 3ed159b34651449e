//! The figures of a pass: what it plans and how each removal ends, written to report, metrics, log, journal and
//! quarantine.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Runner;
use super::executor::FinishedRemoval;
use super::queue::HeldBack;
use super::remove::Gone;
use crate::config::BackOff;
use crate::gc::{Plan, Removal};
use crate::model::{
    FailureClass, KeepReason, PodSandboxId, RemovalOutcome, RemoveReason, Target, Text,
};
use crate::pass::record::PassRecord;

/// The remedy for a sandbox removal that times out. Measured on containerd: the runtime aborts the teardown
/// with the call, and the next call starts it again.
const TIMEOUT_HINT: &str = "if the network teardown takes this long, runtime.removal_timeout must be longer: each try \
                            begins it anew";

pub(super) struct Tally<'a> {
    runner: &'a Runner,
    record: &'a PassRecord,
    back_off: BackOff,
    /// The containers whose logs follow.
    containers: Gone,
    /// Attempts that the runtime answered, and failures among them. Quarantined sandboxes are not counted: they are probes,
    /// expected to fail.
    pub(super) tried: BTreeMap<Target, (u64, u64)>,
    /// What the report says of the targets that the breaker ended.
    pub(super) broken: BTreeMap<Target, String>,
    /// Outcomes of sandboxes that the queue has not seen yet.
    pub(super) ended: Vec<(String, RemovalOutcome)>,
    /// Removals that a cancel, the deadline or a lost runtime left open, until the queue takes them back.
    pub(super) open: Vec<Removal>,
    /// A removal ended before its call because the pass had to end.
    pub(super) not_begun: bool,
    /// Objects whose removal is in the journal and has not begun.
    pub(super) unstarted: BTreeSet<(Target, Text)>,
    /// Planned objects whose removal was never tried, because the pass or the target ended first.
    pub(super) untried: BTreeSet<(Target, Text)>,
    /// Objects during whose removal the runtime went away.
    pub(super) lost: BTreeSet<(Target, Text)>,
    /// The runtime went away since this was last read.
    pub(super) went_away: bool,
    /// A log stays because its removal failed; a report that was not asked for logs does not count it.
    pub(super) has_failed_log: bool,
    /// Removals that ended since the latest look.
    pub(super) ended_since_look: u64,
    /// How many planned objects later looks kept, and why.
    pub(super) skipped: BTreeMap<Target, BTreeMap<&'static str, u64>>,
    /// The first object that was skipped, and why.
    pub(super) first_skip: Option<String>,
    /// Ids of objects that failed or were skipped, and why they were to go.
    pub(super) stayed: BTreeMap<String, RemoveReason>,
    /// Those of them that the runtime refused to remove. It may yet finish what ran out of time, and another client what it
    /// removes.
    pub(super) refused: BTreeSet<Text>,
    /// How many objects are gone, by why they were to go.
    gone_for: BTreeMap<(Target, RemoveReason), u64>,
    /// What is gone by the runtime's word, except logs; the look after the pass proves it of containers and sandboxes.
    pub(super) gone: BTreeSet<(Target, Text)>,
    /// Containers and sandboxes whose removal failed for the first time; they may go later all the same.
    pub(super) failed: BTreeSet<(Target, Text)>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(
        runner: &'a Runner,
        record: &'a PassRecord,
        back_off: BackOff,
        containers: Gone,
    ) -> Self {
        Self {
            runner,
            record,
            back_off,
            containers,
            tried: BTreeMap::new(),
            broken: BTreeMap::new(),
            ended: Vec::new(),
            open: Vec::new(),
            not_begun: false,
            unstarted: BTreeSet::new(),
            untried: BTreeSet::new(),
            lost: BTreeSet::new(),
            went_away: false,
            has_failed_log: false,
            ended_since_look: 0,
            skipped: BTreeMap::new(),
            first_skip: None,
            stayed: BTreeMap::new(),
            refused: BTreeSet::new(),
            gone_for: BTreeMap::new(),
            gone: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Notes a target's plan in the report and in a line. `in_flight`: why those go that this pass removes and this plan
    /// does not.
    pub(super) fn planned(&self, plan: &Plan, target: Target, in_flight: Vec<RemoveReason>) {
        let Some(summary) = plan.summary.get(&target) else {
            return;
        };
        let (reasons, kept) = (counts(&summary.remove), counts(&summary.keep));
        let planned: u64 = reasons.values().sum();
        let remove = why(reasons.iter().map(|(reason, n)| (reason.label(), *n)));
        let keep = why(kept.iter().map(|(reason, n)| (reason.label(), *n)));
        let stay: u64 = kept.values().sum();
        self.record.update(|pass| {
            // Logs of removed containers may be counted already.
            let report = pass.targets.entry(target).or_default();
            // This plan has the objects that an earlier plan of the pass left, except logs.
            if target != Target::Logs {
                (report.planned, report.reasons) = (0, BTreeMap::new());
                let again = self.not_planned_again(target, plan).into_iter();
                for (reason, count) in again.chain(in_flight.into_iter().map(|it| (it, 1))) {
                    report.plan(reason, count);
                }
            }
            for (reason, count) in reasons {
                report.plan(reason, count);
            }
            report.kept = kept;
            report.count_remaining();
        });
        self.record.line(format!(
            "{target}: {planned} to remove{remove}; {stay} stay{keep}"
        ));
    }

    /// Notes what a further round plans beyond earlier ones, if anything.
    pub(super) fn planned_further(&self, plan: &Plan, target: Target, why: &str) {
        let kept = plan.summary.get(&target);
        let kept = kept.map(|summary| counts(&summary.keep));
        self.add_planned(plan, target);
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            report.kept = kept.unwrap_or_default();
        });
        let due = plan.removals.len();
        if due > 0 {
            self.record
                .line(format!("{target}: {why}; {due} more to remove"));
        }
    }

    /// Adds the removals of a plan to those planned before.
    pub(super) fn add_planned(&self, plan: &Plan, target: Target) {
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            for removal in &plan.removals {
                report.plan(removal.reason, 1);
            }
            report.count_remaining();
        });
    }

    /// Takes planned removals of a target back.
    pub(super) fn take_back(&self, removals: &[Removal], target: Target) {
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            for removal in removals {
                report.unplan(removal.reason);
            }
        });
    }

    /// Writes a line about the target's progress after a batch.
    pub(super) fn batch_ended(&self, target: Target, batch: u64, planned: u64) {
        let line = self.record.read(|pass| {
            let report = pass.targets.get(&target)?;
            let gone = report.removed + report.already_gone;
            let mut line = format!("{target}: batch {batch}: {gone} of {planned} gone");
            report.add_troubles(&mut line);
            Some(line)
        });
        if let Some(line) = line {
            self.record.line(line);
        }
    }

    /// Postpones the sandboxes of a class, and reports it.
    pub(super) fn hold(&self, target: Target, held: &HeldBack) {
        let (runner, record) = (self.runner, self.record);
        let now = now(runner);
        let until = runner.quarantine.lock().hold(held, self.back_off, now);
        let count = u64::try_from(held.removals.len()).unwrap_or(u64::MAX);
        self.take_back(&held.removals, target);
        record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            *report.kept.entry(KeepReason::Quarantined).or_default() += count;
            report.count_remaining();
        });
        let (class, tried) = (held.class.label(), &held.tried);
        tracing::info!(pass.id = %record.id, class, tried, count, %until, "the other sandboxes of the class keep waiting");
        record.line(format!(
            "{target}: {count} more that failed before ({class}) stay until {until}: {tried} was tried \
             for them and failed"
        ));
    }

    /// Notes a removal that was due in a batch and did not begin.
    pub(super) fn held_back(&mut self, removal: Removal) {
        let object = (removal.subject.target, removal.subject.id.clone());
        self.untried.insert(object.clone());
        self.unstarted.insert(object);
        self.open.push(removal);
    }

    pub(super) fn note(&mut self, mut done: FinishedRemoval) {
        let (runner, record) = (self.runner, self.record);
        let (target, id) = (done.removal.subject.target, done.removal.subject.id.clone());
        let reason = done.removal.reason;
        self.note_loss(&mut done);
        log(record, &done);
        let sandbox = match target {
            Target::Sandboxes => PodSandboxId::new(id.as_str()),
            Target::Containers | Target::Logs | Target::Images => None,
        };
        let failed_before = sandbox
            .as_ref()
            .is_some_and(|id| runner.quarantine.lock().get(id).is_some());
        self.count(&done, failed_before);
        match &mut done.outcome {
            RemovalOutcome::Removed { freed_bytes } => {
                runner.metrics.removed(target, reason, done.latency);
                if let Some(bytes) = freed_bytes.or(done.removal.subject.size_bytes()) {
                    runner.metrics.freed_bytes.add(target, bytes);
                }
            }
            RemovalOutcome::Failed {
                class,
                why,
                at,
                failures,
            } => {
                runner.metrics.removal_failed(target, *class, done.latency);
                self.has_failed_log |= target == Target::Logs;
                self.stayed.insert(id.to_string(), reason);
                if sandbox.is_none() {
                    runner.failures.lock().failed(target, &id);
                }
                record.removal_error(target, error_words(target, &id, why));
                let now = to_millisecond(now(runner));
                *at = Some(now);
                *failures = sandbox.as_ref().map(|id| {
                    let mut quarantine = runner.quarantine.lock();
                    quarantine.failed(id, *class, why.clone(), self.back_off, now)
                });
            }
            RemovalOutcome::Skipped { why } => {
                self.stayed.insert(id.to_string(), reason);
                runner.failures.lock().failed(target, &id);
                let first = || format!("{target} {id}: skipped: {why}");
                self.first_skip.get_or_insert_with(first);
            }
            // The end of the pass takes these from the report.
            RemovalOutcome::AlreadyGone => {}
            RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun => {
                self.not_begun |= done.outcome == RemovalOutcome::NotBegun;
                self.open.push(done.removal.clone());
            }
        }
        let is_gone = done.outcome.is_gone();
        self.forget_log(&done);
        if is_gone {
            self.found_gone(target, &id, reason);
            runner.failures.lock().gone(target, &id);
        }
        if target == Target::Images && is_gone {
            // Another client may pull it again before a look has seen that it was gone.
            runner.observer.forget_image(&id);
        }
        if let Some(id) = sandbox {
            if is_gone {
                runner.quarantine.lock().gone(&id);
            }
            self.ended.push((id.to_string(), done.outcome.clone()));
        }
        let (journal, pass_id) = (&runner.journal, &record.id);
        journal.tried(pass_id, &done.removal, done.outcome, done.latency);
    }

    /// Forgets the log of a removed container once it went, or was skipped; any other waits for the next pass.
    fn forget_log(&self, done: &FinishedRemoval) {
        let is_over =
            done.outcome.is_gone() || matches!(done.outcome, RemovalOutcome::Skipped { .. });
        if let Some(container) = done.removal.expected.log_of().filter(|_| is_over) {
            self.containers.log_ended(&container.id);
        }
    }

    /// Notes a planned object that is gone, by its removal or by a later look.
    pub(super) fn found_gone(&mut self, target: Target, id: &Text, reason: RemoveReason) {
        *self.gone_for.entry((target, reason)).or_default() += 1;
        self.settled(target, id);
        self.containers.went(id);
    }

    /// Notes that an object whose removal failed or was lost is none of the rest any more: the look after the pass must not
    /// take it from there once more.
    pub(super) fn settled(&mut self, target: Target, id: &Text) {
        let object = (target, id.clone());
        self.failed.remove(&object);
        self.lost.remove(&object);
        self.untried.remove(&object);
    }

    /// Forgets what was lost and is in no later plan, and what was not tried: a later plan has it again.
    pub(super) fn keep_lost(&mut self, target: Target, plan: &Plan) {
        self.untried.retain(|(of, _)| *of != target);
        let is_due = |id: &Text| plan.removals.iter().any(|it| it.subject.id == *id);
        self.lost.retain(|(of, id)| *of != target || is_due(id));
    }

    /// Returns of a target's earlier plans what another plan does not plan again, by why it was to go: what is gone, and
    /// what this pass failed to remove and that plan lacks, or keeps as quarantined, or as too young after a rescue.
    fn not_planned_again(&self, target: Target, plan: &Plan) -> Vec<(RemoveReason, u64)> {
        let gone = self.gone_for.iter();
        let gone = gone.filter(|((of, _), _)| *of == target);
        let for_a_time = [KeepReason::Quarantined, KeepReason::TooYoung];
        let kept = plan.kept.iter();
        let kept = kept.filter(|it| for_a_time.contains(&it.reason));
        let kept = kept.map(|it| it.subject.id.as_str());
        let removed = plan.removals.iter().map(|it| &it.subject.id);
        let listed = plan.kept.iter().map(|it| &it.subject.id).chain(removed);
        let listed: BTreeSet<&Text> = listed.filter(|_| !self.failed.is_empty()).collect();
        let of_target = self.failed.iter().filter(|(of, _)| *of == target);
        let lacking = of_target.filter(|(_, id)| !listed.contains(id));
        let failed = kept.chain(lacking.map(|(_, id)| id.as_str()));
        let failed = failed.filter_map(|id| self.stayed.get(id));
        gone.map(|((_, reason), count)| (*reason, *count))
            .chain(failed.map(|reason| (*reason, 1)))
            .collect()
    }

    /// Notes that a removal was lost with the runtime. The second time the object stays: it is tried alone then, so it
    /// may be the cause, and must not hold back the others.
    fn note_loss(&mut self, done: &mut FinishedRemoval) {
        let RemovalOutcome::Lost { why } = &done.outcome else {
            return;
        };
        self.went_away = true;
        let subject = &done.removal.subject;
        if !self.lost.insert((subject.target, subject.id.clone())) {
            let why = format!("the runtime was away or went away at both tries: {why}");
            done.outcome = RemovalOutcome::failed(FailureClass::Other, why);
        }
    }

    /// Counts an outcome in the report, for the circuit breaker and for the look after the pass.
    fn count(&mut self, done: &FinishedRemoval, failed_before: bool) {
        use RemovalOutcome as Outcome;
        let (subject, outcome) = (&done.removal.subject, &done.outcome);
        let object = (subject.target, subject.id.clone());
        self.unstarted.remove(&object);
        self.untried.remove(&object);
        let failed = matches!(outcome, RemovalOutcome::Failed { .. });
        // Only failures of earlier passes count, not those of this pass.
        let failed_again = failed && failed_before && !self.failed.contains(&object);
        self.ended_since_look += 1;
        if let RemovalOutcome::Failed { class, .. } = outcome
            && *class != FailureClass::Timeout
        {
            self.refused.insert(subject.id.clone());
        }
        self.record.update(|pass| {
            if let Some(report) = pass.targets.get_mut(&subject.target) {
                report.failed_again += u64::from(failed_again);
                report.count(outcome, subject.size_bytes());
            }
        });
        let has_answer = !matches!(outcome, Outcome::Lost { .. } | Outcome::NotBegun);
        // A runtime that keeps some images removes the others.
        if has_answer && !failed_before && !self.runner.observer.is_undeleted(&subject.id) {
            let (attempts, failures) = self.tried.entry(subject.target).or_default();
            *attempts += 1;
            *failures += u64::from(failed);
        }
        match subject.target {
            Target::Containers | Target::Sandboxes | Target::Images if outcome.is_gone() => {
                self.gone.insert(object);
            }
            Target::Containers | Target::Sandboxes if failed && !failed_before => {
                self.failed.insert(object);
            }
            Target::Containers | Target::Sandboxes | Target::Images | Target::Logs => {}
        }
    }
}

fn counts<R: Copy + Ord>(counts: &BTreeMap<R, usize>) -> BTreeMap<R, u64> {
    let counts = counts.iter();
    counts.map(|(reason, n)| (*reason, *n as u64)).collect()
}

/// Formats counts by reason as an addition to a line.
pub(super) fn why(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let words: Vec<String> = counts.map(|(why, n)| format!("{why} {n}")).collect();
    if words.is_empty() {
        return String::new();
    }
    format!(" ({})", words.join(", "))
}

/// The wall clock, continued from the last look: a second reading could differ from the plan's after a clock
/// step.
fn now(runner: &Runner) -> Timestamp {
    let latest = runner.observer.latest();
    latest.map_or(Timestamp::UNIX_EPOCH, |look| {
        look.taken_at
            .saturating_add(look.started.elapsed())
            .unwrap_or(look.taken_at)
    })
}

/// Returns a failure as the report tells it. Runtimes repeat a sandbox's id, up to twice.
fn error_words(target: Target, id: &Text, why: &str) -> String {
    let short = id.get(..13).unwrap_or(id);
    match target {
        Target::Sandboxes => format!("{target} {id}: {}", why.replace(id.as_str(), short)),
        Target::Containers | Target::Logs | Target::Images => format!("{target} {id}: {why}"),
    }
}

/// Rounds as the database does: a restart must not change when a sandbox is tried again.
fn to_millisecond(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

fn log(record: &PassRecord, done: &FinishedRemoval) {
    let subject = &done.removal.subject;
    let (namespace, pod) = subject
        .pod
        .as_ref()
        .map_or(("", ""), |pod| (pod.namespace.as_str(), pod.name.as_str()));
    let duration_ms = u64::try_from(done.latency.as_millis()).unwrap_or(u64::MAX);
    macro_rules! event {
        ($level:ident, $message:literal, $($extra:tt)*) => {
            tracing::$level!(
                pass.id = %record.id,
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
        RemovalOutcome::Removed { freed_bytes } => {
            event!(info, "removed", freed_bytes,);
        }
        RemovalOutcome::AlreadyGone => event!(info, "already gone",),
        RemovalOutcome::Skipped { why } => event!(info, "skipped", why,),
        RemovalOutcome::NotBegun => event!(info, "not begun: the pass had to end",),
        RemovalOutcome::Failed { class, why, .. } => {
            let is_slow = subject.target == Target::Sandboxes && *class == FailureClass::Timeout;
            let hint = is_slow.then_some(TIMEOUT_HINT);
            event!(
                warn,
                "removal failed",
                class = class.label(),
                error = why,
                hint,
            );
        }
        RemovalOutcome::Lost { why } => event!(warn, "the runtime went away", error = why,),
    }
}
