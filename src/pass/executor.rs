//! Runs the removals of a batch, a few at a time; slow ones run on beside later batches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::limiter::{Limiter, OneByOne, SLOW, SlowOnes};
use super::pressure::{PRESSURE_EVERY, PressureGauge};
use super::record::InFlight;
use super::remove::{RemovalContext, Remover, remove};
use super::stops::Stops;
use crate::gc::Removal;
use crate::model::{RemovalOutcome, RemoveReason, Target, Text};
use crate::snapshot::Look;

/// Extra removals above the limit that find out what the slow ones wait for.
const SCOUTS_MAX: usize = 3;

/// Removals of one kind that start in this order.
#[derive(Debug)]
pub(super) struct Batch {
    /// Its number among the batches of its target.
    pub(super) number: u64,
    /// Those that have not started.
    pub(super) removals: VecDeque<Removal>,
}

#[derive(Debug)]
pub(super) struct FinishedRemoval {
    pub(super) removal: Removal,
    pub(super) outcome: RemovalOutcome,
    /// Its duration, including the question before it.
    pub(super) latency: Duration,
    /// The batch that started it.
    pub(super) batch: u64,
}

/// When the next batch may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnWhen {
    /// When one more removal may start.
    Room,
    /// When only slow removals are in flight; they run on beside the next batch.
    OnlySlow,
    /// When no image is in flight: only then can the freed space be measured.
    NoImage,
}

#[derive(Clone, Debug)]
struct RunningRemoval {
    at: Instant,
    target: Target,
    id: Text,
    reason: RemoveReason,
    waits: NonDiskWait,
    task: AbortHandle,
}

/// Whether a removal in flight waits for something other than the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NonDiskWait {
    /// Unknown: it counts against the limit.
    No,
    /// Probably: it does not count against the limit.
    Likely,
    /// Certainly: a sandbox that is this slow and was overtaken. One more removal may run in its place.
    Surely,
    /// The same, where removals are usually so short that a disk under pressure does not explain it either.
    Proven,
}

/// Removals in flight.
pub(super) struct Executor {
    pub(super) remover: Arc<Remover>,
    pub(super) limiter: Limiter,
    one_by_one: OneByOne,
    pressure: PressureGauge,
    /// Separate tasks, so that removals go on while the pass looks or waits for its journal.
    running: JoinSet<(u64, FinishedRemoval)>,
    /// Every removal in flight, by its ascending number.
    started: BTreeMap<u64, RunningRemoval>,
    next_number: u64,
    /// The highest number that was removed, except logs; older ones in flight were overtaken.
    last_removed: Option<u64>,
    /// Removals started above the limit since one last ended in time.
    scouts: usize,
    /// Nothing starts before this, to relieve the disk.
    rest_until: Option<Instant>,
    stops: Stops,
    /// The pass must end, and only logs of removed containers start, until then: nothing else would remove them.
    pub(super) logs_until: Option<Instant>,
    /// The same removals, for a person who stops the pass.
    in_flight: InFlight,
}

impl Executor {
    pub(super) fn new(
        remover: Remover,
        ceiling: usize,
        pressure: PressureGauge,
        stops: Stops,
        in_flight: InFlight,
    ) -> Self {
        Self {
            remover: Arc::new(remover),
            limiter: Limiter::new(ceiling),
            one_by_one: OneByOne::default(),
            pressure,
            running: JoinSet::new(),
            started: BTreeMap::new(),
            next_number: 0,
            last_removed: None,
            scouts: 0,
            rest_until: None,
            stops,
            logs_until: None,
            in_flight,
        }
    }

    /// Starts the removals of batches that rest on `look`, side by side, and returns as `until` says; what did
    /// not start stays in them. After the runtime is lost, and where images would go for room that is or may be there, it
    /// starts nothing more and waits for the fast ones; when the pass must end it returns at once.
    pub(super) async fn run(
        &mut self,
        batches: &mut [Batch],
        until: ReturnWhen,
        look: &Arc<Look>,
        mut on_done: impl FnMut(FinishedRemoval),
    ) {
        let (mut lost, mut made_room) = (false, false);
        let first = self.next_number;
        // Pressure must be known before the first removal starts.
        self.read_pressure().await;
        loop {
            self.note_waiting();
            if !lost && !made_room {
                for batch in &mut *batches {
                    made_room |= self.start(batch, look, first).await;
                }
            }
            let none_waits = batches.iter().all(|batch| batch.removals.is_empty());
            let over = match until {
                ReturnWhen::Room if !lost => none_waits && self.has_room(),
                ReturnWhen::Room | ReturnWhen::OnlySlow => (lost || none_waits) && self.only_slow(),
                ReturnWhen::NoImage => (lost || made_room || none_waits) && !self.has_image(),
            };
            if over || self.is_stopped() {
                return;
            }
            if let Some(done) = self.next().await {
                lost |= matches!(done.outcome, RemovalOutcome::Lost { .. });
                on_done(done);
            }
        }
    }

