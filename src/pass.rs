//! One pass: observe -> plan -> check -> carry out, batch by batch -> report.
//!
//! Runs one pass at a time; who may ask for one is the worker's business.

mod batch;
mod end;
mod left_alone;
pub mod pace;
mod queue;
mod remove;
mod tally;
mod tell;
mod tries;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cri;
use crate::gc::gate::Options;
use crate::gc::{self, Plan, Policy, RemoveReason, Target};
use crate::metrics::Metrics;
use crate::model::{Coverage, PodSandboxId, Seen};
use crate::observe::{Look, Observer};
use crate::quarantine::{BackOff, Quarantine};
use crate::record::Record;
use crate::report::Outcome;
use crate::state::Journal;
use batch::{Executor, Pressure};
use end::{End, outcome};
use queue::{Next, Queue};
use tally::Tally;

/// The circuit breaker looks at the share of failures from this many tries on.
const BREAKER_MIN_TRIES: u64 = 5;
/// How often a pass waits for a runtime that went away before it gives up.
const RUNTIME_LOSSES_MAX: u32 = 5;
/// How often a runtime that went away is asked whether it is back.
const RUNTIME_BACK_EVERY: Duration = Duration::from_millis(250);
/// How long removals in flight are waited for when the service goes down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// How long a batch waits for the disk to have its intents, and a pass to have its end.
pub const JOURNAL_PATIENCE: Duration = Duration::from_millis(250);

/// What a pass follows; read once at its start.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What stays and what goes.
    pub policy: Policy,
    /// Only plan, whatever was asked for (`mode: observe`).
    pub observe_only: bool,
    /// Removals between two looks, at most.
    pub batch_size: usize,
    /// Removals in flight, at most.
    pub max_concurrency: usize,
    /// Removals in a pass, at most.
    pub max_removals: Option<u64>,
    /// When a pass stops starting removals.
    pub deadline: Option<Duration>,
    /// Rest between batches.
    pub batch_pause: Duration,
    /// Disk pressure from which on the pass slows down, percent.
    pub io_pressure_percent: Option<f64>,
    /// Share of failures beyond which a pass is aborted.
    pub failure_ratio: Option<f64>,
    /// How long failed sandboxes are left alone.
    pub back_off: BackOff,
    /// How long a runtime that went away is waited for, and a removal in flight at the end.
    pub removal_timeout: Duration,
    /// The look that a batch rests on is at most this old.
    pub max_age: Duration,
    /// Where `/proc/pressure/io` is.
    pub pressure_path: PathBuf,
}

/// What passes work with. Cloning shares.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The runtime.
    pub client: cri::Client,
    /// The node.
    pub observer: Observer,
    /// Own counters.
    pub metrics: Metrics,
    /// Sandboxes that are left alone.
    pub quarantine: Arc<Mutex<Quarantine>>,
    /// What passes write down.
    pub journal: Journal,
}

impl Runner {
    /// Runs a pass to its end and returns how it ended. The record follows it all the way.
    pub async fn run(
        &self,
        record: &Record,
        options: &Options,
        mut rules: Rules,
        shutdown: &CancellationToken,
    ) -> Outcome {
        if let Some(after) = options.assume_finished_after {
            rules.policy.assume_finished_after = (!after.is_zero()).then_some(after);
        }
        rules.max_removals = match (options.max_removals, rules.max_removals) {
            (Some(asked), Some(configured)) => Some(asked.min(configured)),
            (asked, configured) => asked.or(configured),
        };
        let dry_run = options.dry_run || rules.observe_only;
        record.update(|pass| pass.dry_run = dry_run);
        self.journal.begun(&record.pass());
        let mut run = Run::new(self, record, &rules, shutdown);
        let end = run.all(dry_run).await.err();
        run.finish(end, dry_run).await
    }
}

/// One pass under way.
struct Run<'a> {
    runner: &'a Runner,
    record: &'a Record,
    rules: &'a Rules,
    shutdown: &'a CancellationToken,
    executor: Executor,
    started: Instant,
    batches: u64,
    tries: u64,
    failed: u64,
    /// Removals that may still be started.
    budget: u64,
    losses: u32,
}

impl<'a> Run<'a> {
    fn new(
        runner: &'a Runner,
        record: &'a Record,
        rules: &'a Rules,
        shutdown: &'a CancellationToken,
    ) -> Self {
        let pressure = Pressure::new(rules.pressure_path.clone(), rules.io_pressure_percent);
        let stop = record.cancelled().clone();
        let executor = Executor::new(runner.client.clone(), rules.max_concurrency, pressure, stop);
        Self {
            runner,
            record,
            rules,
            shutdown,
            executor,
            started: Instant::now(),
            batches: 0,
            tries: 0,
            failed: 0,
            budget: rules.max_removals.unwrap_or(u64::MAX),
            losses: 0,
        }
    }

