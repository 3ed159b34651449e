//! How long to rest between removals that go one at a time. Never reads a clock.

use std::time::Duration;

use super::{MUCH_LONGER, QUICK, REST_MAX};

/// The shortest rest while the disk is under pressure.
const REST_UNDER_PRESSURE_MIN: Duration = Duration::from_millis(250);

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
        if self.last > (MUCH_LONGER * best).max(QUICK) {
            return self.last.min(REST_MAX);
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_by_one_removals_rest_on_a_slow_disk_for_a_bounded_time() {
        let millis = Duration::from_millis;
        let mut limiter = OneByOne::default();
        assert_eq!(limiter.rest(true), Duration::ZERO, "nothing went yet");
        limiter.ended(millis(10));
        assert_eq!(limiter.rest(false), Duration::ZERO);
        assert_eq!(limiter.rest(true), REST_UNDER_PRESSURE_MIN);
        limiter.ended(millis(15));
        assert_eq!(limiter.rest(false), Duration::ZERO, "noise");
        limiter.ended(millis(31));
        assert_eq!(limiter.rest(false), millis(31));
        limiter.ended(millis(900));
        assert_eq!(
            (limiter.rest(false), limiter.rest(true)),
            (millis(900), millis(900))
        );
        limiter.ended(Duration::from_secs(60));
        assert_eq!(
            (limiter.rest(false), limiter.rest(true)),
            (REST_MAX, REST_MAX)
        );
        limiter.ended(millis(12));
        assert_eq!(limiter.rest(false), Duration::ZERO, "well again");
    }
}
