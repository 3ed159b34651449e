//! Runs the removals of a batch, a few at a time, and lets slow ones run on beside later batches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::limiter::{Limiter, OneByOne, SLOW};
use super::pressure::{Gauge, PRESSURE_EVERY};
use super::remove::{Remover, remove};
use super::stops::Stops;
use crate::gc::Removal;
use crate::model::{RemovalOutcome, Target, Text};
use crate::snapshot::Look;

/// Removals beyond the limit that may be out at the same time to find out what the others wait for.
const SCOUTS_MAX: usize = 3;

/// A removal that ended.
#[derive(Debug)]
pub(super) struct Done {
    /// What was to go.
    pub(super) removal: Removal,
    /// What came of it.
    pub(super) outcome: RemovalOutcome,
    /// How long it took, the question before it included.
    pub(super) latency: Duration,
    /// The batch that it was started in.
    pub(super) batch: u64,
}

/// How long the batch after this one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until one more removal may start.
    Room,
    /// Until none is in flight but slow ones, which run on beside what comes.
    OnlySlow,
    /// Until no image is in flight: what images free can be measured only then.
    NoImage,
}

/// A removal in flight.
#[derive(Clone, Debug)]
struct Started {
    at: Instant,
    batch: u64,
    target: Target,
    id: Text,
    waits: Waits,
}

/// Whether a removal in flight waits for something else than the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Its end is not known: it counts.
    No,
    /// It seems so: it counts no longer.
    Likely,
    /// A sandbox takes so long, and was overtaken, that it is no accident: its place is made up for.
    Surely,
}

/// What a task that removes one object ends with: its number, what came of it, how long that took.
type TaskEnd = (u64, Removal, RemovalOutcome, Duration);

/// Removals in flight.
pub(super) struct Executor {
    remover: Arc<Remover>,
    limiter: Limiter,
    one_by_one: OneByOne,
    pressure: Gauge,
    began: Instant,
    /// Tasks of their own, so that they go on while the pass looks or waits for its journal.
    running: JoinSet<TaskEnd>,
    /// Each one in flight, by a number that only grows.
    started: BTreeMap<u64, Started>,
    next_number: u64,
    /// The one started last of those that have ended; what began before it was overtaken.
    last_ended: Option<u64>,
    /// Those started beyond the limit since one last ended in time.
    scouts: usize,
    /// Until when nothing starts, for the disk's sake.
    rest_until: Option<Instant>,
    stops: Stops,
}

impl Executor {
    pub(super) fn new(remover: Remover, ceiling: usize, pressure: Gauge, stops: Stops) -> Self {
        Self {
            remover: Arc::new(remover),
            limiter: Limiter::new(ceiling),
            one_by_one: OneByOne::default(),
            pressure,
            began: Instant::now(),
            running: JoinSet::new(),
            started: BTreeMap::new(),
            next_number: 0,
            last_ended: None,
            scouts: 0,
            rest_until: None,
            stops,
        }
    }

    /// Starts every removal of the batch and returns as `until` says. Once the runtime is lost it starts
    /// nothing more, and returns when only slow ones are in flight; once the pass is to end it returns at
    /// once. Returns what was not started. `look` is the one that the batch rests on.
    pub(super) async fn run(
        &mut self,
        number: u64,
        batch: Vec<Removal>,
        until: Until,
        look: &Arc<Look>,
        mut on_done: impl FnMut(Done),
    ) -> VecDeque<Removal> {
        let mut waiting: VecDeque<Removal> = batch.into();
        let mut lost = false;
        // What is known before the first one starts.
        self.read_pressure().await;
        loop {
            self.note_waiting();
            while !lost && !self.is_stopped() {
                let Some(next) = waiting.front() else { break };
                if !self.may_start(next.subject.target).await {
                    break;
                }
                if let Some(removal) = waiting.pop_front() {
                    self.start(removal, number, look);
                }
            }
            let over = match until {
                Until::Room if !lost => waiting.is_empty() && self.has_room(),
                Until::Room | Until::OnlySlow => (lost || waiting.is_empty()) && self.only_slow(),
                Until::NoImage => (lost || waiting.is_empty()) && !self.has_image(),
            };
            if over || self.is_stopped() {
                return waiting;
            }
            if let Some(done) = self.next().await {
                lost |= matches!(done.outcome, RemovalOutcome::Lost { .. });
                on_done(done);
            }
        }
    }