    /// Starts what may start, from the number `first` on; says whether the next one would make room that is or may be there.
    async fn start(&mut self, batch: &mut Batch, look: &Arc<Look>, first: u64) -> bool {
        while let Some(next) = batch.removals.front() {
            if self.is_stopped() || !self.may_start(next.subject.target).await {
                return false;
            }
            let is_first = self.next_number == first;
            if next.reason == RemoveReason::Space && self.has_made_room(is_first).await {
                return true;
            }
            let Some(removal) = batch.removals.pop_front() else {
                return false;
            };
            let (number, at) = (self.next_number, Instant::now());
            self.next_number += 1;
            self.in_flight.begin(number, &removal.subject);
            let (target, id) = (removal.subject.target, removal.subject.id.clone());
            let reason = removal.reason;
            let context = RemovalContext::of(look, &removal, &self.remover);
            let (remover, batch) = (Arc::clone(&self.remover), batch.number);
            let task = self.running.spawn(async move {
                let (Ok(outcome) | Err(outcome)) = remove(&remover, &context, &removal).await;
                let latency = at.elapsed();
                let finished = FinishedRemoval {
                    removal,
                    outcome,
                    latency,
                    batch,
                };
                (number, finished)
            });
            let started = RunningRemoval {
                at,
                target,
                id,
                reason,
                waits: NonDiskWait::No,
                task,
            };
            self.started.insert(number, started);
        }
        false
    }

    /// Measures whether images have made the room that they went for: the runtime may list less than they free. Without an
    /// answer the first goes by the look that its batch rests on, and the next look decides on the others.
    async fn has_made_room(&self, is_first: bool) -> bool {
        tokio::select! {
            made = self.remover.has_made_room() => made.unwrap_or(!is_first),
            () = self.stopped() => true,
        }
    }

    async fn may_start(&mut self, target: Target) -> bool {
        if target == Target::Images {
            // One at a time: each costs the runtime time in proportion to its whole store.
            if self.has_image() {
                return false;
            }
            self.rest().await;
            return !self.is_stopped();
        }
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let (fast, logs, slow) = self.in_flight();
        if self.limiter.may_start(target, fast.len(), logs, slow) {
            return true;
        }
        if target == Target::Logs {
            return false;
        }
        let youngest = fast.iter().min();
        // On a stalled disk no scout returns, so all wait for the disk.
        let may_scout = self.scouts < SCOUTS_MAX
            && youngest.is_some_and(|youngest| self.limiter.may_scout(*youngest, slow));
        self.scouts += usize::from(may_scout);
        may_scout
    }

    fn has_image(&self) -> bool {
        let mut started = self.started.values();
        started.any(|it| it.target == Target::Images)
    }

