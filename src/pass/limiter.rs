//! How many removals at a time: found while running, by what it pays. Never reads a clock.
//!
//! Starts at two. Doubles while removals take less than 50 ms and more at a time pays (below 20 ms it
//! always does), up to the ceiling; after that one more at a time, and back where that does not pay.
//! Halves when a window's median is longer than the best so far and all others in flight explain, when the
//! disk comes under pressure, and when a list takes three times as long as the shortest. Where removals
//! stay quick under pressure, they neither suffer from it nor cause much of it (their own waits for the
//! disk count as pressure too), and there may be more again. Where they take long, they are what the disk
//! suffers from: one at a time, and as long a rest after each, so that pods get their turn.
//!
//! A removal that waits for something else than the disk (a CNI plugin) does not count, so that it holds
//! nobody back: a sandbox's that takes clearly longer than usual while a later one has ended, or any that
//! takes a second. A disk that is slow is slow for all of them. Until that shows, a sandbox takes a place;
//! so the more of the time went to such, the more may start.

mod one_by_one;

use std::time::Duration;

use super::pressure::Pressure;
pub use one_by_one::OneByOne;

/// Removals in flight at the start.
const START: usize = 2;
/// From here on a removal counts as slow.
pub const SLOW: Duration = Duration::from_secs(1);
/// Slow removals that may be in flight beside the others.
pub const SLOW_MAX: usize = 128;
/// The same while pressure holds removals back: then it is the disk that makes them slow.
const SLOW_MAX_HELD_BACK: usize = 4;
/// Times the best latency from which on one that goes alone, or a list, has waited for something.
const MUCH_LONGER: u32 = 3;
/// Below this a removal is quick: no burden to the disk, and twice as long is the scheduler's noise.
const QUICK: Duration = Duration::from_millis(20);
/// From here on a removal costs the disk much, if the disk is under pressure.
const COSTLY: Duration = Duration::from_millis(50);
/// Below this, the time that a list takes says nothing.
const LIST_MIN: Duration = Duration::from_millis(250);
/// The longest rest after one.
const REST_MAX: Duration = Duration::from_secs(2);
/// So many times the usual latency is clearly longer.
const CLEARLY: u32 = 2;
/// Below this nothing is clearly longer: the scheduler's noise.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// So many times what is clearly longer is no noise; nor is less than this ever sure.
const SURELY: u32 = 3;
const CERTAINTY_MIN: Duration = Duration::from_millis(150);
/// The share of the time of removals that went to such as wait, beyond which no more is made up for.
const WAITED_MAX: f64 = 0.75;
/// The weight of what is known of that share against one more removal.
const WAITED_MEMORY: f64 = 31.0 / 32.0;
/// The weight of what is known of the usual latency against the next one.
const MEMORY: u32 = 7;
/// More than so many times the usual latency counts as so many times.
const OUTLIER: u32 = 4;
/// Windows to wait after a step that did not pay, before the next try.
const HOLD: u32 = 8;
/// The same after the number was halved for a burden that may be over soon.
const RECOVERY: u32 = 2;

/// Decides how many removals may be in flight.
#[derive(Debug)]
pub struct Limiter {
    ceiling: usize,
    limit: usize,
    /// As last read.
    pressure: Pressure,
    /// None has ended since the reading before that: a disk that stalls, perhaps.
    stalled: bool,
    /// One has ended since the last reading.
    ended: bool,
    window: Window,
    /// Removals per second before the last step up.
    rate_before: Option<f64>,
    /// The best latency of a window so far.
    best_latency: Option<Duration>,
    /// The shortest time that a list has taken so far.
    best_list: Option<Duration>,
    /// The latency of late, of those that are not slow.
    usual: Option<Duration>,
    /// Before the last step up, if that is still to be judged.
    stepped_from: Option<usize>,
    /// Seconds that went to removals while they counted, of late: to such as turned out to wait for
    /// something else than the disk, and to the others.
    waited: f64,
    worked: f64,
    /// A step up doubles: nothing has spoken against more so far.
    doubles: bool,
    hold: u32,
}

