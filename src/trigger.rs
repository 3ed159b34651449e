//! Who may have a pass, and the one place that runs them, one at a time. Keeps the last passes.

pub mod admission;
pub mod alert;
mod history;
mod holding;
pub mod poll;
mod summary;
pub mod thresholds;
mod waiting;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Brakes, Config};
use crate::gc::PassOptions;
use crate::model::{AlertInfo, AlertResult, Cause, Outcome, Pass, PassState, Target, TriggerInfo};
use crate::pass::record::Record;
use crate::pass::{JOURNAL_PATIENCE, Ran, Runner};
use crate::state::{self, History};
use crate::telemetry::LineLimit;
use crate::trigger::admission::{Admission, AlertKey, Brake, Gate, Over, Ticket, Trigger};
use history::PassHistory;
use summary::summary;

/// Lines about passes that were queued, in a minute. An alert that flaps may ask for one and take it back
/// thousands of times a second.
const QUEUED_LINES_MAX: u32 = 30;
/// The same of passes that were taken back. Those beyond it are not written to the journal either: they
/// would take the place of what passes removed.
const WITHDRAWN_LINES_MAX: u32 = 10;
const LINES_WITHIN: Duration = Duration::from_secs(60);

/// What was asked for, with what the record shows of who asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who.
    pub cause: Cause,
    /// For what.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: PassOptions,
    /// The alert, where it was one.
    pub alert: Option<AlertInfo>,
}

/// The worker's answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A new pass waits.
    Queued(Arc<Record>),
    /// It joined this pass.
    Merged(Arc<Record>),
    /// This pass has answered the same alert already.
    Duplicate(String),
    /// A brake holds.
    Braked(Brake),
    /// Too many passes wait.
    QueueFull,
    /// The service is going down.
    ShuttingDown,
}

impl Answer {
    /// Returns what this answer makes of the alert that asked.
    pub fn alert_result(&self) -> AlertResult {
        match self {
            Self::Queued(_) => AlertResult::Accepted,
            Self::Merged(_) => AlertResult::Merged,
            Self::Duplicate(_) => AlertResult::Duplicate,
            Self::Braked(_) => AlertResult::Braked,
            Self::QueueFull | Self::ShuttingDown => AlertResult::Unavailable,
        }
    }
}

/// Queues and runs passes. Cloning shares.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runner: Runner,
    config: watch::Receiver<Arc<Config>>,
    state: Mutex<State>,
    wake: Notify,
    shutdown: CancellationToken,
    began: Instant,
    queued_lines: LineLimit,
    withdrawn_lines: LineLimit,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    history: PassHistory,
    running: Option<Arc<Record>>,
}

impl Worker {
    /// Returns a worker that runs nothing yet; see [`Self::run`].
    pub fn new(
        runner: Runner,
        config: watch::Receiver<Arc<Config>>,
        shutdown: CancellationToken,
    ) -> Self {
        let state = State {
            gate: Gate::new(config.borrow().brakes),
            history: PassHistory::default(),
            running: None,
        };
        Self {
            inner: Arc::new(Inner {
                runner,
                config,
                state: Mutex::new(state),
                wake: Notify::new(),
                shutdown,
                began: Instant::now(),
                queued_lines: LineLimit::new(QUEUED_LINES_MAX, LINES_WITHIN),
                withdrawn_lines: LineLimit::new(WITHDRAWN_LINES_MAX, LINES_WITHIN),
            }),
        }
    }

    /// Takes over the passes of processes before this one, if they were over the same runtime. Those
    /// that did not end are reported as interrupted, once. Sandboxes that failed stay left alone.
    pub fn restore(&self, history: History) {
        let now = clock();
        self.runner()
            .restore(history.failures, self.config().quarantine, now);
        let runtime = self.runtime();
        let ours = |pass: &Pass| pass.runtime == runtime;
        let mut passes: Vec<Pass> = history.ended.into_iter().filter(ours).collect();
        for mut pass in history.interrupted.into_iter().filter(ours) {
            state::interrupt(&mut pass, now);
            self.inner.runner.metrics.pass_finished(&pass);
            self.inner.runner.journal.ended(&pass);
            tracing::warn!(pass.id = %pass.id, "{}", summary(&pass));
            passes.push(pass);
        }
        passes.sort_by_key(|pass| pass.queued_at);
        let mut state = self.state();
        for pass in passes {
            state.history.remember(Arc::new(Record::new(pass)));
        }
    }

    fn runtime(&self) -> String {
        self.inner.runner.client.endpoint().display().to_string()
    }

    /// Returns what passes work with.
    pub fn runner(&self) -> &Runner {
        &self.inner.runner
    }

