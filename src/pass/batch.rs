//! Runs the removals of a batch, a few at a time, and lets slow ones run on beside later batches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pace::{OneByOne, Pace, Pressure, SLOW};
pub(super) use super::remove::Outcome;
use super::remove::{Hands, remove};
use crate::gc::{Removal, Target};
use crate::observe::Look;

/// How often the disk's pressure is read while removals run.
const PRESSURE_EVERY: Duration = Duration::from_secs(1);

/// Removals beyond the limit that may be out at the same time to find out what the others wait for.
const SCOUTS_MAX: usize = 3;

/// A removal that ended.
#[derive(Debug)]
pub(super) struct Done {
    /// What was to go.
    pub(super) removal: Removal,
    /// What came of it.
    pub(super) outcome: Outcome,
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
}

/// A removal in flight.
#[derive(Clone, Copy, Debug)]
struct Started {
    at: Instant,
    batch: u64,
    target: Target,
    /// It waits for something else than the disk, and counts no longer.
    waits: bool,
}

/// What a task that removes one object ends with: its number, what came of it, how long that took.
type Ended = (u64, Removal, Outcome, Duration);

/// Removals in flight.
pub(super) struct Executor {
    hands: Arc<Hands>,
    pace: Pace,
    one_by_one: OneByOne,
    pressure: Gauge,
    began: Instant,
    /// Tasks of their own, so that they go on while the pass looks or waits for its journal.
    running: JoinSet<Ended>,
    /// Each one in flight, by a number that only grows.
    started: BTreeMap<u64, Started>,
    next_number: u64,
    /// The one started last of those that have ended; what began before it was overtaken.
    last_ended: Option<u64>,
    /// Those started beyond the limit since one last ended in time.
    scouts: usize,
    /// Until when nothing starts, for the disk's sake.
    rest_until: Option<Instant>,
    stop: CancellationToken,
}

impl Executor {
    pub(super) fn new(
        hands: Hands,
        ceiling: usize,
        pressure: Gauge,
        stop: CancellationToken,
    ) -> Self {
        Self {
            hands: Arc::new(hands),
            pace: Pace::new(ceiling),
            one_by_one: OneByOne::default(),
            pressure,
            began: Instant::now(),
            running: JoinSet::new(),
            started: BTreeMap::new(),
            next_number: 0,
            last_ended: None,
            scouts: 0,
            rest_until: None,
            stop,
        }
    }

    /// Starts every removal of the batch and returns as `until` says. Stops starting on cancel and as soon
    /// as the runtime is lost, and then lets none but slow ones in flight; returns what was not started.
    pub(super) async fn run(
        &mut self,
        number: u64,
        batch: Vec<Removal>,
        until: Until,
        mut on_done: impl FnMut(Done),
    ) -> VecDeque<Removal> {
        let mut waiting: VecDeque<Removal> = batch.into();
        let mut lost = false;
        // What is known before the first one starts.
        self.read_pressure();
        loop {
            let held = lost || self.stop.is_cancelled();
            while !held && !waiting.is_empty() && self.may_start() {
                let Some(removal) = waiting.pop_front() else {
                    break;
                };
                self.start(removal, number, None);
            }
            let over = match until {
                Until::Room if !held => waiting.is_empty() && self.has_room(),
                Until::Room | Until::OnlySlow => (held || waiting.is_empty()) && self.only_slow(),
            };
            if over {
                return waiting;
            }
            if let Some(done) = self.next().await {
                lost |= matches!(done.outcome, Outcome::Lost(_));
                on_done(done);
            }
        }
    }

    /// Removes images one at a time and returns when none is in flight: each costs the runtime time in
    /// proportion to what it stores, whatever else it does, and what is freed can be measured only then.
    /// Rests in between where the disk asks for it. Stops as [`Self::run`] does, and at `deadline`.
    ///
    /// `look` is the one that the batch rests on.
    pub(super) async fn run_one_by_one(
        &mut self,
        number: u64,
        batch: Vec<Removal>,
        look: &Arc<Look>,
        deadline: Option<Instant>,
        mut on_done: impl FnMut(Done),
    ) -> VecDeque<Removal> {
        let mut waiting: VecDeque<Removal> = batch.into();
        while let Some(removal) = waiting.pop_front() {
            self.rest().await;
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if late || self.stop.is_cancelled() {
                waiting.push_front(removal);
                return waiting;
            }
            let image = self.start(removal, number, Some(look));
            // Others in flight are sandboxes that wait for their network.
            let mut lost = false;
            while self.started.contains_key(&image) {
                if let Some(done) = self.next().await {
                    lost |= matches!(done.outcome, Outcome::Lost(_));
                    on_done(done);
                }
            }
            if lost {
                return waiting;
            }
        }
        waiting
    }

