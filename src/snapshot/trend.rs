//! The figures of past looks, for people who ask how they changed. Bounded and in memory. Takes a sample from looks
//! that others ask for; never starts one.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{Look, Observer};

/// Samples that are kept: some 20 KiB.
const SAMPLES_MAX: usize = 360;
/// Least time between two samples of a service that has just started: its first minutes count too.
const GAP_FIRST: Duration = Duration::from_secs(5);
/// The same of one that runs long: then the samples reach back six hours.
const GAP_LAST: Duration = Duration::from_secs(60);

/// The figures of one look; `None` where one could not be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrendSample {
    /// When the look began.
    pub at: Instant,
    /// Exited containers.
    pub exited_containers: Option<u32>,
    /// Sandboxes that are not ready.
    pub not_ready_sandboxes: Option<u32>,
    /// KiB of the list of containers.
    pub containers_list_kib: Option<u32>,
    /// KiB of the list of sandboxes.
    pub sandboxes_list_kib: Option<u32>,
    /// Use of the image file system, 0 to 100.
    pub image_fs_used_percent: Option<f32>,
}

/// The samples, oldest first.
#[derive(Debug)]
pub(super) struct Trend {
    samples: VecDeque<TrendSample>,
    gap: Duration,
}

impl Default for Trend {
    fn default() -> Self {
        Self {
            samples: VecDeque::new(),
            gap: GAP_FIRST,
        }
    }
}

impl Trend {
    pub(super) fn add(&mut self, sample: TrendSample) {
        let last = self.samples.back();
        if last.is_some_and(|last| sample.at.saturating_duration_since(last.at) < self.gap) {
            return;
        }
        self.samples.push_back(sample);
        if self.samples.len() <= SAMPLES_MAX {
            return;
        }
        if self.gap < GAP_LAST {
            self.gap = GAP_LAST.min(self.gap * 2);
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        } else {
            self.samples.pop_front();
        }
    }
}

impl TrendSample {
    /// Returns a look's figures.
    pub fn of(look: &Look) -> Self {
        let figures = look.figures();
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let kib = |bytes: u64| count(bytes.div_ceil(1024));
        #[expect(clippy::cast_possible_truncation, reason = "a share for a drawing")]
        let percent = |ratio: f64| (100.0 * ratio) as f32;
        let weights = look.weights();
        Self {
            at: look.started,
            exited_containers: figures.exited_containers.map(count),
            not_ready_sandboxes: figures.not_ready_sandboxes.map(count),
            containers_list_kib: weights.containers.bytes.map(kib),
            sandboxes_list_kib: weights.sandboxes.bytes.map(kib),
            image_fs_used_percent: figures.image_fs_used_ratio.map(percent),
        }
    }
}

impl Observer {
    /// Returns the figures of past looks, oldest first: of the last six hours at most.
    pub fn trend(&self) -> Vec<TrendSample> {
        self.inner.trend.lock().samples.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant) -> TrendSample {
        TrendSample {
            at,
            exited_containers: Some(1),
            not_ready_sandboxes: None,
            containers_list_kib: None,
            sandboxes_list_kib: None,
            image_fs_used_percent: None,
        }
    }

    #[test]
    fn samples_are_bounded_and_thin_out_until_they_reach_back_six_hours() {
        let mut trend = Trend::default();
        let began = Instant::now();
        for second in 0..u64::from(10 * 3_600_u32) {
            trend.add(sample(began + Duration::from_secs(second)));
            assert!(trend.samples.len() <= SAMPLES_MAX);
        }
        let (first, last) = (trend.samples[0].at, trend.samples.back().unwrap().at);
        let reach = last.duration_since(first);
        assert!(reach >= Duration::from_secs(5 * 3_600), "{reach:?}");
        assert!(reach <= Duration::from_secs(6 * 3_600), "{reach:?}");
        let gaps = trend.samples.iter().zip(trend.samples.iter().skip(1));
        assert!(gaps.into_iter().all(|(a, b)| b.at - a.at >= GAP_LAST));
        assert!(size_of::<TrendSample>() * SAMPLES_MAX <= 24 << 10);
    }

    #[test]
    fn the_first_minutes_of_a_service_have_samples() {
        let mut trend = Trend::default();
        let began = Instant::now();
        for second in 0..60 {
            trend.add(sample(began + Duration::from_secs(second)));
        }
        assert_eq!(trend.samples.len(), 12);
    }
}