    /// Waits until the next image may start, or the pass must end.
    async fn rest(&mut self) {
        self.read_pressure().await;
        let rest = self.one_by_one.rest(self.limiter.is_under_pressure);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.stopped() => {}
        }
    }

    fn is_stopped(&self) -> bool {
        match self.logs_until {
            Some(until) => Instant::now() >= until,
            None => self.stops.reached().is_some(),
        }
    }

    /// Waits until nothing may start any more.
    fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let (stops, logs_until) = (self.stops.clone(), self.logs_until);
        async move {
            match logs_until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => drop(stops.wait().await),
            }
        }
    }

    pub(super) fn has_started_any(&self) -> bool {
        self.next_number > 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the objects of a target whose removal has begun and is not noted yet, and why they go.
    pub(super) fn of(&self, target: Target) -> BTreeMap<Text, RemoveReason> {
        let started = self.started.values().filter(|it| it.target == target);
        started.map(|it| (it.id.clone(), it.reason)).collect()
    }

    /// Waits until a removal ends, a moment passes, or the pass must end.
    pub(super) async fn wait(&mut self, mut on_done: impl FnMut(FinishedRemoval)) {
        self.note_waiting();
        if let Some(done) = self.next().await {
            on_done(done);
        }
    }

    /// Waits for removals in flight until `until`, or for the grace once the pass must end, and returns the others. Their
    /// calls are broken off, except those about sandboxes, which end by their own timeout: CRI-O counts a network teardown
    /// that its caller broke off as done, and the pod's address leaks.
    pub(super) async fn drain(
        &mut self,
        until: Instant,
        mut on_done: impl FnMut(FinishedRemoval),
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
        let left = std::mem::take(&mut self.started);
        if !left.is_empty() {
            self.remover.end();
        }
        for removal in left.values().filter(|it| it.target != Target::Sandboxes) {
            removal.task.abort();
        }
        self.running.detach_all();
        left.into_values()
            .map(|started| (started.target, started.id))
            .collect()
    }

    /// Says whether one more fits the limit; ignores a rest.
    fn has_room(&self) -> bool {
        let (fast, logs, slow) = self.in_flight();
        self.limiter
            .may_start(Target::Sandboxes, fast.len(), logs, slow)
    }

    pub(super) fn only_slow(&self) -> bool {
        let (fast, logs, slow) = self.in_flight();
        logs == 0 && fast.iter().all(|age| self.limiter.runs_on(*age, slow))
    }

    /// Returns the ages of the removals that count, the number of logs that do, and those that do not count. Only
    /// sandboxes can wait for a network within the first second; for others the age is no sign, and is zero here.
    fn in_flight(&self) -> (Vec<Duration>, usize, SlowOnes) {
        let (mut fast, mut logs, mut slow) = (Vec::new(), 0, SlowOnes::default());
        for started in self.started.values() {
            match started.target {
                _ if started.waits != NonDiskWait::No => {
                    slow.all += 1;
                    slow.doubtful += usize::from(started.waits != NonDiskWait::Proven);
                }
                Target::Logs => logs += 1,
                Target::Sandboxes => fast.push(started.at.elapsed()),
                Target::Containers | Target::Images => fast.push(Duration::ZERO),
            }
        }
        (fast, logs, slow)
    }

    /// Finds removals in flight that wait for something other than the disk.
    fn note_waiting(&mut self) {
        let usual = &self.limiter.usual_latency;
        let (long, certain) = (usual.clearly_longer(), usual.certainly_waits());
        let sure = if usual.tells_networks() {
            NonDiskWait::Proven
        } else {
            NonDiskWait::Surely
        };
        for (number, started) in &mut self.started {
            let age = started.at.elapsed();
            let overtaken = self.last_removed.is_some_and(|last| *number < last);
            let network = started.target == Target::Sandboxes && overtaken;
            if started.waits == NonDiskWait::No && (age >= SLOW || (network && age >= long)) {
                started.waits = NonDiskWait::Likely;
            }
            // A removal that takes a second and was not overtaken may still wait for the disk.
            if started.waits == NonDiskWait::Likely && network && age >= certain {
                started.waits = sure;
                self.limiter.usual_latency.waits();
            }
        }
    }

    /// Waits until a removal ends, another one may start, or the pass must end.
    async fn next(&mut self) -> Option<FinishedRemoval> {
        let usual = &self.limiter.usual_latency;
        let long = usual.clearly_longer();
        let ages = [long, (2 * long).min(SLOW), usual.certainly_waits(), SLOW];
        let started = self.started.values();
        let turns_slow = started
            .flat_map(|started| ages.map(|age| started.at + age))
            .chain(self.rest_until)
            .filter(|at| *at > Instant::now())
            .min()
            .unwrap_or_else(|| Instant::now() + PRESSURE_EVERY);
        self.read_pressure().await;
        let (stopped, idle) = (self.stopped(), self.is_idle());
        tokio::select! {
            done = self.ended(), if !idle => done,
            () = stopped => None,
            () = tokio::time::sleep_until(turns_slow) => None,
        }
    }

    async fn ended(&mut self) -> Option<FinishedRemoval> {
        let (number, finished) = match self.running.join_next().await? {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                // A panic is a bug: it ends the pass as it would without a task.
                Ok(panic) => std::panic::resume_unwind(panic),
                // The task was aborted.
                Err(_cancelled) => return None,
            },
        };
        let (waits, latency) = (self.started.remove(&number)?.waits, finished.latency);
        self.in_flight.end(number);
        let target = finished.removal.subject.target;
        let is_removed = matches!(finished.outcome, RemovalOutcome::Removed { .. });
        if is_removed && target != Target::Logs {
            self.last_removed = self.last_removed.max(Some(number));
        }
        if latency < self.limiter.usual_latency.clearly_longer() {
            self.scouts = 0;
        }
        match target {
            Target::Images => self.one_by_one.ended(latency),
            // A file is removed in a fraction of the time and says nothing about the runtime.
            Target::Logs => {}
            Target::Containers | Target::Sandboxes => {
                if waits == NonDiskWait::No {
                    self.limiter.ended(latency);
                    self.rest_until = Some(Instant::now() + self.limiter.rest(latency));
                }
            }
        }
        Some(finished)
    }

    async fn read_pressure(&mut self) {
        if let Some(pressure) = self.pressure.read().await {
            self.limiter.pressure(pressure);
        }
    }
}