    async fn all(&mut self, dry_run: bool) -> Result<(), End> {
        let targets = self.record.pass().target_set();
        let mut look = self.look().await?;
        self.record
            .update(|pass| pass.before = Some(look.figures()));
        if dry_run {
            let plan = self.plan(&look, &targets)?;
            for target in &targets {
                tell::plan(self.record, &plan, *target);
            }
            return Ok(());
        }
        let mut touched = false;
        for target in targets {
            // So that a pod's containers and its sandbox go in one pass.
            if touched {
                look = self.look_again().await?;
            }
            touched |= self.clean(target, &mut look).await?;
        }
        Ok(())
    }

    /// Cleans one target; says whether anything was tried.
    async fn clean(&mut self, target: Target, look: &mut Arc<Look>) -> Result<bool, End> {
        let plan = self.plan(look, &[target].into())?;
        tell::plan(self.record, &plan, target);
        let planned = plan.removals.len();
        let mut queue = Queue::new(plan.removals, self.runner.known_failures());
        let mut number = 0;
        while !queue.is_empty() {
            self.bounds()?;
            if look.started.elapsed() > self.rules.max_age {
                *look = self.look_again().await?;
                self.still_due(look, target, &mut queue)?;
            }
            let size = self
                .rules
                .batch_size
                .min(usize::try_from(self.budget).unwrap_or(usize::MAX));
            let open = match queue.next(size) {
                Next::Batch(batch) => {
                    number += 1;
                    let open = self.batch(target, number, batch, &mut queue).await;
                    tell::progress(self.record, target, number, planned);
                    open
                }
                Next::Wait if !self.executor.is_idle() => self.wait(target, &mut queue).await,
                Next::Wait | Next::Done => break,
            };
            self.breaker()?;
            if !open.is_empty() {
                // Not started because of a cancel, or lost with the runtime.
                self.bounds()?;
                queue.give_back(open);
                *look = self.runtime_back().await?;
                self.still_due(look, target, &mut queue)?;
            }
            if !queue.is_empty() && !self.rules.batch_pause.is_zero() {
                self.rest(self.rules.batch_pause).await;
            }
        }
        Ok(planned > 0)
    }

    fn take(&mut self, tally: &Tally) {
        self.tries += tally.tries;
        self.failed += tally.failed;
    }

    async fn look(&mut self) -> Result<Arc<Look>, End> {
        let look = tokio::select! {
            look = self.runner.observer.fresh() => look,
            () = self.record.cancelled().cancelled() => return Err(self.stopped()),
        };
        let look = look.map_err(|error| End::NoLook(error.to_string()))?;
        if let Ok(sandboxes) = &look.sandboxes
            && sandboxes.coverage == Coverage::Whole
        {
            let listed: BTreeSet<&PodSandboxId> =
                sandboxes.rows.iter().map(|row| &row.id).collect();
            self.runner.quarantine().retain(|id| listed.contains(id));
        }
        Ok(look)
    }

    /// Looks in mid-pass: a runtime that is away just then is waited for.
    async fn look_again(&mut self) -> Result<Arc<Look>, End> {
        let look = self.look().await?;
        if look.is_lost() {
            return self.runtime_back().await;
        }
        Ok(look)
    }

    /// Plans, and has the plan checked.
    fn plan(&self, look: &Look, targets: &BTreeSet<Target>) -> Result<Plan, End> {
        let quarantine = self.runner.next_tries(look.taken_at);
        let snapshot = look
            .snapshot(quarantine)
            .map_err(|error| End::NoLook(error.to_string()))?;
        let plan = gc::plan(&snapshot, &self.rules.policy, targets);
        self.tell_if_incomplete(snapshot.seen);
        let violations = gc::check::check(&plan.removals, &snapshot, &self.rules.policy);
        for violation in &violations {
            tracing::error!(%violation, "the plan breaks a rule; this is a bug in crisweep");
        }
        match violations.first() {
            None => Ok(plan),
            Some(first) => Err(End::BadPlan(first.to_string())),
        }
    }

    fn tell_if_incomplete(&self, seen: Seen) {
        if !seen.is_all() {
            let line = "the runtime's lists could not be read whole; only what is certain goes";
            tracing::warn!(pass.id = %self.record.id(), ?seen, "{line}");
            self.record.line(line.to_owned());
        }
    }

