//! Admits passes and runs them, one at a time. Keeps the last passes.

pub mod admission;
pub mod alert;
mod end;
mod fleet_brakes;
mod history;
pub mod poll;
pub mod thresholds;
mod waiting;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::fleet::Fleet;
use crate::model::{
    AlertInfo, AlertResult, Brake, Caller, Cause, Outcome, Pass, PassState, TriggerInfo,
};
use crate::pass::record::PassRecord;
use crate::pass::{PassEnd, Runner};
use crate::system::pulse::Pulses;
use crate::system::{clock, wait_until};
use crate::telemetry::LineLimit;
pub use admission::{Admission, Trigger};
use admission::{Admissions, QueuedPass};
use history::PassHistory;
use waiting::{show_asked, text, until};

/// Log lines about queued passes per minute. A flapping alert may queue and withdraw a pass thousands of times
/// a second.
const QUEUED_LINES_MAX: u32 = 30;
/// The same for withdrawn passes. Those above it are not journaled either: they would overwrite the records of
/// removals.
const WITHDRAWN_LINES_MAX: u32 = 10;
const LINES_WITHIN: Duration = Duration::from_secs(60);
/// A pass that runs for so long after its deadline is stuck: it ends within 2 s of it, whatever hangs.
const OVERDUE: Duration = Duration::from_secs(60);

/// Queues and runs passes. Cloning shares.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: Arc<WorkerInner>,
}

#[derive(Debug)]
struct WorkerInner {
    runner: Runner,
    config: watch::Receiver<Arc<Config>>,
    fleet: Fleet,
    state: Mutex<WorkerState>,
    wake: Notify,
    shutdown: CancellationToken,
    pulses: Pulses,
    /// When the worker's time begins: before the process, because it covers passes of earlier ones.
    began: Instant,
    queued_lines: LineLimit,
    withdrawn_lines: LineLimit,
    /// Counts passes that were queued, began or ended.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct WorkerState {
    admissions: Admissions,
    history: PassHistory,
}

impl WorkerState {
    fn running(&self) -> Option<Arc<PassRecord>> {
        self.history.find(self.admissions.running()?)
    }
}

impl Worker {
    /// Returns a worker that runs nothing before [`Self::run`].
    pub fn new(
        runner: Runner,
        config: watch::Receiver<Arc<Config>>,
        fleet: Fleet,
        shutdown: CancellationToken,
        pulses: Pulses,
    ) -> Self {
        let state = WorkerState {
            admissions: Admissions::default(),
            history: PassHistory::default(),
        };
        Self {
            inner: Arc::new(WorkerInner {
                runner,
                config,
                fleet,
                state: Mutex::new(state),
                wake: Notify::new(),
                shutdown,
                pulses,
                began: history::began(Instant::now()),
                queued_lines: LineLimit::new(QUEUED_LINES_MAX, LINES_WITHIN),
                withdrawn_lines: LineLimit::new(WITHDRAWN_LINES_MAX, LINES_WITHIN),
                changes: watch::Sender::default(),
            }),
        }
    }

    /// Returns what passes use.
    pub fn runner(&self) -> &Runner {
        &self.inner.runner
    }

