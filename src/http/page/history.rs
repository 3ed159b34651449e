//! How figures moved, and when one reaches its limit if it goes on so.

use std::time::Duration;

use tokio::time::Instant;

use crate::snapshot::TrendSample;

/// Growth over a shorter time says nothing.
const REACH_MIN: Duration = Duration::from_secs(600);
/// A fall by more than this share ends a rise: a pass removed something.
const FALL: f64 = 0.02;

/// A figure over time, oldest first.
pub(super) struct TimeSeries {
    points: Vec<(Instant, f64)>,
}

impl TimeSeries {
    pub(super) fn of(
        samples: &[TrendSample],
        figure: impl Fn(&TrendSample) -> Option<f64>,
    ) -> Self {
        let points = samples.iter().filter_map(|it| Some((it.at, figure(it)?)));
        Self {
            points: points.collect(),
        }
    }

    /// Returns the points as seconds before now, with their values.
    pub(super) fn ages(&self, now: Instant) -> Vec<(f64, f64)> {
        let age = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
        self.points.iter().map(|(at, it)| (age(*at), *it)).collect()
    }

    /// Returns the time from the first point to now.
    pub(super) fn reach(&self, now: Instant) -> Option<Duration> {
        let (first, _) = self.points.first()?;
        Some(now.saturating_duration_since(*first))
    }

    /// Returns the least and the greatest value.
    pub(super) fn bounds(&self) -> Option<(f64, f64)> {
        let values = || self.points.iter().map(|(_, value)| *value);
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    /// Returns the hours until the figure is at its limit, if it goes on as it did since it last fell. `None`: it does
    /// not rise, or has not been seen for long enough.
    pub(super) fn hours_to(&self, limit: f64) -> Option<f64> {
        let (end, last) = self.points.last().copied()?;
        let (mut begin, mut first) = (end, last);
        for (at, value) in self.points.iter().rev().copied() {
            if value > first * (1.0 + FALL) {
                break;
            }
            (begin, first) = (at, value);
        }
        let reach = end.saturating_duration_since(begin);
        let rise = last - first;
        if reach < REACH_MIN || rise <= 0.0 {
            return None;
        }
        let per_hour = rise / reach.as_secs_f64() * 3_600.0;
        Some(((limit - last) / per_hour).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64], every: u64) -> TimeSeries {
        let began = Instant::now();
        let at = |place: usize| began + Duration::from_secs(every) * u32::try_from(place).unwrap();
        let points = values.iter().enumerate();
        TimeSeries {
            points: points.map(|(place, value)| (at(place), *value)).collect(),
        }
    }

    #[test]
    fn a_rise_goes_on_to_the_limit() {
        let hours = series(&[100.0, 110.0, 120.0], 1_800)
            .hours_to(160.0)
            .unwrap();
        assert!((hours - 2.0).abs() < 1e-9, "{hours}");
        assert!(series(&[200.0, 220.0], 1_800).hours_to(160.0).unwrap() < 1e-9);
    }

    #[test]
    fn only_the_rise_since_the_last_fall_counts() {
        let since_fall = series(&[500.0, 100.0, 110.0, 120.0], 1_800).hours_to(160.0);
        assert_eq!(
            since_fall,
            series(&[100.0, 110.0, 120.0], 1_800).hours_to(160.0)
        );
    }

    #[test]
    fn what_does_not_rise_or_is_new_reaches_nothing() {
        assert_eq!(series(&[], 60).hours_to(10.0), None);
        assert_eq!(series(&[5.0, 5.0, 5.0], 1_800).hours_to(10.0), None);
        assert_eq!(series(&[5.0, 4.0], 1_800).hours_to(10.0), None);
        assert_eq!(series(&[5.0, 6.0], 60).hours_to(10.0), None);
    }
}
