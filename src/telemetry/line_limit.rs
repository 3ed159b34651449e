//! A limit on log lines that clients can cause at will. Never reads a clock.

use std::time::Duration;

use parking_lot::Mutex;

/// Lets the first few similar lines of each time window through. A disk that a storm fills with log lines is
/// one more failure.
#[derive(Debug)]
pub struct LineLimit {
    most: u32,
    within: Duration,
    window: Mutex<LineWindow>,
}

#[derive(Debug)]
struct LineWindow {
    began: Duration,
    written: u32,
    left_out: u64,
}

impl LineLimit {
    /// Lets `most` lines through in each window of `within`.
    pub fn new(most: u32, within: Duration) -> Self {
        let window = LineWindow {
            began: Duration::ZERO,
            written: 0,
            left_out: 0,
        };
        Self {
            most,
            within,
            window: Mutex::new(window),
        }
    }

    /// Returns, if a line may be written now, how many were dropped since the last one. `now` is the time
    /// since any fixed start.
    pub fn admit(&self, now: Duration) -> Option<u64> {
        let mut window = self.window.lock();
        if now.saturating_sub(window.began) >= self.within {
            (window.began, window.written) = (now, 0);
        }
        if window.written >= self.most {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_each_window_pass_and_the_next_counts_the_suppressed() {
        let limit = LineLimit::new(2, Duration::from_secs(10));
        let at = |seconds| limit.admit(Duration::from_secs(seconds));
        assert_eq!((at(0), at(1)), (Some(0), Some(0)));
        assert_eq!((at(1), at(9)), (None, None));
        assert_eq!((at(10), at(11), at(12)), (Some(2), Some(0), None));
        assert_eq!(at(1_000), Some(1));
    }
}
