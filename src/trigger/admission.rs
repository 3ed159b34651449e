//! Decides whether a trigger may start a pass now. A small state machine over values: it never reads a clock
//! (`now`, the time since a fixed moment, is an argument) and never runs anything.
//!
//! One pass runs at a time. A trigger joins a waiting pass with the same options, but a person joins no automatic pass
//! and extends no other person's. Brakes bind automatic triggers (alerts, polls, thresholds): in the cool-down they
//! wait, target by target. Cool-down and passes per hour do not bind manual triggers; pause binds them unless they have
//! `force`. The fleet's hold works like pause; its other brakes and the jitter bind automatic triggers only. (`force`
//! also switches off the circuit breaker; see `pass`.)

mod ended;
mod ready;
mod requests;
mod seen;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::config::Brakes;
use crate::fleet::Standing;
use crate::gc::PassOptions;
use crate::model::{AlertInfo, AlertResult, Caller, Target, TriggerInfo};
pub use ready::WaitReason;
use requests::Requests;
use seen::{AlertKey, AlertReply, SeenAlerts};

/// The most passes that can wait.
pub const QUEUE_MAX: usize = 8;
/// The most of them that persons ask for: automatic triggers share one place.
pub const BY_HAND_MAX: usize = QUEUE_MAX - 1;
/// Alerts that are remembered to recognise duplicates.
pub const SEEN_MAX: usize = 1024;
/// How long after its pass a repeated alert counts as a duplicate. Alertmanager repeats a group after its
/// `group_interval` (default 5 min) at the earliest; the two halves of an HA pair send within seconds.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// The window of `brakes.max_passes_per_hour`.
const HOUR: Duration = Duration::from_secs(3600);

/// Reason of a refusal by `brakes.pause`.
const PAUSED: &str = "garbage collection is paused (brakes.pause)";
/// Reason of a refusal by `brakes.max_passes_per_hour`: every requested target has reached it.
const SPENT: &str = "enough passes in the last hour (brakes.max_passes_per_hour)";

/// A request for a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Who or what asks: the record of its pass says so.
    pub info: TriggerInfo,
    /// What to clean.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: PassOptions,
}

impl Trigger {
    fn is_automatic(&self) -> bool {
        self.info.cause.is_automatic()
    }
}

/// The answer to a trigger, or to an alert that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Admission {
    /// The decision.
    pub result: AlertResult,
    /// The id of the affected pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The reason, if one helps the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Admission {
    /// Returns an answer about a pass.
    pub fn with_pass(result: AlertResult, pass: &str) -> Self {
        let pass = Some(pass.to_owned());
        Self {
            result,
            pass,
            why: None,
        }
    }

    /// Returns an answer without a pass.
    pub fn without_pass(result: AlertResult, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self {
            result,
            pass: None,
            why,
        }
    }
}

/// A waiting or running pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuedPass {
    /// The pass's id.
    pub id: String,
    /// Its targets; never empty.
    pub targets: BTreeSet<Target>,
    /// Its options.
    pub options: PassOptions,
    /// A person asked for it, so that no brake but pause binds it.
    pub by_hand: bool,
    /// Who asked first over HTTP, where that is known.
    by: Option<Caller>,
    /// Targets that another pass postponed, and the earliest start of each.
    not_before: BTreeMap<Target, Duration>,
    /// When the first automatic trigger asked, and the random part of its jitter.
    asked: Option<(Duration, u32)>,
    /// Its targets that need a slot among all nodes, from its beginning on; a budget that comes later asks for none.
    pub budgeted: BTreeSet<Target>,
    /// What automatic triggers ask of it.
    requests: Requests,
}

/// The state machine: the waiting passes, the running pass, and the memory of past passes.
#[derive(Debug, Default)]
pub struct Admissions {
    /// The brakes of this node; waiting passes keep waiting when they change.
    pub brakes: Brakes,
    /// The state of the fleet's brakes.
    fleet: Standing,
    /// The random part of the next jitter.
    pub draw: u32,
    queue: VecDeque<QueuedPass>,
    running: Option<RunningPass>,
    /// When the last passes began that tried to remove something of a target.
    tried: BTreeMap<Target, VecDeque<Duration>>,
    /// When a target's last pass ended.
    finished: BTreeMap<Target, Duration>,
    seen: SeenAlerts,
}

#[derive(Debug)]
struct RunningPass {
    pass: QueuedPass,
    since: Duration,
    /// The targets that it has observed or is about to observe; later triggers for them cannot join.
    begun: BTreeSet<Target>,
}

impl Admissions {
    /// Replaces the state of the fleet's brakes. When they let automatic passes go on, each waits for a new jitter, so
    /// that the nodes do not begin together.
    pub fn set_fleet(&mut self, fleet: Standing, now: Duration) {
        let before = std::mem::replace(&mut self.fleet, fleet);
        if before.stops_automatic().is_some() && self.fleet.stops_automatic().is_none() {
            let since = (now, self.draw);
            let automatic = |queued: &&mut QueuedPass| !queued.by_hand;
            let waiting = self.queue.iter_mut().filter(automatic);
            waiting.for_each(|queued| queued.asked = Some(since));
        }
    }

