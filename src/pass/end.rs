//! The end of a pass: waits for removals in flight, takes a last look, which proves what is gone, decides the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::PassRun;
use super::stops::StopCause;
use crate::model::{
    Container, Coverage, HasId, ListCoverage, Outcome, Pass, Pods, Target, TargetReport, Text,
};
use crate::pass::record::PassRecord;
use crate::runtime::Listing;
use crate::snapshot::{ListResult, Look};

/// How a pass ended, as admission needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether it only planned: on request, or because of `mode: observe`.
    pub dry_run: bool,
    /// The targets of which it tried to remove something.
    pub tried: BTreeSet<Target>,
    /// The targets of which it postponed something, and for how long from now. An automatic pass gets one
    /// follow-up over them.
    pub retry_after: BTreeMap<Target, Duration>,
}

impl PassEnd {
    /// Returns the end of a pass from its record.
    pub fn of(
        record: &PassRecord,
        outcome: Outcome,
        retry_after: BTreeMap<Target, Duration>,
    ) -> Self {
        Self {
            outcome,
            dry_run: record.read(|pass| pass.dry_run),
            tried: record.read(Pass::tried),
            retry_after,
        }
    }
}

/// Why a pass ends before its plan is done.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum EarlyEnd {
    #[error("{0}")]
    Stopped(StopCause),
    #[error("max_removals is reached")]
    MaxRemovals,
    #[error("the runtime went away {0}")]
    RuntimeGone(String),
    #[error("no look at the node was possible: {0}")]
    NoLook(String),
    #[error("the plan broke a rule, nothing was removed: {0}")]
    BadPlan(String),
    #[error("the lock in state.dir was lost, nothing was removed: {0}")]
    NotAlone(String),
    /// The saved plan expired while its pass waited: its id, and when.
    #[error(
        "plan \"{0}\" expired at {1}, before this pass began; nothing was removed: save a new one"
    )]
    PlanExpired(String, Timestamp),
}

impl EarlyEnd {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped(StopCause::Cancelled | StopCause::Shutdown)
            | Self::NoLook(_)
            | Self::BadPlan(_)
            | Self::NotAlone(_)
            | Self::PlanExpired(..) => Outcome::Aborted,
            Self::Stopped(StopCause::Held | StopCause::Deadline)
            | Self::MaxRemovals
            | Self::RuntimeGone(_) => Outcome::Partial,
        }
    }

    /// Says it in the words of a pass's report: who cancelled the pass, or what holds it.
    fn words(&self, record: &PassRecord) -> String {
        if matches!(self, Self::Stopped(StopCause::Cancelled)) {
            return record.cancel_words();
        }
        let is_held = matches!(self, Self::Stopped(StopCause::Held));
        let held = record.held_why().filter(|_| is_held);
        held.map_or_else(|| self.to_string(), String::clone)
    }
}

/// Returns the outcome of a pass that ran to its end. A quarantined sandbox that fails again stays quarantined;
/// that alone does not make a pass partial.
pub(super) fn outcome(targets: &BTreeMap<Target, TargetReport>, dry_run: bool) -> Outcome {
    let sum = |count: fn(&TargetReport) -> u64| targets.values().map(count).sum::<u64>();
    let due = sum(|report| report.planned.saturating_sub(report.failed_again));
    let remaining = sum(|report| report.remaining.saturating_sub(report.failed_again));
    match (due, remaining) {
        (0, _) => Outcome::NothingToDo,
        _ if dry_run => Outcome::Planned,
        (_, 0) => Outcome::Completed,
        _ => Outcome::Partial,
    }
}

/// How much later than `runtime.removal_timeout` a pass gives up its last removals, so that a removal that times out is
/// reported as failed.
const TIMEOUT_TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Given-up or open removals that report and log name.
const NAMED_MAX: usize = 10;

/// Begins a sentence about so many removals.
fn counted(removals: usize) -> String {
    match removals {
        1 => "1 removal was".to_owned(),
        count => format!("{count} removals were"),
    }
}

fn named(removals: &[(Target, Text)]) -> String {
    let named = removals.iter().take(NAMED_MAX);
    let named: Vec<String> = named.map(|(target, id)| format!("{target} {id}")).collect();
    let more = if removals.len() > NAMED_MAX {
        ", ..."
    } else {
        ""
    };
    named.join(", ") + more
}

