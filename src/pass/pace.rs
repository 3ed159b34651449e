//! How many removals at a time: found while running, by what it pays. Never reads a clock.
//!
//! Starts at two. While one more in flight makes the whole faster, there is one more; when it does
//! not, one less. When a removal takes twice as long as the best so far, or the disk is under
//! pressure, half. Where the disk is under pressure and removals take long, it is they that cost it:
//! one at a time, and as long a rest after each, so that pods get their turn. A removal that waits for something else than the disk (a CNI plugin) does not
//! count, so that it holds nobody back: one that takes longer than a second, or clearly longer than
//! usual while one that began after it has ended. A disk that is slow is slow for all of them.

use std::time::Duration;

/// Removals in flight at the start.
const START: usize = 2;
/// From here on a removal counts as slow.
pub const SLOW: Duration = Duration::from_secs(1);
/// Slow removals that may be in flight beside the others.
pub const SLOW_MAX: usize = 128;
/// The same while the disk is under pressure: then it is the disk that makes them slow.
const SLOW_MAX_UNDER_PRESSURE: usize = 4;
/// Times the best latency from which on one that goes alone has waited for something.
const MUCH_LONGER: u32 = 3;
/// Below this, a latency says nothing.
const LATENCY_MIN: Duration = Duration::from_millis(20);
/// From here on a removal costs the disk much, if the disk is under pressure.
const COSTLY: Duration = Duration::from_millis(50);
/// The longest rest between two that go one at a time, and the shortest under pressure.
const REST_MAX: Duration = Duration::from_secs(2);
const REST_UNDER_PRESSURE_MIN: Duration = Duration::from_millis(250);
/// So many times the usual latency is clearly longer.
const CLEARLY: u32 = 2;
/// Below this nothing is clearly longer: the scheduler's noise.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// The weight of what is known of the usual latency against the next one.
const MEMORY: u32 = 7;
/// Windows to wait after a step that did not pay, before the next try.
const HOLD: u32 = 8;

/// How much of the time somebody waited for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Less than is allowed.
    Low,
    /// More, since it was last read; not over the last ten seconds.
    Brief,
    /// More, over the last ten seconds.
    Lasting,
}

/// Decides how many removals may be in flight.
#[derive(Debug)]
pub struct Pace {
    ceiling: usize,
    limit: usize,
    pressed: bool,
    window: Window,
    /// Removals per second before the last step up.
    rate_before: Option<f64>,
    /// The best mean latency of a window so far, seconds.
    best_latency: Option<f64>,
    /// The latency of late, of those that are not slow.
    usual: Option<Duration>,
    stepped_up: bool,
    hold: u32,
}

/// Decides how long to rest between removals that go one at a time (images). With one in flight there
/// is nothing to halve, so that pods get their turn at the disk in between.
#[derive(Debug, Default)]
pub struct OneByOne {
    best: Option<Duration>,
    last: Duration,
}

impl OneByOne {
    /// Notes that one ended after `latency`.
    pub fn ended(&mut self, latency: Duration) {
        self.best = Some(self.best.map_or(latency, |best| best.min(latency)));
        self.last = latency;
    }

    /// Returns how long to rest before the next: while the disk is under pressure, or when the last took
    /// much longer than the best, as long as that took. Bounded, for a full disk cannot wait for ever.
    pub fn rest(&self, pressed: bool) -> Duration {
        let Some(best) = self.best else {
            return Duration::ZERO;
        };
        if pressed {
            return self.last.clamp(REST_UNDER_PRESSURE_MIN, REST_MAX);
        }
        if self.last > (MUCH_LONGER * best).max(LATENCY_MIN) {
            return self.last.min(REST_MAX);
        }
        Duration::ZERO
    }
}

#[derive(Debug, Default)]
struct Window {
    began: Duration,
    count: usize,
    latency: Duration,
}