    /// Says whether a removal may start now. Images go one at a time: each costs the runtime time in
    /// proportion to what it stores, whatever else it does.
    async fn may_start(&mut self, target: Target) -> bool {
        match target {
            Target::Images => {
                let alone = !self.has_image();
                if alone {
                    self.rest().await;
                }
                alone && !self.is_stopped()
            }
            Target::Containers | Target::Sandboxes | Target::Logs => self.is_within_limit(),
        }
    }

    fn has_image(&self) -> bool {
        let mut started = self.started.values();
        started.any(|it| it.target == Target::Images)
    }

    /// Waits until the next image may go, or the pass is to end.
    async fn rest(&mut self) {
        self.read_pressure().await;
        let rest = self.one_by_one.rest(self.limiter.is_pressed());
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = self.stops.wait() => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.stops.reached().is_some()
    }

    /// Says whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits until a removal in flight has ended, a moment has passed, or the pass is to end.
    pub(super) async fn wait(&mut self, mut on_done: impl FnMut(Done)) {
        self.note_waiting();
        if let Some(done) = self.next().await {
            on_done(done);
        }
    }

    /// Waits for what is still in flight, at most until `until`, and once the pass is to end no longer than
    /// its grace. Gives up the others, so that they do nothing more, and returns which they were.
    pub(super) async fn drain(
        &mut self,
        until: Instant,
        mut on_done: impl FnMut(Done),
    ) -> Vec<(Target, Text)> {
        let stops = self.stops.clone();
        let ended = async {
            while !self.is_idle() {
                if let Some(done) = self.ended().await {
                    on_done(done);
                }
            }
        };
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep_until(until) => {}
            () = stops.grace_over() => {}
        }
        self.running.abort_all();
        let left = std::mem::take(&mut self.started).into_values();
        left.map(|started| (started.target, started.id)).collect()
    }

    /// Notes how long the runtime took to list its containers.
    pub(super) fn listed(&mut self, took: Duration) {
        self.limiter.listed(took);
    }

    /// Returns how many removals may be in flight at a time just now.
    pub(super) fn limit(&self) -> usize {
        self.limiter.limit()
    }

    /// Says whether one more would be within the limit; a rest does not count.
    fn has_room(&self) -> bool {
        let (fast, slow) = self.in_flight();
        self.limiter.may_start(fast.len(), slow)
    }

    fn is_within_limit(&mut self) -> bool {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let (fast, slow) = self.in_flight();
        if self.limiter.may_start(fast.len(), slow) {
            return true;
        }
        let youngest = fast.iter().min();
        // On a disk that stalls no scout comes back: then it is the disk that all wait for.
        let may_scout = self.scouts < SCOUTS_MAX
            && youngest.is_some_and(|youngest| self.limiter.may_scout(*youngest, slow));
        self.scouts += usize::from(may_scout);
        may_scout
    }

    /// Says whether nothing is in flight that would not be let run on beside others.
    pub(super) fn only_slow(&self) -> bool {
        let (fast, slow) = self.in_flight();
        fast.iter().all(|age| self.limiter.runs_on(*age, slow))
    }

    /// Returns the ages of those in flight that count, and how many do not. Only sandboxes have a network
    /// to wait for before a second is over: of the others the age is no sign, and zero here.
    fn in_flight(&self) -> (Vec<Duration>, usize) {
        let counts = self
            .started
            .values()
            .filter(|started| started.waits == Waits::No);
        let fast: Vec<Duration> = counts
            .map(|started| match started.target {
                Target::Sandboxes => started.at.elapsed(),
                Target::Containers | Target::Logs | Target::Images => Duration::ZERO,
            })
            .collect();
        let slow = self.started.len() - fast.len();
        (fast, slow)
    }

    /// Finds out which of those in flight wait for something else than the disk.
    fn note_waiting(&mut self) {
        let (patience, certainty) = (self.limiter.patience(), self.limiter.certainty());
        for (number, started) in &mut self.started {
            let age = started.at.elapsed();
            let overtaken = self.last_ended.is_some_and(|last| *number < last);
            let network = started.target == Target::Sandboxes && overtaken;
            if started.waits == Waits::No && (age >= SLOW || (network && age >= patience)) {
                started.waits = Waits::Likely;
            }
            // One that takes a second and was not overtaken may well wait for the disk.
            if started.waits == Waits::Likely && network && age >= certainty {
                started.waits = Waits::Surely;
                self.limiter.waits();
            }
        }
    }

    fn start(&mut self, removal: Removal, batch: u64, look: &Arc<Look>) {
        let number = self.next_number;
        self.next_number += 1;
        let at = Instant::now();
        let started = Started {
            at,
            batch,
            target: removal.subject.target,
            id: removal.subject.id.clone(),
            waits: Waits::No,
        };
        self.started.insert(number, started);
        // A removal that hangs must not keep a look of megabytes for the others.
        let look = match removal.subject.target {
            Target::Images => Some(Arc::clone(look)),
            Target::Containers | Target::Sandboxes | Target::Logs => None,
        };
        let remover = Arc::clone(&self.remover);
        self.running.spawn(async move {
            let outcome = remove(&remover, look.as_ref(), &removal, batch).await;
            (number, removal, outcome, at.elapsed())
        });
    }

    /// Waits until a removal ends, until something changes that may let another one start, or until the pass
    /// is to end.
    async fn next(&mut self) -> Option<Done> {
        let patience = self.limiter.patience();
        let ages = [patience, (2 * patience).min(SLOW), SLOW];
        let started = self.started.values();
        let turns_slow = started
            .flat_map(|started| ages.map(|age| started.at + age))
            .chain(self.rest_until)
            .filter(|at| *at > Instant::now())
            .min()
            .unwrap_or_else(|| Instant::now() + PRESSURE_EVERY);
        self.read_pressure().await;
        let stops = self.stops.clone();
        let idle = self.is_idle();
        tokio::select! {
            done = self.ended(), if !idle => done,
            _ = stops.wait() => None,
            () = tokio::time::sleep_until(turns_slow) => None,
        }
    }

    /// Waits until a removal ends.
    async fn ended(&mut self) -> Option<Done> {
        let (number, removal, outcome, latency) = match self.running.join_next().await? {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                // A bug: it ends the pass as it would without a task of its own.
                Ok(panic) => std::panic::resume_unwind(panic),
                // Given up.
                Err(_cancelled) => return None,
            },
        };
        let Started { batch, waits, .. } = self.started.remove(&number)?;
        self.last_ended = self.last_ended.max(Some(number));
        if latency < self.limiter.patience() {
            self.scouts = 0;
        }
        match removal.subject.target {
            Target::Images => self.one_by_one.ended(latency),
            Target::Containers | Target::Sandboxes | Target::Logs => {
                if waits == Waits::No {
                    self.limiter.ended(latency, self.began.elapsed());
                    self.rest_until = Some(Instant::now() + self.limiter.rest(latency));
                }
            }
        }
        Some(Done {
            removal,
            outcome,
            latency,
            batch,
        })
    }

    async fn read_pressure(&mut self) {
        if let Some(pressure) = self.pressure.read().await {
            self.limiter.pressure(pressure);
        }
    }
}
