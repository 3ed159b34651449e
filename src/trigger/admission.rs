//! May this trigger start a pass now? A small state machine over values: it never reads a clock
//! (`now` is the time since the service started, an argument) and never runs anything.
//!
//! One pass at a time. A trigger that finds a waiting pass with the same options joins it. Brakes
//! bind what comes by itself (alerts): what comes in the cool-down waits until that is over, target by target.
//! A person passes cool-down and passes per hour, and pause only by force. (Force passes the circuit breaker
//! too, which is the pass's own: `pass`.)

mod queued;
mod ready;
mod seen;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::config::Brakes;
use crate::gc::PassOptions;
use crate::model::{AlertInfo, AlertResult, Cause, Outcome, Target};
use crate::pass::PassEnd;
pub use queued::QueuedPass;
use seen::{AlertKey, AlertReply, SeenAlerts};

/// Passes that can wait at the same time. Only triggers with different options wait apart.
pub const QUEUE_MAX: usize = 8;
/// Alerts remembered to recognise their duplicates.
pub const SEEN_MAX: usize = 1024;
/// How long after its pass a repeated alert counts as a duplicate. Alertmanager repeats a group at
/// its `group_interval` (default 5 min) at the earliest; the halves of an HA pair come seconds apart.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// What `brakes.max_passes_per_hour` looks back on.
const HOUR: Duration = Duration::from_secs(3600);

/// Why `brakes.pause` refuses a pass.
const PAUSED: &str = "garbage collection is paused (brakes.pause)";
/// Why `brakes.max_passes_per_hour` refuses a pass: it is reached for every target asked for.
const SPENT: &str = "enough passes in the last hour (brakes.max_passes_per_hour)";

/// What is asked: one client wants targets cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// What kind of client asks.
    pub cause: Cause,
    /// What to clean.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: PassOptions,
    /// The alert, where one asks.
    pub alert: Option<AlertInfo>,
}

/// The answer to a trigger, and to an alert that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admission {
    /// What became of it.
    pub result: AlertResult,
    /// The id of the pass that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The reason, where one helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Admission {
    /// Returns an answer that names a pass.
    pub fn with_pass(result: AlertResult, pass: &str) -> Self {
        let pass = Some(pass.to_owned());
        Self {
            result,
            pass,
            why: None,
        }
    }

    /// Returns an answer that no pass belongs to.
    pub fn without_pass(result: AlertResult, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self {
            result,
            pass: None,
            why,
        }
    }
}

/// The state machine: which passes wait, which one runs, and what the last ones leave to remember.
#[derive(Debug)]
pub struct Admissions {
    brakes: Brakes,
    queue: VecDeque<QueuedPass>,
    running: Option<Running>,
    /// When the last passes began that tried something of a target.
    tried: BTreeMap<Target, VecDeque<Duration>>,
    /// When a target's last pass ended.
    finished: BTreeMap<Target, Duration>,
    seen: SeenAlerts,
}

/// The pass under way.
#[derive(Debug)]
struct Running {
    pass: QueuedPass,
    since: Duration,
    /// The targets that it has looked at, or is about to: what comes later may not be on that look.
    begun: BTreeSet<Target>,
}

impl Admissions {
    /// Returns the state with nothing waiting.
    pub fn new(brakes: Brakes) -> Self {
        Self {
            brakes,
            queue: VecDeque::new(),
            running: None,
            tried: BTreeMap::new(),
            finished: BTreeMap::new(),
            seen: SeenAlerts::default(),
        }
    }

    /// Replaces the brakes; what waits keeps waiting.
    pub fn set_brakes(&mut self, brakes: Brakes) {
        self.brakes = brakes;
    }

    /// Returns the brakes.
    pub fn brakes(&self) -> Brakes {
        self.brakes
    }

    /// Decides on a trigger. `id` is the new pass's id if one is queued.
    pub fn admit(&mut self, mut trigger: Trigger, id: &str, now: Duration) -> Admission {
        if self.brakes.pause && !trigger.options.force && !trigger.options.dry_run {
            return Admission::without_pass(AlertResult::Braked, PAUSED);
        }
        let key = trigger.alert.as_ref().map(alert_key);
        if let Some(answer) = key.as_ref().and_then(|key| self.known_alert(key, now)) {
            return answer;
        }
        if trigger.cause.is_automatic() {
            if let Some(joined) = self.join_running(&trigger, key.as_ref(), now) {
                return Admission::with_pass(AlertResult::Merged, &joined);
            }
            trigger
                .targets
                .retain(|target| !self.is_spent(*target, now));
            if trigger.targets.is_empty() {
                return Admission::without_pass(AlertResult::Braked, SPENT);
            }
        }
        self.enqueue(&trigger, key, id, now)
    }