    /// Decides on a trigger. A queued pass gets the id `id`.
    pub fn admit(&mut self, mut trigger: Trigger, id: &str, now: Duration) -> Admission {
        if let Some(why) = self.paused(&trigger.options) {
            return Admission::without_pass(AlertResult::Braked, why);
        }
        let key = trigger.info.alert.as_ref().map(alert_key);
        if let Some(key) = &key
            && let Some(answer) = self.known_alert(key, now)
        {
            self.fires_again(key, &trigger);
            return answer;
        }
        if trigger.is_automatic() {
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
        let full = self.is_full(!trigger.is_automatic());
        let waiting = self.queue.iter_mut().find(|queued| queued.takes(&trigger));
        let (pass, result) = match waiting {
            Some(queued) => {
                queued.join(&trigger, key.as_ref(), (now, self.draw));
                (queued.id.clone(), AlertResult::Merged)
            }
            None if full => {
                let why = "too many passes are waiting; try again later";
                return Admission::without_pass(AlertResult::Unavailable, why);
            }
            None => {
                let mut queued = QueuedPass::of(id, &trigger);
                queued.join(&trigger, key.as_ref(), (now, self.draw));
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

    /// Says whether no further pass can wait.
    fn is_full(&self, by_hand: bool) -> bool {
        let persons = self.queue.iter().filter(|queued| queued.by_hand).count();
        self.queue.len() >= QUEUE_MAX || (by_hand && persons >= BY_HAND_MAX)
    }

    /// Answers a repeated alert whose pass waits, runs, or answered it recently.
    fn known_alert(&mut self, key: &AlertKey, now: Duration) -> Option<Admission> {
        let seen = self.seen.get(key)?;
        let result = match seen.reply {
            None => AlertResult::Merged,
            Some(AlertReply::Answered) if now.saturating_sub(seen.at) < DUPLICATE_WINDOW => {
                AlertResult::Duplicate
            }
            // Its pass did not finish the job, or ended long ago: the alert may ask again.
            Some(AlertReply::Answered | AlertReply::Unanswered) => return None,
        };
        Some(Admission::with_pass(result, &seen.pass))
    }

    /// Lets an alert that resolved while its pass runs ask for the follow-up again.
    fn fires_again(&mut self, key: &AlertKey, trigger: &Trigger) {
        if let Some(RunningPass { pass, .. }) = &mut self.running
            && pass
                .requests
                .of_alert(key)
                .is_some_and(|asked| asked.is_empty())
        {
            let targets = trigger.targets.intersection(&pass.targets).copied();
            pass.requests
                .add(Some(key), &trigger.info, &targets.collect());
        }
    }

    /// Joins the running pass if it has the same options and covers all targets of the alert without having
    /// begun one of them.
    fn join_running(
        &mut self,
        trigger: &Trigger,
        key: Option<&AlertKey>,
        now: Duration,
    ) -> Option<String> {
        let RunningPass { pass, begun, .. } = self.running.as_mut()?;
        let options = PassOptions {
            force: trigger.options.force,
            ..pass.options.clone()
        };
        let ahead = pass.targets.difference(begun).copied().collect();
        if options != trigger.options || !trigger.targets.is_subset(&ahead) {
            return None;
        }
        let id = pass.id.clone();
        pass.requests.add(key, &trigger.info, &trigger.targets);
        if let Some(key) = key {
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

    /// Returns the next pass to run, if none runs: the first with a target that may begin. Its other targets go
    /// on waiting in a separate pass, with the id from `free_id`.
    pub fn next(
        &mut self,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<(QueuedPass, Option<QueuedPass>)> {
        if self.running.is_some() {
            return None;
        }
        let ready = self.queue.iter().map(|queued| self.ready(queued, now));
        let (position, ready) = ready.enumerate().find(|(_, ready)| !ready.is_empty())?;
        let mut queued = self.queue.remove(position)?;
        let rest = queued.split_off(&ready, free_id);
        if let Some(rest) = &rest {
            self.seen.moved(rest.requests.alerts(), &rest.id);
            self.queue.insert(position, rest.clone());
        }
        queued.budgeted = self.budgeted(&queued);
        self.running = Some(RunningPass {
            pass: queued.clone(),
            since: now,
            begun: BTreeSet::new(),
        });
        Some((queued, rest))
    }

    /// Withdraws the targets of waiting passes, and the follow-up of the running pass, that only this resolved alert asked
    /// for. Returns the waiting pass that has no target left.
    pub fn withdraw(&mut self, alert: &AlertInfo) -> Option<QueuedPass> {
        let key = alert_key(alert);
        let running = self.running.as_mut();
        if let Some(asked) = running.and_then(|it| it.pass.requests.of_alert(&key)) {
            asked.clear();
        }
        let mut waited = false;
        // A person's pass may name it beside an automatic one.
        for queued in &mut self.queue {
            waited |= queued.forget(&key);
        }
        if waited {
            self.seen.forget(&key);
        }
        let unwanted = self.queue.iter().position(|it| it.targets.is_empty())?;
        self.queue.remove(unwanted)
    }

    /// Removes a waiting pass from the queue; `None` if it does not wait.
    pub fn cancel(&mut self, id: &str) -> Option<QueuedPass> {
        let waits = self.queue.iter().position(|queued| queued.id == id)?;
        let queued = self.queue.remove(waits)?;
        for key in queued.requests.alerts() {
            self.seen.end(key, AlertReply::Unanswered, None);
        }
        Some(queued)
    }

    /// Returns the waiting pass that was queued last.
    pub fn newest(&self) -> Option<&QueuedPass> {
        self.queue.back()
    }

    /// Returns the waiting passes in order.
    pub fn waiting(&self) -> impl Iterator<Item = &QueuedPass> {
        self.queue.iter()
    }

    /// Empties the queue at the end of the service.
    pub fn drain(&mut self) -> Vec<QueuedPass> {
        self.queue.drain(..).collect()
    }
}

impl QueuedPass {
    /// Returns an empty pass for the first trigger that asks for it.
    fn of(id: &str, trigger: &Trigger) -> Self {
        Self {
            id: id.to_owned(),
            options: trigger.options.clone(),
            by_hand: !trigger.is_automatic(),
            by: trigger.info.by.clone(),
            ..Self::default()
        }
    }

    /// Says whether a trigger may join this waiting pass. A person joins no automatic pass, and extends no other person's:
    /// its record says who asked, and for what. An alert that a person's pass covers needs none of its own.
    fn takes(&self, trigger: &Trigger) -> bool {
        let covers = trigger.targets.is_subset(&self.targets);
        self.options == trigger.options
            && match (trigger.is_automatic(), self.by_hand) {
                (true, false) => true,
                (true, true) => covers,
                (false, false) => false,
                (false, true) => covers || self.by == trigger.info.by,
            }
    }

    /// Adds a trigger; `asked`: now, and the random part of its jitter.
    fn join(&mut self, trigger: &Trigger, key: Option<&AlertKey>, asked: (Duration, u32)) {
        self.targets.extend(&trigger.targets);
        if trigger.is_automatic() {
            self.asked.get_or_insert(asked);
            self.requests.add(key, &trigger.info, &trigger.targets);
        }
        for target in &trigger.targets {
            self.not_before.remove(target);
        }
    }

    /// Forgets a resolved alert and the targets that only it asked for; returns whether this pass named the alert. A
    /// person's pass keeps its targets.
    fn forget(&mut self, key: &AlertKey) -> bool {
        if !self.requests.forget(key) {
            return false;
        }
        let wanted = self.requests.targets();
        if !self.by_hand {
            self.targets.retain(|target| wanted.contains(target));
        }
        self.not_before.retain(|target, _| wanted.contains(target));
        if wanted.is_empty() {
            self.asked = None;
        }
        true
    }

    /// Returns what asked first for an automatic pass, of the triggers that still ask; `None`: a person asked for it.
    pub fn automatic_trigger(&self) -> Option<&TriggerInfo> {
        self.requests.first().filter(|_| !self.by_hand)
    }

    /// Returns the targets that the brakes bind: all, unless a person asked.
    pub fn braked(&self) -> BTreeSet<Target> {
        if self.by_hand || self.options.force || self.options.dry_run {
            return BTreeSet::new();
        }
        self.targets.clone()
    }

    /// Keeps the targets that are ready; moves the others to a pass of their own, for the same triggers.
    fn split_off(
        &mut self,
        ready: &BTreeSet<Target>,
        free_id: impl FnOnce() -> String,
    ) -> Option<Self> {
        let others: BTreeSet<Target> = self.targets.difference(ready).copied().collect();
        if others.is_empty() {
            return None;
        }
        let mut rest = Self {
            id: free_id(),
            ..self.clone()
        };
        rest.requests.keep_only(&others);
        rest.targets = others;
        self.requests.keep_only(ready);
        self.targets.clone_from(ready);
        Some(rest)
    }
}

/// Returns an alert's fingerprint and start. The webhook writes the start with more digits than Alertmanager's
/// API, so it is normalised.
fn alert_key(alert: &AlertInfo) -> AlertKey {
    let starts_at = match alert.starts_at.parse::<Timestamp>() {
        Ok(at) => at.as_millisecond().to_string(),
        Err(_unusual) => alert.starts_at.clone(),
    };
    (alert.fingerprint.clone(), starts_at)
}

#[cfg(test)]
mod tests;