    /// Returns what the next pass will follow.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.inner.config.borrow())
    }

    /// Lets what waits follow a new configuration: it may run after the end of a pause.
    pub fn reloaded(&self) {
        self.show_waiting(&self.state());
        self.inner.wake.notify_one();
    }

    /// Returns the brakes.
    pub fn brakes(&self) -> Brakes {
        self.config().brakes
    }

    /// Asks for passes, all at once: what one webhook call asks for becomes one pass.
    pub fn submit(&self, requests: Vec<Request>) -> Vec<Answer> {
        let now = self.inner.began.elapsed();
        let mut state = self.state();
        if let Some(begun) = state
            .running
            .as_ref()
            .map(|record| record.read(Pass::begun))
        {
            state.gate.begun(begun);
        }
        let mut free_id = None;
        let admit = |request: Request| {
            let id = free_id.take().unwrap_or_else(|| state.history.next_id());
            let answer = self.admit(&mut state, &request, &id, now);
            if !matches!(answer, Answer::Queued(_)) {
                free_id = Some(id);
            }
            answer
        };
        let answers = requests.into_iter().map(admit).collect();
        self.show_waiting(&state);
        drop(state);
        self.inner.wake.notify_one();
        answers
    }

    /// `id` is the new pass's, if one is queued.
    fn admit(&self, state: &mut State, request: &Request, id: &str, now: Duration) -> Answer {
        if self.inner.shutdown.is_cancelled() {
            return Answer::ShuttingDown;
        }
        let alert = request.alert.as_ref().map(alert_key);
        let trigger = Trigger {
            cause: request.cause,
            targets: request.targets.clone(),
            options: request.options.clone(),
            alert,
        };
        match state.gate.admit(trigger, id, now) {
            Admission::Queued => {
                let Some(ticket) = state.gate.waiting().find(|it| it.id == id).cloned() else {
                    return Answer::QueueFull;
                };
                let trigger = TriggerInfo {
                    cause: request.cause,
                    alert: request.alert.clone(),
                    follow_up: false,
                };
                Answer::Queued(self.enlist(state, &ticket, trigger, now))
            }
            Admission::Merged(id) => match state.history.find(&id) {
                Some(record) => {
                    record.update(|pass| pass.merged_triggers += 1);
                    Answer::Merged(record)
                }
                None => Answer::Duplicate(id),
            },
            Admission::Duplicate(id) => Answer::Duplicate(id),
            Admission::Braked(brake) => Answer::Braked(brake),
            Admission::QueueFull => Answer::QueueFull,
        }
    }

    /// Takes back the waiting pass that this resolved alert alone had asked for.
    pub fn withdraw(&self, alert: &AlertInfo) -> Option<Arc<Record>> {
        let mut state = self.state();
        let ticket = state.gate.withdraw(&alert_key(alert))?;
        let record = state.history.find(&ticket.id)?;
        drop(state);
        let line = self.inner.withdrawn_lines.admit(self.inner.began.elapsed());
        self.end(&record, "the alert resolved before its pass began", line);
        Some(record)
    }

    /// Cancels a pass: a waiting one is dropped, a running one tries nothing more. Returns it, or
    /// `None` if it is not in the history.
    pub fn cancel(&self, id: &str) -> Option<Arc<Record>> {
        let mut state = self.state();
        let record = state.history.find(id)?;
        let waited = state.gate.cancel(id).is_some();
        drop(state);
        if waited {
            self.end(&record, "cancelled before it began", Some(0));
        } else if !record.pass().is_done() {
            record.cancel();
        }
        Some(record)
    }

    /// Returns a pass that is remembered.
    pub fn find(&self, id: &str) -> Option<Arc<Record>> {
        self.state().history.find(id)
    }

    /// Returns the remembered passes, newest first.
    pub fn passes(&self) -> Vec<Pass> {
        self.state().history.passes()
    }

    /// Returns the running pass.
    pub fn running(&self) -> Option<Pass> {
        self.state().running.as_ref().map(|record| record.pass())
    }

    /// Runs passes until the service goes down; then ends the running one and drops the rest.
    pub async fn run(&self) {
        while !self.inner.shutdown.is_cancelled() {
            if let Some((ticket, record)) = self.next() {
                self.run_one(&ticket, &record).await;
                continue;
            }
            tokio::select! {
                () = self.inner.wake.notified() => {}
                () = self.due() => {}
                () = self.inner.shutdown.cancelled() => {}
            }
        }
        let dropped = self.state().gate.drain();
        for ticket in dropped {
            if let Some(record) = self.find(&ticket.id) {
                self.end(&record, "the service is going down", Some(0));
            }
        }
    }

    /// Waits until a waiting pass may begin.
    async fn due(&self) {
        let now = self.inner.began.elapsed();
        let due = self.state().gate.due(now);
        match due.and_then(|due| self.inner.began.checked_add(due)) {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    fn next(&self) -> Option<(Ticket, Arc<Record>)> {
        let now = self.inner.began.elapsed();
        let mut guard = self.state();
        let state = &mut *guard;
        let (ticket, rest) = state.gate.next(now, || state.history.next_id())?;
        let Some(record) = state.history.find(&ticket.id) else {
            let over = Over {
                outcome: Outcome::Aborted,
                dry_run: true,
                tried: BTreeSet::new(),
                due_again: BTreeMap::new(),
            };
            state.gate.finished(&over, now, String::new);
            return None;
        };
        if let Some(rest) = rest {
            self.enlist_after(state, &record, &rest, now);
        }
        state.running = Some(Arc::clone(&record));
        Some((ticket, record))
    }

    /// Makes the record of a pass that waits for what another one leaves.
    fn enlist_after(&self, state: &mut State, before: &Record, ticket: &Ticket, now: Duration) {
        let mut trigger = before.read(|pass| pass.trigger.clone());
        if let Some(cause) = ticket.automatic.filter(|_| !trigger.cause.is_automatic()) {
            (trigger.cause, trigger.alert) = (cause, None);
        }
        trigger.follow_up = ticket.is_follow_up;
        self.enlist(state, ticket, trigger, now);
    }

    async fn run_one(&self, ticket: &Ticket, record: &Arc<Record>) {
        let now = clock();
        record.update(|pass| {
            pass.state = PassState::Running;
            (pass.started_at, pass.not_before) = (Some(now), None);
            // What a brake holds is left to a pass of its own.
            pass.targets
                .retain(|target, _| ticket.targets.contains(target));
        });
        record.line(format!("pass {} begins", ticket.id));
        tracing::info!(pass.id = %ticket.id, "pass begins");
        let (worker, options, task_record) =
            (self.clone(), ticket.options.clone(), Arc::clone(record));
        // In a task of its own: a bug in a pass must not take the worker with it.
        let mut pass = tokio::spawn(async move {
            let (inner, config) = (&worker.inner, Config::clone(&worker.config()));
            inner
                .runner
                .run(&task_record, &options, config, &inner.shutdown)
                .await
        });
        let result = tokio::select! {
            result = &mut pass => result,
            () = self.inner.shutdown.cancelled() => {
                record.cancel();
                pass.await
            }
        };
        let ran = result.unwrap_or_else(|error| {
            tracing::error!(pass.id = %ticket.id, %error, "the pass died; this is a bug in crisweep");
            record.error("the pass died; this is a bug in crisweep, the log says more".to_owned());
            Ran::ended(Outcome::Aborted)
        });
        self.finished(record, ran).await;
    }

    async fn finished(&self, record: &Record, ran: Ran) {
        let outcome = ran.outcome;
        self.free(record, ran);
        let now = clock();
        let journal = &self.inner.runner.journal;
        journal.ended(&ended(record.pass(), outcome, now));
        // A client that was told of the end must not hear of an interruption after a crash.
        journal.settled(JOURNAL_PATIENCE).await;
        tell(&self.close(record, outcome, now), outcome, 0);
    }

    /// Lets the next pass begin, and those wait that this one leaves something to.
    fn free(&self, record: &Record, ran: Ran) {
        let now = self.inner.began.elapsed();
        let over = Over {
            outcome: ran.outcome,
            dry_run: record.read(|pass| pass.dry_run),
            tried: record.read(Pass::tried),
            due_again: ran.due_again,
        };
        let mut guard = self.state();
        let state = &mut *guard;
        state.running = None;
        if let Some(ticket) = state.gate.finished(&over, now, || state.history.next_id()) {
            self.enlist_after(state, record, &ticket, now);
        }
        self.show_waiting(state);
    }

    /// Ends a pass that never began. `line`: how many lines were left out before its own; `None`: its own is
    /// left out too, and so is the journal's entry.
    fn end(&self, record: &Record, why: &str, line: Option<u64>) {
        let (outcome, now) = (Outcome::Aborted, clock());
        record.error(why.to_owned());
        if line.is_some() {
            let pass = ended(record.pass(), outcome, now);
            self.inner.runner.journal.ended(&pass);
        }
        let pass = self.close(record, outcome, now);
        if let Some(left_out) = line {
            tell(&pass, outcome, left_out);
        }
    }

    /// Sets the end of a pass, for all who watch.
    fn close(&self, record: &Record, outcome: Outcome, now: Timestamp) -> Pass {
        // Lines come before the end, so that a follower who sees the end has all of them.
        record.line(summary(&ended(record.pass(), outcome, now)));
        record.update(|pass| *pass = ended(pass.clone(), outcome, now));
        let pass = record.pass();
        self.inner.runner.metrics.pass_finished(&pass);
        pass
    }

    /// Locks the state, with the brakes of this moment.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        state.gate.set_brakes(self.config().brakes);
        state
    }
}

/// The same start is written with more digits in a webhook than in the API's answer.
fn alert_key(alert: &AlertInfo) -> AlertKey {
    let starts_at = match alert.starts_at.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond().to_string(),
        Err(_unusual) => alert.starts_at.clone(),
    };
    (alert.fingerprint.clone(), starts_at)
}

/// Writes a line about a pass that has ended, with how many such lines were left out before it.
fn tell(pass: &Pass, outcome: Outcome, left_out: u64) {
    let (outcome, left_out) = (outcome.label(), NonZeroU64::new(left_out));
    tracing::info!(pass.id = %pass.id, outcome, left_out, "{}", summary(pass));
}

fn ended(pass: Pass, outcome: Outcome, now: Timestamp) -> Pass {
    Pass {
        state: PassState::Done,
        outcome: Some(outcome),
        finished_at: Some(now),
        ..pass
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "passes carry the wall clock's times"
)]
fn clock() -> Timestamp {
    Timestamp::now()
}