    /// Returns the configuration that the next pass uses.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.inner.config.borrow())
    }

    /// Publishes a new configuration. All brakes change at once: no pass begins between the end of a pause and the hold
    /// that takes its place.
    pub fn reload(&self, settings: &watch::Sender<Arc<Config>>, config: Arc<Config>) {
        {
            let _no_pass_begins = self.inner.state.lock();
            let server = config.pods.api_server();
            self.inner.fleet.configure(&config.fleet, server);
            settings.send_replace(config);
        }
        self.show_waiting(&self.state());
        self.inner.wake.notify_one();
    }

    /// Returns the brakes of the fleet.
    pub fn fleet(&self) -> &Fleet {
        &self.inner.fleet
    }

    /// Returns the brakes that would hold an alert now.
    pub fn holding(&self) -> Vec<Brake> {
        let now = self.inner.began.elapsed();
        let state = self.state();
        let holds = |brake: &Brake| state.admissions.holds(*brake, now);
        Brake::ALL.into_iter().filter(holds).collect()
    }

    /// Asks for passes, all at once: the triggers of one webhook call become one pass.
    pub fn submit(&self, triggers: Vec<Trigger>) -> Vec<Admission> {
        let now = self.inner.began.elapsed();
        let mut state = self.state();
        if let Some(running) = state.running() {
            state.admissions.begun(running.read(Pass::begun));
        }
        let mut admissions = Vec::with_capacity(triggers.len());
        for trigger in triggers {
            if self.inner.shutdown.is_cancelled() {
                let why = "the service is going down";
                admissions.push(Admission::without_pass(AlertResult::Unavailable, why));
                continue;
            }
            let id = state.history.next_id();
            let info = trigger.info.clone();
            let admission = state.admissions.admit(trigger, &id, now);
            if admission.result == AlertResult::Accepted
                && let Some(queued) = state.admissions.newest().cloned()
            {
                self.enlist(&mut state, &queued, info, now);
            } else if admission.result == AlertResult::Merged
                && let Some(id) = &admission.pass
                && let Some(record) = state.history.find(id)
            {
                record.update(|pass| pass.merged_triggers += 1);
            }
            admissions.push(admission);
        }
        self.show_waiting(&state);
        for admission in &mut admissions {
            let waits = |id: &str| Self::why_waiting(&state, id, now);
            if let Some(why) = admission.pass.as_deref().and_then(waits) {
                admission.why = Some(why);
            }
        }
        drop(state);
        self.inner.wake.notify_one();
        admissions
    }

    /// Takes back the waiting pass that only this resolved alert asked for.
    pub fn withdraw(&self, alert: &AlertInfo) -> Admission {
        let nothing_waits = Admission {
            result: AlertResult::Resolved,
            pass: None,
            why: None,
        };
        let mut state = self.state();
        let queued = state.admissions.withdraw(alert);
        self.show_waiting(&state);
        let record = queued.and_then(|queued| state.history.find(&queued.id));
        drop(state);
        // The withdrawn pass may have waited for a slot.
        self.inner.wake.notify_one();
        let Some(record) = record else {
            return nothing_waits;
        };
        let line = self.inner.withdrawn_lines.admit(self.inner.began.elapsed());
        self.end(
            &record,
            "the alert resolved or was silenced before its pass began",
            line,
        );
        Admission::with_pass(AlertResult::Withdrawn, &record.id)
    }

    /// Cancels a pass: drops a waiting one; a running one starts nothing more. Returns it, or `None` if the
    /// history does not have it.
    pub fn cancel(&self, id: &str, by: Option<Caller>) -> Option<Arc<PassRecord>> {
        let mut state = self.state();
        let record = state.history.find(id)?;
        let waited = state.admissions.cancel(id).is_some();
        drop(state);
        // The cancelled pass may have waited for a slot.
        self.inner.wake.notify_one();
        record.cancel_for(by);
        if waited {
            let why = format!("{} before it began", record.cancel_words());
            self.end(&record, &why, Some(0));
        }
        Some(record)
    }

    /// Runs passes until the service shuts down; then ends the running pass and drops the rest.
    pub async fn run(&self) {
        let mut fleet = self.inner.fleet.changes();
        let journal = &self.inner.runner.journal;
        while !self.inner.shutdown.is_cancelled() {
            if let Some((history, hold)) = journal.found_late() {
                if let Some(hold) = hold {
                    self.inner.fleet.held_before(&hold);
                }
                // The hold that was read in the meantime is not written yet.
                journal.held(self.inner.fleet.hold());
                self.restore(history);
            }
            if let Some((queued, record)) = self.take_next() {
                self.inner.fleet.want_slot(!queued.budgeted.is_empty());
                self.run_one(&queued, &record).await;
                // Give the slot back after each pass, so that other nodes have their turn.
                self.inner.fleet.want_slot(false);
                continue;
            }
            self.want_slot();
            self.show_waiting(&self.state());
            tokio::select! {
                () = self.inner.wake.notified() => {}
                () = journal.opened_late() => {}
                _ = fleet.changed() => {}
                () = self.due() => {}
                () = self.inner.shutdown.cancelled() => {}
            }
        }
        self.inner.fleet.want_slot(false);
        let dropped = self.state().admissions.drain();
        for queued in dropped {
            if let Some(record) = self.find(&queued.id) {
                self.end(&record, "the service is going down", Some(0));
            }
        }
    }

    async fn due(&self) {
        let now = self.inner.began.elapsed();
        let due = self.state().admissions.due(now);
        wait_until(due.and_then(|due| self.inner.began.checked_add(due))).await;
    }

    /// Takes the next pass that may begin, with its record.
    fn take_next(&self) -> Option<(QueuedPass, Arc<PassRecord>)> {
        let now = self.inner.began.elapsed();
        let mut guard = self.state();
        let state = &mut *guard;
        let (queued, rest) = state.admissions.next(now, || state.history.next_id())?;
        state.history.begins(&queued.id);
        let record = state.history.find(&queued.id).unwrap_or_else(|| {
            // The history never forgets a waiting pass; still, a pass without a record would block all others.
            self.enlist(state, &queued, trigger_of(&queued), now)
        });
        if let Some(rest) = rest {
            self.enlist(state, &rest, trigger_of(&rest), now);
        }
        Some((queued, record))
    }

    /// Makes and logs the record of a newly queued pass.
    fn enlist(
        &self,
        state: &mut WorkerState,
        queued: &QueuedPass,
        trigger: TriggerInfo,
        now: Duration,
    ) -> Arc<PassRecord> {
        let (cause, by) = (trigger.cause, trigger.by.as_ref().map(Caller::to_string));
        let wait = state.admissions.why_waits(queued, now);
        let not_before = until(wait.as_ref(), now);
        let targets = queued.targets.iter().copied();
        let pass = Pass {
            dry_run: queued.options.dry_run,
            runtime: self.runner().observer.client().endpoint(),
            plan: queued.options.plan.as_ref().map(|plan| plan.id.clone()),
            not_before,
            ..Pass::queued(queued.id.clone(), trigger, targets, clock())
        };
        let record = Arc::new(PassRecord::new(pass));
        state.history.remember(Arc::clone(&record));
        self.changed();
        let running = state.admissions.running().filter(|id| *id != queued.id);
        match (&wait, running) {
            (Some(wait), _) => record.line(text(wait, not_before)),
            (None, Some(running)) => record.line(format!("it waits for the end of pass {running}")),
            (None, None) => {}
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
                wait_seconds = wait.as_ref().and_then(|it| Some(it.left(now)?.as_secs())),
                left_out = NonZeroU64::new(left_out),
                "pass queued"
            );
        }
        record
    }

    async fn run_one(&self, queued: &QueuedPass, record: &Arc<PassRecord>) {
        let now = clock();
        record.update(|pass| {
            pass.state = PassState::Running;
            (pass.started_at, pass.not_before) = (Some(now), None);
            // Targets under a brake move to a pass of their own.
            show_asked(pass, queued);
        });
        self.changed();
        record.line(format!("pass {} begins", queued.id));
        tracing::info!(pass.id = %queued.id, "pass begins");
        let (worker, options, task_record) =
            (self.clone(), queued.options.clone(), Arc::clone(record));
        // Runs in its own task, so that a panic in a pass does not end the worker.
        let mut pass = tokio::spawn(async move {
            let (inner, config) = (&worker.inner, Config::clone(&worker.config()));
            let deadline = config.gc.deadline.map(|deadline| deadline + OVERDUE);
            let overdue = deadline.and_then(|after| Instant::now().checked_add(after));
            let pulse = inner.pulses.start("the running pass");
            let pass = inner
                .runner
                .run(&task_record, &options, config, &inner.shutdown);
            pulse.carry(overdue, Box::pin(pass)).await
        });
        let result = tokio::select! {
            result = &mut pass => result,
            () = self.inner.shutdown.cancelled() => {
                record.cancel();
                pass.await
            }
            never = self.hold_back(queued, record) => match never {},
        };
        let end = result.unwrap_or_else(|error| {
            tracing::error!(pass.id = %queued.id, %error, "the pass panicked; this is a bug in crisweep");
            record.error("the pass panicked; this is a bug in crisweep, the log says more".to_owned());
            PassEnd::of(record, Outcome::Aborted, BTreeMap::new())
        });
        self.finished(record, end).await;
    }

    /// Returns a pass of the history.
    pub fn find(&self, id: &str) -> Option<Arc<PassRecord>> {
        self.state().history.find(id)
    }

    /// Returns the passes of the history, newest first.
    pub fn passes(&self) -> Vec<Pass> {
        self.state().history.passes()
    }

    /// Returns the running pass.
    pub fn running(&self) -> Option<Pass> {
        self.state().running().map(|record| record.pass())
    }

    /// Returns a receiver that hears when a pass is queued, begins or ends.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Returns the signal that the service goes down.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.inner.shutdown
    }

    /// Locks the state, with the current brakes.
    fn state(&self) -> MutexGuard<'_, WorkerState> {
        let mut state = self.inner.state.lock();
        state.admissions.brakes = self.config().brakes;
        state.admissions.draw = fastrand::u32(..);
        let now = self.inner.began.elapsed();
        state.admissions.set_fleet(self.inner.fleet.standing(), now);
        state
    }
}

/// Returns who asked for an automatic pass first.
fn trigger_of(queued: &QueuedPass) -> TriggerInfo {
    let trigger = queued.automatic_trigger().cloned();
    trigger.unwrap_or_else(|| Cause::Manual.into())
}