    /// Leaves waiting what both looks want. What is gone by itself counts as gone; what shall stay after all
    /// counts as skipped, unless it was to go for a cap that is met by now.
    fn still_due(&self, look: &Look, target: Target, queue: &mut Queue) -> Result<(), End> {
        let fresh = self.plan(look, &[target].into())?;
        let stays: BTreeSet<&str> = fresh.kept.iter().map(|k| k.subject.id.as_str()).collect();
        let before = queue.take();
        let due = gc::plan::still_due(before.clone(), &fresh);
        let still: BTreeSet<&str> = due.iter().map(|r| r.subject.id.as_str()).collect();
        self.record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            for removal in before
                .iter()
                .filter(|r| !still.contains(r.subject.id.as_str()))
            {
                // What an incomplete look lacks need not be gone.
                let missing = !stays.contains(removal.subject.id.as_str());
                if missing && look.seen().is_all() {
                    report.already_gone += 1;
                } else if removal.reason == RemoveReason::OverCap {
                    report.planned = report.planned.saturating_sub(1);
                } else {
                    report.skipped += 1;
                }
            }
            report.count_remaining();
        });
        queue.put(due);
        Ok(())
    }

    /// Between batches: may the pass go on?
    fn bounds(&self) -> Result<(), End> {
        if self.shutdown.is_cancelled() || self.record.cancelled().is_cancelled() {
            return Err(self.stopped());
        }
        if self
            .rules
            .deadline
            .is_some_and(|deadline| self.started.elapsed() >= deadline)
        {
            return Err(End::Deadline);
        }
        if self.budget == 0 {
            return Err(End::MaxRemovals);
        }
        Ok(())
    }

    fn stopped(&self) -> End {
        if self.shutdown.is_cancelled() {
            End::Shutdown
        } else {
            End::Cancelled
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of some thousands")]
    fn breaker(&self) -> Result<(), End> {
        let Some(ratio) = self.rules.failure_ratio else {
            return Ok(());
        };
        let (failed, tries) = (self.failed, self.tries);
        if tries >= BREAKER_MIN_TRIES && failed as f64 / tries as f64 > ratio {
            return Err(End::Breaker { failed, tries });
        }
        Ok(())
    }

    /// Waits for a runtime that went away, and looks anew.
    async fn runtime_back(&mut self) -> Result<Arc<Look>, End> {
        self.losses += 1;
        if self.losses > RUNTIME_LOSSES_MAX {
            return Err(End::RuntimeGone);
        }
        self.record
            .line("the runtime went away; waiting for it".to_owned());
        tracing::warn!(pass.id = %self.record.id(), "the runtime went away in mid-pass");
        let until = Instant::now() + self.rules.removal_timeout;
        loop {
            self.bounds()?;
            if self.runner.client.version().await.is_ok() {
                match self.look().await {
                    Ok(look) if look.snapshot(BTreeMap::new()).is_ok() => return Ok(look),
                    Ok(_) => {}
                    Err(end) => return Err(end),
                }
            }
            if Instant::now() >= until {
                return Err(End::RuntimeGone);
            }
            self.rest(RUNTIME_BACK_EVERY).await;
        }
    }

    /// Sleeps, but not through a cancel.
    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.record.cancelled().cancelled() => {}
        }
    }

    /// Waits for what is in flight, looks once more, and says how it ended.
    async fn finish(mut self, end: Option<End>, dry_run: bool) -> Outcome {
        let patience = match &end {
            Some(End::Shutdown) => SHUTDOWN_GRACE.min(self.rules.removal_timeout),
            _ => self.rules.removal_timeout,
        };
        let mut tally = Tally::default();
        let (runner, record, rules) = (self.runner, self.record, self.rules);
        let until = Instant::now() + patience;
        let left = self
            .executor
            .drain(until, |done| tally.note(runner, record, rules, done))
            .await;
        self.take(&tally);
        if left > 0 {
            self.record.error(format!(
                "{left} removals were still under way when the pass ended"
            ));
        }
        if let Some(end) = &end {
            self.record.error(end.text());
        }
        let going_down = matches!(end, Some(End::Shutdown));
        if !dry_run && !going_down && !matches!(end, Some(End::NoLook(_))) {
            if let Ok(look) = self.runner.observer.fresh().await {
                self.record.update(|pass| pass.after = Some(look.figures()));
            }
        } else if dry_run {
            self.record
                .update(|pass| pass.after.clone_from(&pass.before));
        }
        outcome(end.as_ref(), &self.record.pass().targets, dry_run)
    }
}
