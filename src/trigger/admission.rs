//! May this trigger start a pass now? A small state machine over values: it never reads a clock
//! (`now` is the time since the service started, an argument) and never runs anything.
//!
//! One pass at a time. A trigger that finds a waiting pass with the same options joins it. Brakes
//! bind what comes by itself (alerts): what comes in the cool-down waits until that is over, target by target.
//! A person passes cool-down and passes per hour, and pause only by force. (Force passes the circuit breaker
//! too, which is the pass's own: `pass`.)

mod hold;
mod ready;
mod seen;
mod ticket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::config::Brakes;
use crate::gc::PassOptions;
use crate::model::Target;
pub use seen::AlertKey;
use seen::{Ended, SeenAlerts};
pub use ticket::{Over, Ticket, Trigger};

/// Passes that can wait at the same time. Only triggers with different options wait apart.
pub const QUEUE_MAX: usize = 8;
/// Alerts remembered to recognise their duplicates.
pub const SEEN_MAX: usize = 1024;
/// How long after its pass a repeated alert counts as a duplicate. Alertmanager repeats a group at
/// its `group_interval` (default 5 min) at the earliest; the halves of an HA pair come seconds apart.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// What `brakes.max_passes_per_hour` looks back on.
const HOUR: Duration = Duration::from_secs(3600);

/// The gate's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A new pass waits under the offered id.
    Queued,
    /// It joined this pass.
    Merged(String),
    /// This pass has already answered the same alert.
    Duplicate(String),
    /// A brake holds, and which.
    Braked(Brake),
    /// Too many passes wait.
    QueueFull,
}

/// A brake that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// `brakes.pause` is set.
    Pause,
    /// `brakes.max_passes_per_hour` is reached for every target asked for.
    PassesPerHour,
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause => f.write_str("garbage collection is paused (brakes.pause)"),
            Self::PassesPerHour => {
                f.write_str("enough passes in the last hour (brakes.max_passes_per_hour)")
            }
        }
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Gate {
    brakes: Brakes,
    queue: VecDeque<Ticket>,
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
    ticket: Ticket,
    since: Duration,
    /// The targets that it has looked at, or is about to: what comes later may not be on that look.
    begun: BTreeSet<Target>,
}