    fn enqueue(
        &mut self,
        trigger: &Trigger,
        key: Option<AlertKey>,
        id: &str,
        now: Duration,
    ) -> Admission {
        let full = self.queue.len() >= QUEUE_MAX;
        let (pass, result) = match self.waiting_with(&trigger.options) {
            Some(queued) => {
                queued.join(trigger, key.as_ref());
                (queued.id.clone(), AlertResult::Merged)
            }
            None if full => {
                let why = "too many passes are waiting; try again later";
                return Admission::without_pass(AlertResult::Unavailable, why);
            }
            None => {
                let mut queued = QueuedPass::empty(id, trigger.options.clone());
                queued.join(trigger, key.as_ref());
                self.queue.push_back(queued);
                (id.to_owned(), AlertResult::Accepted)
            }
        };
        let admission = Admission::with_pass(result, &pass);
        if let Some(key) = key {
            self.seen.remember(key, pass, now);
        }
        admission
    }

    fn waiting_with(&mut self, options: &PassOptions) -> Option<&mut QueuedPass> {
        let mut queue = self.queue.iter_mut();
        queue.find(|queued| queued.options == *options)
    }

    /// The same alert again: its pass waits, runs, or has answered it a short while ago.
    fn known_alert(&mut self, key: &AlertKey, now: Duration) -> Option<Admission> {
        let seen = self.seen.get(key)?;
        let result = match seen.reply {
            None => AlertResult::Merged,
            Some(AlertReply::Answered) if now.saturating_sub(seen.at) < DUPLICATE_WINDOW => {
                AlertResult::Duplicate
            }
            // Its pass did not finish the job, or that was long ago: it may ask again.
            Some(AlertReply::Answered | AlertReply::Unanswered) => return None,
        };
        Some(Admission::with_pass(result, &seen.pass))
    }

    /// A pass over all that the alert asks for, run as it asks, is under way and has all of it still
    /// before it: it measures for itself.
    fn join_running(
        &mut self,
        trigger: &Trigger,
        key: Option<&AlertKey>,
        now: Duration,
    ) -> Option<String> {
        let Running { pass, begun, .. } = self.running.as_mut()?;
        let options = PassOptions {
            force: trigger.options.force,
            ..pass.options.clone()
        };
        let ahead = pass.targets.difference(begun).copied().collect();
        if options != trigger.options || !trigger.targets.is_subset(&ahead) {
            return None;
        }
        let id = pass.id.clone();
        pass.automatic.get_or_insert(trigger.cause);
        if let Some(key) = key {
            pass.name(key);
            self.seen.remember(key.clone(), id.clone(), now);
        }
        Some(id)
    }

    /// Returns the id of the running pass.
    pub fn running(&self) -> Option<&str> {
        self.running.as_ref().map(|it| it.pass.id.as_str())
    }

    /// Notes which targets the running pass has begun.
    pub fn begun(&mut self, targets: BTreeSet<Target>) {
        if let Some(running) = &mut self.running {
            running.begun = targets;
        }
    }