    /// Waits until the next image may go; a cancel does not wait.
    async fn rest(&mut self) {
        self.read_pressure();
        let rest = self.one_by_one.rest(self.pace.is_pressed());
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Says whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits until a removal in flight has ended, or a moment has passed.
    pub(super) async fn wait(&mut self, mut on_done: impl FnMut(Done)) {
        if let Some(done) = self.next().await {
            on_done(done);
        }
    }

    /// Waits for what is still in flight, at most until `until`; returns how many were left alone.
    pub(super) async fn drain(&mut self, until: Instant, mut on_done: impl FnMut(Done)) -> usize {
        while !self.running.is_empty() {
            match tokio::time::timeout_at(until, self.next()).await {
                Ok(Some(done)) => on_done(done),
                Ok(None) => {}
                Err(_elapsed) => break,
            }
        }
        self.running.len()
    }

    /// Notes how long the runtime took to list its containers.
    pub(super) fn listed(&mut self, took: Duration) {
        self.pace.listed(took);
    }

    /// Returns how many removals may be in flight at a time just now.
    pub(super) fn limit(&self) -> usize {
        self.pace.limit()
    }

    /// Says whether one more removal may start now.
    fn has_room(&mut self) -> bool {
        let (fast, slow) = self.in_flight();
        self.pace.may_start(fast.len(), slow)
    }

    fn may_start(&mut self) -> bool {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let (fast, slow) = self.in_flight();
        if self.pace.may_start(fast.len(), slow) {
            return true;
        }
        let youngest = fast.iter().min();
        // On a disk that stalls no scout comes back: then it is the disk that all wait for.
        let may_scout = self.scouts < SCOUTS_MAX
            && youngest.is_some_and(|youngest| self.pace.may_scout(*youngest, slow));
        self.scouts += usize::from(may_scout);
        may_scout
    }

    /// Says whether nothing is in flight that would not be let run on beside others.
    pub(super) fn only_slow(&mut self) -> bool {
        let (fast, slow) = self.in_flight();
        let mut fast = fast.iter();
        fast.all(|age| self.pace.may_scout(*age / 2, slow))
    }

    /// Returns the ages of those in flight that count, and how many do not. Only sandboxes have a network
    /// to wait for before a second is over: of the others the age is no sign, and zero here.
    fn in_flight(&mut self) -> (Vec<Duration>, usize) {
        let patience = self.pace.patience();
        let mut fast = Vec::new();
        for (number, started) in &mut self.started {
            let age = started.at.elapsed();
            let overtaken = self.last_ended.is_some_and(|last| *number < last);
            let network = started.target == Target::Sandboxes;
            if !started.waits && (age >= SLOW || (network && overtaken && age >= patience)) {
                started.waits = true;
                self.pace.waits(age);
            }
            if !started.waits {
                fast.push(if network { age } else { Duration::ZERO });
            }
        }
        let slow = self.started.len() - fast.len();
        (fast, slow)
    }

    fn start(&mut self, removal: Removal, batch: u64, look: Option<&Arc<Look>>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let started = Started {
            at: Instant::now(),
            batch,
            target: removal.subject.target,
            waits: false,
        };
        self.started.insert(number, started);
        let (hands, look) = (Arc::clone(&self.hands), look.cloned());
        let at = started.at;
        self.running.spawn(async move {
            let outcome = remove(&hands, look.as_ref(), &removal).await;
            (number, removal, outcome, at.elapsed())
        });
        number
    }

    /// Waits until a removal ends, or until something changes that may let another one start.
    async fn next(&mut self) -> Option<Done> {
        let patience = self.pace.patience();
        let ages = [patience, (2 * patience).min(SLOW), SLOW];
        let started = self.started.values();
        let turns_slow = started
            .flat_map(|started| ages.map(|age| started.at + age))
            .chain(self.rest_until)
            .filter(|at| *at > Instant::now())
            .min()
            .unwrap_or_else(|| Instant::now() + PRESSURE_EVERY);
        self.read_pressure();
        // A cancel starts nothing new, but what is in flight is waited for. A rest is not.
        let idle = self.running.is_empty();
        let ended = tokio::select! {
            ended = self.running.join_next(), if !idle => ended,
            () = self.stop.cancelled(), if idle => None,
            () = tokio::time::sleep_until(turns_slow) => None,
        };
        let (number, removal, outcome, latency) = match ended? {
            Ok(ended) => ended,
            // A panic is a bug, and ends the pass as it would without a task of its own.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let Started { batch, waits, .. } = self.started.remove(&number)?;
        self.last_ended = self.last_ended.max(Some(number));
        if latency < self.pace.patience() {
            self.scouts = 0;
        }
        match removal.subject.target {
            Target::Images => self.one_by_one.ended(latency),
            Target::Containers | Target::Sandboxes | Target::Logs => {
                if !waits {
                    self.pace.ended(latency, self.began.elapsed());
                }
                self.rest_until = Some(Instant::now() + self.pace.rest(latency));
            }
        }
        Some(Done {
            removal,
            outcome,
            latency,
            batch,
        })
    }

    fn read_pressure(&mut self) {
        if let Some(pressure) = self.pressure.read() {
            self.pace.pressure(pressure);
        }
    }
}

/// Reads the share of time in which somebody waited for the disk (`/proc/pressure/io`, "some").
#[derive(Debug)]
pub(super) struct Gauge {
    path: std::path::PathBuf,
    threshold_percent: Option<f64>,
    /// When it was last read, and the time waited until then.
    last: Option<(Instant, Option<Duration>)>,
}

impl Gauge {
    pub(super) fn new(path: std::path::PathBuf, threshold_percent: Option<f64>) -> Self {
        Self {
            path,
            threshold_percent,
            last: None,
        }
    }

    /// Returns how much the disk is under pressure, at most once a second; `None` in between, when it
    /// is switched off, and on kernels without the file.
    fn read(&mut self) -> Option<Pressure> {
        let threshold = self.threshold_percent?;
        let now = Instant::now();
        if self
            .last
            .is_some_and(|(at, _)| now.duration_since(at) < PRESSURE_EVERY)
        {
            return None;
        }
        // procfs answers from memory: this does not wait for the disk that it tells about.
        let text = std::fs::read_to_string(&self.path).ok();
        let waited = text.as_deref().and_then(some_total);
        let last = self.last.replace((now, waited));
        let lasting = some_avg10(&text?)? >= threshold;
        let since = last.and_then(|(at, before)| {
            let elapsed = now.duration_since(at).as_secs_f64();
            Some(100.0 * waited?.checked_sub(before?)?.as_secs_f64() / elapsed)
        });
        Some(if lasting {
            Pressure::Lasting
        } else if since.is_some_and(|percent| percent >= threshold) {
            Pressure::Brief
        } else {
            Pressure::Low
        })
    }
}

/// The share of the last ten seconds, percent.
fn some_avg10(text: &str) -> Option<f64> {
    some(text, "avg10=")?.parse().ok()
}

/// The time since the machine started.
fn some_total(text: &str) -> Option<Duration> {
    let micros = some(text, "total=")?.parse().ok()?;
    Some(Duration::from_micros(micros))
}

fn some<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_pressure_line() {
        let text =
            "some avg10=12.34 avg60=0.06 avg300=0.05 total=480554\nfull avg10=0.18 avg60=0\n";
        assert_eq!(some_avg10(text), Some(12.34));
        assert_eq!(some_total(text), Some(Duration::from_micros(480_554)));
        assert_eq!(some_avg10("full avg10=0.18"), None);
        assert_eq!(some_avg10("some avg10=x"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn tells_a_brief_pressure_from_a_lasting_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io");
        let says = |avg10: f64, total_ms: u64| {
            let line = format!(
                "some avg10={avg10:.2} avg60=0 avg300=0 total={}\n",
                total_ms * 1000
            );
            std::fs::write(&path, line).unwrap();
        };
        let mut gauge = Gauge::new(path.clone(), Some(20.0));
        says(3.0, 5_000);
        assert_eq!(gauge.read(), Some(Pressure::Low), "nothing to compare with");
        assert_eq!(gauge.read(), None, "too soon");
        for (avg10, total_ms, read) in [
            (12.0, 5_900, Some(Pressure::Brief)),
            (30.0, 6_000, Some(Pressure::Lasting)),
            (19.0, 6_100, Some(Pressure::Low)),
            (1.0, 0, Some(Pressure::Low)),
        ] {
            says(avg10, total_ms);
            tokio::time::advance(PRESSURE_EVERY).await;
            assert_eq!(gauge.read(), read, "{avg10} {total_ms}");
        }
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(PRESSURE_EVERY).await;
        assert_eq!(gauge.read(), None, "no file");
        assert_eq!(Gauge::new(path, None).read(), None, "off");
    }
}
