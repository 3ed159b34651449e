//! How many removals may be in flight: the fewest that remove about as fast as more would, because each one
//! in flight costs pods their turn at the disk. Never reads a clock.
//!
//! The limit divided by the mean latency is the throughput (Little's law). The limiter compares windows of
//! removals by it, without the longest ones, and tries half as many and twice as many in turn. Twice as many stay
//! only if throughput grows by [`GAIN`]; half as many stay unless it falls by [`LOSS`]. The limiter halves at once
//! when removals take longer than the others in flight explain, when a list of the runtime takes long, and each
//! second in which the disk is under pressure and removals suffer from it.
//!
//! A removal that waits for the network costs the disk nothing and does not count: [`UsualLatency`] finds those.

mod one_by_one;
mod usual_latency;

use std::time::Duration;

pub use one_by_one::OneByOne;
pub use usual_latency::{SLOW, UsualLatency};

use crate::model::Target;

/// Removals in flight at the start.
const START: usize = 2;
/// Removals in a window, for each that may be in flight; a window never has fewer than [`WINDOW_MIN`].
const WINDOW: usize = 4;
const WINDOW_MIN: usize = 8;
/// The first removals of a pass take longer than later ones, as nothing is cached yet: they count for nothing.
const WARM_UP: usize = 4;
/// A window lasts at least this long, unless removals are [`FREE`]. A disk that may do so many operations in each tenth
/// of a second serves the first at once and lets later ones wait: a shorter window sees one or the other.
const WINDOW_TAKES: Duration = Duration::from_millis(250);
/// Twice as many in flight must raise throughput by this factor. Where the runtime's database or the disk is the
/// limit, twice as many raise it by nothing; where neither is, by 2.
const GAIN: f64 = 1.3;
/// Half as many stay unless throughput falls by this factor.
const LOSS: f64 = 1.15;
/// Windows without a try after a step up that did not pay. Each further step that does not pay doubles them, up to
/// [`HOLD_MAX`]: pods pay for each try.
const HOLD: u32 = 2;
const HOLD_MAX: u32 = 16;
/// Windows without a try after the limit was halved: what caused that may soon be over.
const RECOVERY: u32 = 2;
/// Log files that may be removed at a time, beside what else is in flight: each takes some thousandths of a second.
const LOG_FILES: usize = 4;
/// Removals that wait for the network which may be in flight beside the others.
pub const SLOW_MAX: usize = 128;
/// Those that may wait for the disk, while pressure holds removals back.
const SLOW_MAX_HELD_BACK: usize = 4;
/// Factor above the shortest time from which a list, or a removal that runs alone, has waited for something.
const MUCH_LONGER: u32 = 3;
/// A removal below this leaves the disk to others: more in flight stay without further proof. Windows of so few
/// milliseconds prove nothing, as the scheduler's noise is as long.
const FREE: Duration = Duration::from_millis(5);
/// A removal below this is no burden to the disk, and twice as long is the scheduler's noise.
const QUICK: Duration = Duration::from_millis(20);
/// From this latency on a removal costs a disk under pressure much.
const COSTLY: Duration = Duration::from_millis(50);
/// Below this, the time that a list takes says nothing.
const LIST_MIN: Duration = Duration::from_millis(250);
/// The longest rest after a removal.
const REST_MAX: Duration = Duration::from_secs(2);

/// Removals in flight that are too slow to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowOnes {
    /// All of them.
    pub all: usize,
    /// Those that may wait for the disk.
    pub doubtful: usize,
}

/// Decides how many removals may be in flight.
#[derive(Debug)]
pub struct Limiter {
    ceiling: usize,
    limit: usize,
    /// Latencies of removals that began under this limit.
    window: Vec<Duration>,
    /// Removals still in flight that began under another limit.
    carried_over: usize,
    /// The limit being tried, against the one before.
    trial: Option<Trial>,
    next_trial: Direction,
    /// Windows until the next trial.
    hold: u32,
    /// Windows to hold after the next step up that does not pay.
    next_hold: u32,
    best_latency: Option<Duration>,
    best_list: Option<Duration>,
    /// Whether the disk was under pressure when that was last read.
    pub is_under_pressure: bool,
    /// A removal has ended since pressure was last read.
    has_ended: bool,
    /// How long removals usually take.
    pub usual_latency: UsualLatency,
}

/// The limit before a trial, and removals per second under it.
#[derive(Clone, Copy, Debug)]
struct Trial {
    before: usize,
    rate: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Half,
    Double,
}