    /// Hands out the next pass to run, if none runs: the first that has a target which may begin. Those
    /// of its targets that may not yet wait on in a pass of their own, under the id that `free_id` gives.
    pub fn next(
        &mut self,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<(QueuedPass, Option<QueuedPass>)> {
        if self.running.is_some() {
            return None;
        }
        let is_ready = |queued: &QueuedPass| !self.ready(queued, now).is_empty();
        let position = self.queue.iter().position(is_ready)?;
        let mut queued = self.queue.remove(position)?;
        let ready = self.ready(&queued, now);
        let rest = queued.split_off(&ready, free_id);
        if let Some(rest) = &rest {
            self.seen.moved(&rest.alerts, &rest.id);
            self.queue.insert(position, rest.clone());
        }
        self.running = Some(Running {
            pass: queued.clone(),
            since: now,
            begun: BTreeSet::new(),
        });
        Some((queued, rest))
    }

    /// Notes that the running pass is over. What it left for a later time waits for it: returns that
    /// pass if it is a new one, under the id that `free_id` gives.
    pub fn finished(
        &mut self,
        end: &PassEnd,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<QueuedPass> {
        let Running { pass, since, .. } = self.running.take()?;
        self.answer(&pass, reply(end), now);
        if !pass.options.dry_run {
            let ends = pass.targets.iter().map(|target| (*target, now));
            self.finished.extend(ends);
            self.count_passes(end, since);
        }
        self.follow_up(&pass, end, now, free_id)
    }

    /// Notes what a pass that is over did for the alerts that asked for it. It does not answer an alert that
    /// another waiting pass still names: that alert waits for the other pass.
    fn answer(&mut self, pass: &QueuedPass, reply: AlertReply, now: Duration) {
        for key in &pass.alerts {
            let mut queue = self.queue.iter();
            let other = queue.find(|other| other.alerts.contains(key));
            match other.filter(|_| reply == AlertReply::Answered) {
                Some(other) => self.seen.moved([key], &other.id),
                None => self.seen.end(key, reply, Some(now)),
            }
        }
    }

    /// A pass that came by itself may ask once for another, over what it had to leave for a time.
    fn follow_up(
        &mut self,
        before: &QueuedPass,
        end: &PassEnd,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<QueuedPass> {
        let asks = before.automatic.is_some() && !before.is_follow_up && !end.dry_run;
        if !asks || end.retry_after.is_empty() {
            return None;
        }
        let full = self.queue.len() >= QUEUE_MAX;
        let options = PassOptions::default();
        if let Some(waiting) = self.waiting_with(&options) {
            waiting.follow(before, &end.retry_after, now);
            let waiting = waiting.id.clone();
            self.seen.moved(&before.alerts, &waiting);
            return None;
        }
        if full {
            return None;
        }
        let mut queued = QueuedPass::empty(&free_id(), options);
        queued.is_follow_up = true;
        queued.follow(before, &end.retry_after, now);
        self.seen.moved(&before.alerts, &queued.id);
        self.queue.push_back(queued.clone());
        Some(queued)
    }

    /// Takes back what a resolved alert had asked for. Returns the waiting pass that no other trigger
    /// wants, which is dropped.
    pub fn withdraw(&mut self, alert: &AlertInfo) -> Option<QueuedPass> {
        let key = alert_key(alert);
        let waits = self
            .queue
            .iter()
            .position(|queued| queued.alerts.contains(&key))?;
        let queued = self.queue.get_mut(waits)?;
        queued.alerts.remove(&key);
        self.seen.forget(&key);
        let wanted = queued.kept || !queued.alerts.is_empty();
        if wanted {
            None
        } else {
            self.queue.remove(waits)
        }
    }

    /// Takes a waiting pass out of the queue; `None` if it does not wait.
    pub fn cancel(&mut self, id: &str) -> Option<QueuedPass> {
        let waits = self.queue.iter().position(|queued| queued.id == id)?;
        let queued = self.queue.remove(waits)?;
        for key in &queued.alerts {
            self.seen.end(key, AlertReply::Unanswered, None);
        }
        Some(queued)
    }

    /// Returns the passes that wait, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = &QueuedPass> {
        self.queue.iter()
    }

    /// Empties the queue, for the end of the service.
    pub fn drain(&mut self) -> Vec<QueuedPass> {
        self.queue.drain(..).collect()
    }
}

/// Says what the end of a pass means to the alerts that asked for it. A dry run answers none.
fn reply(end: &PassEnd) -> AlertReply {
    match end.outcome {
        Outcome::Completed | Outcome::NothingToDo if !end.dry_run => AlertReply::Answered,
        Outcome::Completed
        | Outcome::Planned
        | Outcome::NothingToDo
        | Outcome::Partial
        | Outcome::Aborted
        | Outcome::Interrupted => AlertReply::Unanswered,
    }
}

/// Returns an alert's fingerprint and start. A webhook writes the same start with more digits than
/// Alertmanager's API does.
fn alert_key(alert: &AlertInfo) -> AlertKey {
    let starts_at = match alert.starts_at.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond().to_string(),
        Err(_unusual) => alert.starts_at.clone(),
    };
    (alert.fingerprint.clone(), starts_at)
}

#[cfg(test)]
mod tests;