#[derive(Debug, Default)]
struct Window {
    began: Duration,
    latencies: Vec<Duration>,
}

impl Window {
    /// Returns the median: on a busy machine one of ten takes many times as long as the others.
    fn latency(&mut self) -> Duration {
        let middle = self.latencies.len() / 2;
        if self.latencies.is_empty() {
            return Duration::ZERO;
        }
        *self.latencies.select_nth_unstable(middle).1
    }
}

impl Limiter {
    /// Returns a limiter that never exceeds `ceiling` (at least 1).
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            ceiling,
            limit: START.min(ceiling),
            pressure: Pressure::Low,
            stalled: false,
            ended: false,
            window: Window::default(),
            rate_before: None,
            best_latency: None,
            best_list: None,
            usual: None,
            stepped_from: None,
            waited: 0.0,
            worked: 0.0,
            doubles: true,
            hold: 0,
        }
    }

    /// Returns how many removals that are not slow may be in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Says whether one more may start beside `fast` and `slow` ones in flight.
    pub fn may_start(&self, fast: usize, slow: usize) -> bool {
        let slow_max = if self.holds_back() {
            SLOW_MAX_HELD_BACK
        } else {
            SLOW_MAX
        };
        fast < self.places() && slow < slow_max
    }

    /// Returns how many may be in flight so that as many as the limit says cost the disk: of the others
    /// it has not shown yet.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some tens"
    )]
    fn places(&self) -> usize {
        let total = self.waited + self.worked;
        // With a ceiling of one the operator wants them one by one.
        if self.ceiling == 1 || self.holds_back() || total <= 0.0 {
            return self.limit;
        }
        let waited = (self.waited / total).min(WAITED_MAX);
        (self.limit as f64 / (1.0 - waited)) as usize
    }

    /// Returns from which age on one that was overtaken surely waits, whatever else the machine does.
    pub fn certainty(&self) -> Duration {
        (self.patience() * SURELY).clamp(CERTAINTY_MIN, SLOW)
    }

    /// Notes that a sandbox's removal turned out to wait for its network.
    pub fn waits(&mut self) {
        self.spent(self.patience(), Duration::ZERO);
    }

    fn spent(&mut self, waited: Duration, worked: Duration) {
        self.waited = self.waited * WAITED_MEMORY + waited.as_secs_f64();
        self.worked = self.worked * WAITED_MEMORY + worked.as_secs_f64();
    }

    /// Says whether the disk was under pressure when it was last read. Where removals are quick, a brief
    /// pressure is what they or others may well cause.
    pub fn is_pressed(&self) -> bool {
        match self.pressure {
            Pressure::Low => false,
            Pressure::Brief => self.usual.is_some_and(|usual| usual >= COSTLY),
            Pressure::Lasting => true,
        }
    }

    /// Says whether removals are slowed down for the sake of a disk under pressure.
    fn holds_back(&self) -> bool {
        self.is_pressed() && !self.is_quick()
    }

    /// Says whether removals are known to be quick, and still end.
    fn is_quick(&self) -> bool {
        !self.stalled && self.usual.is_some_and(|usual| usual < QUICK)
    }

    /// Returns from which age on a removal takes clearly longer than usual.
    pub fn patience(&self) -> Duration {
        let usual = self.usual.unwrap_or(SLOW);
        (usual * CLEARLY).clamp(PATIENCE_MIN, SLOW)
    }

    /// Says whether one more may start although the limit is reached, because all that count have been
    /// in flight for at least `youngest`: if it ends before them, they wait for something else.
    pub fn may_scout(&self, youngest: Duration, slow: usize) -> bool {
        !self.holds_back() && slow < SLOW_MAX && youngest >= self.patience()
    }

    /// Says whether one of this age that still counts may run on beside a later batch.
    pub fn runs_on(&self, age: Duration, slow: usize) -> bool {
        self.may_scout(age / CLEARLY, slow)
    }

    /// Notes whether the disk is under pressure; halves the limit when that begins, and for as long as
    /// removals suffer from it too.
    pub fn pressure(&mut self, pressure: Pressure) {
        let before = self.is_pressed();
        self.pressure = pressure;
        self.stalled = !self.ended;
        self.ended = false;
        let begins = self.is_pressed() && !before;
        if begins || self.holds_back() {
            self.halve();
        }
    }

    /// Notes how long the runtime took to list its containers; halves the limit when that was much longer
    /// than the shortest: the runtime is overloaded, and the kubelet lists every second.
    pub fn listed(&mut self, took: Duration) {
        let best = self.best_list.map_or(took, |best| best.min(took));
        self.best_list = Some(best);
        if took > (MUCH_LONGER * best).max(LIST_MIN) {
            self.halve();
        }
    }

    /// Returns how long to rest after a removal that took `latency`: as long as that where removals are
    /// what the disk suffers from.
    pub fn rest(&self, latency: Duration) -> Duration {
        if self.is_pressed() && latency >= COSTLY {
            latency.min(REST_MAX)
        } else {
            Duration::ZERO
        }
    }

    /// Notes that a removal ended after `latency`; `now` is the time since the pass began.
    pub fn ended(&mut self, latency: Duration, now: Duration) {
        if latency >= SLOW {
            return;
        }
        self.ended = true;
        self.stalled = false;
        self.spent(Duration::ZERO, latency);
        let usual = self.usual.unwrap_or(latency);
        let counts = latency.min(usual * OUTLIER);
        self.usual = Some((usual * MEMORY + counts) / (MEMORY + 1));
        self.window.latencies.push(latency);
        if self.window.latencies.len() >= (4 * self.limit).max(8) {
            self.close_window(now);
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a window holds some tens of removals"
    )]
    fn close_window(&mut self, now: Duration) {
        let next = Window {
            began: now,
            ..Window::default()
        };
        let mut window = std::mem::replace(&mut self.window, next);
        let elapsed = now.saturating_sub(window.began).as_secs_f64().max(1e-6);
        let rate = window.latencies.len() as f64 / elapsed;
        let latency = window.latency();
        let best = self.best_latency.map_or(latency, |best| best.min(latency));
        self.best_latency = Some(best);
        let quick = latency < QUICK;
        // More than waiting for all the others, one after the other, explains.
        let in_flight = u32::try_from(self.limit).unwrap_or(u32::MAX);
        let risen = !quick && latency > best.saturating_mul(in_flight.saturating_add(1));
        let before = self.rate_before.replace(rate);
        let paid = quick || before.is_none_or(|before| rate > 1.05 * before);
        let stepped_from = self.stepped_from.take();
        self.doubles &= paid && latency < COSTLY;
        match stepped_from {
            Some(from) if !paid => {
                (self.limit, self.hold) = (from, HOLD);
            }
            None if risen => self.halve(),
            Some(_) | None => self.step_up(),
        }
    }

    fn step_up(&mut self) {
        if self.hold > 0 {
            self.hold -= 1;
            return;
        }
        if self.limit == self.ceiling || self.holds_back() {
            return;
        }
        self.stepped_from = Some(self.limit);
        let more = if self.doubles { self.limit } else { 1 };
        self.limit = self.ceiling.min(self.limit + more);
    }

    fn halve(&mut self) {
        // Quick ones are no burden, whoever else makes the disk wait.
        let least = if self.is_quick() {
            START.min(self.limit)
        } else {
            1
        };
        self.limit = (self.limit / 2).max(least);
        (self.stepped_from, self.hold, self.rate_before) = (None, RECOVERY, None);
        self.doubles = false;
        self.window.latencies.clear();
    }
}

#[cfg(test)]
mod tests;