impl Gate {
    /// Returns a gate with nothing waiting.
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
            return Admission::Braked(Brake::Pause);
        }
        if let Some(answer) = self.known_alert(&trigger, now) {
            return answer;
        }
        if trigger.cause.is_automatic() {
            if let Some(joined) = self.join_running(&trigger, now) {
                return Admission::Merged(joined);
            }
            trigger
                .targets
                .retain(|target| !self.is_spent(*target, now));
            if trigger.targets.is_empty() {
                return Admission::Braked(Brake::PassesPerHour);
            }
        }
        self.enqueue(trigger, id, now)
    }

    fn enqueue(&mut self, trigger: Trigger, id: &str, now: Duration) -> Admission {
        let full = self.queue.len() >= QUEUE_MAX;
        let (pass, admission) = match self.waiting_with(&trigger.options) {
            Some(ticket) => {
                ticket.join(&trigger);
                (ticket.id.clone(), Admission::Merged(ticket.id.clone()))
            }
            None if full => return Admission::QueueFull,
            None => {
                self.queue.push_back(Ticket::new(id, &trigger));
                (id.to_owned(), Admission::Queued)
            }
        };
        if let Some(key) = trigger.alert {
            self.seen.remember(key, pass, now);
        }
        admission
    }

    fn waiting_with(&mut self, options: &PassOptions) -> Option<&mut Ticket> {
        let mut queue = self.queue.iter_mut();
        queue.find(|ticket| ticket.options == *options)
    }

    /// The same alert again: its pass waits, runs, or has answered it a short while ago.
    fn known_alert(&mut self, trigger: &Trigger, now: Duration) -> Option<Admission> {
        let seen = self.seen.get(trigger.alert.as_ref()?)?;
        match seen.ended {
            None => Some(Admission::Merged(seen.pass.clone())),
            Some(Ended::Answered) if now.saturating_sub(seen.at) < DUPLICATE_WINDOW => {
                Some(Admission::Duplicate(seen.pass.clone()))
            }
            // Its pass did not finish the job, or that was long ago: it may ask again.
            Some(Ended::Answered | Ended::Unanswered) => None,
        }
    }

    /// A pass over all that the alert asks for, run as it asks, is under way and has all of it still
    /// before it: it measures for itself.
    fn join_running(&mut self, trigger: &Trigger, now: Duration) -> Option<String> {
        let Running { ticket, begun, .. } = self.running.as_mut()?;
        let options = PassOptions {
            force: trigger.options.force,
            ..ticket.options.clone()
        };
        let ahead = ticket.targets.difference(begun).copied().collect();
        if options != trigger.options || !trigger.targets.is_subset(&ahead) {
            return None;
        }
        let id = ticket.id.clone();
        ticket.automatic.get_or_insert(trigger.cause);
        if let Some(key) = &trigger.alert {
            ticket.name(key);
            self.seen.remember(key.clone(), id.clone(), now);
        }
        Some(id)
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
    ) -> Option<(Ticket, Option<Ticket>)> {
        if self.running.is_some() {
            return None;
        }
        let is_ready = |ticket: &Ticket| !self.ready(ticket, now).is_empty();
        let position = self.queue.iter().position(is_ready)?;
        let mut ticket = self.queue.remove(position)?;
        let ready = self.ready(&ticket, now);
        let rest = ticket.split_off(&ready, free_id);
        if let Some(rest) = &rest {
            self.seen.moved(&rest.alerts, &rest.id);
            self.queue.insert(position, rest.clone());
        }
        self.running = Some(Running {
            ticket: ticket.clone(),
            since: now,
            begun: BTreeSet::new(),
        });
        Some((ticket, rest))
    }

    /// Notes that the running pass is over. What it left for a later time waits for it: returns that
    /// pass if it is a new one, under the id that `free_id` gives.
    pub fn finished(
        &mut self,
        over: &Over,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<Ticket> {
        let Running { ticket, since, .. } = self.running.take()?;
        let ended = over.answers();
        for key in &ticket.alerts {
            let waits = self.queue.iter().any(|other| other.alerts.contains(key));
            if !(waits && ended == Ended::Answered) {
                self.seen.end(key, ended, Some(now));
            }
        }
        if !ticket.options.dry_run {
            let ends = ticket.targets.iter().map(|target| (*target, now));
            self.finished.extend(ends);
            self.count_tries(over, since);
        }
        self.follow_up(&ticket, over, now, free_id)
    }

    /// A pass that came by itself may ask once for another, over what it had to leave for a time.
    fn follow_up(
        &mut self,
        before: &Ticket,
        over: &Over,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<Ticket> {
        let asks = before.automatic.is_some() && !before.is_follow_up && !over.dry_run;
        if !asks || over.due_again.is_empty() {
            return None;
        }
        let full = self.queue.len() >= QUEUE_MAX;
        let options = PassOptions::default();
        if let Some(waiting) = self.waiting_with(&options) {
            waiting.follow(before, &over.due_again, now);
            let waiting = waiting.id.clone();
            self.seen.moved(&before.alerts, &waiting);
            return None;
        }
        if full {
            return None;
        }
        let mut ticket = Ticket::empty(&free_id(), options);
        ticket.is_follow_up = true;
        ticket.follow(before, &over.due_again, now);
        self.seen.moved(&before.alerts, &ticket.id);
        self.queue.push_back(ticket.clone());
        Some(ticket)
    }

    /// Takes back what a resolved alert had asked for. Returns the waiting pass that no other trigger
    /// wants, which is dropped.
    pub fn withdraw(&mut self, alert: &AlertKey) -> Option<Ticket> {
        let waits = self
            .queue
            .iter_mut()
            .position(|ticket| ticket.alerts.contains(alert))?;
        let ticket = self.queue.get_mut(waits)?;
        ticket.alerts.remove(alert);
        self.seen.forget(alert);
        let wanted = ticket.kept || !ticket.alerts.is_empty();
        if wanted {
            None
        } else {
            self.queue.remove(waits)
        }
    }

    /// Takes a waiting pass out of the queue; `None` if it does not wait.
    pub fn cancel(&mut self, id: &str) -> Option<Ticket> {
        let waits = self.queue.iter().position(|ticket| ticket.id == id)?;
        let ticket = self.queue.remove(waits)?;
        for key in &ticket.alerts {
            self.seen.end(key, Ended::Unanswered, None);
        }
        Some(ticket)
    }

    /// Returns the passes that wait, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = &Ticket> {
        self.queue.iter()
    }

    /// Empties the queue, for the end of the service.
    pub fn drain(&mut self) -> Vec<Ticket> {
        self.queue.drain(..).collect()
    }
}

#[cfg(test)]
mod tests;
