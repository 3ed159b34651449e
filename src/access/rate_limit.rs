//! The token bucket of the web configuration file. Never reads the clock: time is an argument.

use std::time::Duration;

/// How many requests are served: one more each `interval`, and up to `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Time in which the bucket gains one token; never zero.
    pub interval: Duration,
    /// Tokens in a full bucket; never zero.
    pub burst: u32,
}

/// A bucket of tokens, full at first. Each admitted request takes one. Of two, the one that is full earlier is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenBucket {
    /// When the bucket is full again. An empty bucket is full `burst * interval` later.
    full_at: Duration,
}

impl TokenBucket {
    /// Takes a token. `now` is the time since any fixed moment.
    ///
    /// # Errors
    /// If the bucket is empty: the time until its next token.
    pub fn admit(&mut self, limit: RateLimit, now: Duration) -> Result<(), Duration> {
        let size = limit.interval.saturating_mul(limit.burst);
        // A limit that was lowered while running must not refuse longer than an empty bucket of its own.
        let full_at = self.full_at.clamp(now, now.saturating_add(size));
        let full_then = full_at.saturating_add(limit.interval);
        let wait = full_then.saturating_sub(now.saturating_add(size));
        if wait.is_zero() {
            self.full_at = full_then;
            Ok(())
        } else {
            Err(wait)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const LIMIT: RateLimit = RateLimit {
        interval: ms(100),
        burst: 3,
    };

    #[test]
    fn a_full_bucket_admits_its_burst_and_then_one_each_interval() {
        let mut bucket = TokenBucket::default();
        let mut at = |now| bucket.admit(LIMIT, ms(now));
        assert_eq!([at(0), at(0), at(0)], [Ok(()); 3]);
        assert_eq!((at(0), at(40)), (Err(ms(100)), Err(ms(60))));
        assert_eq!(
            (at(99), at(100), at(100)),
            (Err(ms(1)), Ok(()), Err(ms(100)))
        );
        // It holds no more than its burst, however long no request comes.
        assert_eq!([at(9_000), at(9_000), at(9_000)], [Ok(()); 3]);
        assert_eq!(at(9_000), Err(ms(100)));
    }

    #[test]
    fn a_new_limit_counts_from_its_own_bucket() {
        let mut bucket = TokenBucket::default();
        let slow = RateLimit {
            interval: Duration::from_secs(3_600),
            burst: 1,
        };
        assert_eq!(bucket.admit(slow, ms(0)), Ok(()));
        assert_eq!(bucket.admit(LIMIT, ms(1)), Err(ms(100)));
        assert_eq!(bucket.admit(LIMIT, ms(101)), Err(ms(100)));
        // A refused request takes nothing, so the next reading of the old end is clamped again.
        let huge = RateLimit {
            interval: Duration::MAX,
            burst: u32::MAX,
        };
        assert_eq!(bucket.admit(huge, Duration::MAX), Ok(()));
    }

    proptest! {
        #[test]
        fn no_window_admits_more_than_its_tokens(
            interval in 1..50_u64,
            burst in 1..6_u32,
            steps in prop::collection::vec(0..80_u64, 1..100),
        ) {
            let limit = RateLimit { interval: ms(interval), burst };
            let mut bucket = TokenBucket::default();
            let mut now = 0;
            let mut admitted = Vec::new();
            // The straight form, in milliseconds times tokens.
            let (mut tokens, full) = (u64::from(burst) * interval, u64::from(burst) * interval);
            for step in steps {
                now += step;
                tokens = (tokens + step).min(full);
                let is_admitted = bucket.admit(limit, ms(now)).is_ok();
                prop_assert_eq!(is_admitted, tokens >= interval);
                if is_admitted {
                    tokens -= interval;
                    admitted.push(now);
                }
            }
            for (i, from) in admitted.iter().enumerate() {
                for (j, to) in admitted.iter().enumerate().skip(i) {
                    prop_assert!((j - i) as u64 <= u64::from(burst) + (to - from) / interval);
                }
            }
        }
    }
}