impl Pace {
    /// Returns a pace that never exceeds `ceiling` (at least 1).
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            ceiling,
            limit: START.min(ceiling),
            pressed: false,
            window: Window::default(),
            rate_before: None,
            best_latency: None,
            usual: None,
            stepped_up: false,
            hold: 0,
        }
    }

    /// Returns how many removals that are not slow may be in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Says whether one more may start beside `fast` and `slow` ones in flight.
    pub fn may_start(&self, fast: usize, slow: usize) -> bool {
        let slow_max = if self.pressed {
            SLOW_MAX_UNDER_PRESSURE
        } else {
            SLOW_MAX
        };
        fast < self.limit && slow < slow_max
    }

    /// Says whether the disk was under pressure when it was last read.
    pub fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// Returns from which age on a removal takes clearly longer than usual.
    pub fn patience(&self) -> Duration {
        let usual = self.usual.unwrap_or(SLOW);
        (usual * CLEARLY).clamp(PATIENCE_MIN, SLOW)
    }

    /// Says whether one more may start although the limit is reached, because all that count have been
    /// in flight for at least `youngest`: if it ends before them, they wait for something else.
    pub fn may_scout(&self, youngest: Duration, slow: usize) -> bool {
        !self.pressed && slow < SLOW_MAX && youngest >= self.patience()
    }

    /// Notes whether the disk is under pressure; halves the limit while it is. Where removals are
    /// quick, a brief pressure is what they or others may well cause.
    pub fn pressure(&mut self, pressure: Pressure) {
        self.pressed = match pressure {
            Pressure::Low => false,
            Pressure::Brief => self.usual.is_some_and(|usual| usual >= COSTLY),
            Pressure::Lasting => true,
        };
        if self.pressed {
            self.halve();
        }
    }

    /// Returns how long to rest after a removal that took `latency`: as long as that where removals are
    /// what the disk suffers from.
    pub fn rest(&self, latency: Duration) -> Duration {
        if self.pressed && latency >= COSTLY {
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
        let usual = self.usual.unwrap_or(latency);
        self.usual = Some((usual * MEMORY + latency) / (MEMORY + 1));
        self.window.count += 1;
        self.window.latency += latency;
        if self.window.count >= (4 * self.limit).max(8) {
            self.close_window(now);
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a window holds some tens of removals"
    )]
    fn close_window(&mut self, now: Duration) {
        let window = std::mem::replace(
            &mut self.window,
            Window {
                began: now,
                ..Window::default()
            },
        );
        let elapsed = now.saturating_sub(window.began).as_secs_f64().max(1e-6);
        let rate = window.count as f64 / elapsed;
        let latency = window.latency.as_secs_f64() / window.count as f64;
        let best = self.best_latency.get_or_insert(latency);
        *best = best.min(latency);
        // Below a few milliseconds, twice as long is noise.
        let risen = latency > (2.0 * *best).max(0.005);
        let paid = self.rate_before.is_none_or(|before| rate > 1.05 * before);
        if self.stepped_up && !paid {
            self.limit = self.limit.saturating_sub(1).max(1);
            (self.stepped_up, self.hold) = (false, HOLD);
            return;
        }
        if risen && !(self.stepped_up && paid) {
            self.halve();
            return;
        }
        if self.hold > 0 {
            self.hold -= 1;
            self.stepped_up = false;
            return;
        }
        self.stepped_up = self.limit < self.ceiling && !self.pressed;
        self.rate_before = Some(rate);
        if self.stepped_up {
            self.limit += 1;
        }
    }

    fn halve(&mut self) {
        // Removals this quick are no burden, whoever else makes the disk wait.
        let quick = self.usual.is_some_and(|usual| usual < LATENCY_MIN);
        let floor = if quick { START.min(self.limit) } else { 1 };
        self.limit = (self.limit / 2).max(floor);
        (self.stepped_up, self.hold, self.rate_before) = (false, HOLD, None);
        self.window.count = 0;
        self.window.latency = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `pace` on a disk that needs `latency(limit)` for each of `limit` removals in flight.
    fn drive(pace: &mut Pace, removals: usize, latency: impl Fn(usize) -> Duration) -> Vec<usize> {
        let mut now = Duration::ZERO;
        (0..removals)
            .map(|_| {
                let each = latency(pace.limit());
                now += each / u32::try_from(pace.limit()).unwrap();
                pace.ended(each, now);
                pace.limit()
            })
            .collect()
    }

    #[test]
    fn grows_to_the_ceiling_where_it_pays() {
        let mut pace = Pace::new(8);
        let limits = drive(&mut pace, 400, |_| Duration::from_millis(10));
        assert_eq!(limits.last(), Some(&8));
        assert!(limits.iter().all(|limit| *limit <= 8));
    }

    #[test]
    fn stays_low_where_the_disk_is_the_limit() {
        let mut pace = Pace::new(8);
        let limits = drive(&mut pace, 400, |n| {
            Duration::from_millis(150) * u32::try_from(n).unwrap()
        });
        assert!(limits.iter().all(|limit| *limit <= 3), "{limits:?}");
    }

    #[test]
    fn halves_when_latency_rises() {
        let mut pace = Pace::new(8);
        drive(&mut pace, 400, |_| Duration::from_millis(10));
        let limits = drive(&mut pace, 120, |_| Duration::from_millis(200));
        assert!(limits.last().unwrap() < &4, "{limits:?}");
    }

    #[test]
    fn slow_ones_do_not_count_unless_the_disk_is_under_pressure() {
        let mut pace = Pace::new(8);
        assert!(pace.may_start(1, SLOW_MAX - 1));
        assert!(!pace.may_start(1, SLOW_MAX));
        assert!(!pace.may_start(2, 0));
        pace.pressure(Pressure::Lasting);
        assert_eq!(pace.limit(), 1);
        assert!(!pace.may_start(0, SLOW_MAX_UNDER_PRESSURE));
        pace.pressure(Pressure::Low);
        assert!(pace.may_start(0, SLOW_MAX_UNDER_PRESSURE));
    }

    #[test]
    fn a_brief_pressure_counts_where_removals_take_long() {
        let mut pace = Pace::new(8);
        drive(&mut pace, 50, |_| Duration::from_millis(10));
        let before = pace.limit();
        pace.pressure(Pressure::Brief);
        assert_eq!((pace.is_pressed(), pace.limit()), (false, before));
        drive(&mut pace, 50, |_| Duration::from_millis(200));
        pace.pressure(Pressure::Brief);
        assert!(pace.is_pressed());
        assert!(pace.limit() <= before / 2);
    }

    #[test]
    fn rests_as_long_as_a_removal_took_while_they_are_a_burden_to_the_disk() {
        let millis = Duration::from_millis;
        let mut pace = Pace::new(8);
        assert_eq!(
            pace.rest(millis(200)),
            Duration::ZERO,
            "a network's teardown, say"
        );
        pace.pressure(Pressure::Lasting);
        assert_eq!(pace.rest(millis(200)), millis(200));
        assert_eq!(
            pace.rest(millis(49)),
            Duration::ZERO,
            "others are the burden"
        );
        assert_eq!(pace.rest(Duration::from_secs(30)), REST_MAX);
        pace.pressure(Pressure::Low);
        assert_eq!(pace.rest(millis(200)), Duration::ZERO);
    }

    #[test]
    fn pressure_that_others_make_leaves_two_quick_ones_at_a_time() {
        let mut pace = Pace::new(8);
        drive(&mut pace, 400, |_| Duration::from_millis(5));
        assert_eq!(pace.limit(), 8);
        for limit in [4, 2, 2] {
            pace.pressure(Pressure::Lasting);
            assert_eq!(pace.limit(), limit);
        }
        drive(&mut pace, 50, |_| Duration::from_millis(100));
        pace.pressure(Pressure::Lasting);
        assert_eq!(pace.limit(), 1);
        drive(&mut pace, 200, |_| Duration::from_millis(5));
        assert_eq!(pace.limit(), 1, "no growth under pressure");
    }

    #[test]
    fn those_that_go_one_at_a_time_rest_when_the_disk_is_slow_and_not_for_ever() {
        let millis = Duration::from_millis;
        let mut pace = OneByOne::default();
        assert_eq!(pace.rest(true), Duration::ZERO, "nothing went yet");
        pace.ended(millis(10));
        assert_eq!(pace.rest(false), Duration::ZERO);
        assert_eq!(pace.rest(true), REST_UNDER_PRESSURE_MIN);
        pace.ended(millis(15));
        assert_eq!(pace.rest(false), Duration::ZERO, "noise");
        pace.ended(millis(31));
        assert_eq!(pace.rest(false), millis(31));
        pace.ended(millis(900));
        assert_eq!(
            (pace.rest(false), pace.rest(true)),
            (millis(900), millis(900))
        );
        pace.ended(Duration::from_secs(60));
        assert_eq!((pace.rest(false), pace.rest(true)), (REST_MAX, REST_MAX));
        pace.ended(millis(12));
        assert_eq!(pace.rest(false), Duration::ZERO, "well again");
    }

    #[test]
    fn patience_follows_the_usual_latency() {
        let mut pace = Pace::new(8);
        assert_eq!(pace.patience(), SLOW, "nothing is usual yet");
        drive(&mut pace, 50, |_| Duration::from_millis(1));
        assert_eq!(pace.patience(), PATIENCE_MIN);
        drive(&mut pace, 50, |_| Duration::from_millis(100));
        let patience = pace.patience().as_millis();
        assert!((190..=200).contains(&patience), "{patience}");
        drive(&mut pace, 50, |_| Duration::from_millis(900));
        assert_eq!(pace.patience(), SLOW);
    }

    #[test]
    fn a_scout_goes_when_all_take_clearly_longer_and_the_disk_is_not_under_pressure() {
        let mut pace = Pace::new(8);
        drive(&mut pace, 50, |_| Duration::from_millis(10));
        let long = pace.patience();
        assert!(pace.may_scout(long, SLOW_MAX - 1));
        assert!(!pace.may_scout(long, SLOW_MAX));
        assert!(!pace.may_scout(long.mul_f64(0.9), 0));
        pace.pressure(Pressure::Lasting);
        assert!(!pace.may_scout(SLOW, 0));
    }

    #[test]
    fn never_falls_below_one() {
        let mut pace = Pace::new(0);
        for _ in 0..10 {
            pace.pressure(Pressure::Lasting);
        }
        assert_eq!(pace.limit(), 1);
    }
}
