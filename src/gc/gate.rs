//! May this trigger start a pass now? A small state machine over values: it never reads a clock
//! (`now` is the time since the service started, an argument) and never runs anything.
//!
//! One pass at a time. A trigger that finds a waiting pass with the same options joins it. Brakes
//! bind what comes by itself (alerts), when it is admitted and again when its pass starts; a person
//! passes cool-down and passes per hour, and pause only by force. (Force passes the circuit breaker too,
//! which is the pass's own: `pass`.)

mod hold;
mod seen;
mod ticket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use super::Target;
use crate::report::Outcome;
pub use hold::Hold;
use seen::{Ended, SeenAlerts};
pub use ticket::{AlertKey, Options, Ticket, Trigger};

/// Passes that can wait at the same time. Only triggers with different options wait apart.
pub const QUEUE_MAX: usize = 8;
/// Alerts remembered to recognise their duplicates.
pub const SEEN_MAX: usize = 1024;
/// How long after its pass a repeated alert counts as a duplicate. Alertmanager repeats a group at
/// its `group_interval` (default 5 min) at the earliest; the halves of an HA pair come seconds apart.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// What `brakes.max_passes_per_hour` looks back on.
const HOUR: Duration = Duration::from_secs(3600);

/// What holds automatic triggers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brakes {
    /// Time between the end of a pass over a target and the next one.
    pub cooldown: Duration,
    /// Passes that may start within an hour; `None`: any number.
    pub max_passes_per_hour: Option<u32>,
    /// Nothing is removed, but by force; a dry run still plans.
    pub pause: bool,
}

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
    /// Every target asked for was collected less than `brakes.cooldown` ago; time left.
    CoolDown(Duration),
    /// `brakes.max_passes_per_hour` is reached.
    PassesPerHour,
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause => f.write_str("garbage collection is paused (brakes.pause)"),
            Self::CoolDown(left) => {
                let seconds = left.as_secs().max(1);
                write!(f, "cooling down for another {seconds} s (brakes.cooldown)")
            }
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
    running: Option<Ticket>,
    starts: VecDeque<Duration>,
    finished: BTreeMap<Target, Duration>,
    seen: SeenAlerts,
}

impl Gate {
    /// Returns a gate with nothing waiting.
    pub fn new(brakes: Brakes) -> Self {
        Self {
            brakes,
            queue: VecDeque::new(),
            running: None,
            starts: VecDeque::new(),
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
            if let Err(brake) = self.brake(&mut trigger.targets, now) {
                return Admission::Braked(brake);
            }
        }
        self.enqueue(trigger, id, now)
    }