impl Limiter {
    /// Returns a limiter that never exceeds `ceiling` (at least 1).
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            ceiling,
            limit: START.min(ceiling),
            window: Vec::new(),
            carried_over: WARM_UP,
            trial: None,
            next_trial: Direction::Half,
            hold: 0,
            next_hold: HOLD,
            best_latency: None,
            best_list: None,
            is_under_pressure: false,
            has_ended: false,
            usual_latency: UsualLatency::default(),
        }
    }

    /// Returns how many removals that do not wait for the network may be in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Says whether one more of a target may start beside `counted` ones, `logs` and `slow` ones in flight.
    pub fn may_start(&self, target: Target, counted: usize, logs: usize, slow: SlowOnes) -> bool {
        if self.has_too_many(slow) {
            return false;
        }
        let all = counted + logs;
        // With a ceiling of one the operator wants them one by one.
        if self.ceiling == 1 || self.holds_back() {
            return all < self.places(target);
        }
        match target {
            Target::Logs => logs < LOG_FILES && all < self.ceiling,
            Target::Containers | Target::Sandboxes | Target::Images => {
                counted < self.places(target)
            }
        }
    }

    /// Returns how many removals of a target may be in flight so that `limit` of them cost the disk.
    fn places(&self, target: Target) -> usize {
        match target {
            // Only sandboxes have a network to wait for.
            Target::Sandboxes if self.ceiling > 1 && !self.holds_back() => {
                self.usual_latency.places(self.limit)
            }
            Target::Sandboxes | Target::Containers | Target::Logs | Target::Images => self.limit,
        }
    }

    fn has_too_many(&self, slow: SlowOnes) -> bool {
        slow.all >= SLOW_MAX || self.holds_back() && slow.doubtful >= SLOW_MAX_HELD_BACK
    }

    /// Says whether one more may start although the limit is reached, because all that count have been
    /// in flight for at least `youngest`: if the new one ends before them, they wait for the network.
    pub fn may_scout(&self, youngest: Duration, slow: SlowOnes) -> bool {
        let usual = &self.usual_latency;
        let is_long = if self.holds_back() {
            usual.tells_networks() && youngest >= usual.certainly_waits()
        } else {
            youngest >= usual.clearly_longer()
        };
        is_long && !self.has_too_many(slow)
    }

    /// Says whether one of this age that still counts may run on beside a later batch.
    pub fn runs_on(&self, age: Duration, slow: SlowOnes) -> bool {
        !self.holds_back() && self.may_scout(age / 2, slow)
    }

    /// Says whether removals are slowed down for the sake of a disk under pressure. Those known to be quick
    /// are not: the kernel counts their own short waits as pressure too.
    fn holds_back(&self) -> bool {
        self.is_under_pressure && !self.usual_latency.is_quick()
    }

    /// Notes whether the disk is under pressure.
    pub fn pressure(&mut self, is_high: bool) {
        if !std::mem::take(&mut self.has_ended) {
            // A disk may stall: earlier latencies say nothing about it.
            self.usual_latency.forget_usual();
        }
        self.is_under_pressure = is_high;
        if self.holds_back() {
            self.halve();
        }
    }

    /// Notes how long the runtime took to list its containers. Much longer than the shortest list means
    /// that the runtime is overloaded, and the kubelet lists every second.
    pub fn listed(&mut self, took: Duration) {
        let best = self.best_list.map_or(took, |best| best.min(took));
        self.best_list = Some(best);
        if took > (MUCH_LONGER * best).max(LIST_MIN) {
            self.halve();
        }
    }

    /// Returns how long to rest after a removal that took `latency`: half as long where removals are what the disk
    /// suffers from. On 300 IOPS a third left starting pods too little, the whole cost the pass a seventh.
    pub fn rest(&self, latency: Duration) -> Duration {
        if self.is_under_pressure && latency >= COSTLY {
            (latency / 2).min(REST_MAX)
        } else {
            Duration::ZERO
        }
    }

    /// Notes that a removal ended after `latency`.
    pub fn ended(&mut self, latency: Duration) {
        if latency >= SLOW {
            return;
        }
        self.has_ended = true;
        self.usual_latency.ended(latency);
        if self.carried_over > 0 {
            self.carried_over -= 1;
            return;
        }
        self.window.push(latency);
        if let Some(trial) = self.failed() {
            self.give_back(trial);
        } else if self.is_full() {
            self.close_window();
        }
    }

    /// Says whether the window tells the throughput.
    fn is_full(&mut self) -> bool {
        if self.window.len() < self.window_size() {
            return false;
        }
        let all: Duration = self.window.iter().sum();
        all >= WINDOW_TAKES * count(self.limit) || median(&mut self.window) < FREE
    }

    /// Returns the trial of twice as many if it cannot pay any more, before the window is full: half of the window took
    /// too long already.
    fn failed(&self) -> Option<Trial> {
        let trial = self.trial.filter(|trial| trial.before < self.limit)?;
        let fails = |latency: &&Duration| {
            let latency = **latency;
            latency >= FREE && !trial.pays(self.limit, rate(self.limit, latency))
        };
        let failing = self.window.iter().filter(fails).count();
        let window = self.window_size().max(self.window.len());
        (2 * failing >= window).then_some(trial)
    }

    fn window_size(&self) -> usize {
        (WINDOW * self.limit).max(WINDOW_MIN)
    }

    fn close_window(&mut self) {
        let rate = rate(self.limit, usual_mean(&mut self.window, self.limit));
        let latency = median(&mut self.window);
        self.window.clear();
        let best = self.best_latency.map_or(latency, |best| best.min(latency));
        self.best_latency = Some(best);
        match self.trial.take() {
            _ if latency < FREE => {
                self.next_trial = Direction::Double;
                self.try_next(rate);
            }
            Some(trial) if trial.pays(self.limit, rate) => {
                if trial.before < self.limit {
                    self.next_hold = HOLD;
                }
                self.try_next(rate);
            }
            Some(trial) => self.give_back(trial),
            None if latency >= QUICK && latency > best * count(self.limit + 1) => self.halve(),
            None if self.hold > 0 => self.hold -= 1,
            None => self.try_next(rate),
        }
    }

    /// Returns to the limit before a trial. After one with half as many, twice as many come next.
    fn give_back(&mut self, trial: Trial) {
        let was_up = trial.before < self.limit;
        self.change(trial.before);
        self.trial = None;
        if was_up {
            self.hold();
        } else {
            self.next_trial = Direction::Double;
            self.try_next(trial.rate);
        }
    }

    /// Tries another limit, unless there is none in that direction.
    fn try_next(&mut self, rate: f64) {
        let before = self.limit;
        let limit = match self.next_trial {
            Direction::Half => (before / 2).max(1),
            Direction::Double if self.holds_back() => before,
            Direction::Double => self.ceiling.min(2 * before),
        };
        if limit == before {
            return self.hold();
        }
        self.trial = Some(Trial { before, rate });
        self.change(limit);
    }

    /// Tries nothing for some windows, longer each time, and then fewer in flight before more.
    fn hold(&mut self) {
        self.hold = self.next_hold;
        self.next_hold = HOLD_MAX.min(2 * self.next_hold);
        self.next_trial = if self.limit == 1 {
            Direction::Double
        } else {
            Direction::Half
        };
    }

    fn halve(&mut self) {
        self.change((self.limit / 2).max(1));
        (self.trial, self.hold, self.next_trial) = (None, RECOVERY, Direction::Double);
    }

    fn change(&mut self, limit: usize) {
        self.carried_over = self.limit;
        self.limit = limit;
        self.window.clear();
    }
}

impl Trial {
    /// Says whether the limit tried stays, at this rate.
    fn pays(self, limit: usize, rate: f64) -> bool {
        if self.before < limit {
            rate >= GAIN * self.rate
        } else {
            LOSS * rate > self.rate
        }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Returns removals per second of so many in flight.
#[expect(clippy::cast_precision_loss, reason = "some tens in flight")]
fn rate(in_flight: usize, latency: Duration) -> f64 {
    in_flight as f64 / latency.as_secs_f64().max(1e-6)
}

/// Returns the mean without the longest ones, one for each in flight: a runtime that collects its own garbage lets
/// all in flight wait once, for as long as a third of a window (containerd after 100 deletions).
fn usual_mean(latencies: &mut [Duration], in_flight: usize) -> Duration {
    latencies.sort_unstable();
    let counts = latencies.len().saturating_sub(in_flight).max(1);
    let all: Duration = latencies.iter().take(counts).sum();
    all / count(counts)
}

/// Returns the median: on a busy machine one of ten takes many times as long as the others.
fn median(latencies: &mut [Duration]) -> Duration {
    let middle = latencies.len() / 2;
    if latencies.is_empty() {
        return Duration::ZERO;
    }
    *latencies.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests;