fn of_target(ids: &BTreeSet<(Target, Text)>, target: Target) -> BTreeSet<&str> {
    let of_target = ids.iter().filter(|(of, _)| *of == target);
    of_target.map(|(_, id)| id.as_str()).collect()
}

impl PassRun<'_> {
    /// Waits for removals in flight, takes a last look, and returns how the pass ended.
    pub(super) async fn finish(mut self, end: Option<EarlyEnd>, dry_run: bool) -> PassEnd {
        let patience = self.config.runtime.removal_timeout + TIMEOUT_TOLD_WITHIN;
        // After the deadline removals in flight have longer than logs, which go beside them.
        if self.stops.reached() == Some(StopCause::Deadline) {
            self.last_logs().await;
        }
        let mut left = self.drain(Instant::now() + patience).await;
        let until = self.last_logs().await;
        let until = until.unwrap_or_else(|| Instant::now() + patience);
        left.extend(self.drain(until).await);
        self.report_waiting_logs();
        let given_up = !left.is_empty();
        // Also for a log: the report of a pass that was not asked for logs does not count it.
        self.incomplete |= given_up;
        if let Some(why) = self.executor.remover.evidence.stay() {
            self.report_problem(Target::Containers, &why);
        }
        // Removals that a late stop gave up or held back were planned, so it decides the outcome.
        let late = self
            .stops
            .reached()
            .filter(|_| given_up || self.tally.not_begun)
            .map(EarlyEnd::Stopped);
        let end = end.or(late);
        if end.is_none() {
            self.report_open();
        }
        let mut unstarted = std::mem::take(&mut self.tally.unstarted);
        unstarted.retain(|object| !left.contains(object));
        if !unstarted.is_empty() {
            self.runner.journal.not_begun(&self.record.id, unstarted);
        }
        if let Some(end) = &end {
            self.record.error(end.words(self.record));
        }
        let mut retry_after = BTreeMap::new();
        if dry_run {
            self.record
                .update(|pass| pass.after.clone_from(&pass.before));
        } else if !matches!(
            end,
            Some(EarlyEnd::Stopped(StopCause::Shutdown) | EarlyEnd::NoLook(_))
        ) {
            let look = self.last_look().await;
            if let Some(look) = &look {
                self.prove_gone(look, &left);
                self.prove_images(look, end.is_none()).await;
                self.tell_last_records(look);
            }
            let look = look.filter(|_| end.is_none());
            retry_after = look.map(|look| self.retry_after(&look)).unwrap_or_default();
        }
        if let Some(end) = &end {
            retry_after = self.go_on_after(end);
        }
        self.report_quarantined();
        let outcome = self.outcome(end.as_ref(), dry_run);
        self.leave_logs();
        let is_silent = outcome == Outcome::Partial && self.record.read(|it| it.errors.is_empty());
        if let Some(why) = self.tally.first_skip.filter(|_| is_silent) {
            self.record.error(why);
        }
        PassEnd::of(self.record, outcome, retry_after)
    }

    /// Removes the logs of the containers that have gone. Returns until when such logs may go, if the pass must end.
    async fn last_logs(&mut self) -> Option<Instant> {
        // Each would be lost once more, and then count as failed: the next pass takes them.
        let look = self.runner.observer.latest();
        let look = look.filter(|_| !self.runtime_is_away)?;
        let mut until = None;
        loop {
            until = until.or_else(|| self.stops.logs_may_go_until());
            self.executor.logs_until = until;
            self.take_open_logs();
            self.logs_follow(&look).await;
            match until {
                None if self.stops.reached().is_none() => return None,
                // A stop that came meanwhile held back the rest, which go once more.
                None => {}
                Some(end) if self.executor.is_idle() || Instant::now() >= end => return until,
                Some(_) => self.executor.wait(|done| self.tally.note(done)).await,
            }
        }
    }

    /// Waits for removals in flight until then; returns those that were given up.
    async fn drain(&mut self, until: Instant) -> Vec<(Target, Text)> {
        let record = self.record;
        let on_done = |done| self.tally.note(done);
        let left = self.executor.drain(until, on_done).await;
        if left.is_empty() {
            return left;
        }
        for (target, id) in &left {
            self.runner.failures.lock().failed(*target, id);
        }
        let (count, named) = (left.len(), named(&left));
        tracing::warn!(
            pass.id = %record.id,
            count,
            "removals were still under way when the pass ended: {named}"
        );
        let counted = counted(count);
        record.error(format!(
            "{counted} still under way when the pass ended: {named}"
        ));
        left
    }

    /// Reports the removals during which the runtime went away, if nothing was tried after them.
    fn report_open(&self) {
        let open = self.tally.open.iter();
        let open: Vec<_> = open
            .map(|it| (it.subject.target, it.subject.id.clone()))
            .collect();
        if open.is_empty() {
            return;
        }
        let (counted, named) = (counted(open.len()), named(&open));
        self.record.error(format!(
            "{counted} open when the runtime went away: {named}"
        ));
    }

    /// Looks at what the pass left, unless the pass must end first.
    async fn last_look(&self) -> Option<Arc<Look>> {
        let look = tokio::select! {
            look = self.runner.observer.fresh(self.freshness) => look.map_err(|error| error.to_string()),
            () = self.stops.last_look_over() => Err("no time was left for it".to_owned()),
        };
        match &look {
            Ok(look) => self.record.update(|pass| pass.after = Some(look.figures())),
            Err(why) => self
                .record
                .error(format!("no look at the node after the pass: {why}")),
        }
        look.ok()
    }

    /// Compares what went, what failed, what was `given_up` and what a lost runtime left open with the look after the
    /// pass. An incomplete list proves nothing. By ids, not by counts: on a busy node as many containers exit during a pass
    /// as it removes.
    fn prove_gone(&mut self, look: &Look, given_up: &[(Target, Text)]) {
        let open = self.tally.open.iter();
        let open = open.map(|it| (it.subject.target, it.subject.id.clone()));
        // Those lost where a bound ended the pass are in no list of open ones any more.
        let mut unsure = &self.tally.failed | &self.tally.lost;
        unsure.extend(self.tally.untried.iter().cloned());
        unsure.extend(open.chain(given_up.iter().cloned()));
        self.prove_target_gone(Target::Containers, &look.containers, &unsure);
        self.prove_target_gone(Target::Sandboxes, &look.sandboxes, &unsure);
    }

    fn prove_target_gone<T: HasId>(
        &mut self,
        target: Target,
        list: &ListResult<T>,
        unsure: &BTreeSet<(Target, Text)>,
    ) {
        let list = list.as_ref().ok();
        let Some(list) = list.filter(|it| it.coverage == Coverage::Whole) else {
            return;
        };
        // A defective list may have a row twice.
        let listed: BTreeSet<&str> = list.rows.iter().map(HasId::id).collect();
        let gone = of_target(&self.tally.gone, target);
        let still_listed: Vec<&str> = gone.intersection(&listed).copied().collect();
        let unsure = of_target(unsure, target);
        let went_later = unsure
            .iter()
            .filter(|id| !gone.contains(*id) && !listed.contains(*id));
        let went_later: Vec<&&str> = went_later.collect();
        for id in &went_later {
            self.gone.went(id);
        }
        let (went_later, count) = (went_later.len() as u64, still_listed.len() as u64);
        let problem = still_listed.first().map(|example| {
            format!(
                "{count} of {} removed or gone are still listed ({example}): the runtime says that they are gone, \
                 and lists them; its log may say why",
                gone.len()
            )
        });
        self.record.update(|pass| {
            if let Some(report) = pass.targets.get_mut(&target) {
                report.still_listed = count;
                report.count_remaining();
                report.remaining = report.remaining.saturating_sub(went_later);
            }
        });
        if went_later > 0 {
            self.incomplete = true;
            self.record.line(format!(
                "{target}: {went_later} that the pass did not remove are gone by now"
            ));
        }
        if let Some(problem) = problem {
            self.report_problem(target, &problem);
        }
    }

    /// Sends an Event for each finished pod of which the look after the pass shows no container any more.
    fn tell_last_records(&self, look: &Look) {
        let events = &self.runner.events;
        let (Pods::Known(list), Ok(containers)) = (&look.pods, &look.containers) else {
            return;
        };
        let is_whole = containers.coverage == Coverage::Whole;
        if !events.tells_pods() || !is_whole {
            return;
        }
        let rows = containers.rows.iter();
        let still: BTreeSet<_> = rows.flat_map(|row| &row.pod).map(|pod| &pod.uid).collect();
        for record in self.gone.last_records() {
            let pod = list.pods.get(&record.pod.uid);
            if pod.is_some_and(|pod| pod.finished) && !still.contains(&record.pod.uid) {
                events.records_removed(&record, &self.config.node.name, look.taken_at);
            }
        }
    }

    pub(super) fn outcome(&self, end: Option<&EarlyEnd>, dry_run: bool) -> Outcome {
        match end {
            Some(end) => end.outcome(),
            // The breaker ended the last target that had something to try.
            None if self.given_up => Outcome::Aborted,
            None => self.unless_incomplete(outcome(&self.record.pass().targets, dry_run)),
        }
    }

    /// Reports how many sandboxes are quarantined, and until when.
    pub(super) fn report_quarantined(&self) {
        if !self.targets.contains(&Target::Sandboxes) {
            return;
        }
        let (count, next_try) = {
            let quarantine = self.runner.quarantine.lock();
            let all = quarantine.all();
            (all.len(), all.first().map(|(_, known)| known.next_try))
        };
        let Some(next_try) = next_try else { return };
        self.record.update(|pass| {
            let report = pass.targets.entry(Target::Sandboxes).or_default();
            report.next_try = Some(next_try);
        });
        tracing::info!(
            pass.id = %self.record.id, count, %next_try, "quarantined sandboxes are skipped"
        );
        self.record.line(format!(
            "sandboxes: {count} are quarantined after failed removals; the next is tried again from {next_try} on"
        ));
    }

    pub(super) fn report_incomplete_look(&self, seen: ListCoverage) {
        if !seen.is_all() {
            let line =
                "the runtime's lists could not be read completely; only what is certain is removed";
            tracing::warn!(pass.id = %self.record.id, ?seen, "{line}");
            self.record.line(line.to_owned());
        }
    }

    /// Reports empty lists that are not believed, and defective rows, which keep the objects that they may concern.
    pub(super) fn report_row_problems(&mut self, look: &Look) {
        self.report_rows_of(Target::Containers, &look.containers);
        self.report_rows_of(Target::Sandboxes, &look.sandboxes);
        let Ok(containers) = &look.containers else {
            return;
        };
        let is_odd = |it: &&Container| it.id.is_stand_in() || it.sandbox_id.is_stand_in();
        let mut odd = containers.rows.iter().filter(is_odd);
        let Some(first) = odd.next() else { return };
        let (id, count) = (&first.id, 1 + odd.count());
        let why = format!(
            "rows without the container's or the sandbox's id: {count} (the first: {id}); the sandboxes \
             that they may be in stay"
        );
        self.report_problem(Target::Containers, &why);
    }

    fn report_rows_of<T>(&mut self, target: Target, list: &ListResult<T>) {
        let list = list.as_ref().ok();
        // One that was read in parts is no defect: each look tries more of it.
        let list = list.filter(|it| it.malformed > 0 || it.rows.is_empty());
        if let Some(why) = list.and_then(Listing::doubt) {
            self.report_problem(target, &why);
        }
    }

    /// Reports, once, why the pass could not do all that it was asked for.
    pub(super) fn report_problem(&mut self, target: Target, why: &str) {
        self.incomplete = true;
        if self.record.error_once(format!("{target}: {why}")) {
            tracing::warn!(pass.id = %self.record.id, target = target.label(), why, "the pass cannot do all that it was asked for");
        }
    }

    /// A pass is not complete while something could not be read, or is kept because its pod is unknown.
    fn unless_incomplete(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Completed | Outcome::NothingToDo if !self.uncertain.is_empty() => {
                Outcome::Partial
            }
            Outcome::Completed | Outcome::Planned | Outcome::NothingToDo
                if self.incomplete || self.tally.has_failed_log || !self.tally.open.is_empty() =>
            {
                Outcome::Partial
            }
            Outcome::Completed
            | Outcome::Planned
            | Outcome::Partial
            | Outcome::Aborted
            | Outcome::Interrupted
            | Outcome::NothingToDo => outcome,
        }
    }
}