    fn enqueue(&mut self, trigger: Trigger, id: &str, now: Duration) -> Admission {
        let full = self.queue.len() >= QUEUE_MAX;
        let waiting = self
            .queue
            .iter_mut()
            .find(|ticket| ticket.options == trigger.options);
        let (pass, admission) = match waiting {
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

    /// A pass over all that the alert asks for, run as it asks, is under way: it measures for itself.
    fn join_running(&mut self, trigger: &Trigger, now: Duration) -> Option<String> {
        let running = self.running.as_mut()?;
        let options = Options {
            force: trigger.options.force,
            ..running.options.clone()
        };
        if options != trigger.options || !running.targets.is_superset(&trigger.targets) {
            return None;
        }
        let id = running.id.clone();
        if let Some(key) = &trigger.alert {
            running.name(key);
            self.seen.remember(key.clone(), id.clone(), now);
        }
        Some(id)
    }

    /// Takes the targets away that are still cooling down; an error if a brake stops the trigger.
    fn brake(&mut self, targets: &mut BTreeSet<Target>, now: Duration) -> Result<(), Brake> {
        let left = self.cool_down_left(targets, now);
        targets.retain(|target| !self.is_cooling(*target, now));
        if targets.is_empty() {
            return Err(Brake::CoolDown(left));
        }
        while self
            .starts
            .front()
            .is_some_and(|start| now.saturating_sub(*start) >= HOUR)
        {
            self.starts.pop_front();
        }
        match self.brakes.max_passes_per_hour {
            Some(max) if self.starts.len() >= max as usize => Err(Brake::PassesPerHour),
            Some(_) | None => Ok(()),
        }
    }

    fn is_cooling(&self, target: Target, now: Duration) -> bool {
        self.finished
            .get(&target)
            .is_some_and(|end| now.saturating_sub(*end) < self.brakes.cooldown)
    }

    fn cool_down_left(&self, targets: &BTreeSet<Target>, now: Duration) -> Duration {
        let ends = targets
            .iter()
            .filter_map(|target| self.finished.get(target));
        ends.map(|end| end.saturating_add(self.brakes.cooldown).saturating_sub(now))
            .min()
            .unwrap_or_default()
    }

    /// Hands out the next pass to run, if none runs. While `pause` is set, only what passes it.
    pub fn next(&mut self, now: Duration) -> Option<Ticket> {
        if self.running.is_some() {
            return None;
        }
        let pause = self.brakes.pause;
        let ready = |ticket: &Ticket| !pause || ticket.options.force || ticket.options.dry_run;
        let position = self.queue.iter().position(ready)?;
        let mut ticket = self.queue.remove(position)?;
        self.brake_again(&mut ticket, now);
        if !ticket.options.dry_run && !ticket.targets.is_empty() {
            self.starts.push_back(now);
            // Passes by hand are counted too but never bound: keep no more than the brake can ask for.
            let bound = self
                .brakes
                .max_passes_per_hour
                .map_or(0, |max| max as usize);
            while self.starts.len() > bound {
                self.starts.pop_front();
            }
        }
        self.running = Some(ticket.clone());
        Some(ticket)
    }

    /// Since a trigger was admitted, another pass may have ended: what alerts alone asked for is
    /// taken away if it was collected just now.
    fn brake_again(&mut self, ticket: &mut Ticket, now: Duration) {
        let mut automatic: BTreeSet<Target> = ticket
            .targets
            .difference(&ticket.by_hand)
            .copied()
            .collect();
        if automatic.is_empty() {
            return;
        }
        let asked = automatic.len();
        let cooling = Brake::CoolDown(self.cool_down_left(&automatic, now));
        match self.brake(&mut automatic, now) {
            // A pass that a person wants runs anyway: taking its company away would spare nothing.
            Err(Brake::PassesPerHour) if !ticket.by_hand.is_empty() => {}
            Err(brake) => {
                automatic.clear();
                ticket.braked = Some(brake);
            }
            Ok(()) if automatic.len() < asked => ticket.braked = Some(cooling),
            Ok(()) => {}
        }
        ticket.targets = ticket.by_hand.union(&automatic).copied().collect();
    }

    /// Notes that the running pass is over.
    pub fn finished(&mut self, outcome: Outcome, now: Duration) {
        let Some(ticket) = self.running.take() else {
            return;
        };
        // Where brakes took all away, nobody looked at what the alert is about.
        let looked = !ticket.targets.is_empty();
        let ended = match outcome {
            Outcome::Completed | Outcome::Planned | Outcome::NothingToDo if looked => {
                Ended::Answered
            }
            Outcome::Completed
            | Outcome::Planned
            | Outcome::NothingToDo
            | Outcome::Partial
            | Outcome::Aborted
            | Outcome::Interrupted => Ended::Unanswered,
        };
        for key in &ticket.alerts {
            self.seen.end(key, ended, Some(now));
        }
        if !ticket.options.dry_run {
            self.finished
                .extend(ticket.targets.into_iter().map(|target| (target, now)));
        }
    }

    /// Takes back what a resolved alert had asked for. Returns the waiting pass that nobody else
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

    /// Returns the ticket of a pass that waits.
    pub fn waiting(&self, id: &str) -> Option<&Ticket> {
        self.queue.iter().find(|ticket| ticket.id == id)
    }

    /// Empties the queue, for the end of the service.
    pub fn drain(&mut self) -> Vec<Ticket> {
        self.queue.drain(..).collect()
    }
}

#[cfg(test)]
mod tests;
